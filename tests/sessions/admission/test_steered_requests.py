"""An SDK sends a request without a key again whose message an open turn has heard: it is said once."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec
import pytest

from holdfast import limits
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import UserMessage, plain_text
from holdfast.errors import TurnFailed
from holdfast.ids import IdempotencyKey, MessageId, TurnId
from holdfast.sessions.admission.steered_requests import (
    RECEIPTS_MAX,
    SteeredRequests,
    is_retried,
    signed,
)
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.session_requests import Ending
from holdfast.store.outcomes import Attempt
from tests.simulation.clients import TENANT
from tests.simulation.simulation import Home
from tests.simulation.stage import Gate, Hand, Stage, act_out, on_stage, said
from tests.simulation.world import Node

mint = Ambient().mint


async def steered(stage: Stage, node: Node) -> tuple[Gate, asyncio.Task[Ending]]:
    """A turn that was told something by a client which has gone since."""
    gate, first = await stage.answering(node, "one")
    told = stage.send(node, "two", on_busy="steer")
    await stage.sleep(1)
    told.cancel()
    await stage.sleep(1)
    return gate, first


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same node", "another node"])
@pytest.mark.parametrize("moved", [False, True], ids=["head", "moved"])
def test_it_is_answered_by_the_turn_that_has_heard_it(
    home: Home, elsewhere: bool, moved: bool
) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        other = await stage.boot() if elsewhere else node
        gate, first = await steered(stage, node)
        gate.open.set()
        ending = await first
        if moved:
            assert (await stage.send(node, "three")).ok
        assert await stage.send(other, "two", on_busy="steer", attempt=1) == ending
        assert (await stage.said()).count("two") == 1

    act_out(scenario, home)


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same node", "another node"])
def test_it_joins_the_turn_while_that_is_open(home: Home, elsewhere: bool) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        other = await stage.boot() if elsewhere else node
        gate, first = await steered(stage, node)
        again = stage.send(other, "two", on_busy="steer", attempt=1)
        await stage.sleep(1)
        gate.open.set()
        assert await again == await first
        assert (await stage.said()).count("two") == 1

    act_out(scenario, home)


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("by", ["model_error", "limit"])
@pytest.mark.parametrize("past", [(), said("elsewhere")], ids=["alone", "with another past"])
def test_it_is_part_of_a_turn_that_broke_off_also_where_no_retry_goes_on(
    home: Home, by: Literal["model_error", "limit"], past: tuple[Incoming, ...]
) -> None:
    """After an error the retry goes on with the turn; after a limit it is told the end that is stored."""

    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        let_go = asyncio.Event()

        async def hear_then_fail(hand: Hand) -> None:
            del stage.parts["one"]
            await let_go.wait()
            await hand.open.take_steering()
            (act,) = await hand.call("act")
            await hand.start(act)
            await hand.finish(act)
            raise TurnFailed(by, "no more", reason="upstream_error")

        first = await stage.playing(node, "one", hear_then_fail)
        told = stage.send(node, "two", past=past, on_busy="steer")
        await stage.sleep(1)
        let_go.set()
        assert await told == await first
        again = await stage.send(node, "two", past=past, on_busy="steer", attempt=1)
        assert again.ok if by == "model_error" else again == await first
        assert (await stage.said()).count("two") == 1

    act_out(scenario, home)


@pytest.mark.parametrize("home", ["memory", "sqlite"])
def test_it_is_not_said_to_the_continuation_of_the_turn_that_has_heard_it(home: Home) -> None:
    """A node that has nothing of the conversation in mind finds the continuation open."""

    async def scenario(stage: Stage) -> None:
        node, other = await stage.boot(), await stage.boot()
        let_go, fails = asyncio.Event(), iter([True])

        async def hear_then_fail_once(hand: Hand) -> None:
            await let_go.wait()
            await hand.open.take_steering()
            if next(fails, False):
                (act,) = await hand.call("act")
                await hand.start(act)
                await hand.finish(act)
                raise TurnFailed("model_error", "overloaded", reason="upstream_error")
            await hand.go_on()

        stage.parts |= {"one": hear_then_fail_once, "two": hear_then_fail_once}
        first = stage.send(node, "one")
        await stage.until(lambda: "one" in stage.played)
        told = stage.send(node, "two", on_busy="steer")
        await stage.sleep(1)
        let_go.set()
        assert (await told).by == (await first).by == "model_error"
        let_go.clear()
        goes_on = stage.send(node, "one")
        await stage.until(lambda: len(stage.played) > 1)
        again = stage.send(other, "two", on_busy="steer", attempt=1)
        await stage.sleep(1)
        let_go.set()
        assert await again == await goes_on
        assert (await stage.said()).count("two") == 1

    act_out(scenario, home)


@on_stage
async def test_the_same_words_are_new_from_a_client_that_has_its_answer(stage: Stage) -> None:
    """It said them again, and only the second attempt of that has arrived."""
    node = await stage.boot()
    gate, _ = await stage.answering(node, "one")
    told = stage.send(node, "two", on_busy="steer")
    await stage.sleep(1)
    gate.open.set()
    first = await told
    again = await stage.send(node, "two", on_busy="steer", attempt=1)
    assert again.ok and again.turn_id != first.turn_id
    assert (await stage.said()).count("two") == 2


@on_stage
async def test_the_same_words_are_new_after_a_while_and_without_a_count(stage: Stage) -> None:
    node = await stage.boot()
    gate, first = await steered(stage, node)
    gate.open.set()
    ending = await first
    assert (await stage.send(node, "two")).turn_id != ending.turn_id
    await stage.sleep(limits.recognised_retry_s + 1)
    assert (await stage.send(node, "two", attempt=2)).turn_id != ending.turn_id


@on_stage
async def test_they_are_new_in_a_fork(stage: Stage) -> None:
    node = await stage.boot()
    gate, first = await steered(stage, node)
    gate.open.set()
    ending = await first
    fork = await node.run(lambda: node.sessions.operations.fork(TENANT, ending.session_id))
    again = await stage.send(node, "two", name=fork.id, attempt=1)
    assert again.ok and again.session_id == fork.id


def test_only_an_earlier_attempt_of_the_same_request_is_known_again() -> None:
    messages = tuple(
        UserMessage(id=mint(MessageId), content=plain_text(each)) for each in ("a", "b")
    )
    first = Attempt(request_hash=b"1")
    marked = signed(messages, first)
    assert marked[0] == messages[0] and marked[1] != messages[1]
    for attempt, known in (
        (Attempt(request_hash=b"1", client_attempt=1), True),
        (Attempt(request_hash=b"1"), False),
        (Attempt(request_hash=b"2", client_attempt=1), False),
        (Attempt(request_hash=b"1", client_attempt=1, key=IdempotencyKey("k")), False),
    ):
        assert is_retried(marked, attempt) is known
    assert signed(messages, Attempt(request_hash=b"1", key=IdempotencyKey("k"))) == messages
    assert signed(messages, Attempt(request_hash=b"")) == messages
    assert signed((), first) == ()
    assert not is_retried(messages, Attempt(request_hash=b"1", client_attempt=1))
    many = msgspec.structs.replace(marked[1], extras=marked[1].extras * limits.opaques_max)
    assert len(signed((many,), first)[0].extras) == limits.opaques_max


def test_as_many_receipts_as_may_be_are_remembered() -> None:
    requests = SteeredRequests()
    for n in range(RECEIPTS_MAX + 5):
        requests.note_received(mint(TurnId), str(n).encode())
    assert len(requests._received) == RECEIPTS_MAX
