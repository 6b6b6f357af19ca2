"""Whole runs: some seeds that have shown something once, and some that nobody has tried yet."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest

from tests.simulation import campaign
from tests.simulation.campaign import judge, replay
from tests.simulation.faults import FaultyStore
from tests.simulation.loop import SimulatedLoop, Stuck, run
from tests.simulation.seeds import INTERESTING, UNLOCKED
from tests.simulation.simulation import CALLS, Home, simulate

FIRST, STRETCH = 700_000, 16


def hold(seed: int, home: Home) -> None:
    verdict = judge(seed, home)
    if verdict.broken:
        pytest.fail("\n".join((*verdict.broken, f"replay: {replay(verdict)}")), pytrace=False)


@pytest.mark.parametrize("home", ["memory", pytest.param("sqlite", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("seed", INTERESTING)
def test_seeds_that_have_shown_something_hold(seed: int, home: Home) -> None:
    """Of a stretch of seeds, each run tries some on SQLite, too."""
    hold(seed, home)


@pytest.mark.parametrize("seed", UNLOCKED)
def test_seeds_that_have_shown_something_between_two_steps_hold(seed: int) -> None:
    hold(seed, "unlocked")


@pytest.mark.slow
@pytest.mark.parametrize("home", get_args(Home))
def test_a_stretch_of_seeds_holds(home: Home) -> None:
    """The same in every run, so that it passes each time or fails each time; `make torture-sessions` has new ones."""
    count = STRETCH if home == "memory" else STRETCH // 4
    for seed in range(FIRST, FIRST + count):
        hold(seed, home)


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    """Without that, a failing seed would be worth nothing."""
    script = (
        "import hashlib\n"
        "from tests.simulation.simulation import simulate\n"
        f"for home in {get_args(Home)!r}:\n"
        "    told = []\n"
        "    for seed in range(2): simulate(seed, home, trace=told.append)\n"
        "    print(home, hashlib.sha256('\\n'.join(told).encode()).hexdigest())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": "."},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(told) == 1


def test_both_stores_are_told_the_same_story_by_a_seed() -> None:
    """Not event by event, since one of them takes a step more; but it is the same plan."""
    plans = []
    for home in get_args(Home):
        told: list[str] = []
        simulate(7, home, trace=told.append)
        plans.append(told[0])
    assert plans[0] == plans[1]


def test_every_kind_of_call_that_a_node_makes_may_be_denied_and_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kind of call that is added to nodes is added to the troubles that they meet."""
    made: set[str] = set()
    call = FaultyStore._call

    async def listen(store: FaultyStore, name: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        made.add(name)
        return await call(store, name, ask)

    monkeypatch.setattr(FaultyStore, "_call", listen)
    for seed in (4, 6, 7, 10, 16, 18, 40004692):
        simulate(seed, "memory")
    assert made <= set(CALLS)
    assert len(made) > len(CALLS) - 5, "these seeds make nearly all of them"


# ── the loop itself ──────────────────────────────────────────────────────────────────────────


def test_a_deadlock_is_reported_as_such() -> None:
    loop = SimulatedLoop(Random(1))

    async def wait_for_nobody() -> None:
        await loop.create_future()

    with pytest.raises(Stuck, match="deadlock"):
        run(loop, wait_for_nobody())


def test_time_passes_without_anybody_waiting_for_it() -> None:
    loop = SimulatedLoop(Random(1))

    async def sleep_long() -> float:
        await asyncio.sleep(3000)
        return loop.time()

    assert run(loop, sleep_long()) == 3000


def test_virtual_time_has_a_bound() -> None:
    loop = SimulatedLoop(Random(1), time_s_max=10)

    async def sleep_long() -> None:
        await asyncio.sleep(11)

    with pytest.raises(Stuck, match="no end"):
        run(loop, sleep_long())


def test_a_dead_place_does_nothing_not_even_clean_up() -> None:
    loop = SimulatedLoop(Random(1))
    done: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            done.append("worked")
        finally:
            done.append("cleaned up")

    async def main() -> None:
        place = loop.new_place("node")
        loop.start(place, work())
        await asyncio.sleep(0.5)
        loop.kill(place)
        await asyncio.sleep(10)
        assert done == []

    run(loop, main())


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "is dead"])
def test_what_a_task_has_died_of_is_told_unless_nobody_is_left_to_ask(dies: bool) -> None:
    loop = SimulatedLoop(Random(1))

    async def fail() -> None:
        raise ValueError("nobody asks")

    async def main() -> None:
        place = loop.new_place("node")
        loop.start(place, fail(), name="failing")
        await asyncio.sleep(1)
        if dies:
            loop.kill(place)
        assert loop.unheeded() == ([] if dies else ["failing: ValueError('nobody asks')"])

    run(loop, main())


def test_a_stopped_place_goes_on_where_it_was() -> None:
    loop = SimulatedLoop(Random(1))
    ticks: list[float] = []

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            ticks.append(loop.time())

    async def main() -> None:
        place = loop.new_place("node")
        task = loop.start(place, work())
        await asyncio.sleep(1.5)
        place.state = "paused"
        await asyncio.sleep(10)
        place.state = "up"
        await task

    run(loop, main())
    assert ticks == [1, 11.5, 12.5]


def test_a_campaign_that_was_stopped_goes_on_where_it_was_and_only_with_its_own_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand seeds take hours; what was run counts only for the code that it was run with."""
    resumable = ["--store", "memory", "--jobs", "1", "--resume", str(tmp_path / "campaign.json")]
    assert campaign.main(["--seeds", "2", "--first", "500", *resumable]) == 0
    assert campaign.main(["--seeds", "3", *resumable]) == 0
    assert "1 seeds from 502 on" in (told := capsys.readouterr().out)
    assert "3 in all" in told
    assert campaign.main(["--seeds", "3", "--first", "501", *resumable]) == 2

    monkeypatch.setattr(campaign, "code_digest", lambda: "another")
    assert campaign.main(["--seeds", "3", *resumable]) == 2
    assert "other code" in capsys.readouterr().err
