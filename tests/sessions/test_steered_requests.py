"""An SDK sends a request without a key again whose message an open turn has heard: it is said once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast import limits
from holdfast.core.items import UserMessage, plain_text
from holdfast.ids import IdempotencyKey, MessageId, TurnId
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.ask import Ending
from holdfast.sessions.steered_requests import (
    RECEIPTS_MAX,
    SteeredRequests,
    is_retried,
    signed,
)
from holdfast.store.base import Attempt
from tests.simulation.clients import TENANT
from tests.simulation.simulation import Home
from tests.simulation.stage import Gate, Stage, act_out, on_stage
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
