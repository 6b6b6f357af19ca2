"""What people say about a session afterwards: appended beside the items, never instead of them. Promise 7."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import limits
from holdfast.core.history.conversation import (
    Flagged,
    Patch,
    SettingsChanged,
    SettingsMerged,
    Summarized,
    Titled,
    Visibility,
)
from holdfast.core.items import SessionSettings, Summary
from holdfast.errors import InvalidValue, SessionGone, SessionMissing
from holdfast.ids import ItemId, MessageId, Minter, NoteId, SessionId
from holdfast.store.outcomes import Annotated, AnnotateOutcome, SummaryMoved
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.contract.words import changes_nothing


async def test_annotations_are_numbered_in_the_order_they_came(
    store: Store, player: Player, clock: ManualClock, mint: Minter
) -> None:
    turn = await player.play("trip")
    item = mint(MessageId)
    now = clock.advance(1)
    first = await said(store, turn.session_id, Titled(title="Oslo"))
    second = await store.annotate(
        ACME, turn.session_id, [(item, Flagged(name="good", value="yes")), (None, Titled(title=""))]
    )

    assert isinstance(first, Annotated) and isinstance(second, Annotated)
    made = (*first.annotations, *second.annotations)
    assert [(each.rev, each.item, each.at_ms) for each in made] == [
        (1, None, now),
        (2, item, now),
        (3, None, now),
    ]
    snapshot = await player.snapshot("trip")
    assert snapshot.notes.rev == 3
    assert snapshot.notes.flags == {(item, "good", "yes")}


async def test_annotations_are_seen_by_whoever_reads_next(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.play("trip")
    before = await player.snapshot("trip")
    [item, *_] = before.items
    assert isinstance(item.id, ItemId)  # type: ignore[union-attr]
    outcome = await store.annotate(
        ACME,
        turn.session_id,
        [
            (item.id, Visibility(to_model=False)),  # type: ignore[union-attr]
            (None, Titled(title="Oslo")),
            (None, SettingsChanged(settings=SETTINGS)),
        ],
    )
    assert isinstance(outcome, Annotated)
    after = await player.snapshot("trip")
    assert after == before.with_annotations(*outcome.annotations)
    assert after.items == before.items and after.link == before.link


async def test_a_row_knows_what_is_said_about_its_session_as_a_whole(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.play("trip", "When is the train?")
    clock.advance(1)
    await said(store, turn.session_id, Titled(title="Oslo"))
    await said(store, turn.session_id, SettingsChanged(settings=SETTINGS))

    session = await store.session(ACME, turn.session_id)
    assert session is not None
    assert (session.title, session.opening) == ("Oslo", "When is the train?")
    assert (session.settings, session.meta_rev) == (SETTINGS, 2)
    assert session.active_ms < clock.now_ms(), "remarks are not activity"


async def test_no_annotations_change_nothing(store: Store, player: Player) -> None:
    turn = await player.play("trip")
    async with changes_nothing(store):
        assert await store.annotate(ACME, turn.session_id, []) == Annotated(annotations=())


async def test_a_session_may_be_annotated_while_a_turn_is_open(
    store: Store, player: Player
) -> None:
    """Neither undoes the other: the turn commits, and the remark stays."""
    turn = await player.open("trip")
    await said(store, turn.session_id, Titled(title="Oslo"))
    await turn.answer()
    await turn.commit()

    snapshot = await player.snapshot("trip")
    assert (snapshot.version, snapshot.notes.title) == (1, "Oslo")
    assert (await turn.row()).rev == 1


async def test_a_discarded_turn_does_not_take_annotations_along(
    store: Store, player: Player
) -> None:
    turn = await player.open("trip")
    await said(store, turn.session_id, Titled(title="Oslo"))
    await turn.end()
    assert (await player.snapshot("trip")).notes.title == "Oslo"


async def test_many_remarks_at_once_each_get_their_own_revision(
    store: Store, player: Player
) -> None:
    turn = await player.play("trip")
    outcomes = await asyncio.gather(
        *(said(store, turn.session_id, Titled(title=f"{n}")) for n in range(6))
    )
    revs = [each.annotations[0].rev for each in outcomes if isinstance(each, Annotated)]
    assert sorted(revs) == [1, 2, 3, 4, 5, 6]


async def test_what_is_not_there_cannot_be_annotated(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    await store.remove(ACME, turn.session_id)
    async with changes_nothing(store):
        with pytest.raises(SessionGone):
            await said(store, turn.session_id, Titled(title="Oslo"))
        with pytest.raises(SessionMissing):
            await said(store, mint(SessionId), Titled(title="Oslo"))


# ── summaries ────────────────────────────────────────────────────────────────────────────────


async def test_a_summary_is_accepted_on_top_of_the_one_it_was_made_from(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    first, second = summary(mint, "They said hello."), summary(mint, "They met.")
    await said(store, turn.session_id, Titled(title="Oslo"))
    assert isinstance(await said(store, turn.session_id, first, summary_rev=0), Annotated)
    session = await store.session(ACME, turn.session_id)
    assert session is not None and session.summary_rev == 2

    await said(store, turn.session_id, Titled(title="Bergen"))
    assert isinstance(await said(store, turn.session_id, second, summary_rev=2), Annotated)
    notes = (await player.snapshot("trip")).notes
    assert (notes.summary, notes.summary_rev) == (second.summary, 4)


async def test_a_summary_of_something_older_is_refused(
    store: Store, player: Player, mint: Minter
) -> None:
    """Two compactions at once: the second would summarise what the first has replaced."""
    turn = await player.play("trip")
    await said(store, turn.session_id, summary(mint, "one"), summary_rev=0)
    async with changes_nothing(store):
        for stale in (0, 2):
            outcome = await said(store, turn.session_id, summary(mint, "two"), summary_rev=stale)
            assert outcome == SummaryMoved(summary_rev=1)


async def test_a_summary_does_not_mind_that_the_head_has_moved(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    await player.play("trip")
    await player.open("trip")
    outcome = await said(store, turn.session_id, summary(mint, "one"), summary_rev=0)
    assert isinstance(outcome, Annotated)


async def test_of_two_summaries_at_once_one_wins(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    outcomes = await asyncio.gather(
        *(
            said(store, turn.session_id, summary(mint, text), summary_rev=0)
            for text in ("one", "two", "three")
        )
    )
    assert sum(isinstance(each, Annotated) for each in outcomes) == 1
    assert outcomes.count(SummaryMoved(summary_rev=1)) == 2


# ── words ────────────────────────────────────────────────────────────────────────────────────

SETTINGS = SessionSettings(attributes=(("mood", "good"),))


def summary(mint: Minter, text: str) -> Summarized:
    return Summarized(summary=Summary(id=mint(NoteId), text=text, covers_to=1))


async def said(
    store: Store, session_id: SessionId, patch: Patch, *, summary_rev: int | None = None
) -> AnnotateOutcome:
    return await store.annotate(ACME, session_id, [(None, patch)], summary_rev=summary_rev)


async def test_two_who_change_settings_do_not_undo_each_other(store: Store, player: Player) -> None:
    turn = await player.play("trip")
    await said(store, turn.session_id, SettingsMerged(attributes=(("topic", "Oslo"),)))
    await said(store, turn.session_id, SettingsMerged(attributes=(("year", "1"),)))
    await said(store, turn.session_id, SettingsMerged(granted=("fly",)))
    session = await store.session(ACME, turn.session_id)
    assert session is not None
    assert session.settings == SessionSettings().with_attributes(topic="Oslo", year="1").granting(
        "fly"
    )
    assert session.settings == (await player.snapshot("trip")).notes.settings


@pytest.mark.parametrize(
    "patch",
    [
        SettingsMerged(attributes=tuple((f"a{n}", "1") for n in range(limits.attributes_max))),
        SettingsMerged(granted=tuple(f"t{n}" for n in range(limits.granted_tools_max + 1))),
    ],
)
async def test_settings_that_pass_their_bounds_change_nothing(
    store: Store, player: Player, patch: SettingsMerged
) -> None:
    turn = await player.play("trip")
    await said(store, turn.session_id, SettingsMerged(attributes=(("topic", "Oslo"),)))
    async with changes_nothing(store):
        with pytest.raises(InvalidValue, match="at most"):
            await said(store, turn.session_id, patch)
