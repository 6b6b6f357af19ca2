"""Ways in which a run can go wrong, done to the recording of a run that went right.

Each anomaly finds a place where it can happen, and returns the recording as it would have been. A checker that lets
one of them pass would not have seen the real one either.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import msgspec

from holdfast import limits
from holdfast.core.items import AssistantMessage, ToolResult, UserMessage, item_decoder, text_of
from holdfast.core.turns.events import Answered, Began, Ended, ToolFinished, ToolStarted
from holdfast.ids import IdempotencyKey, ItemId, SessionId, SessionKey, TurnId, Version
from holdfast.store.rows import ItemRow
from tests.simulation.checker import finished_in, has_all, opening_of, said_in
from tests.simulation.history import (
    Act,
    FoundSession,
    FoundTurn,
    Recording,
    Send,
    Shown,
    Takeover,
    Told,
)
from tests.simulation.world import EPOCH_MS

T = TypeVar("T")
R = TypeVar("R")

replaced = msgspec.structs.replace


class NoPlace(Exception):
    """A run offers no place for an anomaly."""


class Anomalies(dict[str, tuple[str, Callable[[R], R | None]]]):
    """By name: the rule that has to notice it, and how it is done; None comes of a run that offers no place for it."""

    def noticed_as(self, code: str) -> Callable[[Callable[[R], R]], Callable[[R], R]]:
        def register(anomaly: Callable[[R], R]) -> Callable[[R], R]:
            def done(run: R) -> R | None:
                try:
                    return anomaly(run)
                except NoPlace:
                    return None

            self[anomaly.__name__] = code, done
            return anomaly

        return register


ANOMALIES: Anomalies[Recording] = Anomalies()
noticed_as = ANOMALIES.noticed_as


# ── small steps ──────────────────────────────────────────────────────────────────────────────


def _acknowledged(run: Recording) -> list[Send]:
    return [send for send in run.sends if send.acknowledged and send.how == "began"]


def _turns(run: Recording) -> list[FoundTurn]:
    return [turn for session in run.sessions for turn in session.turns]


def _with_turn(run: Recording, turn_id: TurnId, **changes: Any) -> Recording:
    """The recording with another row for this turn."""
    return _mapped(
        run, lambda turn: replaced(turn, row=replaced(turn.row, **changes)), only=turn_id
    )


def _mapped(run: Recording, change: Callable[[FoundTurn], FoundTurn], *, only: TurnId) -> Recording:
    sessions = tuple(
        replaced(
            session,
            turns=tuple(
                change(turn) if turn.row.turn_id == only else turn for turn in session.turns
            ),
        )
        for session in run.sessions
    )
    return replaced(run, sessions=sessions)


def _with_send(run: Recording, old: Send, **changes: Any) -> Recording:
    sends = tuple(replaced(send, **changes) if send is old else send for send in run.sends)
    return replaced(run, sends=sends)


def _with_session(run: Recording, old: FoundSession, **changes: Any) -> Recording:
    sessions = tuple(replaced(each, **changes) if each is old else each for each in run.sessions)
    return replaced(run, sessions=sessions)


def _with_items(run: Recording, session: FoundSession, items: list[ItemRow]) -> Recording:
    return _with_session(run, session, dump=replaced(session.dump, items=tuple(items)))


def _live(run: Recording) -> list[FoundSession]:
    """The sessions that are looked after: what was deleted may lose anything at any time."""
    return [each for each in run.sessions if each.dump.session.state == "live"]


def _own_session(run: Recording) -> FoundSession:
    """A session with some turns of its own."""
    return first(
        each for each in _live(run) if sum(turn.row.seq is not None for turn in each.turns) > 1
    )


def first(found: Iterable[T | None]) -> T:
    """The first that is there. Raises NoPlace if there is none."""
    for each in found:
        if each is not None:
            return each
    raise NoPlace


# ── what was acknowledged ────────────────────────────────────────────────────────────────────


@noticed_as("lost_ack")
def an_acknowledged_turn_was_discarded(run: Recording) -> Recording:
    send = first(_acknowledged(run))
    return _with_turn(run, first([send.turn_id]), state="discarded", seq=None)


@noticed_as("lost_ack")
def an_acknowledged_turn_is_not_there(run: Recording) -> Recording:
    send = first(_acknowledged(run))
    sessions = tuple(
        replaced(
            session,
            turns=tuple(turn for turn in session.turns if turn.row.turn_id != send.turn_id),
        )
        for session in run.sessions
    )
    return replaced(run, sessions=sessions)


@noticed_as("lost_ack")
def a_turn_was_acknowledged_for_another_session(run: Recording) -> Recording:
    send = first(_acknowledged(run))
    other = SessionId.from_body("0" * 26)
    return _with_send(run, send, session_id=other)


@noticed_as("told_otherwise")
def a_client_was_told_another_version(run: Recording) -> Recording:
    send = first(_acknowledged(run))
    return _with_send(run, send, told=replaced(first([send.told]), version=Version(99)))


@noticed_as("told_otherwise")
def a_cancel_was_answered_with_something_else(run: Recording) -> Recording:
    send = first(_acknowledged(run))
    untrue = Told(kept=False, by="cancelled", version=None)
    act = Act(kind="cancel", turn_id=send.turn_id, told=untrue)
    return replaced(run, acts=(*run.acts, act))


@noticed_as("refused_present")
def a_refused_request_became_a_turn(run: Recording) -> Recording:
    """The failed turn is in the history."""
    send = first(each for each in _acknowledged(run) if each.attempt == 0 and not each.hasty)
    sends = tuple(each for each in run.sends if each.op != send.op)
    refused = replaced(send, outcome="refused", error="conversation_locked", told=None)
    return replaced(run, sends=(*sends, refused))


@noticed_as("twice")
def a_turn_is_there_twice(run: Recording) -> Recording:
    send = first(each for each in _acknowledged(run) if len(_op(run, each)) == 1)
    session = first(each for each in run.sessions if _holds(each, send))
    turn = next(each for each in session.turns if each.row.turn_id == send.turn_id)
    row = replaced(turn.row, turn_id=TurnId.from_body("1" * 26))
    return _with_session(run, session, turns=(*session.turns, replaced(turn, row=row)))


def _op(run: Recording, send: Send) -> list[Send]:
    return [each for each in run.sends if each.op == send.op]


def _holds(session: FoundSession, send: Send) -> bool:
    return any(turn.row.turn_id == send.turn_id for turn in session.turns)


@noticed_as("mangled")
def an_acknowledged_turn_says_something_else(run: Recording) -> Recording:
    send = first(_acknowledged(run))
    return _mapped(
        run,
        lambda turn: replaced(
            turn, items=tuple(each for each in turn.items if isinstance(each, AssistantMessage))
        ),
        only=first([send.turn_id]),
    )


@noticed_as("out_of_order")
def two_turns_changed_places(run: Recording) -> Recording:
    """One that was acknowledged comes after one that was asked for later."""
    for session in run.sessions:
        kept = [turn for turn in session.turns if turn.row.seq is not None]
        for early, late in itertools.pairwise(kept):
            before = _send_of(run, early)
            after = _send_of(run, late)
            if before is None or after is None or not before.acknowledged:
                continue
            if before.done_s < min(each.invoked_s for each in _op(run, after)):
                swapped = _with_turn(run, early.row.turn_id, seq=late.row.seq)
                swapped = _with_turn(swapped, late.row.turn_id, seq=early.row.seq)
                told = replaced(before.told, version=late.row.seq) if before.told else None
                return _with_send(swapped, before, told=told)
    raise NoPlace


def _send_of(run: Recording, turn: FoundTurn) -> Send | None:
    return next(
        (each for each in run.sends if each.turn_id == turn.row.turn_id and each.how == "began"),
        None,
    )


@noticed_as("unfair")
def the_second_in_line_went_first(run: Recording) -> Recording:
    """A node that had talked to the session lets a later request in before an earlier one."""
    if any(act.kind in ("reset", "rewind", "delete") for act in run.acts):
        raise NoPlace
    plain = [
        send
        for send in _acknowledged(run)
        if send.on_busy == "wait" and send.key is None and not send.counted
    ]
    for known in _acknowledged(run):
        later = [
            send
            for send in plain
            if (send.node, send.name) == (known.node, known.name) and send.invoked_s > known.done_s
        ]
        if len(later) > 1:
            one, other = later[:2]
            swapped = _with_send(run, one, place=other.place)
            return _with_send(swapped, other, place=one.place)
    raise NoPlace


@noticed_as("unexplained")
def a_player_gave_up_for_no_reason(run: Recording) -> Recording:
    turn = first(each for each in _turns(run) if each.row.ended_by == "completed")
    detail = "the player stopped in the middle"
    return _with_turn(run, turn.row.turn_id, ended_by="model_error", detail=detail)


@noticed_as("wrong_base")
def a_stale_write_was_let_through(run: Recording) -> Recording:
    """A turn stands on a version that was not the head any more."""
    turn = first(each for each in _turns(run) if each.row.seq and each.row.seq > 1)
    return _with_turn(run, turn.row.turn_id, base_head=Version(0))


@noticed_as("wrong_base")
def a_demanded_version_was_not_looked_at(run: Recording) -> Recording:
    send = first(_acknowledged(run))
    return _with_send(run, send, if_match=Version(77))


# ── ends ─────────────────────────────────────────────────────────────────────────────────────


@noticed_as("uninvited")
def a_turn_that_nobody_asked_for(run: Recording) -> Recording:
    send = first(_acknowledged(run))
    return replaced(run, sends=tuple(each for each in run.sends if each.op != send.op))


@noticed_as("against_policy")
def a_turn_that_failed_was_kept(run: Recording) -> Recording:
    careful = {send.text for send in run.sends if send.policy.error == "auto"}
    done = [each for each in _turns(run) if each.row.ended_by == "completed" and not each.acted]
    turn = first(each for each in done if opening_of(each) in careful)
    return _with_turn(run, turn.row.turn_id, ended_by="model_error")


@noticed_as("against_policy")
def a_turn_that_acted_was_forgotten(run: Recording) -> Recording:
    turn = first(each for each in _turns(run) if each.acted and each.row.state == "committed")
    return _with_turn(run, turn.row.turn_id, state="discarded", seq=None, ended_by="crash")


@noticed_as("against_policy")
def a_turn_that_was_to_be_resumed_was_ended(run: Recording) -> Recording:
    keyed = {send.text for send in run.sends if send.policy.crash == "resume"}
    turn = first(each for each in _turns(run) if opening_of(each) in keyed and each.row.lease_token)
    return _with_turn(run, turn.row.turn_id, ended_by="crash", attempt=1)


@noticed_as("unexplained")
def a_turn_was_cancelled_by_nobody(run: Recording) -> Recording:
    turn = first(each for each in _turns(run) if each.row.ended_by == "completed")
    if any(send.on_busy == "interrupt" for send in run.sends):
        raise NoPlace
    run = _with_turn(run, turn.row.turn_id, ended_by="cancelled")
    return replaced(run, acts=tuple(act for act in run.acts if act.kind != "cancel"))


@noticed_as("unexplained")
def two_nodes_killed_each_other(run: Recording) -> Recording:
    turn = first(each for each in _turns(run) if each.row.ended_by == "completed")
    return _with_turn(run, turn.row.turn_id, ended_by="superseded")


@noticed_as("trace_left")
def a_discarded_turn_left_an_item(run: Recording) -> Recording:
    session = first(each for each in run.sessions if each.dump.items)
    last = session.dump.items[-1]
    stray = replaced(last, pos=last.pos + 1, turn_id=TurnId.from_body("2" * 26))
    return _with_items(run, session, [*session.dump.items, stray])


@noticed_as("malformed")
def a_call_lost_its_result(run: Recording) -> Recording:
    for session in _live(run):
        for at, row in enumerate(session.dump.items):
            if isinstance(item_decoder.lenient(row.body), ToolResult):
                left = [*session.dump.items[:at], *session.dump.items[at + 1 :]]
                return _with_items(run, session, left)
    raise NoPlace


@noticed_as("malformed")
def a_history_was_rewritten(run: Recording) -> Recording:
    session = _own_session(run)
    oldest, *rest = session.dump.items
    forged = replaced(oldest, body=oldest.body.replace(b'"text":"', b'"text":"not '))
    return _with_items(run, session, [forged, *rest])


@noticed_as("malformed")
def a_turn_vanished_from_the_middle(run: Recording) -> Recording:
    session = _own_session(run)
    kept = [turn for turn in session.dump.turns if turn.seq is not None]
    gone = kept[0].turn_id
    turns = tuple(turn for turn in session.dump.turns if turn.turn_id != gone)
    return _with_session(run, session, dump=replaced(session.dump, turns=turns))


# ── effects ──────────────────────────────────────────────────────────────────────────────────


@noticed_as("effect_twice")
def a_tool_acted_twice(run: Recording) -> Recording:
    effect = first(each for each in run.effects if each.kind == "act")
    again = replaced(effect, node="another", at_s=effect.at_s + 20)
    return replaced(run, effects=(*run.effects, again))


@noticed_as("effect_denied")
def a_tool_acted_and_is_said_not_to_have_run(run: Recording) -> Recording:
    kept = {turn.row.turn_id for turn in _turns(run) if turn.row.state == "committed"}
    effect = first(each for each in run.effects if each.turn_id in kept)
    return _mapped(
        run,
        lambda turn: replaced(
            turn,
            items=tuple(
                replaced(each, outcome="not_run")
                if isinstance(each, ToolResult) and each.call == effect.key
                else each
                for each in turn.items
            ),
        ),
        only=effect.turn_id,
    )


@noticed_as("effect_unintended")
def a_tool_acted_before_its_intent_was_durable(run: Recording) -> Recording:
    told = {turn.row.turn_id for turn in _turns(run) if turn.journal}
    effect = first(each for each in run.effects if each.turn_id in told)
    return _mapped(
        run,
        lambda turn: replaced(
            turn,
            journal=tuple(
                each
                for each in turn.journal
                if not (isinstance(each.event, ToolStarted) and each.event.call == effect.key)
            ),
        ),
        only=effect.turn_id,
    )


@noticed_as("step_repeated")
def a_retry_asked_for_a_finished_step_again(run: Recording) -> Recording:
    turns = {turn.row.turn_id: turn for turn in _turns(run)}
    for turn in turns.values():
        failed = turns.get(turn.row.retry_of) if turn.row.retry_of else None
        taken_over = finished_in(turn) & finished_in(failed) if failed else set()
        if taken_over and finished_in(turn) - taken_over:
            return _mapped(run, partial(_without, known=taken_over), only=turn.row.turn_id)
    raise NoPlace


def _without(turn: FoundTurn, known: set[ItemId]) -> FoundTurn:
    """The turn as if it had never heard of these."""

    def is_known(each: Shown) -> bool:
        match each.event:
            case Answered(items=items):
                return any(item.id in known for item in items)
            case ToolFinished(result=result):
                return result.id in known
        return False

    return replaced(turn, journal=tuple(each for each in turn.journal if not is_known(each)))


@noticed_as("step_misplaced")
def a_retry_took_over_steps_of_another_session(run: Recording) -> Recording:
    turns = {turn.row.turn_id: turn for turn in _turns(run)}
    for turn in turns.values():
        failed = turns.get(turn.row.retry_of) if turn.row.retry_of else None
        if failed is not None and finished_in(turn) & finished_in(failed):
            elsewhere = SessionId.from_body("2" * 26)
            return _with_turn(run, failed.row.turn_id, session_id=elsewhere)
    raise NoPlace


# ── keys ─────────────────────────────────────────────────────────────────────────────────────


@noticed_as("mangled")
def a_keyed_request_was_answered_by_a_turn_that_never_heard_it(run: Recording) -> Recording:
    """It was said to the turn, and the turn has ended before it listened."""
    send = first(each for each in _acknowledged(run) if each.key)
    for session in run.sessions:
        for turn in session.turns:
            said = said_in(turn.items)
            if turn.row.state == "committed" and said and send.text not in said:
                return _with_send(run, send, turn_id=turn.row.turn_id, how="joined")
    raise NoPlace


@noticed_as("key_turns")
def a_keyed_request_was_heard_by_two_turns(run: Recording) -> Recording:
    heard = [each for each in run.sends if each.how == "steered" and each.acknowledged]
    send = first(each for each in heard if each.attempt == 0)
    kept = [turn for turn in _turns(run) if turn.row.state == "committed"]
    hearing = first(turn for turn in kept if turn.row.turn_id == send.turn_id)
    other = first(turn for turn in kept if turn.row.turn_id != send.turn_id)
    words = tuple(
        item
        for item in hearing.items
        if isinstance(item, UserMessage) and text_of(item.content) == send.text
    )
    run = _with_send(run, send, key=IdempotencyKey("k"))
    return _mapped(
        run,
        lambda turn: replaced(turn, items=(*turn.items, *words)),
        only=other.row.turn_id,
    )


@noticed_as("key_split")
def two_first_requests_started_two_sessions(run: Recording) -> Recording:
    named = [each for each in _acknowledged(run) if isinstance(each.name, SessionKey)]
    moved = {act.name for act in run.acts if act.kind in ("reset", "rewind", "delete")}
    for send in named:
        if send.name not in moved and [each.name for each in named].count(send.name) > 1:
            return _with_send(run, send, session_id=SessionId.from_body("3" * 26))
    raise NoPlace


@noticed_as("key_turns")
def a_keyed_request_ran_twice(run: Recording) -> Recording:
    send = first(each for each in _acknowledged(run) if each.key)
    session = first(each for each in run.sessions if _holds(each, send))
    turn = next(each for each in session.turns if each.row.turn_id == send.turn_id)
    row = replaced(turn.row, turn_id=TurnId.from_body("4" * 26))
    return _with_session(run, session, turns=(*session.turns, replaced(turn, row=row)))


@noticed_as("key_answers")
def a_keyed_retry_was_answered_otherwise(run: Recording) -> Recording:
    send = first(each for each in _acknowledged(run) if each.key)
    return replaced(run, sends=(*run.sends, replaced(send, answer=send.answer + "!", attempt=9)))


@noticed_as("key_answers")
def a_keyed_retry_was_answered_by_another_turn(run: Recording) -> Recording:
    send = first(each for each in _acknowledged(run) if each.key)
    again = replaced(send, turn_id=TurnId.from_body("5" * 26), attempt=9)
    return replaced(run, sends=(*run.sends, again))


# ── watching ─────────────────────────────────────────────────────────────────────────────────


def _replayable(run: Recording) -> list[int]:
    kept = {turn.row.turn_id for turn in _turns(run) if has_all(turn)}
    return [
        at
        for at, each in enumerate(run.watched)
        if each.turn_id in kept and each.whole and len(each.shown) > 2
    ]


def _with_shown(
    run: Recording, change: Callable[[tuple[Shown, ...]], tuple[Shown, ...]]
) -> Recording:
    at = first(_replayable(run))
    watched = list(run.watched)
    watched[at] = replaced(watched[at], shown=change(watched[at].shown))
    return replaced(run, watched=tuple(watched))


@noticed_as("watch_differs")
def a_watcher_saw_what_was_never_durable(run: Recording) -> Recording:
    def change(shown: tuple[Shown, ...]) -> tuple[Shown, ...]:
        ends = [Ended(by="cancelled", kept=False), Ended(by="limit", kept=False)]
        other = next(each for each in ends if each != shown[-1].event)
        return (*shown[:-1], replaced(shown[-1], event=other))

    return _with_shown(run, change)


@noticed_as("watch_disorder")
def a_watcher_missed_something(run: Recording) -> Recording:
    return _with_shown(run, lambda shown: (*shown[:1], *shown[2:]))


@noticed_as("watch_disorder")
def a_watcher_saw_something_twice(run: Recording) -> Recording:
    return _with_shown(run, lambda shown: (*shown[:2], *shown[1:]))


@noticed_as("watch_disorder")
def a_watcher_was_let_go_too_early(run: Recording) -> Recording:
    return _with_shown(run, lambda shown: shown[:-1])


@noticed_as("stale_notes")
def a_turn_was_played_on_old_notes(run: Recording) -> Recording:
    played = first(each for each in run.played if _asked_late(run, each.turn_id))
    turn = first(each for each in _turns(run) if each.row.turn_id == played.turn_id)
    note = Act(
        kind="annotate", session_id=turn.row.session_id, rev=played.base_rev + 1, done_s=1e-9
    )
    return replaced(run, acts=(*run.acts, note))


def _asked_late(run: Recording, turn_id: TurnId) -> bool:
    turn = next((each for each in _turns(run) if each.row.turn_id == turn_id), None)
    op = [send for send in run.sends if turn and send.text == opening_of(turn)]
    return bool(op) and min(send.invoked_s for send in op) > 1e-6


# ── afterwards ───────────────────────────────────────────────────────────────────────────────


@noticed_as("stopped_resumed")
def a_turn_that_was_to_be_stopped_is_played_on(run: Recording) -> Recording:
    played = first(run.played)
    taken = Takeover(
        turn_id=played.turn_id,
        node=played.node,
        token=played.token,
        at_s=played.at_s,
        stopped=True,
    )
    return replaced(run, takeovers=(*run.takeovers, taken))


@noticed_as("reborn")
def whoever_waited_for_a_deleted_session_got_another(run: Recording) -> Recording:
    if run.crashes or run.shutdowns:
        raise NoPlace
    for held, late in itertools.pairwise(_acknowledged(run)):
        if held.turn_id is None or not isinstance(held.name, SessionKey):
            continue
        deleted = Act(
            kind="delete",
            name=held.name,
            session_id=held.session_id,
            invoked_s=1_000_002.0,
            done_s=1_000_003.0,
        )
        waited = replaced(
            late,
            name=held.name,
            node=held.node,
            on_busy="wait",
            queues=False,
            if_match=None,
            session_id=SessionId.from_body("3" * 26),
            came_s=1_000_001.0,
        )
        sends = tuple(waited if each is late else each for each in run.sends)
        acts = tuple(each for each in run.acts if each.kind not in ("reset", "rewind"))
        played = tuple(replaced(each, until_s=math.inf) for each in run.played)
        run = replaced(run, sends=sends, acts=(*acts, deleted), played=played)
        return _with_turn(run, held.turn_id, ended_by="deleted")
    raise NoPlace


@noticed_as("after_delete")
def a_deleted_session_went_on(run: Recording) -> Recording:
    turn = first(each for each in _turns(run) if each.row.state == "committed")
    return _deleted_before(run, turn)


@noticed_as("after_delete")
def a_deleted_session_was_waited_for(run: Recording) -> Recording:
    turn = first(each for each in _turns(run) if not each.row.lease_token)
    return _deleted_before(run, turn)


def _deleted_before(run: Recording, turn: FoundTurn) -> Recording:
    before_s = (turn.row.ended_ms - EPOCH_MS) / 1000 - 1
    act = Act(kind="delete", session_id=turn.row.session_id, done_s=before_s)
    return replaced(run, acts=(act, *run.acts))


@noticed_as("stuck")
def a_session_was_refused_after_the_last_fault(run: Recording) -> Recording:
    probe = first(each for each in run.sends if each.probe and each.outcome == "ended")
    return _with_send(run, probe, outcome="refused", error="conversation_locked", told=None)


@noticed_as("stuck")
def a_session_took_too_long_after_the_last_fault(run: Recording) -> Recording:
    probe = first(each for each in run.sends if each.probe and each.outcome == "ended")
    return _with_send(run, probe, done_s=probe.invoked_s + run.patience_s + 1)


@noticed_as("left_open")
def a_turn_is_still_open(run: Recording) -> Recording:
    turn = first(_turns(run))
    return _with_turn(run, turn.row.turn_id, state="open", ended_by=None)


@noticed_as("left_open")
def a_turn_still_waits(run: Recording) -> Recording:
    turn = first(_turns(run))
    return _with_turn(run, turn.row.turn_id, state="queued", ended_by=None)


@noticed_as("overtaken")
def the_second_of_those_that_wait_was_opened_first(run: Recording) -> Recording:
    opened = {each.turn_id for each in run.queueings if each.opened}
    came = [each for each in run.queueings if not each.opened and each.turn_id in opened]
    for one, other in itertools.combinations(came, 2):
        if one.session_id == other.session_id:
            swapped = {one.turn_id: other.turn_id, other.turn_id: one.turn_id}
            return replaced(
                run,
                queueings=tuple(
                    replaced(each, turn_id=swapped.get(each.turn_id, each.turn_id))
                    if each.opened
                    else each
                    for each in run.queueings
                ),
            )
    raise NoPlace


@noticed_as("against_policy")
def a_turn_that_never_began_was_kept(run: Recording) -> Recording:
    turn = first(each for each in _turns(run) if each.row.state == "committed")
    return _with_turn(run, turn.row.turn_id, lease_token=0)


@noticed_as("left_open")
def a_session_is_still_held(run: Recording) -> Recording:
    session = first(each for each in run.sessions if each.turns)
    return _with_session(run, session, open_turn=session.turns[0].row.turn_id)


@noticed_as("found")
def verify_found_something(run: Recording) -> Recording:
    return replaced(run, findings=("acme/conv_1: not_dense",))


@noticed_as("said_again")
def a_retry_began_anew(run: Recording) -> Recording:
    """A retry stands on a turn that broke off, and does not go on with it."""
    known = {turn.row.turn_id: turn for turn in _turns(run)}
    for send in run.sends:
        turn = known.get(send.turn_id) if send.turn_id else None
        before = [
            each
            for each in run.sends
            if each.text == send.text and each.invoked_s < send.invoked_s and each.how != "steered"
        ]
        if turn is None or turn.row.continues is None or send.how != "began" or not before:
            continue
        last = max(before, key=lambda each: each.invoked_s)
        if last.turn_id == turn.row.continues:
            return _with_turn(run, turn.row.turn_id, continues=None)
    raise NoPlace


@noticed_as("gone_on_too_often")
def a_fourth_retry_went_on(run: Recording) -> Recording:
    for turn in _turns(run):
        began = turn.journal[0].event if turn.journal else None
        if turn.row.continues is not None and isinstance(began, Began) and began.request.links:
            return _with_turn(run, turn.row.continues, links=limits.continuations_max)
    raise NoPlace


@noticed_as("leftover")
def a_lane_was_never_left(run: Recording) -> Recording:
    return replaced(run, leftovers=("n1 has 1 lanes that somebody is in",))


# ── what clients resend, and how long turns have ─────────────────────────────────────────────


@noticed_as("unanswered")
def a_failure_is_told_for_ever(run: Recording) -> Recording:
    send = first(each for each in _acknowledged(run) if each.persistent)
    failure = replaced(first([send.told]), by="model_error")
    sends = tuple(
        replaced(each, told=failure) if each.op == send.op else each for each in run.sends
    )
    return replaced(run, sends=sends)


@noticed_as("resent_lost")
def a_message_of_a_hasty_client_vanishes(run: Recording) -> Recording:
    hasty = first(send for send in run.sends if send.hasty)
    lost = replaced(hasty, text="says-nothing-that-was-kept")
    return replaced(run, sends=(*run.sends, lost))


@noticed_as("ended_early")
def a_turn_is_judged_by_a_clock_that_is_ahead(run: Recording) -> Recording:
    for turn in _turns(run):
        asked = [send for send in run.sends if send.text == opening_of(turn)]
        if turn.row.ended_by == "deadline" and asked and asked[0].deadline_s > 10:
            began_ms = EPOCH_MS + int(asked[0].invoked_s * 1000)
            return _with_turn(run, turn.row.turn_id, ended_ms=began_ms)
    raise NoPlace


@noticed_as("starved")
def a_request_goes_before_a_turn_that_has_waited_for_long(run: Recording) -> Recording:
    if run.crashes or run.shutdowns:
        raise NoPlace
    opened = {each.turn_id: each for each in run.queueings if each.opened}
    for send in _acknowledged(run):
        for each in run.queueings:
            later = opened.get(each.turn_id)
            usable = send.on_busy != "interrupt" and send.turn_id not in opened
            if later is None or each.opened or not usable or send.session_id != each.session_id:
                continue
            if send.invoked_s > later.at_s:
                # It was opened long after the request, instead of before.
                waited = replaced(later, at_s=send.done_s + 100.0)
                came = replaced(each, at_s=send.invoked_s - 100.0)
                others = [one for one in run.queueings if one not in (each, later)]
                return replaced(run, queueings=(*others, came, waited))
    raise NoPlace
