"""A store that does not take a turn: its clients are told in time, and truly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import limits
from holdfast.errors import (
    SessionDamaged,
    StorageFull,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.ids import TurnId
from holdfast.sessions.turns.received_answers import ReceivedAnswers
from holdfast.store.memory_store import MemoryStore
from holdfast.store.outcomes import Attempt
from tests.simulation.clients import TENANT
from tests.simulation.faults import OddState
from tests.simulation.stage import Hand, Stage, on_stage
from tests.simulation.world import Node

AT_ONCE_S = 5.0

WRITES = ("renew", "begin", "append", "commit", "end", "release", "takeover", "acknowledge")


def fill_disk(node: Node) -> Callable[[], None]:
    """From now on nothing can be written, and everything can be read. Returns what makes room again."""
    return refuse_writes(node, lambda: StorageFull("no space is left for the database"))


def refuse_writes(node: Node, error: Callable[[], StoreError], *names: str) -> Callable[[], None]:
    """From now on these writes fail, or all. Returns what lets them succeed again."""

    async def refuse(*_: Any, **__: Any) -> Any:
        raise error()

    before: dict[str, Callable[..., Awaitable[Any]]] = {
        n: getattr(node.store, n) for n in names or WRITES
    }
    for name in before:
        node.store.override(name, refuse)

    def make_room() -> None:
        for name, method in before.items():
            node.store.override(name, method)

    return make_room


async def say_and_wait(hand: Hand) -> None:
    """Answers when the disk is full."""
    await hand.stage.sleep(1)
    await hand.say("Hello.")


async def act_when_full(hand: Hand) -> None:
    """Starts a tool when the disk is full, and the lease has ended."""
    await hand.stage.sleep(2 * limits.lease_ttl_s)
    [call] = await hand.call("a")
    await hand.start(call)


@on_stage
async def test_a_client_is_told_in_time_that_its_turn_cannot_be_stored(stage: Stage) -> None:
    node = await stage.boot()
    stage.parts["Hi"] = say_and_wait
    asked = stage.send(node, "Hi", key="k1")
    await stage.sleep(0.5)
    make_room = fill_disk(node)
    began_s = stage.loop.time()
    with pytest.raises(StorageFull, match="no space is left"):
        await asked
    assert stage.loop.time() - began_s <= limits.store_retry_s + AT_ONCE_S
    # Whoever asks again meanwhile is told the same, at once, for as long as it is so.
    for _ in range(2):
        began_s = stage.loop.time()
        with pytest.raises(StorageFull):
            await stage.send(node, "Hi", key="k1")
        assert stage.loop.time() - began_s < AT_ONCE_S
        await stage.sleep(2 * limits.feed_keep_s)
    make_room()
    await stage.until(lambda: not node.sessions._owner.unstored)
    assert (await stage.send(node, "Hi", key="k1")).ok, "it was resumed"
    assert await stage.said() == ["Hi", "re: Hi"]


@on_stage
async def test_a_turn_that_could_not_be_stored_says_so_and_not_that_its_server_died(
    stage: Stage,
) -> None:
    node = await stage.boot()
    stage.parts["Hi"] = say_and_wait
    asked = stage.send(node, "Hi")
    await stage.sleep(0.5)
    make_room = fill_disk(node)
    with pytest.raises(StorageFull):
        await asked
    make_room()
    await stage.until(lambda: not node.sessions._owner.unstored)
    await stage.sleep(1)
    [turn] = await stage.turns()
    assert (turn.state, turn.ended_by) == ("discarded", "crash")
    assert turn.detail == "storage_full: no space is left for the database"


@on_stage
async def test_a_tool_that_cannot_be_noted_costs_one_wait_and_not_two(stage: Stage) -> None:
    """The lease cannot be renewed, and then the intent cannot be written: it is one outage."""
    node = await stage.boot()
    stage.parts["Hi"] = act_when_full
    asked = stage.send(node, "Hi")
    await stage.sleep(0.5)
    make_room = fill_disk(node)
    began_s = stage.loop.time()
    with pytest.raises(StorageFull):
        await asked
    wait_s = 2 * limits.lease_ttl_s + limits.store_retry_s + AT_ONCE_S
    assert stage.loop.time() - began_s <= wait_s
    assert stage.done == []
    make_room()
    await stage.until(lambda: not node.sessions._owner.unstored)


@on_stage
async def test_a_commit_whose_answer_was_lost_is_an_answer_all_the_same(stage: Stage) -> None:
    node = await stage.boot()
    commit = node.store.commit

    async def commit_and_lose(*args: Any, **kwargs: Any) -> Any:
        await commit(*args, **kwargs)
        raise StoreUnavailable("its answer was lost")

    node.store.override("commit", commit_and_lose)
    ending = await stage.send(node, "Hi")
    assert (ending.by, ending.kept) == ("completed", True)


@on_stage
async def test_a_watcher_elsewhere_is_not_kept_waiting_by_a_store_that_is_away(
    stage: Stage,
) -> None:
    node, other = await stage.boot(), await stage.boot()
    stage.parts["Hi"] = lambda hand: hand.stage.sleep(1000)
    watch = await stage.submit(node, "Hi")
    follower = await other.run(lambda: other.sessions.watch(TENANT, watch.admission.turn_id))
    other.store.partitioned = True
    began_s = stage.loop.time()
    with pytest.raises(StoreUnavailable):
        await other.run(follower.ended)
    with pytest.raises(StoreUnavailable):
        [each async for each in follower.events()]
    assert stage.loop.time() - began_s <= 2 * (limits.store_retry_s + AT_ONCE_S)
    other.store.partitioned = False
    live = watch.live
    assert live is not None
    live.interrupt("cancelled")
    await node.run(watch.ended)


@on_stage
async def test_a_client_is_told_at_once_that_a_damaged_store_takes_no_turns(stage: Stage) -> None:
    """An operator has to act before it does, so there is nothing to wait for."""
    node = await stage.boot()
    stage.parts["Hi"] = say_and_wait
    asked = stage.send(node, "Hi")
    await stage.sleep(0.5)
    refuse_writes(node, lambda: StoreReadOnly("page 7 of item is not as it was written"))
    began_s = stage.loop.time()
    with pytest.raises(StoreReadOnly) as told:
        await asked
    assert stage.loop.time() - began_s < AT_ONCE_S
    assert str(told.value).count("the store is damaged") == 1
    assert told.value.reason == "page 7 of item is not as it was written"


@on_stage
async def test_a_turn_whose_end_meets_damage_says_so_and_leaves_its_session_free(
    stage: Stage,
) -> None:
    node = await stage.boot()
    stage.parts["Hi"] = say_and_wait
    asked = stage.send(node, "Hi")
    await stage.sleep(0.5)
    repair = refuse_writes(node, lambda: SessionDamaged("conv_1", "a page"), "commit")
    began_s = stage.loop.time()
    with pytest.raises(SessionDamaged, match="conv_1"):
        await asked
    assert stage.loop.time() - began_s < AT_ONCE_S
    await stage.until(lambda: not node.sessions._owner.unstored)
    await stage.sleep(1)  # its end is on its way
    [turn] = await stage.turns()
    assert (turn.state, turn.ended_by) == ("discarded", "crash")
    assert turn.detail.startswith("conversation_damaged: ")
    repair()
    assert (await stage.send(node, "Hi")).ok


async def test_a_receipt_that_meets_an_error_that_we_do_not_know_is_told_to_the_log_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was received: no later request of the conversation is to fail because that could not be noted."""

    async def refuse(*_: object) -> None:
        raise OddState("no")

    store = MemoryStore()
    monkeypatch.setattr(store, "acknowledge", refuse)
    receipts, turn_id = ReceivedAnswers(store), TurnId("turn_" + "0" * 26)
    receipts.note(TENANT, turn_id)
    assert not await receipts.is_noted(TENANT, turn_id, by=Attempt(request_hash=b""))
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    await store.close()
