"""Cancel, interrupt, steer: how wishes reach a turn's owner, and what happens when they come too late."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.core.items import UserMessage
from holdfast.core.turns import events as ev
from holdfast.errors import SessionMissing
from holdfast.ids import Minter, TurnId
from holdfast.store.outcomes import Committed, Signalled, ToldMore, TooLate, Unconsumed
from holdfast.store.rows import SignalKind, SignalRow
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player, Playing
from tests.store.contract.words import OtherPlayer, changes_nothing

KINDS: tuple[SignalKind, ...] = ("cancel", "interrupt", "steer")


async def test_a_signal_reaches_the_node_that_plays_the_turn(
    store: Store, player: Player, other_player: OtherPlayer, clock: ManualClock
) -> None:
    turn = await player.open("trip")
    outcome = await store.signal(ACME, turn.turn_id, kind="steer", payload=b"And quickly")

    assert isinstance(outcome, Signalled)
    assert await store.signals(player.node) == (
        SignalRow(
            tenant=ACME,
            turn_id=turn.turn_id,
            n=outcome.n,
            kind="steer",
            payload=b"And quickly",
            at_ms=clock.now_ms(),
        ),
    )
    assert await store.signals(other_player().node) == ()


async def test_signals_are_numbered_and_come_oldest_first(
    store: Store, player: Player, clock: ManualClock
) -> None:
    first, second = await player.open("trip"), await player.open("holiday")
    numbers = []
    for turn, kind in ((second, "steer"), (first, "cancel"), (second, "cancel")):
        outcome = await store.signal(ACME, turn.turn_id, kind=kind)  # type: ignore[arg-type]
        assert isinstance(outcome, Signalled)
        numbers.append(outcome.n)
        clock.advance(1)

    found = await store.signals(player.node)
    assert [(row.turn_id, row.kind) for row in found] == [
        (second.turn_id, "steer"),
        (first.turn_id, "cancel"),
        (second.turn_id, "cancel"),
    ]
    assert [row.n for row in found] == numbers
    assert numbers[2] > numbers[0]


async def test_a_consumed_signal_is_not_heard_again(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    for kind in KINDS:
        await store.signal(ACME, turn.turn_id, kind=kind)
    heard = await store.signals(player.node)

    await store.append(turn.fence, n=1, records=b"", consumed=[heard[0].n, heard[2].n])
    assert await store.signals(player.node) == (heard[1],)
    await store.append(turn.fence, n=1, records=b"", consumed=[heard[0].n])
    assert await store.signals(player.node) == (heard[1],)


async def test_signals_follow_the_turn_to_whoever_plays_it(
    store: Store, player: Player, other_player: OtherPlayer
) -> None:
    turn, other = await player.open("trip"), other_player()
    await other.renew()
    await store.signal(ACME, turn.turn_id, kind="cancel")
    await store.release(turn.fence)
    assert await store.signals(player.node) == ()

    await store.takeover(ACME, turn.session_id, node=other.node, nonce="theirs")
    [row] = await store.signals(other.node)
    assert row.turn_id == turn.turn_id


async def test_whoever_sent_a_signal_can_see_whether_it_was_heard(
    store: Store, player: Player, mint: Minter
) -> None:
    """Also when the turn has ended: what it did not hear begins the next one."""
    turn = await player.open("trip")
    for _ in range(2):
        await store.signal(ACME, turn.turn_id, kind="steer")
    heard, unheard = await store.signals(player.node)
    await hear(turn, heard)
    await turn.interrupt()
    await turn.commit()

    found = await store.find_signal(ACME, turn.turn_id, heard.n)
    assert found is not None and found.consumed
    assert await store.find_signal(ACME, turn.turn_id, unheard.n) == unheard
    assert await store.find_signal(ACME, turn.turn_id, 99) is None
    assert await store.find_signal(ACME, mint(TurnId), heard.n) is None


@pytest.mark.parametrize("kind", KINDS)
async def test_a_signal_that_comes_too_late_is_told_what_the_turn_became(
    store: Store, player: Player, kind: SignalKind
) -> None:
    kept, lost, gone = (
        await player.play("kept"),
        await player.discard("lost"),
        await player.open("gone"),
    )
    await store.remove(ACME, gone.session_id)
    await player.open("kept")
    for turn in (kept, lost, gone):
        async with changes_nothing(store, nodes=[player.node]):
            outcome = await store.signal(ACME, turn.turn_id, kind=kind)
        assert outcome == TooLate(turn=await turn.row())


async def test_a_turn_that_never_was_cannot_be_told_anything(
    store: Store, player: Player, mint: Minter
) -> None:
    with pytest.raises(SessionMissing):
        await store.signal(ACME, mint(TurnId), kind="cancel")


async def test_a_signal_that_is_to_be_the_next_one_is_refused_after_another(
    store: Store, player: Player
) -> None:
    """Whoever has decided what to say on top of what the turn was told has to decide again."""
    turn = await player.open("trip")
    for n in (0, 1):
        said = await store.signal(ACME, turn.turn_id, kind="steer", payload=b"%d" % n, after=n)
        assert said == Signalled(n=n + 1)
    for n in (0, 1, 3):
        async with changes_nothing(store, nodes=[player.node]):
            late = await store.signal(ACME, turn.turn_id, kind="steer", payload=b"late", after=n)
            assert late == ToldMore(n=2)
    assert await store.find_signal(ACME, turn.turn_id, 3) is None
    assert await store.signal(ACME, turn.turn_id, kind="cancel") == Signalled(n=3)


# ── steering against a commit ────────────────────────────────────────────────────────────────


async def test_a_commit_does_not_talk_over_somebody(store: Store, player: Player) -> None:
    """The client was told that its words were on their way; the turn plays another step instead."""
    turn = await player.open("trip", key="k")
    await turn.answer()
    await store.signal(ACME, turn.turn_id, kind="steer", payload=b"one")
    await store.signal(ACME, turn.turn_id, kind="cancel")
    await store.signal(ACME, turn.turn_id, kind="steer", payload=b"two")

    async with changes_nothing(store, claims=["k"], nodes=[player.node]):
        outcome = await turn.try_commit()
    assert isinstance(outcome, Unconsumed)
    assert [row.payload for row in outcome.signals] == [b"one", b"two"]

    await hear(turn, *outcome.signals)
    await turn.answer("All right")
    assert isinstance(await turn.try_commit(), Committed)


async def test_a_turn_that_cannot_hear_commits_and_leaves_what_was_said_to_it(
    store: Store, player: Player
) -> None:
    """Whoever plays it has no step in which to listen; the words begin the next turn."""
    turn = await player.open("trip", key="k")
    request = msgspec.structs.replace(turn.turn.request, hears=False)
    turn.turn = msgspec.structs.replace(turn.turn, request=request)
    await turn.answer()
    await store.signal(ACME, turn.turn_id, kind="steer", payload=b"one")
    [said] = await store.signals(player.node)

    assert isinstance(await turn.try_commit(), Committed)
    assert await store.find_signal(ACME, turn.turn_id, said.n) == said


async def test_what_was_heard_does_not_stop_a_commit(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    await store.signal(ACME, turn.turn_id, kind="steer")
    await hear(turn, *await store.signals(player.node))
    await turn.answer()
    assert isinstance(await turn.try_commit(), Committed)


@pytest.mark.parametrize("kind", ["cancel", "interrupt"])
async def test_a_cancel_that_was_not_heard_does_not_stop_a_commit(
    store: Store, player: Player, kind: SignalKind
) -> None:
    turn = await player.open("trip")
    await turn.answer()
    await store.signal(ACME, turn.turn_id, kind=kind)
    assert isinstance(await turn.try_commit(), Committed)


async def test_a_turn_that_broke_off_cannot_hear_anybody_any_more(
    store: Store, player: Player
) -> None:
    turn = await player.open("trip")
    await turn.call("look")
    await turn.interrupt("cancelled")
    await store.signal(ACME, turn.turn_id, kind="steer")
    assert isinstance(await turn.try_commit(), Committed)


async def test_a_steer_is_either_heard_or_told_that_it_was_too_late(
    store: Store, player: Player
) -> None:
    """Whoever wins: there is no way for words to get lost between the two."""
    turn = await player.open("trip")
    await turn.answer()
    said, committed = await asyncio.gather(
        store.signal(ACME, turn.turn_id, kind="steer"), turn.try_commit()
    )
    assert isinstance(said, Signalled) == isinstance(committed, Unconsumed)


async def test_the_signals_of_an_ended_turn_wait_for_nobody(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    await store.signal(ACME, turn.turn_id, kind="steer")
    await turn.end()
    await player.open("trip")
    assert await store.signals(player.node) == ()


async def hear(turn: Playing, *signals: SignalRow) -> None:
    items = tuple(turn.player.user("And quickly") for _ in signals)
    assert all(isinstance(each, UserMessage) for each in items)
    numbers = tuple(row.n for row in signals)
    await turn.record(ev.Steered(items=items, signals=numbers), consumed=numbers)  # type: ignore[arg-type]
