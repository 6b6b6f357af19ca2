"""Nodes that leave, and nodes that do not get as far as to open: what is theirs goes on until it is over, hears what
it is told, and is then somebody else's."""

from __future__ import annotations

import asyncio
from inspect import iscoroutinefunction

import msgspec
import pytest

from holdfast import limits
from holdfast.core.policy import Policy
from holdfast.errors import StoreUnavailable
from holdfast.ids import SessionKey, TurnId
from holdfast.sessions.operations import StillRunning
from holdfast.sessions.session_requests import Ending
from holdfast.sessions.turns.sweep_errors import AWAY_MAX
from holdfast.sessions.turns.watch import Watch
from holdfast.store.store import Store
from tests.simulation.clients import TENANT
from tests.simulation.stage import Hand, Stage, on_stage
from tests.simulation.world import Node

TTL_S = limits.lease_ttl_s
SOON_S = 2 * limits.signal_poll_s


async def hang(hand: Hand) -> None:
    await asyncio.sleep(10_000)


async def listen(hand: Hand) -> None:
    """Go on when somebody has said something."""
    while not await hand.open.take_steering():  # noqa: ASYNC110 — time is virtual
        await asyncio.sleep(0.1)
    await hand.go_on()


def leaving(stage: Stage, node: Node, *, grace_s: float) -> asyncio.Task[None]:
    return stage.loop.create_task(node.run(lambda: node.sessions.close(grace_s=grace_s)))


async def long_farewell(
    stage: Stage, node: Node, *, grace_s: float
) -> tuple[asyncio.Task[Ending], asyncio.Task[None]]:
    """A turn of a node that has been leaving for a while, and the leaving."""
    running = stage.send(node, "Long")
    await stage.until(lambda: bool(stage.played))
    closing = leaving(stage, node, grace_s=grace_s)
    await stage.sleep(5)
    return running, closing


async def cancel(node: Node, turn_id: TurnId) -> Ending | StillRunning:
    return await node.run(lambda: node.sessions.operations.cancel(TENANT, turn_id))


# ── leaving ──────────────────────────────────────────────────────────────────────────────────


@on_stage
async def test_a_node_that_leaves_still_hears_a_cancel(stage: Stage) -> None:
    """Else every roll-out makes cancels wait until the turn is taken away, and its tools' outcomes unknown."""
    one, two = await stage.boot(), await stage.boot()
    stage.parts["Long"] = hang
    watch = await stage.submit(one, "Long")
    closing = leaving(stage, one, grace_s=60)
    await stage.sleep(5)

    asked_s = stage.loop.time()
    ending = await cancel(two, watch.admission.turn_id)

    assert isinstance(ending, Ending) and ending.by == "cancelled"
    assert stage.loop.time() - asked_s < SOON_S
    assert stage.world.takeovers == []
    await closing
    assert stage.loop.time() - asked_s < SOON_S, "nothing is left to wait for"


@on_stage
async def test_a_node_that_leaves_still_hears_what_is_said_to_its_turns(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    stage.parts["Long"] = listen
    running, closing = await long_farewell(stage, one, grace_s=60)

    heard = await stage.send(two, "Faster", on_busy="steer")

    assert heard == await running and heard.ok
    assert await stage.said() == ["Long", "Faster", "re: Faster"]
    await closing


@on_stage
async def test_a_turn_of_a_node_that_leaves_still_makes_way(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    stage.parts["Long"] = hang
    running, closing = await long_farewell(stage, one, grace_s=60)

    asked_s = stage.loop.time()
    assert (await stage.send(two, "Stop it", on_busy="interrupt")).ok

    assert stage.loop.time() - asked_s < SOON_S
    assert (await running).by == "cancelled"
    await closing


@on_stage
async def test_a_node_that_leaves_lets_go_of_what_it_has_lost(stage: Stage) -> None:
    """It was stopped for too long, and somebody has taken its turn over: its player would go on for nobody."""
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    running = await stage.playing(one, "Long", hang)
    closing = leaving(stage, one, grace_s=1000)
    await stage.sleep(1)

    await stage.world.pause(one, for_s=2 * TTL_S)
    await stage.sleep(limits.sweep_s + 1)

    assert closing.done()
    assert (await running).by == "crash"
    assert two in stage.world.nodes


@on_stage
async def test_a_node_leaves_a_store_that_is_away_before_it_is_killed(stage: Stage) -> None:
    """Whatever runs servers kills one that takes a minute to stop, and then nothing is said in its log."""
    one, two = await stage.boot(), await stage.boot()
    running = await stage.playing(one, "Long", hang)
    outage = stage.loop.create_task(stage.world.outage(for_s=100))
    asked_s = stage.loop.time()

    await leaving(stage, one, grace_s=limits.drain_grace_s)

    assert stage.loop.time() - asked_s < 50
    await outage
    with pytest.raises(StoreUnavailable):
        await running
    await stage.sleep(TTL_S + 1)
    assert await stage.said() == []
    assert (await stage.send(two, "And now?")).ok


@on_stage
async def test_a_node_waits_once_for_a_store_that_never_answers(stage: Stage) -> None:
    """A server closes it, and so does the context that it is."""
    one = await stage.boot()
    answered = await stage.submit(one, "Hi")
    await stage.playing(one, "Long", hang, name=SessionKey("another"))

    async def never(*_: object, **__: object) -> object:
        return await asyncio.get_running_loop().create_future()

    for name in (each for each in dir(Store) if iscoroutinefunction(getattr(Store, each))):
        one.store.override(name, never)
    asked_s = stage.loop.time()

    async def leave() -> None:
        one.sessions.note_handed_over(TENANT, answered.admission)
        await one.sessions.close(grace_s=limits.drain_grace_s)

    for _ in range(2):
        await one.run(leave)

    bounds = limits.drain_grace_s, limits.cancel_grace_s, limits.drain_store_s, limits.resign_s
    assert stage.loop.time() - asked_s < sum(bounds) + 1
    stage.world.bury(one)


@on_stage
async def test_a_node_that_leaves_takes_nothing_over(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    stage.parts["Long"] = stage.parts["Book it"] = hang
    running = stage.send(one, "Long")
    stage.send(two, "Book it", name=SessionKey("theirs"), key="k1")
    await stage.until(lambda: len(stage.played) == 2)
    closing = leaving(stage, one, grace_s=3 * TTL_S)
    await stage.sleep(1)
    stage.world.bury(two)

    await closing

    assert stage.world.takeovers == []
    assert (await running).by == "shutdown"


@on_stage
async def test_leaving_can_be_hurried(stage: Stage) -> None:
    """Whoever has waited long enough calls it off and begins again, without grace; nothing stays behind."""
    one, two = await stage.boot(), await stage.boot()
    stage.parts["Long"] = hang
    running, closing = await long_farewell(stage, one, grace_s=1000)
    closing.cancel()
    await stage.sleep(1)

    await leaving(stage, one, grace_s=0)

    assert (await running).by == "shutdown"
    asked = dict(one.store.calls)
    await stage.sleep(2 * TTL_S)
    assert one.store.calls == asked
    assert two in stage.world.nodes


# ── turns that nothing is stored of ──────────────────────────────────────────────────────────


async def submit_stateless(stage: Stage, node: Node, text: str, **policy: str) -> Watch:
    ask = stage.ask(text, policy=Policy(**policy))  # type: ignore[arg-type]

    async def submit() -> Watch:
        return node.sessions.submit_stateless(msgspec.structs.replace(ask, name=None))

    return await node.run(submit)


@on_stage
async def test_a_node_that_leaves_lets_stateless_turns_finish(stage: Stage) -> None:
    node = await stage.boot()

    async def remember(hand: Hand) -> None:
        await asyncio.sleep(5)
        await hand.open.memories("butler")
        await hand.go_on()

    stage.parts["Long"] = remember
    watch = await submit_stateless(stage, node, "Long")
    began_s = stage.loop.time()

    await leaving(stage, node, grace_s=60)

    assert watch.live is not None and watch.live.done.done()
    assert (await watch.ended()).ok
    assert stage.loop.time() - began_s < 6


@pytest.mark.parametrize("crash", ["auto", "resume"])
def test_a_stateless_turn_ends_with_the_grace_of_its_node(crash: str) -> None:
    """Also one that is to be resumed: there is nobody who could."""

    @on_stage
    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        stage.parts["Long"] = hang
        watch = await submit_stateless(stage, node, "Long", crash=crash)
        began_s = stage.loop.time()

        await leaving(stage, node, grace_s=5)

        assert watch.live is not None and watch.live.done.done()
        ending = await watch.ended()
        assert (ending.by, ending.kept) == ("shutdown", False)
        assert 5 <= stage.loop.time() - began_s < 6

    scenario("memory")


@on_stage
async def test_a_stateless_turn_that_ignores_its_end_holds_nobody_up_for_ever(
    stage: Stage,
) -> None:
    node = await stage.boot()

    async def deaf(hand: Hand) -> None:
        for _ in range(3):
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                continue

    stage.parts["Long"] = deaf
    watch = await submit_stateless(stage, node, "Long")
    began_s = stage.loop.time()

    await leaving(stage, node, grace_s=5)

    assert stage.loop.time() - began_s < 5 + limits.cancel_grace_s + 1
    assert watch.live is not None and watch.live.done.done()
    await stage.sleep(400)


@on_stage
async def test_a_node_that_leaves_begins_no_stateless_turn(stage: Stage) -> None:
    node = await stage.boot()
    running = await stage.playing(node, "Long", hang)
    closing = leaving(stage, node, grace_s=5)
    await stage.sleep(1)

    with pytest.raises(StoreUnavailable, match="shutting down"):
        await submit_stateless(stage, node, "Hello")

    await closing
    assert (await running).by == "shutdown"
    assert stage.played == ["Long"]


# ── not getting as far ───────────────────────────────────────────────────────────────────────


@on_stage
async def test_a_node_that_could_not_start_hands_over_what_it_has_taken_on(stage: Stage) -> None:
    one = await stage.boot()
    stage.parts["Book it"] = hang
    names = [SessionKey(f"trip-{n}") for n in range(1 + AWAY_MAX)]
    for name in names:
        stage.send(one, "Book it", name=name, key=f"for-{name}")
    await stage.until(lambda: len(stage.played) == len(names))
    await leaving(stage, one, grace_s=0)

    half = Node(stage.world, "half", stage.play)
    journal = half.store.as_store().journal

    async def once(*args: object, **kwargs: object) -> object:
        if half.sessions._owner.playing:
            raise StoreUnavailable("it has just gone")
        return await journal(*args, **kwargs)  # type: ignore[arg-type]

    half.store.override("journal", once)
    with pytest.raises(StoreUnavailable, match="it has just gone"):
        await stage.loop.start(half.place, half.open())

    assert half.sessions._owner.playing == ()
    assert half.leftovers() == []
    asked = dict(half.store.calls)
    assert asked["resign"] == 1
    del stage.parts["Book it"]
    await stage.boot()
    await stage.sleep(TTL_S + limits.sweep_s + 1)  # until it may judge the node that has taken them
    for name in names:
        assert await stage.said(name) == ["Book it", "re: Book it"]
    assert half.store.calls == asked, "it has gone"
