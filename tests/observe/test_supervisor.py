"""What lives as long as its process does so, whatever happens to it, and says what has happened."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from random import Random

import pytest

from holdfast.errors import StoreFault, StoreUnavailable
from holdfast.observe.supervisor import Backoff, TaskSupervisor, start_thread
from tests.simulation.loop import SimulatedLoop, run

AT_ONCE = Backoff(first_s=0.0)


class Work:
    """Rounds that go wrong as they are told, and then wait until somebody stops them."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors = list(errors)
        self.rounds = 0
        self.done = threading.Event()

    async def __call__(self) -> None:
        self.rounds += 1
        if self._errors:
            raise self._errors.pop(0)
        if not self.done.is_set():
            self.done.set()
            return  # a round that ends well
        await asyncio.get_running_loop().create_future()


@pytest.fixture(params=["task", "thread"])
def in_thread(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "thread")


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("away"),
        StoreFault("of an unknown kind"),
        ValueError("a mistake of ours"),
        MemoryError(),
        asyncio.CancelledError("of something that the round waited for"),
        TimeoutError(),
        RecursionError(),
        ExceptionGroup("several", [KeyError("one of them")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_no_error_ends_a_task(error: BaseException, in_thread: bool) -> None:
    supervisor, work = TaskSupervisor(), Work(error, error, error)
    if in_thread:
        task = await supervisor.keep_in_thread("sweeper", work, AT_ONCE)
    else:
        task = supervisor.keep("sweeper", work, AT_ONCE)
    assert await asyncio.to_thread(work.done.wait, 30)
    await task.stop()
    assert supervisor.tally.task_failures == {"sweeper": 3}
    assert supervisor.failing == ()


async def test_a_thread_whose_loop_cannot_be_made_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Running out of files ends no heart."""
    supervisor, work, real, left = TaskSupervisor(), Work(), asyncio.run, [OSError(24, "files")] * 2

    def run_unless_out_of_files(main: object) -> object:
        if left:
            main.close()  # type: ignore[attr-defined]
            raise left.pop()
        return real(main)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "run", run_unless_out_of_files)
    task = await supervisor.keep_in_thread("heart", work, AT_ONCE)
    assert await asyncio.to_thread(work.done.wait, 30)
    await supervisor.stop(task)
    assert supervisor.tally.task_failures == {"heart": 2}


def on_virtual_time(scenario: Callable[[SimulatedLoop], object]) -> None:
    loop = SimulatedLoop(Random(1))
    run(loop, scenario(loop))  # type: ignore[arg-type]


def test_a_task_rests_longer_after_each_error_of_a_row_and_is_failing_until_one_round_went_well() -> (
    None
):
    tried: list[float] = []
    was_failing: list[bool] = []

    async def scenario(loop: SimulatedLoop) -> None:
        supervisor = TaskSupervisor()

        async def work() -> None:
            tried.append(loop.time())
            was_failing.append(bool(supervisor.failing))
            if len(tried) not in (6, 7):
                raise StoreUnavailable("away")
            await asyncio.sleep(1)

        task = supervisor.keep("sweeper", work, Backoff(first_s=1.0, most_s=5.0))
        await asyncio.sleep(19.5)
        assert supervisor.failing == ("sweeper",)
        await supervisor.stop(task)
        assert not supervisor.failing

    on_virtual_time(scenario)
    assert tried == [0, 1, 3, 7, 12, 17, 18, 19]
    assert was_failing == [False, True, True, True, True, True, False, False]


def test_a_long_outage_is_some_lines_and_every_new_kind_of_error_has_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(loop: SimulatedLoop) -> None:
        supervisor, rounds = TaskSupervisor(), 0

        async def work() -> None:
            nonlocal rounds
            rounds += 1
            if rounds <= 700:
                raise StoreUnavailable("away")
            if rounds <= 720:
                raise KeyError("a row that we cannot read")
            await asyncio.sleep(1)

        task = supervisor.keep("sweeper", work)
        await asyncio.sleep(3605)
        await supervisor.stop(task)
        assert supervisor.tally.task_failures == {"sweeper": 720}

    with caplog.at_level(logging.WARNING):
        on_virtual_time(scenario)
    told = [each.message for each in caplog.records]
    assert told.count("task.failed") == 10 + 1, "1, 2, 4 … 512, and the first of another kind"
    assert told.count("task.recovered") == 1
    [traced] = [each for each in caplog.records if each.exc_info]
    assert traced.message == "sweeper failed unexpectedly"
    assert "a row that we cannot read" in str(traced.exc_info)


async def test_stopping_waits_and_may_be_repeated(in_thread: bool) -> None:
    supervisor, work = TaskSupervisor(), Work()
    if in_thread:
        task = await supervisor.keep_in_thread("heart", work, AT_ONCE)
    else:
        task = supervisor.keep("heart", work, AT_ONCE)
    assert await asyncio.to_thread(work.done.wait, 30)
    await supervisor.stop(task)
    rounds = work.rounds
    await supervisor.stop(task)
    await asyncio.sleep(0)
    assert work.rounds == rounds


def test_a_thread_that_cannot_go_on_says_why(caplog: pytest.LogCaptureFixture) -> None:
    def main() -> None:
        raise ValueError("a mistake of ours")

    start_thread("holdfast-writer", main).join()
    [told] = caplog.records
    assert told.message == "the thread holdfast-writer has ended unexpectedly"
    assert told.exc_info is not None
