"""Places in real time: stopped, killed and going on like those of a simulation."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.loop import Place, run
from tests.simulation.real_time import RealLoop
from tests.simulation.world import EPOCH_MS

Scenario = Callable[[RealLoop, Place, list[str]], Coroutine[Any, Any, None]]


async def breathe() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def play(scenario: Scenario) -> list[str]:
    """What was done in a place, in a scenario from outside."""
    loop, done = RealLoop(), list[str]()
    run(loop, scenario(loop, loop.new_place("node"), done))
    return done


async def work(done: list[str], wakes: asyncio.Event) -> None:
    done.append("began")
    try:
        await wakes.wait()
        done.append("went on")
    finally:
        done.append("cleaned up")


def test_a_stopped_place_goes_on_where_it_was() -> None:
    async def scenario(loop: RealLoop, place: Place, done: list[str]) -> None:
        wakes = asyncio.Event()
        task = loop.start(place, work(done, wakes))
        await breathe()
        place.state = "paused"
        wakes.set()
        loop.call_in(place, 0.0, done.append, "called")
        await breathe()
        assert done == ["began"]
        place.state = "up"
        await task

    assert play(scenario) == ["began", "went on", "cleaned up", "called"]


def test_what_was_called_off_while_its_place_was_stopped_is_not_done() -> None:
    async def scenario(loop: RealLoop, place: Place, done: list[str]) -> None:
        place.state = "paused"
        handle = loop.call_soon(done.append, "called", context=place.context.copy())
        await breathe()
        handle.cancel()
        place.state = "up"
        await breathe()

    assert play(scenario) == []


def test_a_dead_place_does_nothing_not_even_clean_up() -> None:
    async def scenario(loop: RealLoop, place: Place, done: list[str]) -> None:
        wakes = asyncio.Event()
        task = loop.start(place, work(done, wakes))
        await breathe()
        loop.kill(place)
        wakes.set()
        task.cancel()
        await breathe()
        assert done == ["began"]

    play(scenario)


def test_what_arrives_at_a_stopped_place_waits_there_and_wakes_nobody() -> None:
    """Else a loop with one stopped node, which somebody has answered, spins for as long as it is stopped."""

    async def scenario(loop: RealLoop, place: Place, done: list[str]) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)

        async def read() -> None:
            done.append((await loop.sock_recv(ours, 100)).decode())

        with ours, theirs:
            task = loop.start(place, read())
            await breathe()
            place.state = "paused"
            theirs.send(b"Hello")
            await breathe()
            assert not place.ready and loop._selector.select(0) == []
            place.state = "up"
            await task

    assert play(scenario) == ["Hello"]


def test_its_time_is_counted_from_the_same_epoch_as_a_simulations() -> None:
    """The checker compares it with the database's clock."""
    loop = RealLoop()
    assert EPOCH_MS / 1000 + loop.time() == pytest.approx(time.time(), abs=60)
    loop.close()
