"""What a run of real replicas must look like: the simulation's rules, as far as the wire shows what they need, and
a few about what only the wire shows.

  answer_astray   a client was given an answer to something else than what was said in its turn
  prompt_astray   a model was shown something else than what was committed before, and what is new
  effect_doubled  a tool acted twice for one message, and no `outcome unknown` says why
  retry_misled    a client was told to retry, and what it had said is in the history, where no retry goes on with it
  no_way_out      a 503 does not say when to come back
  out_of_time     a turn ran out of time before its time was over
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from holdfast import limits
from holdfast.core.items import ToolResult
from tests.simulation import checker
from tests.simulation.checker import Anomaly, Facts, said_in
from tests.simulation.history import FoundTurn
from tests.torture.replicas.traffic import Traffic
from tests.torture.replicas.upstream import answer_to

NOT_SEEN = frozenset(
    {
        "unfair",  # which replica a request met first is not known
        "stale_notes",  # nobody annotates
        "stopped_resumed",  # who was told to stop when is not on the wire
        "after_delete",  # nobody deletes
        "reborn",
        "leftover",
        "resent_lost",  # nobody resends
        "starved",  # who was queued when is not on the wire
        "ended_early",  # nobody asks for a deadline: see out_of_time
    }
)
"""Rules of the simulation that need more than can be seen from outside."""

SHARED: dict[str, checker.Rule] = {
    code: rule for code, rule in checker.RULES.items() if code not in NOT_SEEN
}

WireRule: TypeAlias = Callable[[Traffic, Facts], Iterator[str]]


OLDER = frozenset(
    {
        "said_again",  # to a server that continues nothing, the same request again is a new one
    }
)
"""Rules that an older server beside this one breaks: they say what is new."""


def check(traffic: Traffic, *, without: frozenset[str] = frozenset()) -> list[Anomaly]:
    """Everything that is wrong with this run, by all rules but for some."""
    facts = Facts(traffic.recording)
    shared = {code: rule for code, rule in SHARED.items() if code not in without}
    found = checker.check(traffic.recording, shared)
    found += (
        Anomaly(code=code, what=what)
        for code, rule in RULES.items()
        for what in sorted(set(rule(traffic, facts)))
    )
    return found


def answer_astray(traffic: Traffic, facts: Facts) -> Iterator[str]:
    for send in traffic.recording.sends:
        turn = facts.turns.get(send.turn_id) if send.turn_id else None
        if turn is None or not send.acknowledged:
            continue
        left = send.answer
        # A continuation answers what was said in the turn that it goes on with.
        for text in (each for link in facts.chain_of(turn) for each in said_in(link.items)):
            left = left.replace(answer_to(text), "")
        if left.strip() or not send.answer:
            yield f"{send.text} was answered {send.answer!r} in {send.turn_id}"


def prompt_astray(traffic: Traffic, facts: Facts) -> Iterator[str]:
    """A model is shown what was committed, then what its turn was asked, then what was said into that. What was
    answered was, at least once, shown with everything that came before it."""
    histories = _histories(traffic)
    shown: dict[str, int] = {}
    for prompt in traffic.prompts:
        last = prompt.said[-1]
        history = histories.get(str(facts.ops[last][0].name), [])
        committed = _common(prompt.said[:-1], history)
        turns = facts.places.get(last, ())
        # What was said into a turn before its model was asked comes with what the turn began with.
        asked = {last, *(text for turn in turns for text in said_in(turn.items))}
        for at, text in enumerate(prompt.said):
            if text in asked:
                shown[text] = max(shown.get(text, 0), min(at, committed))
        if any(facts.ops[each][0].on_busy != "steer" for each in prompt.said[committed + 1 :]):
            yield f"a model was shown {prompt.said}, and the history is {history}"
    for text in {send.text for send in traffic.recording.sends if send.acknowledged} & shown.keys():
        history = histories.get(str(facts.ops[text][0].name), [])
        at = _last_place(history, text)
        if shown[text] < at:
            prompts = sorted({each.said for each in traffic.prompts if text in each.said}, key=len)
            yield f"{text} was answered without {history[shown[text] : at]}; it was in {prompts[:5]}"


def _common(words: Sequence[str], history: Sequence[str]) -> int:
    """How many of the first ones are the same."""
    pairs = enumerate(zip(words, history, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(words), len(history)))


def _last_place(history: list[str], text: str) -> int:
    """Where it was said; an SDK that asks again without a key may be heard again. The end if it was not."""
    places = [n for n, each in enumerate(history) if each == text]
    return places[-1] if places else len(history)


def _histories(traffic: Traffic) -> dict[str, list[str]]:
    """What people have said in each session, by its key."""
    found: dict[str, list[str]] = {}
    for session in traffic.recording.sessions:
        kept = sorted(
            (each for each in session.turns if each.row.seq), key=lambda each: each.row.seq or 0
        )
        said = [text for turn in kept for text in said_in(turn.items)]
        found |= {str(each.key): said for each in session.dump.keys}
    return found


def effect_doubled(traffic: Traffic, facts: Facts) -> Iterator[str]:
    acted: dict[str, set[str]] = defaultdict(set)
    for effect in traffic.recording.effects:
        if effect.kind == "act":
            acted[effect.said].add(effect.key)
    for text, keys in acted.items():
        attempts = facts.ops[text]
        # Who asks again without a key may be heard again.
        wanted = text.split().count("act") * (1 if attempts[0].key else len(attempts))
        if len(keys) > wanted and not outcome_unknown(facts, text):
            yield f"{text} acted {len(keys)} times: {sorted(keys)}"


def outcome_unknown(facts: Facts, text: str) -> bool:
    """Whether the history says that nobody knows what became of a call that was made about a message."""
    items = (item for turn in facts.places.get(text, ()) for item in turn.items)
    return any(isinstance(each, ToolResult) and each.outcome == "unknown" for each in items)


def retry_misled(traffic: Traffic, facts: Facts) -> Iterator[str]:
    for wired in traffic.wired:
        send = wired.send
        alone = send.key is None and len(facts.ops[send.text]) == 1
        kept = facts.places.get(send.text, [])
        if wired.should_retry and alone and not all(map(_can_go_on, kept)):
            yield f"{send.text} was to be sent again ({send.error}), and is there"


def _can_go_on(turn: FoundTurn) -> bool:
    """Whether a turn that was kept broke off over something that can pass: a retry continues it."""
    return turn.row.ended_by not in ("completed", "cancelled", "limit")


def no_way_out(traffic: Traffic, facts: Facts) -> Iterator[str]:
    for wired in traffic.wired:
        if wired.status == 503 and not wired.retry_after:
            yield f"{wired.send.text}: {wired.send.error}"


def out_of_time(traffic: Traffic, facts: Facts) -> Iterator[str]:
    """Nobody asks for a deadline of its own, and clocks are hours apart."""
    for turn in facts.turns.values():
        lasted_s = (turn.row.ended_ms - turn.row.turn_id.minted_at_ms) / 1000
        if turn.row.ended_by == "deadline" and lasted_s < limits.turn_deadline_s:
            yield f"{turn.row.turn_id} ran out of time after {lasted_s:.0f} s"


RULES: dict[str, WireRule] = {
    rule.__name__: rule
    for rule in (
        answer_astray,
        prompt_astray,
        effect_doubled,
        retry_misled,
        no_way_out,
        out_of_time,
    )
}
