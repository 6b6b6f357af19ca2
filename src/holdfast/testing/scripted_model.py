"""A model that follows a script: answers made of deltas, failures and gates, in any order.

    model = ScriptedModel(
        says("Let me ", "look.", calls=[("look", '{"where": "Oslo"}')]),
        says("Cold.", usage=Usage(input_tokens=7, output_tokens=2)),
    )
    ...
    assert len(model.prompts) == 2

Every answer is a `Script`. It can fail or wait at any delta: `says("a", "b").failing(at=1)`,
`says("a", "b").waiting(gate, at=1)`; a `Gate` shows when it was reached, and holds until it is released.
A `FakeUpstream` answers with the same scripts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from holdfast.core.turns.deltas import (
    Delta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import FORCED_TOOL_CHOICE, Finish, Parameters, Usage
from holdfast.models.model import Dialect, ModelFailed, Prompt
from holdfast.wire.openai.chat.messages import ChatDialect, ChatMessage


class Gate:
    """Holds every task that reaches it until it is released. The first task sets `reached`."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._released.wait()

    def __repr__(self) -> str:
        state = "open" if self._released.is_set() else "held" if self.reached.is_set() else "closed"
        return f"<Gate {state}>"


Step: TypeAlias = Delta | ModelFailed | Gate


class Script:
    """One answer, step by step. It never changes: `failing`, `waiting` and `ending` return a new one."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps

    def failing(self, failure: ModelFailed | None = None, *, at: int) -> Script:
        """Fail in place of the `at`-th step (from 0) and all later ones."""
        failure = failure or ModelFailed("scripted to fail", reason="scripted", transient=True)
        return Script(*self.steps[:at], failure)

    def waiting(self, gate: Gate, *, at: int) -> Script:
        """Wait at the gate before the `at`-th step."""
        return Script(*self.steps[:at], gate, *self.steps[at:])

    def ending(self, *, at: int) -> Script:
        """Stop before the `at`-th step: without a finish, the answer has broken off."""
        return Script(*self.steps[:at])

    def __repr__(self) -> str:
        return f"<Script of {len(self.steps)} steps>"


def says(
    *pieces: str,
    thinks: Sequence[str] = (),
    refuses: Sequence[str] = (),
    calls: Iterable[tuple[str, str] | tuple[str, str, str]] = (),
    usage: Usage | None = None,
    finish: Finish | None = None,
) -> Script:
    """An answer: text in these pieces, thoughts before it, calls after it.

    A call is a name and its arguments, and optionally its id; its arguments come in two fragments.
    """
    steps: list[Step] = [ReasoningDelta(text=each) for each in thinks]
    steps += (TextDelta(text=each) for each in pieces)
    steps += (TextDelta(text=each, refusal=True) for each in refuses)
    asked = list(calls)
    for n, (name, arguments, *given) in enumerate(asked):
        half = len(arguments) // 2
        steps += (
            ToolCallDelta(index=n, call_id=given[0] if given else f"call_{n}", name=name),
            ToolCallDelta(index=n, arguments=arguments[:half]),
            ToolCallDelta(index=n, arguments=arguments[half:]),
        )
    if usage is not None:
        steps.append(UsageDelta(usage=usage))
    return Script(*steps, FinishDelta(finish=finish or ("tool_calls" if asked else "stop")))


def fails(
    detail: str = "scripted to fail",
    *,
    status: int = 0,
    reason: str = "scripted",
    retry_after_s: float | None = None,
    transient: bool = True,
) -> Script:
    """A failure before the first delta."""
    failure = ModelFailed(
        detail, status=status, reason=reason, retry_after_s=retry_after_s, transient=transient
    )
    return Script(failure)


class ScriptedModel:
    """Gives these answers, one per request, and records the prompts.

    `otherwise` answers when no script is left; without it, such a request is an error in the test.
    """

    def __init__(
        self,
        *scripts: Script | str,
        otherwise: Callable[[Prompt], Script | str] | None = None,
        name: str = "scripted/model",
        dialect: Dialect | None = None,
        knows: frozenset[str] = frozenset({*Parameters.__struct_fields__, FORCED_TOOL_CHOICE}),
    ) -> None:
        self.name = name
        self.dialect: Dialect = dialect or ChatDialect()
        self.knows = knows
        self.prompts: list[Prompt] = []
        """Every prompt, in order."""
        self.speaking = 0
        """Running answers: begun, and neither ended nor closed."""
        self.left_early = 0
        """Answers that were closed or cancelled before their end."""
        self.closed = False
        self._scripts = list(scripts)
        self._otherwise = otherwise

    def will(self, *scripts: Script | str) -> None:
        """Add these answers after the scripted ones."""
        self._scripts += scripts

    def messages(self, nth: int = -1) -> list[ChatMessage]:
        """The messages of the `nth` prompt; for the chat dialect."""
        pieces = self.prompts[nth].messages
        return msgspec.json.decode(b"[" + b",".join(pieces) + b"]", type=list[ChatMessage])

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        self.prompts.append(prompt)
        script = self._next(prompt)
        self.speaking += 1
        ended = False
        try:
            for step in script.steps:
                if isinstance(step, Gate):
                    await step.wait()
                elif isinstance(step, ModelFailed):
                    ended = True
                    raise step
                else:
                    yield (step,)
            ended = True
        finally:
            self.speaking -= 1
            self.left_early += not ended

    async def close(self) -> None:
        self.closed = True

    def _next(self, prompt: Prompt) -> Script:
        if self._scripts:
            script = self._scripts.pop(0)
        elif self._otherwise is not None:
            script = self._otherwise(prompt)
        else:
            raise AssertionError(f"{self.name} was asked {len(self.prompts)} times; script it")
        return says(script) if isinstance(script, str) else script

    def __repr__(self) -> str:
        return f"<ScriptedModel asked {len(self.prompts)} times, {len(self._scripts)} answers left>"
