"""Decides from the outside whether a recorded run kept the promises. Each rule is a function, linear in the run.

What it finds, by a stable code:
  lost_ack           an acknowledged turn is not in the history, or elsewhere than its client was told
  told_otherwise     a client was told an end that the store does not know of
  refused_present    a request that was refused has left a turn
  resent_lost        a message of a client that resends everything is not in its conversation in the end, or out of order
  twice              something is in the history more often than it was said (under a key: more than once)
  said_again         a retry of a turn that was kept unfinished brought its message again, or went on with something else
  gone_on_too_often  retries have continued a turn more often in a row than they may
  unanswered         a client has sent a message again and again, also after nothing failed any more, and got no answer
  mangled            something is not in the turn that was acknowledged for it, or more than once
  out_of_order       a turn precedes one that was acknowledged before it was asked for
  unfair             of two who waited in one process for one session, the second went first
  wrong_base         a turn does not stand on the version that it began from, or that its request demanded
  uninvited          a turn that nobody asked for
  against_policy     a turn was kept or discarded, resumed or not, otherwise than its policy says
  unexplained        a turn ended in a way that nothing in the run explains
  ended_early        a turn ran out of time before its time was over
  trace_left         a turn that was not kept has items in the history
  malformed          a history is not well formed (`core.check`, `store.audit`)
  effect_twice       a tool acted twice for one call, and is not declared idempotent
  effect_denied      a tool acted, and the history says that it did not
  effect_unintended  a tool acted, and no intent was written before
  step_repeated      a keyed retry did again what its failed attempt had finished
  step_misplaced     a keyed retry took over steps that were made on another history
  key_split          one session key meant two sessions, and nobody had moved it
  key_turns          two kept turns under one idempotency key
  key_answers        two answers under one idempotency key
  watch_differs      a watcher saw something else than the journal holds
  watch_disorder     a watcher saw events out of order, twice, or not all
  stale_notes        a turn was played on annotations older than ones that were acknowledged before
  stopped_resumed    a turn was taken over after somebody had asked for its end, and played on
  after_delete       a turn was committed to a session after it was deleted, or went on waiting for it
  reborn             a message for a session that was deleted is in another one, which is newer
  stuck              a session was not usable in time after the last fault
  overtaken          of two turns that waited in the store for one session, the second was opened first
  starved            a turn that waits in the store was overtaken by a request that came much later, and neither interrupts nor continues
  left_open          a turn is still open, or waits
  found              `verify` complains about the store
  leftover           a node holds something, or a task died of something
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import (
    AssistantMessage,
    StoredItem,
    ToolCall,
    ToolResult,
    UserMessage,
    text_of,
)
from holdfast.core.policy import Policy, decide
from holdfast.core.turns.events import (
    Answered,
    Began,
    Steered,
    StepStarted,
    ToolFinished,
    ToolStarted,
)
from holdfast.ids import CallId, ItemId, SessionId, SessionKey, TurnId
from holdfast.store.verification.session_audit import audit
from tests.simulation.history import Act, FoundSession, FoundTurn, Recording, Send, Told
from tests.simulation.world import EPOCH_MS


class Anomaly(Value):
    """A broken promise."""

    code: str
    what: str

    def __str__(self) -> str:
        return f"{self.code}: {self.what}"


def check(recording: Recording, rules: Mapping[str, Rule] | None = None) -> list[Anomaly]:
    """Everything that is wrong with this run; by these rules, or by all of them."""
    facts = Facts(recording)
    return [
        Anomaly(code=code, what=what)
        for code, rule in (RULES if rules is None else rules).items()
        for what in sorted(set(rule(facts)))
    ]


class Facts:
    """A recording, indexed once for all rules."""

    def __init__(self, recording: Recording) -> None:
        self.run = recording
        self.turns: dict[TurnId, FoundTurn] = {
            turn.row.turn_id: turn for session in recording.sessions for turn in session.turns
        }
        self.sessions: dict[SessionId, FoundSession] = {
            session.dump.session.id: session for session in recording.sessions
        }
        self.ops: dict[str, list[Send]] = defaultdict(list)
        for send in recording.sends:
            self.ops[send.text].append(send)

    @cached_property
    def begun(self) -> dict[TurnId, Send]:
        """The requests whose clients know that they began a turn, by the turn."""
        sends = (send for send in self.run.sends if send.how in ("began", "queued"))
        return {send.turn_id: send for send in sends if send.turn_id}

    @cached_property
    def places(self) -> dict[str, list[FoundTurn]]:
        """In which kept turns each text is, once for each time."""
        found: dict[str, list[FoundTurn]] = defaultdict(list)
        for turn in self.turns.values():
            for text in said_in(turn.items):
                found[text].append(turn)
        return found

    def op_of(self, turn: FoundTurn) -> list[Send]:
        """The attempts of the request that this turn began with."""
        return self.ops.get(self.opening_of(turn), [])

    def chain_of(self, turn: FoundTurn) -> list[FoundTurn]:
        """A turn and those that it goes on with, the first one first."""
        chain = [turn]
        while chain[0].row.continues is not None:
            chain.insert(0, self.turns[chain[0].row.continues])
        return chain

    def policy_of(self, turn: FoundTurn) -> Policy | None:
        """The policy of the request that began a turn; None if no client has sent one. A turn may be continued by another
        client than its own; of a client that never heard so, or a person, the journal knows the request."""
        known = self.begun.get(turn.row.turn_id)
        began = turn.journal[0].event if turn.journal else None
        if known is None and turn.row.continues is not None and isinstance(began, Began):
            return began.request.policy
        op = [known] if known else self.op_of(turn)
        return op[0].policy if op else None

    def opening_of(self, turn: FoundTurn) -> str:
        """The text that a turn, or the one that it goes on with, began with."""
        return opening_of(self.chain_of(turn)[0])


def said_in(items: Sequence[StoredItem]) -> list[str]:
    """What people said to a turn. What they brought along to an empty session ends with an answer that
    none of our players gave."""
    said: list[str] = []
    for item in items:
        if isinstance(item, UserMessage) and not item.path:
            said.append(text_of(item.content))
        elif isinstance(item, AssistantMessage | ToolCall) and not item.path and not item.agent:
            said.clear()
    return said


def opening_of(turn: FoundTurn) -> str:
    """The text that a turn began with."""
    if turn.journal and isinstance(turn.journal[0].event, Began):
        return next(iter(said_in(turn.journal[0].event.request.input)), "")
    return next(iter(said_in(turn.items)), "")


Rule: TypeAlias = Callable[[Facts], Iterator[str]]
"""Says what is wrong, in words."""


# ── what was acknowledged ────────────────────────────────────────────────────────────────────


def lost_ack(facts: Facts) -> Iterator[str]:
    for send in facts.run.sends:
        if not send.acknowledged:
            continue
        turn = facts.turns.get(send.turn_id) if send.turn_id else None
        if turn is None or turn.row.state != "committed":
            yield f"{send.text} was acknowledged as {send.turn_id}"
        elif turn.row.session_id != send.session_id:
            yield f"{send.text} was acknowledged in {send.session_id}, not {turn.row.session_id}"
        elif not turn.items:
            yield f"{send.turn_id} is committed, and has no items"


def told_otherwise(facts: Facts) -> Iterator[str]:
    told: list[Send | Act] = [*facts.run.sends, *facts.run.acts]
    for each in told:
        if each.told is None or each.turn_id is None:
            continue
        turn = facts.turns.get(each.turn_id)
        if turn is None:
            yield f"{each.turn_id} is not there, and its client was told {each.told}"
            continue
        row = turn.row
        found = Told(kept=row.state == "committed", by=row.ended_by or "completed", version=row.seq)
        if each.told != found:
            yield f"{each.turn_id}: its client was told {each.told}, the store has {found}"


def refused_present(facts: Facts) -> Iterator[str]:
    begun = {facts.opening_of(turn) for turn in facts.turns.values()} | facts.places.keys()
    for text, attempts in facts.ops.items():
        if any(send.hasty for send in attempts):
            continue  # the next message of its client brings it along
        if all(send.outcome == "refused" for send in attempts) and text in begun:
            yield f"{text} was refused ({attempts[0].error}), and is there"


def twice(facts: Facts) -> Iterator[str]:
    for text, turns in facts.places.items():
        attempts = facts.ops.get(text, [])
        allowed = 1 if attempts and attempts[0].key else len(attempts)
        if attempts and len(turns) > allowed:
            yield f"{text} is in {len(turns)} places, and was said {allowed} times"


def resent_lost(facts: Facts) -> Iterator[str]:
    said: dict[str, list[Send]] = defaultdict(list)
    for send in sorted(facts.run.sends, key=lambda each: each.op):
        if send.hasty:
            said[send.client].append(send)
    for client, sends in said.items():
        last = sends[-1]
        if not last.acknowledged or last.session_id is None:
            yield f"{client} has never got an answer to its last message, {last.text}: {last.error}"
            continue
        kept = [turn for turn in facts.sessions[last.session_id].turns if turn.row.seq is not None]
        kept.sort(key=lambda turn: turn.row.seq or 0)
        stored = list(dict.fromkeys(text for turn in kept for text in said_in(turn.items)))
        if stored != [each.text for each in sends]:
            yield f"{client} has said {[each.text for each in sends]}, and {stored} is there"


def unanswered(facts: Facts) -> Iterator[str]:
    finished = {
        each.row.turn_id
        for act in facts.run.acts
        if act.kind == "continue" and act.told and act.told.ok and act.turn_id in facts.turns
        for each in facts.chain_of(facts.turns[act.turn_id])
    }
    for text, attempts in facts.ops.items():
        answered = any(send.acknowledged or send.turn_id in finished for send in attempts)
        if attempts[0].persistent and not answered:
            last = attempts[-1]
            yield f"{text} was sent {len(attempts)} times: {last.outcome} {last.error} {last.told}"


def mangled(facts: Facts) -> Iterator[str]:
    for send in facts.run.sends:
        turn = facts.turns.get(send.turn_id) if send.turn_id else None
        if turn is None or not send.acknowledged or turn.row.state != "committed":
            continue
        chain = facts.chain_of(turn)
        times = sum(said_in(each.items).count(send.text) for each in chain)
        # Who steers twice without a key is heard twice, also if one of the two turns out to begin the turn.
        attempts = facts.ops[send.text]
        repeats = send.key is None and any(each.on_busy == "steer" for each in attempts)
        if not 1 <= times <= (len(attempts) if repeats else 1):
            yield f"{send.text} is {times} times in {send.turn_id}"


def said_again(facts: Facts) -> Iterator[str]:
    """Of a turn that its client was told had failed, or that it heard nothing of, while it is the head; an SDK says for a
    minute that it is the same request, whatever else was said meanwhile."""
    for text, attempts in facts.ops.items():
        for before, send in itertools.pairwise(sorted(attempts, key=lambda each: each.invoked_s)):
            turn = facts.turns.get(send.turn_id) if send.turn_id else None
            known = facts.turns.get(before.turn_id) if before.turn_id else None
            if turn is None or known is None:
                continue
            if before.how == "steered":
                if _is_steered_twice(facts, before, known, send, turn):
                    yield f"{text} was heard by {known.row.turn_id}, and its SDK's retry says it again"
                continue
            if send.how != "began":
                continue
            if turn.row.session_id != known.row.session_id or known.row.seq is None:
                continue
            age_s = (turn.row.began_ms - known.row.ended_ms) / 1000 + CLOCK_S
            is_own = facts.op_of(known) == attempts
            is_sdks = (
                is_own
                and send.counted
                and not known.row.acked
                and age_s < limits.recognised_retry_s
            )
            if is_sdks and turn.row.continues is None:
                yield f"{text} was kept in {known.row.turn_id}, and its SDK's retry says it again"
            is_head = turn.row.base_head == known.row.seq
            until_s = (known.row.ended_ms - EPOCH_MS) / 1000 + limits.unfinished_retry_s
            if send.key is None and send.invoked_s > until_s - CLOCK_S:
                continue  # after so long it is a new request
            if is_head and _retries_count(facts, known) and turn.row.continues != known.row.turn_id:
                yield f"{text} was in {known.row.turn_id}, which broke off, and is said again"


def _is_steered_twice(
    facts: Facts, before: Send, known: FoundTurn, send: Send, turn: FoundTurn
) -> bool:
    """Whether an SDK's retry of a message that a kept turn has heard is in the history for a second time."""
    heard = [each for link in facts.chain_of(known) for each in said_in(link.items)]
    if not send.counted or before.text not in heard or turn.row.session_id != known.row.session_id:
        return False
    age_s = send.done_s - (known.row.ended_ms - EPOCH_MS) / 1000 + CLOCK_S
    if known.row.seq is None or age_s >= limits.recognised_retry_s:
        return False
    elsewhere = turn.row.turn_id != known.row.turn_id and send.text in said_in(turn.items)
    return elsewhere or heard.count(before.text) > 1


def _retries_count(facts: Facts, turn: FoundTurn) -> bool:
    """Whether the same request again is a retry: no client has stopped the turn on purpose."""
    if turn.row.ended_by in ("completed", "cancelled", "limit"):
        return False
    policy = facts.policy_of(turn)
    kept_on_purpose = policy is not None and policy.disconnect == "keep"
    return not (turn.row.ended_by == "disconnected" and kept_on_purpose)


def gone_on_too_often(facts: Facts) -> Iterator[str]:
    retries: dict[TurnId, int] = defaultdict(int)
    for turn in facts.turns.values():
        if turn.row.continues is not None and _links(turn):
            retries[turn.row.continues] += 1
    for turn_id, count in retries.items():
        before = facts.turns.get(turn_id)
        count += _links(before) if before else 0
        if count > limits.continuations_max:
            yield f"{turn_id} was continued by {count} retries in a row"


def _links(turn: FoundTurn) -> int:
    """How many retries in a row have led to a turn; of one that was not kept, its request knows."""
    began = turn.journal[0].event if turn.journal else None
    asked = began.request.links if isinstance(began, Began) else 0
    return asked if turn.row.links is None else turn.row.links


def out_of_order(facts: Facts) -> Iterator[str]:
    acks: dict[SessionId, list[tuple[float, int]]] = defaultdict(list)
    for send in facts.run.sends:
        if send.acknowledged and send.session_id and send.told and send.told.version is not None:
            acks[send.session_id].append((send.done_s, send.told.version))
    for session_id, session in facts.sessions.items():
        known = sorted(acks[session_id])
        kept = [(_invoked_s(facts, turn), turn) for turn in session.turns if turn.row.seq]
        latest, at = 0, 0
        for invoked_s, turn in sorted(kept, key=lambda each: each[0]):
            while at < len(known) and known[at][0] < invoked_s:
                latest = max(latest, known[at][1])
                at += 1
            if turn.row.seq is not None and turn.row.seq <= latest and invoked_s > 0:
                yield f"{turn.row.turn_id} is version {turn.row.seq}, but {latest} came before it"


def _invoked_s(facts: Facts, turn: FoundTurn) -> float:
    return min((send.invoked_s for send in facts.op_of(turn)), default=0.0)


def unfair(facts: Facts) -> Iterator[str]:
    """Only for requests that wait in their node, which had talked to that session before: it knew where to queue them."""
    moved = {act.name for act in facts.run.acts if act.kind in ("reset", "rewind", "delete")}
    known: dict[tuple[str, str], float] = {}
    for send in facts.run.sends:
        if send.acknowledged and send.how == "began":
            place = (send.node, str(send.name))
            known[place] = min(known.get(place, send.done_s), send.done_s)
    queued: dict[tuple[str, str], list[Send]] = defaultdict(list)
    for send in sorted(facts.run.sends, key=lambda each: each.place):
        place = (send.node, str(send.name))
        plain = send.on_busy == "wait" and not send.queues
        if plain and send.name not in moved and known.get(place, send.invoked_s) < send.invoked_s:
            queued[place].append(send)
    for sends in queued.values():
        latest = 0
        for send in sends:
            version = int(send.base) if send.base is not None and send.how == "began" else latest
            if version < latest:
                yield f"{send.text} stands on {version}, and came after one that stands on {latest}"
            latest = max(latest, version)


def wrong_base(facts: Facts) -> Iterator[str]:
    for turn in facts.turns.values():
        if turn.row.seq is not None and turn.row.base_head.next != turn.row.seq:
            yield f"{turn.row.turn_id} made {turn.row.seq} on top of {turn.row.base_head}"
    for send in facts.run.sends:
        begun = facts.turns.get(send.turn_id) if send.turn_id else None
        if begun is not None and begun.row.continues is not None:
            continue  # a retry stands on what it goes on with
        if send.if_match is not None and send.how == "began" and send.base != send.if_match:
            yield f"{send.turn_id} stands on {send.base}, and {send.if_match} was demanded"


# ── ends ─────────────────────────────────────────────────────────────────────────────────────


def uninvited(facts: Facts) -> Iterator[str]:
    for turn in facts.turns.values():
        if not facts.op_of(turn):
            yield f"{turn.row.turn_id} begins with {facts.opening_of(turn)!r}"


def against_policy(facts: Facts) -> Iterator[str]:
    for turn in facts.turns.values():
        row, policy = turn.row, facts.policy_of(turn)
        if row.ended_by is None or policy is None:
            continue
        if not row.lease_token:  # nobody ever held it, so there is nothing to keep
            if row.state != "discarded":
                yield f"{row.turn_id} never began, and is {row.state}"
            continue
        if policy.crash == "resume" and row.ended_by == "crash":
            # A node counts how often a turn has broken there; the row has only the takeovers.
            given_up = re.fullmatch(r"given up after (\d+) crashes", row.detail)
            crashes = int(given_up[1]) if given_up else row.attempt - 1
            if crashes < limits.crash_attempts_max:
                yield f"{row.turn_id} was not resumed after attempt {row.attempt}"
            policy = msgspec.structs.replace(policy, crash="auto")
        verdict = decide(policy, row.ended_by, acted=turn.acted)
        expected = {"keep": "committed", "discard": "discarded"}.get(verdict)
        if row.state != expected:
            yield f"{row.turn_id} ended by {row.ended_by}, acted={turn.acted}: {row.state}, not {verdict}"


def unexplained(facts: Facts) -> Iterator[str]:
    run = facts.run
    told_to_stop = {act.turn_id for act in run.acts if act.kind == "cancel"}
    interrupting = any(send.on_busy == "interrupt" for send in run.sends)
    deleted = {act.session_id for act in run.acts if act.kind == "delete"}
    steered: dict[TurnId | None, list[Send]] = defaultdict(list)
    of_client: dict[str, list[Send]] = defaultdict(list)
    for send in run.sends:
        of_client[send.client].append(send)
        if send.how == "steered":
            steered[send.turn_id].append(send)
    for turn in facts.turns.values():
        row = turn.row
        op = facts.op_of(turn)
        heard = steered[row.turn_id]
        pages = {
            send.client for send in op if send.hasty
        }  # a later message of theirs may have begun it
        brought = (send for page in pages for send in of_client[page])
        # Who was heard by the turn that this one goes on with may have begun it, by saying the same again.
        before = [text for each in facts.chain_of(turn)[:-1] for text in said_in(each.items)]
        again = (send for text in before for send in facts.ops.get(text, ()))
        shaky = any(send.outcome != "ended" for send in (*op, *heard, *brought, *again))
        match row.ended_by:
            case "cancelled":
                explained = interrupting or row.turn_id in told_to_stop
            case "disconnected":
                explained = shaky
            case "crash":
                explained = shaky or run.crashes > 0 or _opened_unheard(facts, row.turn_id)
            case "shutdown":
                explained = run.shutdowns > 0
            case "deleted":
                explained = row.session_id in deleted
            case "superseded":
                # Its message has come with a later one of its client's, or when its client has sent it again.
                elsewhere = facts.places.get(facts.opening_of(turn), ())
                explained = any(send.hasty for send in facts.op_of(turn)) or any(
                    other is not turn for other in elsewhere
                )
            case "model_error":
                explained = "stopped in the middle" not in row.detail
            case _:
                explained = True
        if not explained:
            yield f"{row.turn_id} ended by {row.ended_by}"


def _opened_unheard(facts: Facts, turn_id: TurnId) -> bool:
    """Whether a queued turn was opened by a node that did not hear so, and took it over before anybody played it."""
    run = facts.run
    opened = any(each.opened and each.turn_id == turn_id for each in run.queueings)
    taken_s = [each.at_s for each in run.takeovers if each.turn_id == turn_id]
    played_s = [each.at_s for each in run.played if each.turn_id == turn_id]
    return opened and bool(taken_s) and all(at_s >= taken_s[0] for at_s in played_s)


CLOCK_S = 10.0
"""How far a node may be from the store's time: as long as a renewal of its lease takes."""


def ended_early(facts: Facts) -> Iterator[str]:
    for turn in facts.turns.values():
        # What broke off may be continued by a retry of anything that it was told, with a deadline of its own.
        said = (text for each in facts.chain_of(turn) for text in said_in(each.items))
        known = facts.begun.get(turn.row.turn_id)
        others = (send for text in said for send in facts.ops.get(text, ()))
        asked = [known] if known else [*facts.op_of(turn), *others]
        if turn.row.ended_by == "deadline" and asked:
            ended_s = (turn.row.ended_ms - EPOCH_MS) / 1000
            lasted_s = ended_s - min(send.invoked_s for send in asked)
            deadline_s = min(send.deadline_s for send in asked)
            if lasted_s < deadline_s - CLOCK_S:
                yield f"{turn.row.turn_id} had {deadline_s} s, and was given {lasted_s:.1f} s"


def trace_left(facts: Facts) -> Iterator[str]:
    for session in facts.run.sessions:
        kept = {turn.row.turn_id for turn in session.turns if turn.row.state == "committed"}
        for item in session.dump.items:
            if item.turn_id not in kept:
                yield f"{item.turn_id} was not kept, and has an item at {item.pos}"


def malformed(facts: Facts) -> Iterator[str]:
    for session in facts.run.sessions:
        past = [
            facts.sessions[each.session_id].dump if each.session_id in facts.sessions else None
            for each in session.dump.session.lineage
        ]
        for violation in audit(session.dump, past):
            yield f"{session.dump.session.id}: {violation.code} {violation.where} {violation.what}"


# ── effects ──────────────────────────────────────────────────────────────────────────────────


def effect_twice(facts: Facts) -> Iterator[str]:
    seen: set[CallId] = set()
    for effect in facts.run.effects:
        if effect.kind == "act" and effect.key in seen:
            yield f"{effect.key} of {effect.turn_id} acted again at {effect.at_s:.3f} on {effect.node}"
        seen.add(effect.key)


def effect_denied(facts: Facts) -> Iterator[str]:
    outcomes = {
        item.call: item.outcome
        for turn in facts.turns.values()
        for item in turn.items
        if isinstance(item, ToolResult)
    }
    for effect in facts.run.effects:
        turn = facts.turns.get(effect.turn_id)
        kept = turn is not None and turn.row.state == "committed"
        # A call of a turn that was not kept may be part of its retry.
        outcome = outcomes.get(effect.key)
        if (kept or outcome) and outcome not in ("ok", "error", "unknown"):
            yield f"{effect.key} of {effect.turn_id} acted, and the history says {outcome}"


def effect_unintended(facts: Facts) -> Iterator[str]:
    for effect in facts.run.effects:
        turn = facts.turns.get(effect.turn_id)
        if turn is None:
            yield f"{effect.key} acted for {effect.turn_id}, which is not there"
        elif turn.journal and not any(
            isinstance(each.event, ToolStarted) and each.event.call == effect.key
            for each in turn.journal
        ):
            yield f"{effect.key} acted, and the journal of {effect.turn_id} knows nothing of it"


def step_repeated(facts: Facts) -> Iterator[str]:
    for turn in facts.turns.values():
        spoken = finished_in(turn)
        failed = _retried(facts, turn)
        if failed is None or not spoken or failed.row.ended_by == "limit":
            continue
        forgotten = sorted(finished_in(failed) - spoken)
        if forgotten and _ground(failed) == _ground(turn):
            yield f"{turn.row.turn_id} does not know what {failed.row.turn_id} had done: {forgotten}"


def step_misplaced(facts: Facts) -> Iterator[str]:
    for turn in facts.turns.values():
        failed = _retried(facts, turn)
        if failed is None or _ground(failed) == _ground(turn):
            continue
        taken_over = sorted(finished_in(failed) & finished_in(turn))
        if taken_over:
            yield f"{turn.row.turn_id} took over what {failed.row.turn_id} had done: {taken_over}"


def _retried(facts: Facts, turn: FoundTurn) -> FoundTurn | None:
    """The latest attempt before this one in which anything has happened, if its journal is there."""
    found = facts.turns.get(turn.row.retry_of) if turn.row.retry_of else None
    if found is None or not found.journal:
        return None
    happened = any(isinstance(each.event, StepStarted) for each in found.journal)
    return found if happened else _retried(facts, found)


def _ground(turn: FoundTurn) -> object:
    began = turn.journal[0].event
    assert isinstance(began, Began), "a journal begins with its request"
    return turn.row.session_id, began.request.base, began.request.base_rev


def finished_in(turn: FoundTurn) -> set[ItemId]:
    """What a turn's models have said and its tools have brought before anybody else spoke to it."""
    found: set[ItemId] = set()
    for each in turn.journal:
        if isinstance(each.event, Steered):
            break
        if isinstance(each.event, Answered):
            found.update(item.id for item in each.event.items)
        elif isinstance(each.event, ToolFinished):
            found.add(each.event.result.id)
    return found


# ── keys ─────────────────────────────────────────────────────────────────────────────────────


def key_split(facts: Facts) -> Iterator[str]:
    moved: dict[SessionKey | SessionId | None, list[tuple[float, float]]] = defaultdict(list)
    for act in facts.run.acts:
        if act.kind in ("reset", "rewind", "delete"):
            until_s = float("inf") if act.failed else act.done_s
            moved[act.name].append((act.invoked_s, until_s))
    last: dict[SessionKey, Send] = {}
    for send in sorted(facts.run.sends, key=lambda each: each.done_s):
        # What was joined or replayed is where it was begun, whatever the key means by now.
        if not isinstance(send.name, SessionKey) or send.session_id is None or send.how != "began":
            continue
        turn = facts.turns.get(send.turn_id) if send.turn_id else None
        if turn is not None and turn.row.continues is not None:
            continue  # it goes on where that one is
        before = last.get(send.name)
        last[send.name] = send
        if before is None or before.session_id == send.session_id:
            continue
        from_s, to_s = min(before.invoked_s, send.invoked_s), max(before.done_s, send.done_s)
        if not any(begun <= to_s and ended >= from_s for begun, ended in moved[send.name]):
            yield f"{send.name} meant {before.session_id}, then {send.session_id}"


def key_turns(facts: Facts) -> Iterator[str]:
    kept: dict[str, list[TurnId]] = defaultdict(list)
    for turn in facts.turns.values():
        # Its own request's, and those of requests that were steered into it.
        said = dict.fromkeys((facts.opening_of(turn), *said_in(turn.items)))
        requests = [facts.ops[text][0] for text in said if text in facts.ops]
        first = facts.chain_of(turn)[0].row.turn_id
        for send in requests if turn.row.state == "committed" else ():
            if send.key and first not in kept[send.key]:
                kept[send.key].append(first)
    for key, turns in kept.items():
        if len(turns) > 1:
            yield f"{key} has {turns}"


def key_answers(facts: Facts) -> Iterator[str]:
    first: dict[str, Send] = {}
    for send in facts.run.sends:
        if send.key is None or send.told is None or not send.told.kept:
            continue
        known = first.setdefault(send.key, send)
        turn = facts.turns.get(send.turn_id) if send.turn_id else None
        chain = [each.row.turn_id for each in facts.chain_of(turn)] if turn else []
        if known.turn_id in chain[:-1]:  # it has been gone on with since
            first[send.key] = send
        elif (known.turn_id, known.told) != (send.turn_id, send.told):
            yield f"{send.key} was answered by {known.turn_id} {known.told}, then {send.turn_id} {send.told}"
        elif known.answer != send.answer and _is_replayable(facts, send):
            yield f"{send.key} was answered {known.answer!r}, then {send.answer!r}"


def _is_replayable(facts: Facts, send: Send) -> bool:
    """Whether every event of its turn is kept. Of a plain one, that somebody steered with a key, the items are."""
    turn = facts.turns.get(send.turn_id) if send.turn_id else None
    return turn is not None and has_all(turn)


def has_all(turn: FoundTurn) -> bool:
    """Whether a turn's journal holds every event. Of a plain one that broke off, it holds the steps."""
    began = turn.journal[0].event if turn.journal else None
    return turn.row.replayable and (not isinstance(began, Began) or began.request.replayable)


# ── watching ─────────────────────────────────────────────────────────────────────────────────


def watch_differs(facts: Facts) -> Iterator[str]:
    for watched in facts.run.watched:
        turn = facts.turns.get(watched.turn_id)
        if turn is None or not has_all(turn):
            continue
        journal = {each.n: each.event for each in turn.journal}
        for each in watched.shown:
            if journal.get(each.n) != each.event:
                yield f"{watched.turn_id}: {each.n} was shown as {each.event}, not {journal.get(each.n)}"


def watch_disorder(facts: Facts) -> Iterator[str]:
    for watched in facts.run.watched:
        numbers = [each.n for each in watched.shown]
        turn = facts.turns.get(watched.turn_id)
        if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
            yield f"{watched.turn_id} was shown as {numbers}"
        elif turn is not None and has_all(turn):
            expected = [each.n for each in turn.journal if each.n >= watched.since]
            if numbers != (expected if watched.whole else expected[: len(numbers)]):
                yield f"{watched.turn_id} from {watched.since} was shown as {numbers}, not {expected}"


def stale_notes(facts: Facts) -> Iterator[str]:
    known: dict[SessionId, list[Act]] = defaultdict(list)
    for act in facts.run.acts:
        if act.kind == "annotate" and not act.failed and act.session_id:
            known[act.session_id].append(act)
    for played in facts.run.played:
        turn = facts.turns.get(played.turn_id)
        if turn is None:
            continue
        invoked_s = _invoked_s(facts, turn)
        for act in known[turn.row.session_id]:
            if act.done_s < invoked_s and act.rev > played.base_rev:
                yield f"{played.turn_id} was played on revision {played.base_rev}, not {act.rev}"


# ── afterwards ───────────────────────────────────────────────────────────────────────────────


def after_delete(facts: Facts) -> Iterator[str]:
    gone = {
        act.session_id: act.done_s
        for act in reversed(facts.run.acts)
        if act.kind == "delete" and not act.failed
    }
    for turn in facts.turns.values():
        gone_s = gone.get(turn.row.session_id)
        if gone_s is None or turn.row.ended_ms <= EPOCH_MS + gone_s * 1000 + 1:
            continue
        if turn.row.state == "committed":
            yield f"{turn.row.turn_id} was committed after {turn.row.session_id} was deleted"
        elif not turn.row.lease_token:
            yield f"{turn.row.turn_id} waited for {turn.row.session_id} after it was deleted"


def reborn(facts: Facts) -> Iterator[str]:
    """Only where nothing else can have come between the request and the turn that it waited for. Whoever came
    before it, and did not wait for that turn, may have begun the other session; then it waited for them. A request that
    came when the turn had been played waits for nothing, though the store may still be told of the turn's end. What may
    wait in the store waits there, where `after_delete` looks, or is still on its way."""
    if facts.run.crashes or facts.run.shutdowns:
        return
    moved = {act.name for act in facts.run.acts if act.kind in ("reset", "rewind")}
    deletes = [each for each in facts.run.acts if each.kind == "delete" and not each.failed]
    played = {each.turn_id: each for each in facts.run.played}
    holders = {
        (send.name, send.session_id): send
        for send in facts.run.sends
        if send.how == "began" and _ended_by(facts, send) == "deleted"
    }
    for act in deletes:
        held = holders.get((act.name, act.session_id))  # type: ignore[arg-type]
        holds = played.get(held.turn_id) if held and held.turn_id else None
        if held is None or holds is None or act.name in moved:
            continue
        for send in facts.run.sends:
            here = (send.name, send.node) == (held.name, held.node)
            waited = holds.at_s < send.came_s < min(holds.until_s, act.invoked_s)
            answered = send.how in ("began", "steered")
            elsewhere = send.session_id != act.session_id and _asked_first(facts, send)
            at_the_door = not send.queues or send.if_match is not None
            if here and waited and answered and elsewhere and at_the_door:
                yield f"{send.text} waited for {act.session_id}, and {send.how} {send.session_id}"


def _asked_first(facts: Facts, send: Send) -> bool:
    """Whether nobody who has begun a turn of the same session had asked before this one."""
    return all(
        each.came_s >= send.came_s
        for each in facts.run.sends
        if each.how == "began" and each.session_id == send.session_id
    )


def _ended_by(facts: Facts, send: Send) -> str | None:
    turn = facts.turns.get(send.turn_id) if send.turn_id else None
    return turn.row.ended_by if turn else None


def stopped_resumed(facts: Facts) -> Iterator[str]:
    """Whoever has lost the turn since, to its own node or with its session, does not hear of it, and its writes are
    refused."""
    for played in facts.run.played:
        found = facts.turns.get(played.turn_id)
        if found is not None and found.row.ended_by == "deleted":
            continue
        before = [
            each
            for each in facts.run.takeovers
            if each.turn_id == played.turn_id and each.at_s <= played.at_s
        ]
        if before and before[-1].stopped and before[-1].token == played.token:
            yield f"{played.turn_id} was to be stopped, and {played.node} played it"


def stuck(facts: Facts) -> Iterator[str]:
    last = {send.op: send for send in facts.run.sends if send.probe}
    for send in last.values():
        if send.outcome != "ended":
            yield f"{send.name}: the probe was {send.outcome}, {send.error}"
        elif send.done_s - send.invoked_s > facts.run.patience_s:
            yield f"{send.name} took {send.done_s - send.invoked_s:.1f} s"


def overtaken(facts: Facts) -> Iterator[str]:
    waiting: dict[SessionId, list[TurnId]] = defaultdict(list)
    opened = {each.turn_id for each in facts.run.queueings if each.opened}
    for each in facts.run.queueings:
        queue = waiting[each.session_id]
        if not each.opened:
            queue.insert(0 if each.ahead else len(queue), each.turn_id)
            continue
        if each.turn_id not in queue:
            yield f"{each.turn_id} was opened, and had not waited"
            continue
        for first in queue[: queue.index(each.turn_id)]:
            if first in opened:  # later; else it has ended where it waited
                yield f"{each.turn_id} was opened before {first}"
        queue.remove(each.turn_id)


KNOWN_S = 2 * limits.sweep_s
"""After so long every node has heard of a turn that waits, if nothing keeps it from looking."""


def starved(facts: Facts) -> Iterator[str]:
    if facts.run.crashes or facts.run.shutdowns:
        return
    queued_s = {each.turn_id: each.at_s for each in facts.run.queueings if not each.opened}
    opened_s = {each.turn_id: each.at_s for each in facts.run.queueings if each.opened}
    waited: dict[SessionId, list[tuple[TurnId, float, float]]] = defaultdict(list)
    for turn_id, came_s in queued_s.items():
        row = facts.turns[turn_id].row
        until_s = opened_s.get(turn_id, (row.ended_ms - EPOCH_MS) / 1000)
        waited[row.session_id].append((turn_id, came_s, until_s))
    for send in facts.run.sends:
        turn = facts.turns.get(send.turn_id) if send.turn_id and send.how == "began" else None
        if turn is None or send.on_busy == "interrupt" or turn.row.turn_id in queued_s:
            continue
        if turn.row.continues is not None:
            continue  # it goes on with what has begun before
        began_s = (turn.row.began_ms - EPOCH_MS) / 1000
        for turn_id, came_s, until_s in waited[turn.row.session_id]:
            if came_s + KNOWN_S < send.invoked_s and began_s < until_s - 0.5:
                yield f"{turn_id} waited from {came_s:.1f} s on, and {send.text} went first"


def left_open(facts: Facts) -> Iterator[str]:
    for session in facts.run.sessions:
        if session.open_turn is not None:
            yield f"{session.open_turn} holds {session.dump.session.id}"
        for turn in session.turns:
            if turn.row.state in ("open", "queued"):
                yield f"{turn.row.turn_id} is {turn.row.state}"


def found(facts: Facts) -> Iterator[str]:
    yield from facts.run.findings


def leftover(facts: Facts) -> Iterator[str]:
    yield from facts.run.leftovers


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        lost_ack,
        told_otherwise,
        refused_present,
        resent_lost,
        twice,
        said_again,
        gone_on_too_often,
        unanswered,
        mangled,
        out_of_order,
        unfair,
        wrong_base,
        uninvited,
        against_policy,
        unexplained,
        ended_early,
        trace_left,
        malformed,
        effect_twice,
        effect_denied,
        effect_unintended,
        step_repeated,
        step_misplaced,
        key_split,
        key_turns,
        key_answers,
        watch_differs,
        watch_disorder,
        stale_notes,
        stopped_resumed,
        after_delete,
        reborn,
        stuck,
        overtaken,
        starved,
        left_open,
        found,
        leftover,
    )
}
