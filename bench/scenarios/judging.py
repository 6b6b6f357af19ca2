"""What is wrong with a conversation: pure functions over what a model was sent and what a store holds.

A user's message in a scenario is unique, and so is the answer that the model gives to it, so a turn can be told from
any other. A turn is *whole* if its message is there once and directly followed by what belongs to it, down to its
answer; *absent* if nothing of it is there. Everything else is a finding, in words.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from systems.base import Said

from scenarios.stage import answer_to

Presence = Literal["whole", "absent", "marked", "torn"]

_NOTE = re.compile(
    r"interrupt|cancel|abort|stopped|broken off|timed? ?out|fail|incomplete|disconnect|crash",
    re.IGNORECASE,
)


def folded(said: Sequence[Said], texts: Sequence[str]) -> tuple[Said, ...]:
    """The same conversation, with notes that say that a turn was broken off made into marks on what they follow.
    Whoever writes such a note has told the model, and people, what happened; in which role is a matter of taste."""
    found: list[Said] = []
    for each in said:
        ours = any(text in each.text for text in texts)
        if (
            found
            and not ours
            and not each.calls
            and each.role != "tool"
            and _NOTE.search(each.text)
        ):
            found[-1] = msgspec.structs.replace(found[-1], marked=True)
        else:
            found.append(each)
    return tuple(found)


def standing(said: Sequence[Said], texts: Iterable[str]) -> tuple[Said, ...]:
    """What counts of a folded conversation, for a store that shows every try: one that is marked as broken off, and
    was made again, is no second message but the record of the first."""
    given_up: set[int] = set()
    for text in texts:
        tries = [n for n, each in enumerate(said) if each.role == "user" and text in each.text]
        for at in tries[:-1]:
            turn = turn_at(said, at)
            if any(each.marked for each in turn):
                given_up.update(range(at, at + len(turn)))
    return tuple(each for n, each in enumerate(said) if n not in given_up)


def torn_calls(said: Sequence[Said]) -> Iterator[str]:
    """Calls without a result, and results without a call: what a provider rejects, for ever."""
    for n, each in enumerate(said):
        following = {later.answers for later in said[n + 1 :]}
        for call in each.calls:
            if call not in following:
                yield f"call {call} has no result"
    asked = [call for each in said for call in each.calls]
    for each in said:
        if each.role == "tool" and each.answers not in asked:
            yield f"a result for {each.answers}, which nobody has called"
    results = Counter(each.answers for each in said if each.role == "tool")
    for answered, times in results.items():
        if times > 1:
            yield f"call {answered} has {times} results"


def presence(said: Sequence[Said], text: str) -> Presence:
    """How much of a turn is there."""
    at = [n for n, each in enumerate(said) if each.role == "user" and text in each.text]
    if not at:
        return "torn" if any(text in each.text for each in said) else "absent"
    turn = turn_at(said, at[0])
    if len(at) == 1 and any(answer_to(text) in each.text for each in turn):
        return "whole"
    if len(at) == 1 and any(each.marked for each in turn):
        return "marked"
    return "torn"


def turn_at(said: Sequence[Said], at: int) -> Sequence[Said]:
    """The message there, and what follows it up to the next one of a user."""
    end = next((n for n in range(at + 1, len(said)) if said[n].role == "user"), len(said))
    return said[at:end]


def repeated(said: Sequence[Said], texts: Iterable[str]) -> Iterator[str]:
    """Messages that are there more than once."""
    for text in texts:
        times = sum(each.role == "user" and text in each.text for each in said)
        if times > 1:
            yield f"{text!r} is there {times} times"


def unanswered(said: Sequence[Said]) -> Iterator[str]:
    """Messages that were left without an answer, the last one aside: it is about to get one."""
    for before, after in itertools.pairwise(said):
        if before.role == after.role == "user" and not before.marked:
            yield f"{before.text!r} has stayed without an answer"


def half_said(said: Sequence[Said], texts: Iterable[str]) -> Iterator[str]:
    """Pieces of answers that pass for whole ones."""
    for text in texts:
        whole = answer_to(text)
        for each in said:
            if each.role == "assistant" and each.text and not each.marked:
                if each.text != whole and whole.startswith(each.text):
                    yield f"half an answer passes for a whole one: {each.text!r}"


def misplaced(said: Sequence[Said], texts: Iterable[str]) -> Iterator[str]:
    """Answered messages that are not followed by their own answer."""
    for text in texts:
        at = [n for n, each in enumerate(said) if each.role == "user" and text in each.text]
        if len(at) != 1:
            yield f"{text!r} was answered, and is there {len(at)} times"
        elif presence(said, text) != "whole":
            yield f"{text!r} was answered, and its answer does not follow it"


def side_by_side(prompts: Sequence[Sequence[Said]], texts: Sequence[str]) -> Iterator[str]:
    """Turns that the conversation shows one after the other, and that were played at once: in neither was the model
    told of the other. `prompts` is all that it was sent, and the last one is the conversation. In which order it
    shows them is a matter of taste."""
    shown = _asked_in(prompts[-1], texts)
    told = {text: _told_with(prompts, text, texts) for text in shown}
    for one, other in itertools.combinations(shown, 2):
        if one not in told[other] and other not in told[one]:
            yield f"{one!r} and {other!r} were played side by side"


def _told_with(prompts: Sequence[Sequence[Said]], text: str, texts: Sequence[str]) -> Sequence[str]:
    """Which messages are in the first prompt for one."""
    first = next((prompt for prompt in prompts if text in _last_asked(prompt)), ())
    return _asked_in(first, texts)


def _asked_in(said: Sequence[Said], texts: Sequence[str]) -> list[str]:
    """Which messages are there, each once. A system may have put words of its own around them."""
    users = [each.text for each in said if each.role == "user"]
    return [text for text in texts if any(text in user for user in users)]


def forgotten(said: Sequence[Said], happened: int) -> Iterator[str]:
    """Calls that the conversation does not know of. A turn may be refused, but not after its tool has acted."""
    known = sum(len(each.calls) for each in said)
    if known < happened:
        yield f"the tool ran {happened} times, and the agent was told of {known}"


def _last_asked(prompt: Sequence[Said]) -> str:
    return next((each.text for each in reversed(prompt) if each.role == "user"), "")


def every_flaw(said: Sequence[Said], texts: Sequence[str]) -> list[str]:
    """All that no conversation may have, whatever has happened to it."""
    return [
        *torn_calls(said),
        *repeated(said, texts),
        *unanswered(said),
        *half_said(said, texts),
    ]


def shows_call(said: Sequence[Said]) -> bool:
    """Whether the conversation knows that the tool has been called."""
    return any(each.calls for each in said)
