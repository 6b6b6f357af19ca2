"""What `make torture-resources` and the backups of `make torture-store` do, in short."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.loop.encoded_histories import EncodedHistories
from holdfast.loop.prompt_sizes import PromptSizes
from holdfast.sessions.cache import SnapshotCache
from holdfast.sessions.turns.owner import Owner
from tests.torture import backups, resources, soaked
from tests.torture.campaign import Progress, Run

pytestmark = pytest.mark.slow


async def test_a_crowd_of_connections_takes_no_file_that_requests_need(tmp_path: Path) -> None:
    figures = await resources.files(Run(1, 0.1, tmp_path), Progress("files"))
    assert figures.violations == []


def test_a_soak_counts_caches_that_are_there() -> None:
    caches = (SnapshotCache, EncodedHistories, Owner, PromptSizes)
    assert soaked.COUNTED.keys() == {each.__name__ for each in caches}


def test_a_backup_of_a_busy_server_is_restored_and_served_from(tmp_path: Path) -> None:
    figures = backups.sqlite_backups(Run(1, 0.1, tmp_path), Progress("backups"))
    assert figures.violations == []
