"""What the fakes share: a refusal, a count of what came back, and answers that differ by what is asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from holdfast.testing import Reply, Script, refuses
from holdfast.testing.upstream.replies import UpstreamRequest


class Refusal(Exception):
    """The vendor says no, in its words."""

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class Vendor:
    """A server that checks a request, and then thinks, calls and says something. It is a `FakeUpstream`'s `otherwise`."""

    def __init__(self, *, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.refused: list[str] = []
        self.thoughts_back = 0
        """How many thoughts came back and were accepted: a client that leaves all of them out is never refused."""

    def __call__(self, request: UpstreamRequest) -> Reply | Script:
        try:
            self.check(request)
        except Refusal as refusal:
            self.refused.append(str(refusal))
            return refuses(400, message=str(refusal), code=refusal.code)
        return self.answer(request)

    def check(self, request: UpstreamRequest) -> None:
        """Raises Refusal."""
        raise NotImplementedError

    def answer(self, request: UpstreamRequest) -> Script:
        raise NotImplementedError

    def words(self) -> str:
        return " ".join(["word"] * self.chance.randint(20, 120))

    def wants_call(self, tools: list[str], *, answered: bool) -> tuple[str, str] | None:
        """A call that the model makes now; more seldom after a result, so that turns end."""
        if not tools or self.chance.random() > (0.3 if answered else 0.7):
            return None
        name = self.chance.choice(tools)
        arguments = '{"agent":"' + self.chance.choice(("ada", "bob")) + '"}'
        return name, arguments if name == "handoff" else '{"at":"sea","type":"gull"}'


def require(condition: object, message: str) -> None:
    if not condition:
        raise Refusal(message)


def without(value: Any, unwanted: Callable[[str], bool]) -> Any:
    """The JSON value without these members, at any depth."""
    if isinstance(value, dict):
        return {name: without(each, unwanted) for name, each in value.items() if not unwanted(name)}
    if isinstance(value, list):
        return [without(each, unwanted) for each in value]
    return value
