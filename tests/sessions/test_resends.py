"""A client that sends its whole conversation with every message, and does not wait for the answer before the next one:
each message is stored once, whatever becomes of the turn that it was sent to."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.history import reconciliation
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.policy import Policy
from holdfast.ids import SessionKey
from holdfast.sessions.session_requests import OnBusy
from holdfast.sessions.turns.watch import Watch
from tests.simulation.clients import TENANT
from tests.simulation.stage import KEY, Gate, Stage, act_out, heard, on_stage, said
from tests.simulation.world import Node

DISCARDED = Policy(cancel="discard")


async def submitted(
    stage: Stage, node: Node, text: str, *past: Incoming, on_busy: OnBusy = "wait"
) -> Watch:
    return await stage.submit(node, text, past=past, on_busy=on_busy)


# ── before the answer ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same node", "another node"])
@pytest.mark.parametrize(
    ("on_busy", "stored"),
    [
        ("wait", ["one", "re: one", "two", "re: two"]),
        ("steer", ["one", "two", "re: two"]),
        ("interrupt", ["one", "two", "re: two"]),
    ],
)
def test_a_message_before_the_answer_is_stored_once(
    home: str, elsewhere: bool, on_busy: OnBusy, stored: list[str]
) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        other = await stage.boot() if elsewhere else node
        gate, first = await stage.answering(node, "one")
        second = stage.send(other, "two", past=said("one"), on_busy=on_busy)
        await stage.sleep(1)
        gate.open.set()
        ending = await second
        assert ending.ok
        await asyncio.wait({first})
        assert await stage.said() == stored
        row = await stage.store.turn(TENANT, ending.turn_id)
        assert row is not None and row.seq == (1 if on_busy == "steer" else 2)

    act_out(scenario, home)  # type: ignore[arg-type]


@on_stage
async def test_such_a_request_has_not_diverged(stage: Stage) -> None:
    node = await stage.boot()
    gate, _ = await stage.answering(node, "one")
    waiting = asyncio.create_task(submitted(stage, node, "two", *said("one")))
    await stage.sleep(1)
    gate.open.set()
    watch = await waiting
    assert (await node.run(watch.ended)).ok
    assert not watch.admission.diverged


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("on_busy", ["wait", "steer"])
def test_what_a_discarded_turn_had_brought_is_new(home: str, on_busy: OnBusy) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        gate, first = await stage.answering(node, "one", fails=True)
        second = stage.send(node, "two", past=said("one"), on_busy=on_busy)
        await stage.sleep(1)
        gate.open.set()
        assert not (await first).kept
        assert (await second).ok
        assert await stage.said() == ["one", "two", "re: two"]

    act_out(scenario, home)  # type: ignore[arg-type]


@on_stage
async def test_an_interrupted_turn_that_was_discarded_had_brought_nothing(stage: Stage) -> None:
    node = await stage.boot()
    first = await stage.playing(node, "one", Gate(), policy=DISCARDED)
    assert (await stage.send(node, "two", past=said("one"), on_busy="interrupt")).ok
    assert not (await first).kept
    assert await stage.said() == ["one", "two", "re: two"]


@on_stage
async def test_an_answer_that_came_before_the_message_did_is_not_missed(stage: Stage) -> None:
    """The client sent its second message before it had the answer; the answer was committed meanwhile."""
    node = await stage.boot()
    assert (await stage.send(node, "one")).ok
    watch = await submitted(stage, node, "two", *said("one"))
    assert (await node.run(watch.ended)).ok and not watch.admission.diverged
    assert await stage.said() == ["one", "re: one", "two", "re: two"]


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("on_busy", ["wait", "steer"])
def test_a_resend_with_nothing_after_it_is_said_again(home: str, on_busy: OnBusy) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        gate, _ = await stage.answering(node, "one")
        again = stage.send(node, "one", on_busy=on_busy)
        await stage.sleep(1)
        gate.open.set()
        assert (await again).ok
        assert (await stage.said()).count("one") == 2

    act_out(scenario, home)  # type: ignore[arg-type]


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("on_busy", ["wait", "steer"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same node", "another node"])
def test_any_number_of_messages_may_come_before_the_answer(
    home: str, on_busy: OnBusy, elsewhere: bool
) -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.boot()]
        nodes.append(await stage.boot() if elsewhere else nodes[0])
        gate, _ = await stage.answering(nodes[0], "one")
        texts = ["one", "two", "three", "four"]
        sends = []
        for n in range(1, 4):
            node = nodes[1] if n == 3 else nodes[0]
            sends.append(stage.send(node, texts[n], past=said(*texts[:n]), on_busy=on_busy))
            await stage.sleep(0.2)
        gate.open.set()
        for each in sends:
            assert (await each).ok
        asked = [each for each in await stage.said() if not each.startswith("re: ")]
        assert asked == texts

    act_out(scenario, home)  # type: ignore[arg-type]


@on_stage
async def test_what_was_heard_so_far_of_the_answer_may_be_told(stage: Stage) -> None:
    node = await stage.boot()
    gate, _ = await stage.answering(node, "one")
    waiting = asyncio.create_task(submitted(stage, node, "two", *said("one"), heard("re: o")))
    await stage.sleep(1)
    gate.open.set()
    watch = await waiting
    assert (await node.run(watch.ended)).ok and not watch.admission.diverged
    assert await stage.said() == ["one", "re: one", "two", "re: two"]


@on_stage
async def test_what_others_say_meanwhile_is_not_missed(stage: Stage) -> None:
    """Two clients: what the other one says while this one waits is nothing that this one could have seen."""
    node = await stage.boot()
    assert (await stage.send(node, "zero")).ok
    past = (*said("zero"), heard("re: zero"))
    gate, _ = await stage.answering(node, "one")
    other = stage.send(node, "by the way")
    await stage.sleep(1)
    waiting = asyncio.create_task(submitted(stage, node, "two", *past, *said("one")))
    await stage.sleep(1)
    gate.open.set()
    assert (await other).ok
    watch = await waiting
    assert (await node.run(watch.ended)).ok and not watch.admission.diverged
    asked = [each for each in await stage.said() if not each.startswith("re: ")]
    assert asked == ["zero", "one", "by the way", "two"]


# ── in turn ──────────────────────────────────────────────────────────────────────────────────


def test_a_message_after_the_answer_is_compared_with_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However fast the turns are: looking back costs as much as the history is long, and one that was committed here
    before the request came has not overtaken it."""

    def look_back(*_: object, **__: object) -> None:
        raise AssertionError("the request came after everything")

    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        for _ in range(5):
            assert (await stage.send(node, "Go on")).ok
        minted = {each.turn_id.minted_at_ms for each in await stage.turns()}
        assert len(minted) < 5, "some of them in one millisecond"

    monkeypatch.setattr(reconciliation, "find_resend", look_back)
    act_out(scenario, "memory")


# ── overtaken ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("on_busy", ["interrupt", "steer"])
def test_a_request_that_a_later_one_has_overtaken_is_answered_there(
    home: str, on_busy: OnBusy
) -> None:
    """The later one tells its message as history, and so has brought it."""

    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        gate, _ = await stage.answering(node, "one")
        second = stage.send(node, "two", past=said("one"))
        await stage.sleep(1)
        third = stage.send(node, "three", past=said("one", "two"), on_busy=on_busy)
        await stage.sleep(1)
        gate.open.set()
        assert (await third).ok
        assert (await second).turn_id == (await third).turn_id
        asked = [each for each in await stage.said() if not each.startswith("re: ")]
        assert asked == ["one", "two", "three"]

    act_out(scenario, home)  # type: ignore[arg-type]


@on_stage
async def test_two_requests_that_are_steered_at_once_say_it_once(stage: Stage) -> None:
    """The later one is at the store first, and has told the turn what the other one has to say."""
    node = await stage.boot()
    gate, first = await stage.answering(node, "one")
    second, third = await stage.steer_two(node, gate, "one")
    assert second.turn_id == third.turn_id == (await first).turn_id
    asked = [each for each in await stage.said() if not each.startswith("re: ")]
    assert asked == ["one", "two", "three"]


@on_stage
async def test_a_first_message_that_the_second_has_overtaken_is_not_said_to_its_turn(
    stage: Stage,
) -> None:
    """The page sends both at once, and the second request, which tells the first message, begins the turn."""
    slow, node = await stage.boot(), await stage.boot()
    gate = stage.parts["two"] = Gate()
    let_go = stage.delay(slow, "begin")
    first = stage.send(slow, "one", on_busy="steer")
    await stage.sleep(1)
    second = stage.send(node, "two", past=said("one"))
    await stage.until(lambda: "two" in stage.played)
    let_go.set()
    await stage.sleep(1)
    gate.open.set()
    assert (await first).turn_id == (await second).turn_id
    assert await stage.said() == ["one", "two", "re: two"]


# ── in the background ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("home", ["memory", "sqlite"])
@pytest.mark.parametrize("fails", [False, True], ids=["committed", "discarded"])
def test_a_queued_message_is_decided_on_again_when_it_begins(home: str, fails: bool) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        gate, _ = await stage.answering(node, "one", fails=fails)
        two = await stage.submit(node, "two", past=said("one"), queues=True)
        three = await stage.submit(node, "three", past=said("one", "two"), queues=True)
        assert (two.admission.how, three.admission.how) == ("queued", "queued")
        gate.open.set()
        assert (await node.run(two.ended)).ok
        assert (await node.run(three.ended)).ok
        asked = [each for each in await stage.said() if not each.startswith("re: ")]
        assert asked == ["one", "two", "three"]

    act_out(scenario, home)  # type: ignore[arg-type]


@on_stage
async def test_a_queued_message_that_a_later_request_has_brought_is_not_said_again(
    stage: Stage,
) -> None:
    node = await stage.boot()
    gate, _ = await stage.answering(node, "one")
    two = await stage.submit(node, "two", past=said("one"), queues=True)
    third = stage.send(node, "three", past=said("one", "two"), on_busy="interrupt")
    await stage.sleep(1)
    gate.open.set()
    assert (await third).ok
    ending = await node.run(two.ended)
    assert (ending.kept, ending.by) == (False, "superseded")
    assert "no_new_user_message" in ending.detail
    asked = [each for each in await stage.said() if not each.startswith("re: ")]
    assert asked == ["one", "two", "three"]


@on_stage
async def test_a_message_is_not_queued_that_the_open_turn_was_told_meanwhile(stage: Stage) -> None:
    """The turn has ended by the time that the request has looked at its session."""
    node, other = await stage.boot(), await stage.boot()
    gate, first = await stage.answering(node, "one")
    let_go = stage.delay(node, "resolve")
    two = stage.send(node, "two", past=said("one"), queues=True)
    await stage.sleep(1)
    three = stage.send(other, "three", past=said("one", "two"), on_busy="steer")
    await stage.sleep(1)
    gate.open.set()
    assert (await three).ok
    let_go.set()
    assert (await two).turn_id == (await first).turn_id
    assert await stage.said() == ["one", "two", "three", "re: three"]


@on_stage
async def test_a_queued_request_has_not_seen_a_turn_whose_commit_was_on_its_way(
    stage: Stage,
) -> None:
    node = await stage.boot()
    gate, _ = await stage.answering(node, "one")
    other = stage.send(node, "by the way", on_busy="steer")
    await stage.sleep(1)
    committed, looked = stage.delay(node, "commit"), stage.delay(node, "resolve")
    gate.open.set()
    await stage.sleep(1)
    two = stage.send(node, "two", past=said("one"), queues=True)
    await stage.sleep(1)
    committed.set()
    assert (await other).ok
    looked.set()
    assert (await two).ok
    asked = [each for each in await stage.said() if not each.startswith("re: ")]
    assert asked == ["one", "by the way", "two"]


@on_stage
async def test_whoever_waits_for_another_session_in_the_end_is_not_compared_with_the_first(
    stage: Stage,
) -> None:
    """The name was reset while the request waited: what it tells was said in another session."""
    node = await stage.boot()
    gate, _ = await stage.answering(node, "one")
    second = stage.send(node, "two", past=said("one"))
    await stage.sleep(1)
    await node.run(lambda: node.sessions.operations.reset(TENANT, SessionKey(KEY)))
    gate.open.set()
    assert (await second).ok
    assert await stage.said() == ["one", "two", "re: two"]
