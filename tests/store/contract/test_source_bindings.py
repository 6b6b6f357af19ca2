"""A session is moved to the agents of another source between turns, and in no other way. Promises 8 and 13."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.core.history.rebase import StaleRequest, rebased
from holdfast.errors import SessionGone, SessionMissing
from holdfast.ids import Minter, SessionId, Version
from holdfast.store.outcomes import Busy, Moved, Started
from holdfast.store.rows import SessionRow
from holdfast.store.store import Store
from holdfast.store.verification.findings import Finding
from holdfast.store.verification.verification import verify
from tests.store.builders import ACME, SOURCE, Player
from tests.store.contract.words import changes_nothing


async def test_a_session_keeps_the_given_name_of_its_first_source(
    store: Store, player: Player
) -> None:
    turn = await player.play("trip", source_name="bot")
    await player.play("trip", source_name="other")
    row = await store.session(ACME, turn.session_id)
    assert row is not None
    assert (row.source_key, row.source_name) == (SOURCE, "bot")
    assert (await player.snapshot("trip")).source_name == "bot"
    fork = await store.fork(ACME, turn.session_id, version=Version(1), fresh=player.mint(SessionId))
    assert fork.source_name == "bot"
    assert not [each async for each in verify(store) if isinstance(each, Finding)]


async def test_a_rebound_session_has_another_source_and_the_same_history(
    store: Store, player: Player
) -> None:
    turn = await player.play("trip", source_name="bot")
    before = await player.snapshot("trip")
    row = await store.rebind(
        ACME, turn.session_id, source_key="/new/clerk.yaml", source_name="desk", entry_agent="clerk"
    )
    assert isinstance(row, SessionRow) and row == await store.session(ACME, turn.session_id)
    after = await player.snapshot("trip")
    assert (after.source_key, after.source_name) == ("/new/clerk.yaml", "desk")
    assert (after.entry_agent, after.version, after.link) == ("clerk", before.version, before.link)
    assert tuple(after.items) == tuple(before.items)
    assert await store.snapshot(ACME, turn.session_id, known=before) == after
    assert after.notes.rebound is not None
    assert (after.notes.rebound.version, after.notes.rebound.rev) == (1, after.notes.rev)
    await player.play("trip", source_name="bot")
    later = await player.snapshot("trip")
    assert (later.source_key, later.source_name) == ("/new/clerk.yaml", "desk")
    assert not [each async for each in verify(store) if isinstance(each, Finding)]


async def test_rebinding_again_changes_nothing(store: Store, player: Player) -> None:
    turn = await player.play("trip")
    first = await store.rebind(ACME, turn.session_id, source_key="b.yaml")
    async with changes_nothing(store):
        assert await store.rebind(ACME, turn.session_id, source_key="b.yaml") == first


async def test_a_session_with_an_open_turn_is_not_rebound(store: Store, player: Player) -> None:
    """A turn is played, resumed and committed by the agents that it began with."""
    await player.play("trip")
    turn = await player.open("trip", "And back?")
    async with changes_nothing(store):
        outcome = await store.rebind(ACME, turn.session_id, source_key="b.yaml")
    assert isinstance(outcome, Busy) and outcome.turn_id == turn.turn_id


async def test_a_turn_that_was_prepared_before_a_rebind_does_not_begin(
    store: Store, player: Player
) -> None:
    turn = await player.play("trip")
    ask = await player.ask("trip", "And back?")
    await store.rebind(ACME, turn.session_id, source_key="b.yaml")
    assert isinstance(await store.begin(ask), Moved)
    assert isinstance(await player.begin("trip", "And back?"), Started)


async def test_of_a_begin_and_a_rebind_at_once_one_wins(store: Store, player: Player) -> None:
    turn = await player.play("trip")
    ask = await player.ask("trip", "And back?")
    begun, bound = await asyncio.gather(
        store.begin(ask), store.rebind(ACME, turn.session_id, source_key="b.yaml")
    )
    assert isinstance(begun, Started) == isinstance(bound, Busy), (begun, bound)
    assert isinstance(begun, Started | Moved)


async def test_a_queued_request_from_before_a_rebind_is_stale(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    before = (await player.ask("trip", "And back?")).request
    await store.rebind(ACME, turn.session_id, source_key="/x/b.yaml")
    after = (await player.ask("trip", "And back?")).request
    head = await player.snapshot("trip")
    stale = rebased(before, head, mint)
    assert isinstance(stale, StaleRequest) and stale.code == "agent_mismatch"
    assert "b.yaml" in stale.why and "/x" not in stale.why
    assert rebased(after, head, mint) == after


async def test_calls_that_waited_before_a_rebind_cannot_be_approved(
    store: Store, player: Player
) -> None:
    """A tool of the same name may do something else there."""
    turn = await player.open("trip", "Book it")
    await turn.answer(msgspec.structs.replace(turn.new_call("book"), waits_for="approval"))
    await turn.commit()
    assert (await player.snapshot("trip")).asked
    await store.rebind(ACME, turn.session_id, source_key="b.yaml")
    after = await player.snapshot("trip")
    assert after.waiting and not after.asked


async def test_sessions_that_are_not_there_cannot_be_rebound(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    async with changes_nothing(store):
        with pytest.raises(SessionMissing):
            await store.rebind(ACME, mint(SessionId), source_key="b.yaml")
    await store.remove(ACME, turn.session_id)
    with pytest.raises(SessionGone):
        await store.rebind(ACME, turn.session_id, source_key="b.yaml")
