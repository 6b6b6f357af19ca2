"""Whatever watchers saw of a response is what its log tells. `make torture-replay` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.replay import torture

pytestmark = pytest.mark.slow


async def test_a_log_is_what_watchers_saw(tmp_path: Path) -> None:
    seen = await torture(tmp_path, turns=50, seed=42)
    assert seen["responses"] == 50
    assert (seen["SIGKILL"], seen["SIGTERM"]) == (2, 1)
    assert seen["completed"] and seen["failed"] and seen["tools"] and seen["thoughts"]
    assert seen["seen live"] > seen["events"] > 500
