"""Turns that were kept unfinished are finished, on whichever node, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
from typing import Unpack

import pytest

from holdfast import limits
from holdfast.core.items import Interruption
from holdfast.core.policy import Policy
from holdfast.errors import CannotContinue, SessionGone, TurnFailed
from holdfast.ids import SessionKey, Version
from holdfast.sessions.session_requests import Ending
from tests.sessions.test_named_cases import hang
from tests.simulation.clients import TENANT
from tests.simulation.simulation import Home
from tests.simulation.stage import Asking, Gate, Hand, Stage, act_out, on_stage, outcomes, said
from tests.simulation.world import Node

SAID = ["Pay", "re: Pay"]


async def act_then_fail(hand: Hand) -> None:
    (act,) = await hand.call("act")
    await hand.start(act)
    await hand.finish(act)
    raise TurnFailed("model_error", "overloaded", reason="upstream_error")


async def fail(hand: Hand) -> None:
    raise TurnFailed("model_error", "overloaded", reason="upstream_error")


KEYED: Asking = {"key": "k1"}
PLAIN: Asking = {"name": SessionKey("other")}


async def broken(stage: Stage, node: Node, **asking: Unpack[Asking]) -> Ending:
    """A turn that has acted, and failed."""
    stage.parts["Pay"] = act_then_fail
    ending = await stage.send(node, "Pay", **asking)
    del stage.parts["Pay"]
    assert (ending.kept, ending.by) == (True, "model_error")
    return ending


@on_stage
async def test_a_retry_goes_on_wherever_it_arrives(stage: Stage) -> None:
    for asking in (KEYED, PLAIN):
        one, two = await stage.boot(), await stage.boot()
        stage.done.clear()
        first = await broken(stage, one, **asking)
        again = await stage.send(two, "Pay", **asking)
        assert again.ok and again.session_id == first.session_id
        assert stage.done == ["act"]
        assert await stage.said(first.session_id) == SAID


@on_stage
async def test_a_retry_goes_on_with_what_a_crash_has_left(stage: Stage) -> None:
    """A turn without a key is not resumed, and what it has done is kept."""

    async def act_and_hang(hand: Hand) -> None:
        (act,) = await hand.call("act")
        await hand.start(act)
        await hand.finish(act)
        await asyncio.sleep(600)

    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(limits.lease_ttl_s + 1)  # so that they may judge
    stage.parts["Pay"] = act_and_hang
    stage.send(one, "Pay")
    await stage.until(lambda: stage.done == ["act"])
    await stage.sleep(1)
    stage.world.bury(one)
    del stage.parts["Pay"]

    again = await stage.send(two, "Pay")

    before, after = await stage.turns()
    assert (before.state, before.ended_by) == ("committed", "crash")
    assert again.ok and after.continues == before.turn_id
    assert await stage.said() == SAID and stage.done == ["act"]


@on_stage
async def test_whoever_dies_while_it_goes_on_is_not_the_end_of_it(stage: Stage) -> None:
    """With a key it is resumed; without one it is lost, and the next retry goes on from the same place."""
    for asking in (KEYED, PLAIN):
        one, two = await stage.boot(), await stage.boot()
        stage.done.clear()
        first = await broken(stage, one, **asking)
        stage.parts["Pay"] = hang(600)
        going = stage.send(one, "Pay", **asking)
        await stage.sleep(1)
        await stage.world.crash(one, down_s=1)
        await asyncio.gather(going, return_exceptions=True)
        del stage.parts["Pay"]
        await stage.sleep(2 * limits.lease_ttl_s)
        again = await stage.send(two, "Pay", **asking)
        assert again.ok, again
        assert stage.done == ["act"]
        assert await stage.said(first.session_id) == SAID


@on_stage
async def test_a_continuation_that_fails_leaves_the_message_where_it_is(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    first = await broken(stage, one, key="k1")
    stage.parts["Pay"] = fail
    failed = await stage.send(two, "Pay", key="k1")
    assert (failed.kept, failed.by) == (False, "model_error")
    del stage.parts["Pay"]
    again = await stage.send(one, "Pay", key="k1")
    assert again.ok and await stage.said() == SAID
    rows = {each.turn_id: (each.continues, each.links) for each in await stage.turns()}
    assert rows == {
        first.turn_id: (None, None),
        failed.turn_id: (first.turn_id, None),
        again.turn_id: (first.turn_id, 2),
    }


@on_stage
async def test_after_as_many_as_may_be_it_is_told_and_a_person_goes_on(stage: Stage) -> None:
    one = await stage.boot()
    first = await broken(stage, one, key="k1")
    stage.parts["Pay"] = fail
    told = [await stage.send(one, "Pay", key="k1") for _ in range(limits.continuations_max + 2)]
    assert told[-1] == told[-2] == first
    assert len(stage.played) == 1 + limits.continuations_max
    del stage.parts["Pay"]
    watch = await one.run(lambda: one.sessions.continue_turn(TENANT, first.turn_id))
    assert (await watch.ended()).ok
    again = await stage.send(one, "Pay", key="k1")
    assert (again.turn_id, again.ok) == (watch.admission.turn_id, True)
    with pytest.raises(CannotContinue, match="not the last one"):
        await one.run(lambda: one.sessions.continue_turn(TENANT, first.turn_id))


@on_stage
async def test_who_continues_while_another_turn_runs_waits_and_is_told(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    first = await broken(stage, one)
    stage.parts["Else"] = hang(5)
    other = stage.send(two, "Else")
    await stage.sleep(1)
    with pytest.raises(CannotContinue):
        await one.run(lambda: one.sessions.continue_turn(TENANT, first.turn_id))
    await other
    again = await stage.send(one, "Pay")
    assert again.ok, "the conversation has gone on, so it is a new message"
    assert (await stage.said()).count("Pay") == 2


@on_stage
async def test_a_disconnect_that_was_to_be_kept_is_a_stop(stage: Stage) -> None:
    """Who stops by going away, and says the same again, says it again."""
    one = await stage.boot()
    stage.parts["Pay"] = hang(60)
    going = stage.send(one, "Pay", policy=Policy(disconnect="keep"))
    await stage.sleep(1)
    going.cancel()
    await stage.sleep(1)
    del stage.parts["Pay"]
    (row,) = await stage.turns()
    assert (row.state, row.ended_by) == ("committed", "disconnected")
    again = await stage.send(one, "Pay", policy=Policy(disconnect="keep"))
    assert again.ok and (await stage.said()).count("Pay") == 2


@on_stage
async def test_a_turn_that_waits_in_the_background_goes_on_under_its_key(stage: Stage) -> None:
    one = await stage.boot()
    await broken(stage, one, key="k1", queues=True)
    again = await stage.send(one, "Pay", key="k1", queues=True)
    assert again.ok and await stage.said() == SAID
    items = (await stage.snapshot()).items
    assert outcomes(items) == [("act", "ok")]
    assert sum(isinstance(each, Interruption) for each in items) == 1
    assert again.version == Version(2)


# ── while it goes on ─────────────────────────────────────────────────────────────────────────


async def going_on(stage: Stage, node: Node) -> tuple[Gate, asyncio.Task[Ending]]:
    """A turn that broke off, and is being continued until it is let go."""
    await broken(stage, node)
    return await stage.answering(node, "Pay")


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same node", "another node"])
@pytest.mark.parametrize(
    ("asking", "stored"),
    [
        ({"on_busy": "wait"}, [*SAID, "two", "re: two"]),
        ({"on_busy": "steer"}, ["Pay", "two", "re: two"]),
        ({"on_busy": "interrupt"}, ["Pay", "two", "re: two"]),
        ({"queues": True}, [*SAID, "two", "re: two"]),
    ],
    ids=["wait", "steer", "interrupt", "queue"],
)
def test_the_next_message_of_a_client_that_resends_everything_may_come_before_it_is_finished(
    home: Home, elsewhere: bool, asking: Asking, stored: list[str]
) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        other = await stage.boot() if elsewhere else node
        gate, again = await going_on(stage, node)
        resent: Asking = {**asking, "past": said("Pay")}
        two = stage.send(other, "two", **resent)
        await stage.sleep(1)
        gate.open.set()
        assert (await two).ok
        await asyncio.wait({again})
        assert await stage.said() == stored
        assert stage.done == ["act"]

    act_out(scenario, home)


@on_stage
async def test_two_messages_that_are_told_to_it_at_once_are_said_once(stage: Stage) -> None:
    """A continuation brings no message, so there is nothing to see that it was told so far."""
    node = await stage.boot()
    gate, again = await going_on(stage, node)
    two, three = await stage.steer_two(node, gate, "Pay")
    assert two.turn_id == three.turn_id == (await again).turn_id
    assert await stage.said() == ["Pay", "two", "three", "re: three"]


@on_stage
async def test_it_stands_before_the_turns_that_have_waited_for_what_broke_off(stage: Stage) -> None:
    """The second request is a new one until the first breaks off; then it is its retry, wherever others wait."""
    node = await stage.boot()
    let_go = asyncio.Event()

    async def act_then_fail_when_let(hand: Hand) -> None:
        await let_go.wait()
        del stage.parts["Pay"]
        await act_then_fail(hand)

    first = await stage.playing(node, "Pay", act_then_fail_when_let)
    two = await stage.submit(node, "two", past=said("Pay"), queues=True)
    assert two.admission.how == "queued"
    await stage.sleep(1)
    again = stage.send(node, "Pay")
    await stage.sleep(1)
    let_go.set()
    assert (await first).by == "model_error"
    assert (await again).ok and (await node.run(two.ended)).ok
    assert await stage.said() == [*SAID, "two", "re: two"]
    assert stage.done == ["act"]


# ── first come, first served ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("held", [False, True], ids=["free", "busy"])
@pytest.mark.parametrize(
    "asking", [{}, {"key": "k2"}, {"attempt": 1}], ids=["plain", "key", "count"]
)
def test_requests_begin_in_the_order_in_which_they_came(asking: Asking, held: bool) -> None:
    """However long the store takes to say whether one of them is a retry of what broke off."""

    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        await broken(stage, node)
        gate, _ = await stage.answering(node) if held else (Gate(), None)
        let_go = stage.delay(node, "find_attempt")
        first = stage.send(node, "First", **asking)
        await stage.sleep(1)
        second = stage.send(node, "Second")
        await stage.sleep(1)
        let_go.set()
        await stage.sleep(1)
        gate.open.set()
        assert (await first).ok and (await second).ok
        assert (await stage.said())[-4:] == ["First", "re: First", "Second", "re: Second"]

    act_out(scenario, "memory")


@pytest.mark.parametrize("call", ["resolve", "enqueue"])
@pytest.mark.parametrize(
    "asking", [{"queues": True}, {"queues": True, "key": "k2"}], ids=["plain", "key"]
)
@pytest.mark.parametrize("queues", [False, True], ids=["foreground", "background"])
def test_a_request_is_not_passed_while_the_store_is_asked_whether_it_has_to_wait(
    call: str, asking: Asking, queues: bool
) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        assert (await stage.send(node, "Hello")).ok
        let_go = stage.delay(node, call)
        first = stage.send(node, "First", **asking)
        await stage.sleep(1)
        second = stage.send(node, "Second", queues=queues)
        await stage.sleep(1)
        let_go.set()
        assert (await first).ok and (await second).ok
        assert (await stage.said())[2:] == ["First", "re: First", "Second", "re: Second"]

    act_out(scenario, "memory")


@on_stage
async def test_a_request_that_waits_behind_such_a_one_wants_the_session_that_was_there(
    stage: Stage,
) -> None:
    node = await stage.boot()
    await stage.answering(node)
    session_id = await stage.id_of()
    let_go = stage.delay(node, "resolve")
    first = stage.send(node, "First", queues=True)
    await stage.sleep(1)
    second = stage.send(node, "Second")
    await stage.sleep(1)
    await node.run(lambda: node.sessions.operations.delete(TENANT, session_id))
    let_go.set()
    for each in (first, second):
        with pytest.raises(SessionGone):
            await each


@on_stage
async def test_a_retry_with_nothing_left_to_continue_keeps_its_place(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    await broken(stage, one)
    gate, _ = await stage.answering(two)
    again = stage.send(one, "Pay")
    await stage.sleep(1)
    later = stage.send(one, "Later")
    await stage.sleep(1)
    gate.open.set()
    assert (await again).ok and (await later).ok
    assert (await stage.said())[-4:] == [*SAID, "Later", "re: Later"]


# ── a turn that has heard several clients ────────────────────────────────────────────────────


async def broken_after_hearing(
    stage: Stage, node: Node, text: str, **asking: Unpack[Asking]
) -> None:
    """A turn of one client that has heard a message of another one, has acted, and failed."""
    gate = asyncio.Event()

    async def hear_act_then_fail(hand: Hand) -> None:
        await gate.wait()
        del stage.parts["Pay"]
        await hand.open.take_steering()
        await act_then_fail(hand)

    first = await stage.playing(node, "Pay", hear_act_then_fail, **asking)
    steered = stage.send(node, text, on_busy="steer")
    await stage.sleep(1)
    gate.set()
    assert (await first).turn_id == (await steered).turn_id


@on_stage
async def test_the_receipt_of_a_client_that_was_heard_later_is_not_the_first_clients(
    stage: Stage,
) -> None:
    node = await stage.boot()
    await broken_after_hearing(stage, node, "quickly")
    again = await stage.send(node, "quickly", attempt=1)
    assert again.ok
    assert (await stage.send(node, "Later")).ok
    assert (await stage.send(node, "Pay", attempt=1)).turn_id == again.turn_id
    asked = [each for each in await stage.said() if not each.startswith("re: ")]
    assert asked == ["Pay", "quickly", "Later"]
    assert stage.done == ["act"]


@on_stage
async def test_the_retries_of_a_client_that_was_heard_later_are_not_the_first_clients(
    stage: Stage,
) -> None:
    """An SDK counts its own: the first client's second attempt is later than the other one's third."""
    node = await stage.boot()
    await broken_after_hearing(stage, node, "quickly")
    stage.parts["quickly"] = act_then_fail
    again = await stage.send(node, "quickly", attempt=3)
    assert (again.kept, again.by) == (True, "model_error")
    assert (await stage.send(node, "Later")).ok
    assert (await stage.send(node, "Pay", attempt=1)).turn_id == again.turn_id
    asked = [each for each in await stage.said() if not each.startswith("re: ")]
    assert asked == ["Pay", "quickly", "Later"]


@on_stage
async def test_a_retry_that_another_one_has_overtaken_is_answered_by_that_one(stage: Stage) -> None:
    """Both clients try again at once, on different nodes: what broke off is finished once, and answers both."""
    one, two = await stage.boot(), await stage.boot()
    assert (await stage.send(two, "Hello")).ok
    await broken_after_hearing(stage, one, "quickly")
    session_id = await stage.id_of()
    await two.run(lambda: two.sessions.snapshot(TENANT, session_id))
    let_go = stage.delay(two, "begin")
    slow = stage.send(two, "quickly")
    await stage.sleep(1)
    fast = await stage.send(one, "Pay")
    assert fast.ok
    let_go.set()
    assert (await slow).turn_id == fast.turn_id
    asked = [each for each in await stage.said() if not each.startswith("re: ")]
    assert asked == ["Hello", "Pay", "quickly"]


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("goes_on", [False, True], ids=["broke off", "is continued"])
def test_a_message_is_new_where_only_the_first_client_was_heard_again(
    home: Home, goes_on: bool
) -> None:
    """A node that remembers the turn which has heard both clients meets a newer turn of the first client alone."""

    async def scenario(stage: Stage) -> None:
        one, two = await stage.boot(), await stage.boot()
        assert (await stage.send(two, "Hello")).ok
        await broken_after_hearing(stage, one, "quickly")
        session_id = await stage.id_of()
        await two.run(lambda: two.sessions.snapshot(TENANT, session_id))
        assert (await stage.send(one, "Later")).ok
        await broken(stage, one)
        gate = stage.parts["Pay"] = Gate()
        if goes_on:
            stage.send(one, "Pay")
            await stage.until(lambda: stage.played.count("Pay") == 3)
        again = stage.send(two, "quickly")
        await stage.sleep(1)
        gate.open.set()
        assert (await again).ok
        asked = [each for each in await stage.said() if not each.startswith("re: ")]
        assert asked == ["Hello", "Pay", "quickly", "Later", "Pay", "quickly"]

    act_out(scenario, home)


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("stops", [True, False], ids=["is a stop", "is none"])
def test_whether_a_disconnect_is_a_stop_is_said_by_the_client_that_goes_away(
    home: Home, stops: bool
) -> None:
    """A turn of one client is continued by another one, whose policy is not the first client's."""
    keep, auto = Policy(disconnect="keep"), Policy(disconnect="auto")
    own, others = (keep, auto) if stops else (auto, keep)

    async def act_and_hang(hand: Hand) -> None:
        (act,) = await hand.call("act")
        await hand.start(act)
        await asyncio.sleep(600)

    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        await broken_after_hearing(stage, node, "quickly", policy=others)
        stage.parts["quickly"] = act_and_hang
        going = stage.send(node, "quickly", policy=own)
        await stage.sleep(1)
        going.cancel()
        await stage.sleep(1)
        del stage.parts["quickly"]
        *_, row = await stage.turns()
        assert (row.state, row.ended_by) == ("committed", "disconnected")

        assert (await stage.send(node, "quickly", policy=own)).ok
        asked = [each for each in await stage.said() if not each.startswith("re: ")]
        assert asked == ["Pay", *["quickly"] * (2 if stops else 1)]

    act_out(scenario, home)
