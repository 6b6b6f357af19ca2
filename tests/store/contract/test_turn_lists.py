"""Turns of all sessions that are in one state: found by an index, each tenant's own."""

from __future__ import annotations

import msgspec

from holdfast.ids import Tenant
from holdfast.store.store import Store
from tests.store.builders import ACME, Player, Playing

OTHERS = Tenant("globex")


async def asks(player: Player, name: str) -> Playing:
    turn = await player.open(name, "Pay")
    call = msgspec.structs.replace(turn.new_call("pay"), waits_for="approval")
    await turn.answer(call)
    await turn.commit()
    return turn


async def test_turns_of_all_sessions_are_listed_by_the_time_of_their_beginning(
    store: Store, player: Player
) -> None:
    made = [await player.play("a"), await player.discard("b"), await player.open("a", "Again")]
    ids = [each.turn_id for each in reversed(made)]
    assert [each.turn_id for each in await store.recent_turns(ACME)] == ids
    assert [each.turn_id for each in await store.recent_turns(ACME, limit=2)] == ids[:2]
    assert [each.turn_id for each in await store.recent_turns(ACME, before=ids[0])] == ids[1:]
    assert await store.recent_turns(OTHERS) == ()


async def test_open_turns_are_listed_with_their_node_first_turns_too(
    store: Store, player: Player
) -> None:
    await player.play("old")
    first = await player.open("new", "Hello")
    second = await player.open("old", "Again")
    found = await store.playing(ACME, limit=10)
    assert [each.turn_id for each in found] == [first.turn_id, second.turn_id]
    assert {each.node for each in found} == {player.node}
    assert len(await store.playing(ACME, limit=1)) == 1
    assert await store.playing(OTHERS, limit=10) == ()
    await first.answer()
    await first.commit()
    assert [each.turn_id for each in await store.playing(ACME, limit=10)] == [second.turn_id]


async def test_turns_whose_calls_wait_for_an_approval_are_listed_until_the_session_moves(
    store: Store, player: Player
) -> None:
    await player.play("quiet", '"waits_for":"approval"')
    waiting = [await asks(player, name) for name in ("a", "b")]
    found = await store.asking(ACME, since_ms=0, limit=10)
    assert [each.turn_id for each in found] == [each.turn_id for each in reversed(waiting)]
    assert await store.asking(OTHERS, since_ms=0, limit=10) == ()
    assert await store.asking(ACME, since_ms=2**53, limit=10) == ()
    await player.play("a", "Never mind")
    assert [each.turn_id for each in await store.asking(ACME, since_ms=0, limit=10)] == [
        waiting[1].turn_id
    ]


async def test_turns_that_broke_off_are_listed_while_they_can_be_continued_and_as_failures(
    store: Store, player: Player
) -> None:
    await player.play("fine")
    await player.break_off("kept", by="model_error")
    gone = await player.discard("gone")
    failed = await player.open("worse", "Hello")
    await failed.end("deadline")
    (unfinished,) = await store.unfinished(ACME, since_ms=0, limit=10)
    assert unfinished.ended_by == "model_error"
    found = await store.failures(ACME, since_ms=0, limit=10)
    assert {each.turn_id for each in found} == {unfinished.turn_id, failed.turn_id}
    assert gone.turn_id not in {each.turn_id for each in found}, "it was cancelled on purpose"
    assert await store.failures(ACME, since_ms=2**53, limit=10) == ()
    assert await store.failures(OTHERS, since_ms=0, limit=10) == ()


async def test_of_some_sessions_those_that_ask_or_have_failed_are_told(
    store: Store, player: Player
) -> None:
    quiet, asking, other = (
        await player.play("quiet"),
        await asks(player, "a"),
        await asks(player, "b"),
    )
    failed = await player.open("quiet", "Again")
    await failed.end("model_error")
    ids = [quiet.session_id, asking.session_id]
    found = await store.troubled(ACME, ids, since_ms=0)
    assert {each.turn_id for each in found} == {asking.turn_id, failed.turn_id}
    assert [each.turn_id for each in await store.troubled(ACME, ids, since_ms=2**53)] == [
        asking.turn_id
    ]
    assert await store.troubled(OTHERS, [*ids, other.session_id], since_ms=0) == ()
