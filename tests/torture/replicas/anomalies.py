"""Ways in which a run of replicas can go wrong on the wire, done to a run that went right.

Each finds a place where it can happen, and returns the traffic as it would have been. The simulation's own are for the
rules that it shares.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.ids import CallId
from tests.simulation.anomalies import Anomalies, NoPlace
from tests.simulation.checker import Facts
from tests.torture.replicas.rules import outcome_unknown
from tests.torture.replicas.traffic import Traffic, Wired
from tests.torture.replicas.upstream import Prompt

ANOMALIES: Anomalies[Traffic] = Anomalies()
noticed_as = ANOMALIES.noticed_as


def _with_wired(traffic: Traffic, old: Wired, new: Wired) -> Traffic:
    """The traffic with one attempt changed, wherever it is written down."""
    wired = tuple(new if each is old else each for each in traffic.wired)
    recording = replace(traffic.recording, sends=tuple(each.send for each in wired))
    return replace(traffic, wired=wired, recording=recording)


def _acknowledged(traffic: Traffic) -> list[Wired]:
    return [each for each in traffic.wired if each.send.acknowledged]


@noticed_as("answer_astray")
def the_answer_to_somebody_else(traffic: Traffic) -> Traffic:
    one, other, *_ = [each for each in _acknowledged(traffic) if each.send.key is None]
    changed = replace(one, send=replace(one.send, answer=other.send.answer))
    return _with_wired(traffic, one, changed)


@noticed_as("answer_astray")
def half_an_answer(traffic: Traffic) -> Traffic:
    one = next(each for each in _acknowledged(traffic) if each.send.key is None)
    half = one.send.answer[: len(one.send.answer) // 2]
    return _with_wired(traffic, one, replace(one, send=replace(one.send, answer=half)))


def _answered(traffic: Traffic, *, after: int) -> Prompt:
    """A prompt that was answered, and had so much before it."""
    facts = Facts(traffic.recording)
    told = {each.send.text for each in _acknowledged(traffic)}
    for prompt in reversed(traffic.prompts):
        kept = all(each in facts.places for each in prompt.said)
        if len(prompt.said) > after and prompt.said[-1] in told and kept:
            return prompt
    raise NoPlace


def _with_prompts(traffic: Traffic, text: str, said: tuple[str, ...]) -> Traffic:
    """The traffic as if the model had always been shown this when it was told that."""
    prompts = tuple(
        Prompt(said=said) if each.said[-1] == text else each for each in traffic.prompts
    )
    return replace(traffic, prompts=prompts)


@noticed_as("prompt_astray")
def a_model_that_is_not_told_the_last_turn(traffic: Traffic) -> Traffic:
    """Somebody has read an old copy."""
    found = _answered(traffic, after=2)
    return _with_prompts(traffic, found.said[-1], (*found.said[:-2], found.said[-1]))


@noticed_as("prompt_astray")
def a_model_that_is_not_told_how_it_began(traffic: Traffic) -> Traffic:
    found = _answered(traffic, after=2)
    return _with_prompts(traffic, found.said[-1], found.said[1:])


@noticed_as("prompt_astray")
def turns_in_another_order(traffic: Traffic) -> Traffic:
    found = _answered(traffic, after=2)
    one, other, *rest = found.said
    return _with_prompts(traffic, found.said[-1], (other, one, *rest))


@noticed_as("effect_doubled")
def a_tool_that_is_called_again_in_silence(traffic: Traffic) -> Traffic:
    """Under a key of its own, as if the model had asked twice."""
    facts = Facts(traffic.recording)
    for effect in traffic.recording.effects:
        sends = facts.ops.get(effect.said, [])
        acted = {each.key for each in traffic.recording.effects if each.said == effect.said}
        as_asked = len(acted) == effect.said.split().count("act")
        keyed = bool(sends) and sends[0].key is not None
        if effect.kind == "act" and keyed and as_asked and not outcome_unknown(facts, effect.said):
            last = str(effect.key)
            again = replace(effect, key=CallId(last[:-1] + ("0" if last[-1] != "0" else "1")))
            effects = (*traffic.recording.effects, again)
            return replace(traffic, recording=replace(traffic.recording, effects=effects))
    raise NoPlace


@noticed_as("retry_misled")
def a_client_that_is_told_to_repeat_what_was_kept(traffic: Traffic) -> Traffic:
    facts = Facts(traffic.recording)
    for each in _acknowledged(traffic):
        if each.send.key is None and len(facts.ops[each.send.text]) == 1:
            return _with_wired(traffic, each, replace(each, should_retry=True))
    raise NoPlace


@noticed_as("no_way_out")
def a_503_that_does_not_say_when(traffic: Traffic) -> Traffic:
    first = traffic.wired[0]
    return _with_wired(traffic, first, replace(first, status=503, retry_after=False))


@noticed_as("out_of_time")
def a_turn_is_judged_by_a_clock_that_is_ahead(traffic: Traffic) -> Traffic:
    turn = traffic.recording.sessions[0].turns[0]
    late = replace(turn, row=replace(turn.row, ended_by="deadline"))
    first, *others = traffic.recording.sessions
    sessions = (replace(first, turns=(late, *first.turns[1:])), *others)
    return replace(traffic, recording=replace(traffic.recording, sessions=sessions))
