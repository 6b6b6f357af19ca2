"""Every wait has a bound while the store is in trouble, whatever is waited for and whatever the trouble is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeAlias

import pytest

from holdfast import limits
from holdfast.core.policy import Choice, Policy
from holdfast.errors import HoldfastError, InDoubt, StoreUnavailable
from tests.sessions.test_unstored import AT_ONCE_S, fill_disk
from tests.simulation.clients import TENANT
from tests.simulation.stage import Hand, Stage, act_out
from tests.simulation.world import Node

BOUND_S = limits.lease_renew_s + limits.store_retry_s + AT_ONCE_S
"""A node finds out with its next renewal, and tries for so long."""

LONG_S = 100_000.0

Wait: TypeAlias = Callable[[Stage, Node, Node], Awaitable[object]]
"""What a client of the second node waits for: something of a turn that the first one plays."""


async def end(stage: Stage, player: Node, asked: Node) -> object:
    watch = await stage.submit(player, "Hi", key="k", deadline_s=LONG_S)
    follower = await asked.run(lambda: asked.sessions.watch(TENANT, watch.admission.turn_id))
    return await asked.run(follower.ended)


async def events(stage: Stage, player: Node, asked: Node) -> object:
    watch = await stage.submit(player, "Hi", key="k", deadline_s=LONG_S)
    follower = await asked.run(lambda: asked.sessions.watch(TENANT, watch.admission.turn_id))

    async def read() -> list[object]:
        return [each async for each in follower.events()]

    return await asked.run(read)


async def joining(stage: Stage, player: Node, asked: Node) -> object:
    await stage.submit(player, "Hi", key="k", deadline_s=LONG_S)
    return await stage.send(asked, "Hi", key="k", deadline_s=LONG_S)


async def steering(stage: Stage, player: Node, asked: Node) -> object:
    await stage.submit(player, "Hi", deadline_s=LONG_S)
    return await stage.send(asked, "And?", on_busy="steer", wait_s=LONG_S)


async def release(stage: Stage, player: Node, asked: Node) -> object:
    await stage.submit(player, "Hi", deadline_s=LONG_S)
    return await stage.send(asked, "And?", on_busy="wait", wait_s=LONG_S)


async def queue(stage: Stage, player: Node, asked: Node) -> object:
    await stage.send(player, "Before")
    await stage.submit(player, "Hi", deadline_s=LONG_S)
    return await stage.send(asked, "And?", queues=True, wait_s=LONG_S, deadline_s=LONG_S)


WAITS: dict[str, Wait] = {
    each.__name__: each for each in (end, events, joining, steering, release, queue)
}

Trouble: TypeAlias = Callable[[Stage, Node, Node], Callable[[], None]]
"""Makes trouble, and returns what ends it."""


def outage(stage: Stage, player: Node, asked: Node) -> Callable[[], None]:
    stage.world.sky.outage = True
    return stage.world.sky.clear


def cut_off(stage: Stage, player: Node, asked: Node) -> Callable[[], None]:
    asked.store.partitioned = True

    def join() -> None:
        asked.store.partitioned = False

    return join


def full_disk(stage: Stage, player: Node, asked: Node) -> Callable[[], None]:
    ends = fill_disk(player), fill_disk(asked)

    def make_room() -> None:
        for each in ends:
            each()

    return make_room


def denied(*names: str) -> Trouble:
    def deny(stage: Stage, player: Node, asked: Node) -> Callable[[], None]:
        asked.store.deprived.update(names)
        return lambda: asked.store.deprived.difference_update(names)

    return deny


TROUBLES: dict[str, Trouble] = {
    "outage": outage,
    "cut off": cut_off,
    "full disk": full_disk,
    **{
        f"denied {name}": denied(name)
        for name in ("turn", "journal", "session", "find_signal", "renew")
    },
}

UNTROUBLED = {
    ("end", "denied journal"),
    ("end", "denied session"),
    ("end", "denied find_signal"),
    ("events", "denied session"),
    ("events", "denied find_signal"),
    ("joining", "denied journal"),
    ("joining", "denied session"),
    ("joining", "denied find_signal"),
    ("queue", "denied journal"),
    ("queue", "denied session"),
    ("queue", "denied find_signal"),
    ("steering", "denied session"),
    ("steering", "denied journal"),
    ("release", "denied turn"),
    ("release", "denied journal"),
    ("release", "denied find_signal"),
}
"""Where a wait needs nothing of what is denied: it goes on for as long as the turn does."""


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("wait", WAITS)
def test_a_client_that_waits_is_told_of_trouble_in_time(wait: str, trouble: str) -> None:
    async def scenario(stage: Stage) -> None:
        await _wait_through(stage, wait, trouble)

    act_out(scenario, "memory")


async def _wait_through(stage: Stage, wait: str, trouble: str) -> None:
    player, asked = await stage.boot(), await stage.boot()

    async def hang(hand: Hand) -> None:
        await stage.sleep(LONG_S)

    stage.parts["Hi"] = hang
    waiting = asyncio.create_task(_outcome(WAITS[wait](stage, player, asked)))
    await stage.sleep(3)
    assert not waiting.done()
    end_trouble = TROUBLES[trouble](stage, player, asked)
    done, _ = await asyncio.wait({waiting}, timeout=BOUND_S)
    end_trouble()
    for node in (player, asked):
        for live in node.sessions._owner.playing:
            live.interrupt("cancelled")
    if (wait, trouble) in UNTROUBLED:
        assert not done
    else:
        assert done, "it still waits"
        told = waiting.result()
        assert isinstance(told, StoreUnavailable)
        # A message that was sent to a turn would be heard twice, if its client sent it again without a key.
        assert isinstance(told, InDoubt) == (wait == "steering")
    await asyncio.wait({waiting})
    await stage.sleep(2 * limits.lease_ttl_s + limits.sweep_s)


async def _outcome(waiting: Awaitable[object]) -> object:
    """What came of a wait."""
    try:
        return await waiting
    except HoldfastError as error:
        return error


async def _lose(*_: object, **__: object) -> NoReturn:
    error = StoreUnavailable("the database's answer was lost")
    error.in_doubt = True
    raise error


@pytest.mark.parametrize(
    ("key", "crash", "in_doubt"),
    [("", "resume", True), ("k", "resume", False), ("", "auto", False)],
)
def test_a_turn_that_may_be_played_without_its_client_is_not_to_be_sent_again(
    key: str, crash: Choice, in_doubt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        monkeypatch.setattr(node.store, "begin", _lose)
        told = await _outcome(stage.submit(node, "Hi", key=key, policy=Policy(crash=crash)))
        assert isinstance(told, StoreUnavailable)
        assert isinstance(told, InDoubt) == in_doubt
        monkeypatch.undo()

    act_out(scenario, "memory")


@pytest.mark.parametrize(("key", "in_doubt"), [("", True), ("k", False)])
def test_a_turn_that_may_be_queued_is_not_to_be_sent_again(
    key: str, in_doubt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        gate, first = await stage.answering(node)
        monkeypatch.setattr(node.store, "enqueue", _lose)
        told = await _outcome(stage.submit(node, "Later", key=key, queues=True))
        assert isinstance(told, StoreUnavailable)
        assert isinstance(told, InDoubt) == in_doubt
        monkeypatch.undo()
        gate.open.set()
        assert (await first).ok

    act_out(scenario, "memory")
