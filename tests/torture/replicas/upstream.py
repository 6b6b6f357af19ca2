"""The model that replicas ask, and what it was shown. What it answers follows from what it is told; and from how often
it was asked, if it is to stumble.

A message is a name and what to do about it: `w17 act slow`. Tools are called one after the other, then there is an
answer that names the message; so whoever reads it can tell what it is an answer to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.core.codec import Value
from holdfast.testing import FakeUpstream, Reply, refuses, says
from holdfast.testing.upstream import UpstreamRequest

TOOLS = ("act", "again", "look")
STUMBLES = 2
"""How often the model fails at such a message before it answers."""
_MESSAGE = re.compile(r"w\d+(?: [a-z]+)*")


class Prompt(Value):
    """What a model was shown: the words of people, oldest first, without what we say about turns."""

    said: tuple[str, ...]


def answer_to(text: str) -> str:
    return f"This is all that there is to say about {text}."


class Oracle:
    """Answers, and remembers what it was asked. A request's bytes are not kept."""

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []
        self._stumbled: Counter[str] = Counter()
        self.upstream = FakeUpstream(otherwise=self._answer)

    def _answer(self, request: UpstreamRequest) -> Reply:
        self.upstream.requests.clear()
        messages: Sequence[dict[str, Any]] = request.json["messages"]
        said = [(n, text) for n, each in enumerate(messages) if (text := _words(each))]
        self.prompts.append(Prompt(said=tuple(text for _, text in said)))
        at, text = said[-1]
        calls = sum(1 for each in messages[at:] if each.get("tool_calls"))
        is_last = all(each["role"] != "user" for each in messages[at + 1 :])
        if is_last and is_to_stumble(text, calls) and self._stumbled[text] < STUMBLES:
            self._stumbled[text] += 1
            return refuses(500, message="out of breath")
        return reply_to(text, calls)


def is_to_stumble(text: str, calls: int) -> bool:
    """Whether the model fails for a while, after its tools have acted."""
    plan = text.split()[1:]
    return "stumble" in plan and calls == sum(each in TOOLS for each in plan)


def reply_to(text: str, calls: int) -> Reply:
    """The answer to a message about which so many calls have been made."""
    plan = text.split()[1:]
    if "fail" in plan:
        return refuses(500, message="out of order")
    tools = [each for each in plan if each in TOOLS]
    if calls < len(tools):
        return Reply(script=says(calls=[(tools[calls], f'{{"text": "{text}"}}')]))
    pieces = re.findall(r"\S+ ?", answer_to(text))
    return Reply(script=says(*pieces), pace_s=0.15 if "slow" in plan else 0.01)


def _words(message: dict[str, Any]) -> str:
    text = str(message.get("content"))
    return text if message["role"] == "user" and _MESSAGE.fullmatch(text) else ""
