"""Turns in every state that we can think of, one conversation long.

Hypothesis plays model, tools, people, bad luck and fools, in any order; after each step everything that a
turn promises is looked at again. When it finds something, it prints the shortest story that leads there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar, get_args

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast import limits
from holdfast.core.codec import encode
from holdfast.core.history.checks import StoredTurn, check_history, check_turn
from holdfast.core.history.conversation import Snapshot, commit_of, waiting_calls
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    Item,
    Opaque,
    Outcome,
    Path,
    Reasoning,
    ToolCall,
    ToolResult,
    TurnLimits,
    WaitsFor,
    text_of,
)
from holdfast.core.turns import effects as wish
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import advanced, closing, resuming
from holdfast.core.turns.deltas import (
    Accumulator,
    Delta,
    ExtraDelta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.draft import Draft
from holdfast.core.turns.effects import wanted
from holdfast.core.turns.journal import Record, decode_records, encode_records, fold, numbered
from holdfast.core.turns.retries import retrying
from holdfast.core.turns.turn import Branch, Pending, Turn, advance, begin, committed_items
from holdfast.errors import IllegalEvent
from holdfast.ids import CallId, SessionId, TurnId
from tests.core.builders import (
    branch_opened,
    finished,
    frozen,
    handed_off,
    interrupted,
    mint,
    request,
    result,
    started,
    steered,
    summary,
    user,
)
from tests.core.players import first_of, fulfilled, how_it_ends, impossible, played_out

T = TypeVar("T")
Rule = TypeVar("Rule", bound=Callable[..., None])

Data = st.DataObject
INTERRUPTIONS: list[EndedBy] = [each for each in get_args(EndedBy) if each != "completed"]

texts = st.sampled_from(["Hi", "there.", " ", "\n", "ø", "{}", '{"a":', "1}"])
places = st.integers(0, 2)
extra = Opaque(owner="demo", json='"signed"')
deltas: st.SearchStrategy[Delta] = st.one_of(
    st.builds(ToolCallDelta, index=places, name=st.sampled_from(["fly", "look"]), arguments=texts),
    st.builds(ToolCallDelta, index=places, arguments=texts),
    st.builds(TextDelta, text=texts, index=places, refusal=st.booleans()),
    st.builds(ReasoningDelta, text=texts, index=places),
    st.builds(ExtraDelta, kind=st.sampled_from(["reasoning", "call"]), extra=st.just(extra)),
    st.builds(UsageDelta, usage=st.builds(ev.Usage, output_tokens=places, cost_micros=places)),
    st.builds(FinishDelta, finish=st.sampled_from(["stop", "tool_calls"])),
)
waits: st.SearchStrategy[WaitsFor | None] = st.sampled_from(
    [None, None, None, "client", "approval"]
)
bounds = st.builds(
    TurnLimits,
    steps_max=st.none() | st.integers(1, 6),
    calls_max=st.none() | st.integers(0, 6),
    output_chars_max=st.none() | st.integers(1, 60),
    cost_micros_max=st.none() | st.integers(0, 6),
)
changes = st.lists(
    st.one_of(
        st.builds(ev.StateSet, name=st.sampled_from(["todo", "mood"]), value=texts),
        st.builds(ev.MemoryAdded, memory_id=st.just("m1"), agent=st.just("butler"), text=texts),
    ),
    max_size=2,
).map(tuple)


def when(wants: Callable[[TurnMachine], object]) -> Callable[[Rule], Rule]:
    """A rule that applies while the machine has something for it."""
    return precondition(lambda machine: bool(wants(machine)))


class TurnMachine(RuleBasedStateMachine):
    """A conversation, its open turn and that turn's journal."""

    snapshot: Snapshot
    turn: Turn
    journal: list[Record]
    models: dict[Path, Accumulator]
    """The models that are speaking, by the branch that they speak in."""
    good_luck: int
    """How many records the turn is left in peace for, so that some grow large."""

    # ── what is there to choose from ─────────────────────────────────────────────────────────

    def going_on(self) -> bool:
        return not self.turn.ended and not self.turn.interrupted

    def out_of_luck(self) -> bool:
        return not self.turn.ended and len(self.journal) > self.good_luck

    def seldom(self, kind: type[ev.Event]) -> bool:
        """Whether this has hardly happened in the turn: what is always possible would crowd it."""
        return self.going_on() and self.happened[kind] < 2

    def silent(self) -> list[Branch]:
        if not self.going_on():
            return []
        return [each for each in self.turn.branches if each.idle and each.owes_answer]

    def speaking(self) -> list[Branch]:
        if self.turn.ended:
            return []
        return [each for each in self.turn.branches if each.path in self.models]

    def pending(self) -> list[Pending]:
        if self.turn.ended:
            return []
        return [each for branch in self.turn.branches for each in branch.pending]

    def runnable(self) -> list[Pending]:
        return [each for each in self.pending() if each.runnable] if self.going_on() else []

    def delegable(self) -> list[Pending]:
        return [each for each in self.runnable() if len(each.call.path) < limits.branch_depth_max]

    def untouched(self) -> list[Pending]:
        return [each for each in self.pending() if not each.may_have_run]

    def running(self) -> list[Pending]:
        return [each for each in self.pending() if isinstance(each.started, ev.ToolStarted)]

    def returning(self) -> list[Pending]:
        """Calls whose branch has nothing under way, whether it has said its last word or not."""
        idle = {each.path for each in self.turn.branches if each.idle}
        return [each for each in self.pending() if (*each.call.path, each.call.id) in idle]

    def wishes(self) -> list[wish.Effect]:
        """What it wants, but for its end, which has rules of its own."""
        ends = (wish.Finish, wish.Close)
        return [each for each in wanted(self.turn) if not isinstance(each, ends)]

    def happens(self, *happened: ev.Event) -> None:
        for event in happened:
            before = frozen(self.turn)
            after = advance(self.turn, event)
            assert frozen(self.turn) == before, "advancing changed the turn that it began from"
            self.turn = after
            self.happened[type(event)] += 1
            self.record(event)

    def record(self, event: ev.Event) -> None:
        first = self.journal[-1].n + 1 if self.journal else 0
        self.journal += numbered([event], first=first, at_ms=0)

    # ── beginnings ───────────────────────────────────────────────────────────────────────────

    @initialize(data=st.data())
    def a_conversation_begins(self, data: Data) -> None:
        self.snapshot = Snapshot(session_id=mint(SessionId))
        self.stored: list[StoredTurn] = []
        self.a_turn_begins(data)

    @when(lambda self: self.turn.ended)
    @rule(data=st.data())
    def another_turn_begins(self, data: Data) -> None:
        self.a_turn_begins(data)

    def a_turn_begins(self, data: Data) -> None:
        self.base = frozen(self.snapshot)
        carried = self.snapshot.waiting
        approved = tuple(
            each.id
            for each in carried
            if each.waits_for == "approval" and data.draw(st.booleans(), label="approved")
        )
        answers: list[Item] = [
            result(each, outcome="ok" if each.waits_for == "client" else "refused")
            for each in carried
            if each.id not in approved
        ]
        limited = data.draw(st.booleans(), label="limited")
        began = ev.Began(
            request=request(
                *answers,
                user(),
                base=self.snapshot.version,
                base_length=len(self.snapshot.items),
                carried=carried,
                approved=approved,
                limits=data.draw(bounds, label="limits") if limited else TurnLimits(),
            )
        )
        self.models, self.journal = {}, []
        self.good_luck = data.draw(st.integers(0, 30), label="good luck")
        self.happened: Counter[type[ev.Event]] = Counter()
        self.record(began)
        self.turn = _turn_of(self.journal)
        if self.turn.root.idle:
            self.ask_for_tools(data, self.turn.root, data.draw(st.integers(0, 4), label="calls"))

    # ── models ───────────────────────────────────────────────────────────────────────────────

    @when(silent)
    @rule(data=st.data())
    def a_model_is_asked(self, data: Data) -> None:
        self.ask(pick(data, self.silent()))

    def ask(self, branch: Branch) -> None:
        self.happens(ev.StepStarted(path=branch.path))
        self.models[branch.path] = Accumulator(mint, agent=branch.agent, path=branch.path)

    @when(speaking)
    @rule(data=st.data(), heard=st.lists(deltas, min_size=1, max_size=4))
    def a_model_speaks(self, data: Data, heard: list[Delta]) -> None:
        model = self.models[pick(data, self.speaking()).path]
        for delta in heard:
            self.happens(*model.events(delta))

    @when(speaking)
    @rule(data=st.data(), cut_off=st.booleans())
    def a_model_has_spoken(self, data: Data, cut_off: bool) -> None:
        path = pick(data, self.speaking()).path
        if cut_off:
            self.models[path].events(FinishDelta(finish="length"))
        self.conclude(data, path)

    def conclude(self, data: Data, path: Path) -> None:
        branch = self.turn.branch(path)
        assert branch is not None and branch.draft is not None

        def by_the_rules(item: ev.Answer) -> ev.Answer:
            if path or not isinstance(item, ToolCall) or item.state != "complete":
                return item
            waits_for = data.draw(waits, label="waits for")
            return msgspec.structs.replace(item, waits_for=waits_for)

        answered = self.models.pop(path).answered(branch.draft)
        items = tuple(map(by_the_rules, answered.items))
        self.happens(msgspec.structs.replace(answered, items=items))

    @when(silent)
    @rule(data=st.data(), calls=st.integers(1, 3))
    def a_model_asks_for_tools(self, data: Data, calls: int) -> None:
        self.ask_for_tools(data, pick(data, self.silent()), calls)

    def ask_for_tools(self, data: Data, branch: Branch, calls: int) -> None:
        """A whole step at once, so that there is much to choose from soon."""
        if calls:
            self.ask(branch)
            for n in range(calls):
                self.happens(*self.models[branch.path].events(ToolCallDelta(index=n, name="fly")))
            self.conclude(data, branch.path)

    @when(speaking)
    @rule(data=st.data())
    def a_step_breaks(self, data: Data) -> None:
        branch = pick(data, self.speaking())
        assert branch.draft is not None
        aside = not self.turn.interrupted or data.draw(st.booleans(), label="set aside")
        items = branch.draft.broken(
            agent=branch.agent, path=branch.path, state="set_aside" if aside else "interrupted"
        )
        usage = self.models.pop(branch.path).usage
        self.happens(ev.StepBroken(items=items, path=branch.path, usage=usage))

    # ── tools and sub-agents ─────────────────────────────────────────────────────────────────

    @when(runnable)
    @rule(data=st.data(), read_only=st.booleans(), idempotent=st.booleans())
    def a_tool_starts(self, data: Data, read_only: bool, idempotent: bool) -> None:
        call = pick(data, self.runnable()).call
        acted = self.turn.acted
        self.happens(started(call, read_only=read_only, idempotent=idempotent))
        assert self.turn.acted is (acted or not read_only)

    @when(running)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["ok", "error", "unknown"]),
        remembered=changes,
    )
    def a_tool_finishes(
        self, data: Data, outcome: Outcome, remembered: tuple[ev.Change, ...]
    ) -> None:
        call = pick(data, self.running()).call
        self.happens(finished(call, outcome=outcome, changes=remembered))

    @when(untouched)
    @rule(data=st.data(), outcome=st.sampled_from(["error", "refused", "not_run", "not_answered"]))
    def a_call_is_turned_down(self, data: Data, outcome: Outcome) -> None:
        self.happens(finished(pick(data, self.untouched()).call, outcome=outcome))

    @when(delegable)
    @rule(data=st.data(), calls=st.integers(0, 2))
    def a_sub_agent_takes_a_call_on(self, data: Data, calls: int) -> None:
        self.happens(branch_opened(pick(data, self.delegable()).call))
        self.ask_for_tools(data, self.turn.branches[-1], calls)

    @when(returning)
    @rule(data=st.data())
    def a_sub_agent_returns(self, data: Data) -> None:
        self.happens(finished(pick(data, self.returning()).call, "That is all I found."))

    # ── everything else that happens to a turn ───────────────────────────────────────────────

    @when(lambda self: self.seldom(ev.HandedOff))
    @rule(data=st.data())
    def an_agent_hands_off(self, data: Data) -> None:
        quiet = [each for each in self.turn.branches if each.draft is None]
        if quiet:
            self.happens(handed_off(path=pick(data, quiet).path))

    @when(lambda self: self.seldom(ev.Steered) and self.turn.root.idle)
    @rule()
    def a_person_steers(self) -> None:
        self.happens(steered("Louder"))
        assert not self.turn.complete

    @when(lambda self: self.seldom(ev.Compacted) and self.turn.root.draft is None)
    @rule()
    def history_is_summed_up(self) -> None:
        starts = [0, *(each.end for each in self.snapshot.marks)]
        self.happens(ev.Compacted(summary=summary(covers_to=starts[-1])))

    @when(lambda self: self.seldom(ev.Resumed))
    @rule(fine=st.booleans(), lost=st.integers(0, 4))
    def the_server_crashes_and_resumes(self, fine: bool, lost: int) -> None:
        """Its journal may lack fine events, and the last few that were not durable yet."""
        survived = [self.journal[0], *self.journal[1 : max(1, len(self.journal) - lost)]]
        self.journal = [each for each in survived if fine or not ev.is_fine(each.event)]
        self.models = {}
        self.turn = _turn_of(self.journal)
        results = len(self.turn.items)
        self.happens(*resuming(self.turn, mint, after="crash"))
        assert len(self.turn.items) >= results
        assert all(each.draft is None for each in self.turn.branches)
        assert self.running() == [], "nothing runs right after a crash"

    @when(lambda self: self.going_on() and self.out_of_luck())
    @rule(by=st.sampled_from(INTERRUPTIONS))
    def the_turn_is_interrupted(self, by: EndedBy) -> None:
        self.happens(interrupted(by))

    @when(lambda self: self.turn.interrupted and not self.turn.ended)
    @rule()
    def the_turn_is_closed(self) -> None:
        self.models = {}
        self.happens(*closing(self.turn, mint))

    @when(wishes)
    @rule(data=st.data())
    def a_wish_is_fulfilled(self, data: Data) -> None:
        self.happens(*fulfilled(self.turn, pick(data, self.wishes())))

    # ── ends ─────────────────────────────────────────────────────────────────────────────────

    @when(lambda self: not self.turn.ended and (self.turn.complete or self.turn.closed))
    @rule()
    def the_turn_is_kept(self) -> None:
        self.happens(ev.Ended(by=how_it_ends(self.turn), kept=True))
        commit = commit_of(self.turn, previous=self.snapshot.link)
        head = self.snapshot.with_commit(commit)
        assert frozen(self.snapshot) == self.base, "a commit changed the version before it"
        assert waiting_calls(commit.items) == head.waiting
        self.stored.append(
            StoredTurn(mark=head.marks[-1], encoded=commit.encoded, changes=commit.changes)
        )
        self.snapshot, self.base = head, frozen(head)
        assert list(check_history(self.stored)) == []

    @when(out_of_luck)
    @rule(by=st.sampled_from(INTERRUPTIONS))
    def the_turn_is_discarded(self, by: EndedBy) -> None:
        self.happens(ev.Ended(by=by, kept=False))

    # ── what is true after every step ────────────────────────────────────────────────────────

    @invariant()
    def the_journal_tells_the_same_turn(self) -> None:
        assert _turn_of(self.journal) == self.turn

    @invariant()
    def leaving_out_the_fine_records_changes_drafts_only(self) -> None:
        semantic = [each for each in self.journal if not ev.is_fine(each.event)]
        assert _turn_of(semantic) == _without_drafts(self.turn)

    @invariant()
    def its_totals_are_those_of_its_records(self) -> None:
        happened = [each.event for each in self.journal]
        spoken = [each for each in happened if isinstance(each, ev.Answered | ev.StepBroken)]
        asked = [each for each in happened if isinstance(each, ev.StepStarted) and not each.path]
        tools = [each for each in happened if isinstance(each, ev.ToolFinished)]
        last = [each.finish for each in spoken if isinstance(each, ev.Answered) and not each.path]

        assert self.turn.usage == sum((each.usage for each in spoken), ev.Usage())
        assert self.turn.output_chars == sum(map(_chars, spoken))
        assert self.turn.changes == tuple(each for tool in tools for each in tool.changes)
        assert self.turn.root.steps == len(asked)
        assert not (self.turn.complete and last[-1] == "length")

    @invariant()
    def closed_at_this_moment_it_would_be_whole(self) -> None:
        before = frozen(self.turn)
        turn = self.turn
        if turn.ended is None:
            if turn.interrupted is None:
                turn = advance(turn, interrupted("cancelled"))
            turn = advanced(turn, closing(turn, mint))
            assert closing(turn, mint) == ()
            turn = advance(turn, ev.Ended(by=how_it_ends(turn), kept=True))
            commit = commit_of(turn, previous=self.snapshot.link)
            assert commit.waiting == waiting_calls(commit.items) == ()
            self.snapshot.with_commit(commit)
        if turn.ended is not None and turn.ended.kept:
            assert check_turn(committed_items(turn), carried=turn.request.carried) == ()
        assert frozen(self.turn) == before, "closing a copy changed the turn"

    @invariant()
    def a_retry_goes_on_from_what_it_has_finished(self) -> None:
        """If it failed right now. Nothing that has its result is wanted again, and the retry comes to an end."""
        failed, happened = self._failing()
        if failed.ended is not None and failed.ended.kept:
            return
        fresh = begin(
            ev.Began(request=msgspec.structs.replace(failed.request, turn_id=mint(TurnId)))
        )
        again = advanced(fresh, retrying(fresh, failed, happened, mint))
        assert not any(each.lost for branch in again.branches for each in branch.pending)
        assert all(branch.draft is None for branch in again.branches)
        known, now = _results(failed), _results(again)
        assert all(now[call].outcome == "unknown" for call in now.keys() - known.keys())
        if failed.interrupted is None or failed.interrupted.by == "limit":
            assert again == fresh
        elif not self.happened[ev.Steered]:
            assert known.items() <= now.items()
            assert (again.changes, again.acted) == (failed.changes, failed.acted)
        end = played_out(again)
        assert end.ended is not None
        if end.ended.kept:
            assert check_turn(committed_items(end), carried=end.request.carried) == ()

    def _failing(self) -> tuple[Turn, list[ev.Event]]:
        """The turn as if it failed now, and what happened in it."""
        happened = [each.event for each in self.journal]
        if self.turn.ended is not None:
            return self.turn, happened
        last: list[ev.Event] = [] if self.turn.interrupted else [interrupted("model_error")]
        last.append(ev.Ended(by="model_error", kept=False))
        return advanced(self.turn, tuple(last)), [*happened, *last]

    @invariant()
    def the_conversation_has_not_changed(self) -> None:
        """Whatever was tried on top of it, and thrown away."""
        assert frozen(self.snapshot) == self.base

    @invariant()
    def the_impossible_is_refused_and_changes_nothing(self) -> None:
        before = frozen(self.turn)
        for event in impossible(self.turn):
            with pytest.raises(IllegalEvent):
                advance(self.turn, event)
        assert frozen(self.turn) == before

    @invariant()
    def a_record_that_comes_again_is_possible_or_refused(self) -> None:
        """Never an error of another kind, and never seen by the turn that it came to."""
        before = frozen(self.turn)
        for record in self.journal:
            try:
                advance(self.turn, record.event)
            except IllegalEvent:
                pass
        assert frozen(self.turn) == before

    @invariant()
    def it_wants_nothing_that_is_under_way(self) -> None:
        wishes = wanted(self.turn)
        assert len(set(map(encode, wishes))) == len(wishes)
        if self.turn.ended:
            assert wishes == ()
        assert all(each.owes_answer for each in self.turn.branches if each.pending)
        for effect in wishes:
            first = first_of(effect)
            if first is not None:
                assert effect not in wanted(advance(self.turn, first))

    @invariant()
    def doing_what_it_wants_comes_to_an_end(self) -> None:
        before = frozen(self.turn)
        end = played_out(self.turn)
        assert end.ended is not None
        if end.ended.kept:
            assert check_turn(committed_items(end), carried=end.request.carried) == ()
        assert frozen(self.turn) == before, "playing a copy changed the turn"


# ── small steps ──────────────────────────────────────────────────────────────────────────────


def _turn_of(journal: Sequence[Record]) -> Turn:
    """What these records tell, once they have been bytes."""
    told = fold(decode_records(encode_records(journal)))
    assert told.damage is None
    assert told.turn is not None
    return told.turn


def _without_drafts(turn: Turn) -> Turn:
    """The turn as a journal without fine events gives it."""
    branches = tuple(
        each if each.draft is None else msgspec.structs.replace(each, draft=Draft())
        for each in turn.branches
    )
    return msgspec.structs.replace(turn, branches=branches)


def _chars(spoken: ev.Answered | ev.StepBroken) -> int:
    return sum(len(_words(each)) for each in spoken.items)


def _words(item: ev.Answer) -> str:
    match item:
        case AssistantMessage():
            return text_of(item.content)
        case Reasoning():
            return item.text
        case ToolCall():
            return item.arguments


def _results(turn: Turn) -> dict[CallId, ToolResult]:
    return {each.call: each for each in turn.items if isinstance(each, ToolResult)}


def pick(data: Data, several: Sequence[T]) -> T:
    return several[data.draw(st.integers(0, len(several) - 1), label="which")]


def test_turns_keep_their_promises_whatever_happens() -> None:
    run_state_machine_as_test(TurnMachine, settings=settings(stateful_step_count=50))
