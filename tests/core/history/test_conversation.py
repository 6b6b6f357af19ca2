"""A session at one version never changes, whatever is done on top of it, beside it or from it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import encode
from holdfast.core.history import chain
from holdfast.core.history.conversation import (
    Annotation,
    Commit,
    Flagged,
    Notes,
    Patch,
    Rebinding,
    Segment,
    SettingsChanged,
    SettingsMerged,
    Snapshot,
    Summarized,
    Titled,
    Visibility,
    annotated,
    changed_memories,
    changed_state,
    commit_of,
    further,
    seen_by_model,
    waiting_calls,
)
from holdfast.core.items import (
    ForeignContent,
    ForeignItem,
    Opaque,
    Permissions,
    SessionSettings,
    item_id,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.turn import Turn, advance
from holdfast.ids import ItemId, NoteId, SessionId
from tests.core.builders import (
    after,
    answered,
    asked,
    begun,
    branch_opened,
    call,
    complete,
    finished,
    frozen,
    handed_off,
    interrupted,
    kept,
    mint,
    result,
    said,
    started,
    summary,
    user,
)
from tests.core.histories import (
    PLANS,
    Plan,
    bytes_of,
    commit_on,
    ending,
    histories,
    new_session,
    noted,
    played,
    session_after,
    turn_on,
    waiting_for,
    with_turn,
)

# ── commits ──────────────────────────────────────────────────────────────────────────────────


def test_a_commit_says_everything_that_the_store_has_to_write() -> None:
    note = ev.StateSet(name="todo", value='["pack"]')
    fly, tell = call("fly"), call("tell", waits_for="client")
    turn = after(
        turn_on(new_session(), user("Oslo!")),
        asked(),
        answered(fly),
        started(fly),
        finished(fly, changes=(note,)),
        handed_off("pilot"),
        asked(),
        answered(tell),
    )
    commit = commit_of(kept(turn), previous=chain.GENESIS)
    assert (commit.version, commit.turn_id) == (1, turn.request.turn_id)
    assert (commit.entry_agent, commit.agent) == ("butler", "pilot")
    assert commit.source_key == "agents/butler.yaml"
    assert commit.ended_by == "completed"
    assert commit.items == tuple(turn.items)
    assert commit.encoded == tuple(map(encode, turn.items))
    assert commit.changes == (note,)
    assert commit.waiting == (tell,)
    assert commit.usage == turn.usage
    assert len(commit.link) == 32


@pytest.mark.parametrize(
    "turn", [begun(), complete(), after(begun(), ev.Ended(by="crash", kept=False))]
)
def test_only_a_kept_turn_has_a_commit(turn: Turn) -> None:
    with pytest.raises(AssertionError):
        commit_of(turn, previous=chain.GENESIS)


def test_committing_moves_the_session_on_by_one_version() -> None:
    before = with_turn(new_session(), user("Hello"))
    commit = commit_on(
        before, after(turn_on(before, user("Oslo?")), asked(), answered(said("Yes")))
    )
    session = before.with_commit(commit)
    assert session.version == before.version.next == 2
    assert tuple(session.items) == (*before.items, *commit.items)
    assert session.link == commit.link
    mark = session.marks[-1]
    assert (mark.turn_id, mark.version, mark.link) == (commit.turn_id, 2, commit.link)
    assert session.items[mark.start : mark.end] == commit.items
    assert (mark.ended_by, mark.agent) == ("completed", "butler")


def test_a_commit_goes_on_top_of_its_base_and_nothing_else() -> None:
    base = new_session()
    commit = commit_on(base, after(turn_on(base), asked(), answered(said())))
    with pytest.raises(AssertionError, match="on top of its base"):
        base.with_commit(commit).with_commit(commit)


def test_the_first_commit_names_source_and_entry_agent_for_good() -> None:
    first = ending(new_session(), complete(source_key="agents/a.yaml", agent="butler"))
    then = ending(first, complete(base=1, source_key="agents/b.yaml", agent="pilot"))
    assert (then.source_key, then.entry_agent, then.agent) == ("agents/a.yaml", "butler", "pilot")


def test_an_interrupted_turn_is_marked_as_such() -> None:
    session = ending(new_session(), after(turn_on(new_session()), asked(), interrupted()))
    assert session.marks[-1].ended_by == "cancelled"


STATES = [
    ((), (), ()),
    ((("a", "1"),), (), (("a", "1"),)),
    ((("a", "1"),), (("a", "2"),), (("a", "2"),)),
    ((("b", "1"),), (("c", "3"), ("a", "2")), (("a", "2"), ("b", "1"), ("c", "3"))),
    ((("a", "1"), ("b", "2")), (("a", ""),), (("b", "2"),)),
    ((), (("a", "1"), ("a", "")), ()),
    ((), (("a", ""), ("a", "1")), (("a", "1"),)),
]


@pytest.mark.parametrize(("before", "sets", "then"), STATES)
def test_state_is_set_replaced_and_forgotten(before: Any, sets: Any, then: Any) -> None:
    changes = [ev.StateSet(name=name, value=value) for name, value in sets]
    assert changed_state(before, changes) == then


def test_memories_are_not_session_state() -> None:
    memory = ev.MemoryAdded(memory_id="m1", agent="butler", text="likes tea")
    gone = ev.MemoryDeleted(memory_id="m0", agent="butler")
    assert changed_state((("a", "1"),), (memory, gone)) == (("a", "1"),)


def test_memories_are_added_and_forgotten_each_agent_for_itself() -> None:
    def added(memory_id: str, text: str, agent: str = "butler") -> ev.MemoryAdded:
        return ev.MemoryAdded(memory_id=memory_id, agent=agent, text=text)

    changes = (
        added("m1", "other words"),
        added("m2", "has a cat"),
        added("m3", "not mine", agent="cook"),
        ev.MemoryDeleted(memory_id="m0", agent="butler"),
        ev.MemoryDeleted(memory_id="m1", agent="cook"),
        ev.MemoryDeleted(memory_id="m9", agent="butler"),
        ev.StateSet(name="todo", value="[]"),
    )
    before = {"m0": "likes milk", "m1": "likes tea"}
    expected = {"m1": "likes tea", "m2": "has a cat"}
    assert changed_memories(before, changes, agent="butler") == expected
    assert before == {"m0": "likes milk", "m1": "likes tea"}


@given(histories())
def test_what_waits_can_be_told_from_the_last_turn_alone(commits: tuple[Commit, ...]) -> None:
    """A store that loads a session need not have kept it anywhere else."""
    session = session_after(commits)
    mark = session.marks[-1]
    assert waiting_calls(session.items[mark.start : mark.end]) == session.waiting


def test_a_call_with_a_result_does_not_wait() -> None:
    tell, ask, run = call(waits_for="client"), call(waits_for="approval"), call()
    assert waiting_calls((tell, ask, run)) == (tell, ask)
    assert waiting_calls((tell, ask, run, result(tell), result(run))) == (ask,)


# ── annotations ──────────────────────────────────────────────────────────────────────────────


def test_annotations_are_folded_into_notes() -> None:
    message = user()
    short = summary(covers_to=0)
    settings = SessionSettings(working_directory="trip")
    session = new_session()
    for patch, item in (
        (Titled(title="Oslo"), None),
        (SettingsChanged(settings=settings), None),
        (Summarized(summary=short), None),
        (Flagged(name="liked", value="very"), message.id),
        (Flagged(name="pinned", value="yes"), None),
        (Visibility(to_people=False, to_model=False), message.id),
    ):
        session = noted(session, patch, item)
    assert session.notes == Notes(
        rev=6,
        title="Oslo",
        settings=settings,
        hidden_from_people=frozenset({message.id}),
        hidden_from_model=frozenset({message.id}),
        flags=frozenset({(message.id, "liked", "very"), (None, "pinned", "yes")}),
        summary=short,
        summary_rev=3,
    )


VISIBILITIES = [
    ((Visibility(to_model=False),), (False, True)),
    ((Visibility(to_people=False),), (True, False)),
    ((Visibility(to_people=False), Visibility(to_model=False)), (True, True)),
    ((Visibility(to_people=False, to_model=False), Visibility(to_people=True)), (False, True)),
    ((Visibility(to_model=False), Visibility(to_model=True)), (False, False)),
    ((Visibility(to_model=True), Visibility()), (False, False)),
]


@pytest.mark.parametrize(("patches", "hidden"), VISIBILITIES)
def test_the_last_word_about_visibility_counts_and_silence_says_nothing(
    patches: tuple[Patch, ...], hidden: tuple[bool, bool]
) -> None:
    session, item = new_session(), user().id
    for patch in patches:
        session = noted(session, patch, item)
    notes = session.notes
    assert (item in notes.hidden_from_people, item in notes.hidden_from_model) == hidden


def test_an_empty_flag_is_taken_away_and_others_stay() -> None:
    item = user().id
    session = noted(new_session(), Flagged(name="liked", value="very"), item)
    session = noted(session, Flagged(name="liked", value="so-so"))
    assert noted(session, Flagged(name="liked"), item).notes.flags == {(None, "liked", "so-so")}


def test_visibility_of_a_whole_session_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="visibility is an item's"):
        noted(new_session(), Visibility(to_model=False))


SETTINGS = st.sampled_from(
    [
        SessionSettings(),
        SessionSettings(permissions=Permissions(deny=("*",))),
        SessionSettings(evaluations=(Opaque(owner="eval", json='{"score" : 0.50}'),)),
        SessionSettings().with_attributes(topic="Oslo"),
    ]
)
PATCHES: st.SearchStrategy[Patch] = st.one_of(
    st.builds(Titled, title=st.text(max_size=3)),
    st.builds(Flagged, name=st.sampled_from("ab"), value=st.sampled_from(["", "1", "2"])),
    st.builds(SettingsChanged, settings=SETTINGS),
    st.builds(
        SettingsMerged,
        attributes=st.sampled_from(
            [(), (("topic", "Rome"),), (("topic", None), ("colour", "red"))]
        ),
        granted=st.sampled_from([(), ("fly",), ("pay", "fly")]),
    ),
    st.builds(Summarized, summary=st.builds(summary, covers_to=st.just(0))),
    st.builds(Visibility, to_people=st.none() | st.booleans(), to_model=st.none() | st.booleans()),
)
SOME_IDS = [user().id for _ in range(3)]


@st.composite
def said_afterwards(draw: st.DrawFn) -> list[Annotation]:
    patches = draw(st.lists(PATCHES, max_size=8))
    made = []
    for rev, patch in enumerate(patches, start=1):
        item = draw(
            st.sampled_from(SOME_IDS if isinstance(patch, Visibility) else [None, *SOME_IDS])
        )
        made.append(Annotation(rev=rev, patch=patch, item=item))
    return made


@given(made=said_afterwards(), at=st.integers(0, 8))
def test_notes_are_the_same_folded_one_by_one_in_parts_or_at_once(
    made: list[Annotation], at: int
) -> None:
    """A store folds what it reads; a live session folds what comes. Both must see the same."""
    at_once = annotated(Notes(), made)
    one_by_one = Notes()
    for each in made:
        one_by_one = annotated(one_by_one, [each])
    assert at_once == one_by_one == annotated(annotated(Notes(), made[:at]), made[at:])
    assert at_once.rev == len(made)


def test_the_summary_that_reaches_furthest_stands_and_the_later_of_equals() -> None:
    near, far, again = (summary(covers_to=n) for n in (3, 7, 7))
    assert further() is None
    assert further(None, near, None) is near
    assert further(far, near) is far
    assert further(far, again) is again


# ── forks ────────────────────────────────────────────────────────────────────────────────────


def test_a_fork_begins_as_its_parent_stands() -> None:
    parent = noted(with_turn(new_session(), user()), Titled(title="Oslo"))
    fork = parent.forked(mint(SessionId))
    same = msgspec.structs.replace(fork, session_id=parent.session_id, lineage=parent.lineage)
    assert same == parent
    (segment,) = fork.lineage
    assert (segment.session_id, segment.upto_version) == (parent.session_id, parent.version)
    assert (segment.upto_pos, segment.upto_rev) == (len(parent.items), 1)


def test_a_fork_of_a_fork_knows_where_every_position_lies() -> None:
    """Reading it walks no chain."""
    first = with_turn(new_session(), user())
    second = with_turn(first.forked(mint(SessionId)), user())
    third = with_turn(second.forked(mint(SessionId)), user())
    assert [(each.session_id, each.upto_pos) for each in third.lineage] == [
        (first.session_id, 2),
        (second.session_id, 4),
    ]
    assert tuple(third.items[:4]) == tuple(second.items)


def test_neither_a_fork_nor_its_parent_sees_what_the_other_does_next() -> None:
    parent = with_turn(new_session(), user("Hello"))
    fork = parent.forked(mint(SessionId))
    parents = with_turn(parent, user("North?"), answer="Oslo")
    forks = with_turn(fork, user("South?"), answer="Rome")
    assert [*map(item_id, parents.items)][:2] == [*map(item_id, forks.items)][:2]
    assert set(parents.items[2:]).isdisjoint(forks.items[2:])
    assert (len(parent.items), len(fork.items)) == (2, 2)


# ── nothing changes ──────────────────────────────────────────────────────────────────────────


def test_versions_of_one_line_share_one_log_and_those_that_part_do_not() -> None:
    """Appending costs what is new; only the second to go on from a place pays for a copy."""
    base = with_turn(new_session(), user())
    first, second = with_turn(base, user()), with_turn(base, user())
    assert first.items._shared is base.items._shared
    assert first.marks._shared is base.marks._shared
    assert second.items._shared is not base.items._shared
    assert with_turn(second, user()).items._shared is second.items._shared


class Act(msgspec.Struct, frozen=True):
    """Something done to one of the sessions that are alive."""

    to: int
    what: Plan | Patch | None
    item: int = 0

    def done(self, session: Snapshot) -> Snapshot:
        if self.what is None:
            return session.forked(mint(SessionId))
        if isinstance(self.what, Plan):
            return session.with_commit(played(session, self.what))
        return noted(session, self.what, self._item(session))

    def _item(self, session: Snapshot) -> ItemId | None:
        ids: list[ItemId | None] = [item_id(each) for each in session.items]
        choices = ids if isinstance(self.what, Visibility) else [None, *ids]
        return choices[self.item % len(choices)]


ACTS = st.lists(
    st.builds(
        Act,
        to=st.integers(0, 30),
        what=st.one_of(PLANS, PATCHES, st.none()),
        item=st.integers(0, 30),
    ),
    min_size=1,
    max_size=12,
)


@given(ACTS)
def test_nothing_done_through_a_copy_or_a_fork_changes_a_byte_of_any_earlier_value(
    acts: list[Act],
) -> None:
    """Promise 1. Settings, evaluations, state, annotations, items and marks are compared as bytes."""
    alive = [with_turn(new_session(), user("Hello"))]
    as_they_were = [bytes_of(alive[0])]
    for act in acts:
        alive.append(act.done(alive[act.to % len(alive)]))
        as_they_were.append(bytes_of(alive[-1]))
    assert [bytes_of(each) for each in alive] == as_they_were


def test_playing_a_turn_changes_neither_its_session_nor_any_earlier_state_of_it() -> None:
    """The working copy of promise 1: branches, drafts, tool definitions and item metadata too."""
    session = noted(with_turn(new_session(), user()), Titled(title="Oslo"))
    session_before = bytes_of(session)
    fly, ask = call("fly"), call("ask")
    message, extra = said(""), Opaque(owner="openai", json='{"sig" : 1}')
    turn = turn_on(
        session,
        msgspec.structs.replace(user("Go"), extras=(extra,)),
        client_tools=(ev.ToolDefinition(name="tell", parameters='{"type" : "object"}'),),
    )
    states, as_they_were = [turn], [frozen(turn)]
    for event in (
        asked(),
        ev.ItemOpened(item=message.id, kind="message"),
        ev.Grew(item=message.id, text="One"),
        ev.Grew(item=message.id, text=" moment", refusal=True),
        answered(msgspec.structs.replace(said("One"), id=message.id), fly, ask),
        started(fly),
        branch_opened(ask),
        asked((ask.id,)),
        finished(fly, changes=(ev.StateSet(name="todo", value="[]"),)),
        handed_off("pilot", path=()),
        answered(said("Done", path=(ask.id,))),
        finished(ask),
        asked(),
        interrupted(),
    ):
        turn = advance(turn, event)
        states.append(turn)
        as_they_were.append(frozen(turn))
    ending(session, turn)
    ending(session, after(states[0], asked(), answered(said("Otherwise"))))
    assert [frozen(each) for each in states] == as_they_were
    assert bytes_of(session) == session_before


def test_a_discarded_turn_leaves_everything_byte_for_byte() -> None:
    session = waiting_for(with_turn(new_session(), user()), call(waits_for="client"))
    before = bytes_of(session)
    turn = after(turn_on(session, user("Never mind")), asked(), answered(said("Well")))
    after(turn, ev.Ended(by="deadline", kept=False))
    assert bytes_of(session) == before


@given(histories())
def test_earlier_versions_stay_as_they_were_while_a_session_goes_on(
    commits: tuple[Commit, ...],
) -> None:
    versions = [new_session()]
    as_they_were = [bytes_of(versions[0])]
    for commit in commits:
        versions.append(versions[-1].with_commit(commit))
        as_they_were.append(bytes_of(versions[-1]))
    assert [bytes_of(each) for each in versions] == as_they_were
    assert [each.version for each in versions] == list(range(len(commits) + 1))


def test_merged_settings_leave_alone_what_they_do_not_name() -> None:
    before = SessionSettings(working_directory="/tmp/trip").with_attributes(topic="Oslo", year="1")
    session = noted(new_session(), SettingsChanged(settings=before))
    patch = SettingsMerged(attributes=(("topic", None), ("colour", "red")), granted=("pay", "fly"))
    session = noted(noted(session, patch), SettingsMerged(granted=("fly", "dig")))
    now = session.notes.settings
    assert now.attributes == (("colour", "red"), ("year", "1"))
    assert now.permissions.granted == ("dig", "fly", "pay")
    assert now.working_directory == "/tmp/trip"


def test_only_a_session_that_has_asked_can_be_answered() -> None:
    """A fork shows the calls of its past as waiting, and nobody can approve them there."""
    pay = call("pay", waits_for="approval")
    assert new_session().asked == ()
    session = waiting_for(new_session(), pay)
    assert session.asked == (pay,)
    here = Segment(
        session_id=session.session_id,
        upto_pos=len(session.items),
        upto_version=session.version,
        upto_rev=0,
    )
    fork = msgspec.structs.replace(session, lineage=(here,))
    assert fork.waiting == (pay,) and fork.asked == ()


def test_calls_from_before_a_session_was_moved_to_another_source_cannot_be_approved() -> None:
    """A tool of the same name may do something else there."""
    session = waiting_for(new_session(), call("pay", waits_for="approval"))
    moved = Rebinding(version=session.version, rev=session.notes.rev + 1)
    session = noted(session, moved.flag())
    assert session.notes.rebound == moved
    assert session.waiting and session.asked == ()
    (pay,) = session.waiting
    pay_again = call("pay", waits_for="approval")
    turn = after(turn_on(session, result(pay, outcome="refused"), user("Again")), asked())
    session = ending(session, after(turn, answered(pay_again)))
    assert session.asked == (pay_again,)


@pytest.mark.parametrize("value", ["", "1", "1 2 3", "one 2", "-1 2"])
def test_a_flag_that_names_no_version_and_revision_is_no_move(value: str) -> None:
    flagged = noted(new_session(), Flagged(name="agents.rebound", value=value))
    assert noted(flagged, Flagged(name="starred", value="1 2")).notes.rebound is None


def test_a_flag_of_an_item_moves_no_session() -> None:
    session = with_turn(new_session(), user())
    flag = Rebinding(version=1, rev=1).flag()
    assert noted(session, flag, item_id(session.items[0])).notes.rebound is None


def test_a_model_sees_only_foreign_items_that_have_a_text() -> None:
    silent, told = (
        ForeignItem(id=mint(NoteId), original=ForeignContent(kind="x", json="{}", text=text))
        for text in ("", "Searched: Oslo")
    )
    session = with_turn(new_session(), silent, told, user())
    shown = list(seen_by_model(session))
    assert told in shown and silent not in shown
