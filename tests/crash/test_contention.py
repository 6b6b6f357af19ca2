"""Many want the same thing at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.contention import let_crowd, raise_zombies, retry_keys, send_first_requests
from tests.crash.zygote import Zygote


@pytest.mark.slow
async def test_a_key_that_is_retried_by_many_makes_one_turn(tmp_path: Path) -> None:
    tally = await retry_keys(tmp_path / "store.db", keys=32, retries=64, seed=1)
    assert tally.violations == []
    assert (tally.attempts, tally.turns) == (2048, 32)


async def test_a_node_that_was_superseded_writes_nothing_any_more(tmp_path: Path) -> None:
    tally = await raise_zombies(tmp_path / "store.db", zombies=100, seed=1)
    assert tally.violations == []
    assert tally.attempts == 100
    assert 0 < tally.turns < 100, "some were in time, and most were not"


@pytest.mark.slow
def test_first_requests_of_several_processes_make_one_session(
    zygote: Zygote, tmp_path: Path
) -> None:
    tally = send_first_requests(zygote, tmp_path / "store.db", processes=4, requests=64, rounds=5)
    assert tally.violations == []
    assert (tally.attempts, tally.turns) == (1280, 5)


@pytest.mark.slow
def test_eight_processes_share_a_file_and_none_starves(zygote: Zygote, tmp_path: Path) -> None:
    tally = let_crowd(zygote, tmp_path / "store.db", processes=8, turns=12)
    assert tally.violations == []
    assert tally.turns == 96
