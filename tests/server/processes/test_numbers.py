"""The numbers of several workers are the numbers of one server."""

from __future__ import annotations

import os
import signal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.observe.tally import Tally, sum_of, written
from holdfast.server.processes.numbers import (
    CPU,
    PastNumbers,
    ProcessNumbers,
    gather,
    note_end,
    read_past,
    read_shown,
)
from holdfast.server.processes.shared_slots import HALF_BYTES, SharedSlots
from holdfast.sessions.sessions import Load
from tests.server.access.test_quota_usage import FORKING


def tallied(turns: int) -> Tally:
    tally = Tally()
    tally.turns["completed", "committed"] = turns
    tally.requests["GET /metrics", 200] = turns
    tally.admissions["began"] = turns
    tally.tokens["input"] = 10 * turns
    tally.takeovers = 1
    tally.cost_micros = turns
    for durations in tally.durations:
        for _ in range(turns):
            durations.add(0.5)
    return tally


def shown(turns: int, *, run: int = 1, live: bool = True) -> ProcessNumbers:
    load = Load(turns=1, lanes=2, waiting=3, queued=6, watchers=4, store_queue=5, live=live)
    process = {CPU: 1.5, "process_resident_memory_bytes": 10.0, "process_max_fds": 7.0}
    return ProcessNumbers(run=run, tally=written(tallied(turns)), load=load, process=process)


def test_what_has_happened_is_added_up_and_how_things_are_by_its_nature() -> None:
    found = gather({0: shown(2), 1: shown(3, live=False)}, PastNumbers(restarts=4))
    assert written(found.tally) == msgspec.structs.replace(written(tallied(5)), takeovers=2)
    assert found.load == Load(
        turns=2, lanes=4, waiting=6, queued=6, watchers=8, store_queue=10, live=False
    )
    assert found.process == {
        CPU: 3.0,
        "process_resident_memory_bytes": 20.0,
        "process_max_fds": 7.0,
    }
    assert (found.workers, found.restarts) == (2, 4)


@given(turns=st.lists(st.integers(0, 5), max_size=6))
def test_a_tally_that_is_written_down_is_the_same(turns: list[int]) -> None:
    total = sum_of([written(tallied(each)) for each in turns])
    assert written(sum_of([written(total)])) == written(total)
    assert total.turns["completed", "committed"] == sum(turns)
    assert sum(total.turning.counts) == sum(turns)


def write(board: SharedSlots, place: int, shown: ProcessNumbers) -> None:
    board.write(place, msgspec.msgpack.encode(shown))


def turns_in(board: SharedSlots, *, places: int) -> int:
    found = {place: read_shown(board, place) for place in range(places)}
    past = read_past(board, places)
    gathered = gather({place: each for place, each in found.items() if each}, past)
    return gathered.tally.turns["completed", "committed"]


def test_the_numbers_of_a_worker_that_has_ended_are_kept_and_counted_once() -> None:
    board = SharedSlots(3)
    write(board, 0, shown(2))
    write(board, 1, shown(3))
    assert turns_in(board, places=2) == 5
    note_end(board, 0, places=2, run=1, restarts=1)
    assert turns_in(board, places=2) == 5, "it still stands at its place, and is past"
    write(board, 0, shown(1, run=2))
    assert turns_in(board, places=2) == 6
    note_end(board, 0, places=2, run=2, restarts=2)
    note_end(board, 0, places=2, run=3, restarts=3)  # it never showed anything
    assert turns_in(board, places=2) == 6
    past = read_past(board, 2)
    assert (past.restarts, past.cpu_s) == (3, 3.0)


@FORKING
def test_a_reader_never_sees_half_of_a_text() -> None:
    """While one process writes, as fast as it can, whole texts are read by another; also when it is killed."""
    board = SharedSlots(1)
    texts = [bytes([each]) * (1000 + 37 * each) for each in range(1, 9)]
    board.write(0, texts[0])
    pid = os.fork()
    if pid == 0:
        while True:
            for text in texts:
                board.write(0, text)
    seen = set()
    try:
        for _ in range(20_000):
            seen.add(board.read(0))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert seen <= {*texts, b""} and board.read(0) in texts


def test_a_place_that_nobody_has_written_to_is_empty_and_there_is_a_bound() -> None:
    board = SharedSlots(2)
    assert board.read(1) == b""
    board.write(1, b"x" * (HALF_BYTES - 8))
    assert board.read(0) == b"" and len(board.read(1)) == HALF_BYTES - 8
    with pytest.raises(AssertionError):
        board.write(1, b"x" * HALF_BYTES)


def test_the_numbers_of_every_route_with_every_status_fit() -> None:
    tally = tallied(1)
    for route in range(200):
        for status in range(20):
            tally.requests[f"DELETE /api/sessions/{{id}}/a/long/name/{route}", status] = 10**12
    text = msgspec.msgpack.encode(
        ProcessNumbers(tally=written(tally), load=shown(1).load, process={})
    )
    assert len(text) < HALF_BYTES
