"""A world for each test, with its server started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.world import World
from tests.e2e.world import world as new_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with new_world(tmp_path) as found:
        await found.start()
        yield found
