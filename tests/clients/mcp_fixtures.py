"""The fixtures that the conformance suite names, as agents on scripted models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from holdfast.agents.agent import Agent
from holdfast.core.items import Permissions
from holdfast.core.turns.deltas import Delta
from holdfast.models.model import Prompt
from holdfast.testing import Script, ScriptedModel, fails, says
from tests.server.stubs import HeldTool, StubTools


class FixtureModel(ScriptedModel):
    """Answers by what was said last: a message in JSON, which the arguments of a call are, or the result of a tool."""

    def __init__(self, *steps: Script, pause_s: float = 0.0, is_broken: bool = False) -> None:
        super().__init__(otherwise=self._reply)
        self._steps: tuple[Script, ...] = steps
        self._pause_s = pause_s
        self._is_broken = is_broken

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        said = _messages(prompt)[-1]
        arguments = _arguments(said)
        is_first = said["role"] == "user"
        if is_first:
            await asyncio.sleep(float(arguments.get("seconds", self._pause_s)))
        if self._is_broken:
            raise RuntimeError("a bug, on purpose")
        async for deltas in super().stream(prompt):
            yield deltas

    def _reply(self, prompt: Prompt) -> Script:
        messages = _messages(prompt)
        rounds = len([each for each in messages if each["role"] == "tool"])
        if rounds < len(self._steps):
            return self._steps[rounds]
        name = _arguments(messages[-1]).get("name")
        return says(f"Hello, {name}!" if name else "This is a simple text response for testing.")


def _messages(prompt: Prompt) -> list[Any]:
    found: list[Any] = json.loads(b"[" + b",".join(prompt.messages) + b"]")
    return found


def _arguments(message: dict[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(message["content"])
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _speaker(name: str, **options: Any) -> Agent:
    return Agent(name, FixtureModel(**options))


def _failing(name: str, **options: Any) -> Agent:
    failure = fails("This tool intentionally returns an error for testing")
    return Agent(name, FixtureModel(failure, **options))


def _using(name: str, *tools: str, asks: bool, **options: Any) -> Agent:
    """An agent that uses these tools one after the other, with an approval or without."""
    steps = [says("I need this.", calls=[(each, "{}", f"call_{each}")]) for each in tools]
    rule = Permissions(ask=tools) if asks else Permissions(allow=tools)
    held = (HeldTool(each, held=False) for each in tools)
    return Agent(
        name, FixtureModel(*steps, **options), toolsets=(StubTools(*held),), permissions=rule
    )


def fixtures() -> tuple[Agent, ...]:
    asking = (
        ("test_elicitation", "look_up"),
        ("test_streaming_elicitation", "look_up"),
        ("test_input_required_result_elicitation", "user_name"),
        ("test_input_required_result_request_state", "confirm"),
        ("test_input_required_result_tampered_state", "confirm"),
    )
    return (
        _speaker("test_simple_text"),
        _speaker("test_logging_tool"),
        _speaker("greet"),
        _speaker("slow_compute", pause_s=1.0),
        _failing("test_error_handling"),
        _failing("failing_job", pause_s=1.0),
        _speaker("protocol_error_job", pause_s=1.0, is_broken=True),
        _using("test_tool_with_progress", "look_up", asks=False),
        *(_using(name, tool, asks=True) for name, tool in asking),
        _using("test_input_required_result_multi_round", "step1", "step2", asks=True),
        _using("confirm_delete", "delete", asks=True, pause_s=1.0),
    )
