"""Gemini's API, as strict as its pages say.

A call of the current turn needs the signature that came with it, or the placeholder for calls of other models. A
signature belongs to its model and to its part.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.turns.deltas import (
    ExtraDelta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import Usage
from holdfast.testing import Script
from holdfast.testing.scripted_model import Step
from holdfast.testing.upstream.replies import UpstreamRequest
from holdfast.wire.google.dialect import kept_signature
from tests.vendors.vendor import Vendor, require

LEVELS = {
    "gemini-4-argon": {"low", "medium", "high"},
    "gemini-3-flash-preview": {"minimal", "low", "medium", "high"},
    "gemini-3.1-pro-preview": {"low", "high"},
}
PLACEHOLDER = "skip_thought_signature_validator"


class Gemini(Vendor):
    def check(self, request: UpstreamRequest) -> None:
        body, model = request.json, model_of(request)
        thinking = body.get("generationConfig", {}).get("thinkingConfig", {})
        if model in LEVELS:
            require("thinkingBudget" not in thinking, "Budget is not supported")
            level = thinking.get("thinkingLevel", "low")
            require(level in LEVELS[model], f"Thinking level {level} is not supported")
        elif model == "gemini-2.5-pro":
            require("thinkingLevel" not in thinking, "Thinking level is not supported")
            require(
                thinking.get("thinkingBudget", -1) != 0, "This model only works in thinking mode"
            )
        self._check_contents(body["contents"], model)

    def _check_contents(self, contents: list[Any], model: str) -> None:
        require(contents and contents[0]["role"] == "user", "first content must be the user's")
        turn_begins = max(n for n, each in enumerate(contents) if is_said_by_user(each))
        for n, content in enumerate(contents):
            calls = [part for part in content["parts"] if "functionCall" in part]
            require(content["parts"], "parts is empty")
            for part in content["parts"]:
                self._check_signature(part, model)
            if not calls:
                continue
            require(contents[n - 1]["role"] == "user", "a function call follows the user's turn")
            answers = contents[n + 1]["parts"] if n + 1 < len(contents) else []
            ids = [part.get("functionResponse", {}).get("id") for part in answers]
            asked = [part["functionCall"]["id"] for part in calls]
            require(ids == asked, "the number of function response parts must equal the calls")
            if n > turn_begins and model in LEVELS:
                require(
                    "thoughtSignature" in calls[0],
                    "Function call is missing a thought_signature in functionCall parts.",
                )

    def _check_signature(self, part: Any, model: str) -> None:
        signature = part.get("thoughtSignature", PLACEHOLDER)
        if signature == PLACEHOLDER:
            return
        made_by, what, _ = signature.split("|")
        require(made_by == model, "Corrupted thought signature.")
        require(what == part_kind(part), "Corrupted thought signature.")
        self.thoughts_back += 1

    def answer(self, request: UpstreamRequest) -> Script:
        body, model = request.json, model_of(request)
        declared = [each for tool in body.get("tools", ()) for each in tool["functionDeclarations"]]
        mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
        tools = [] if mode == "NONE" else [each["name"] for each in declared]
        answered = "functionResponse" in body["contents"][-1]["parts"][0]
        steps: list[Step] = [ReasoningDelta(text="Let me see.", index=0)]
        call = self.wants_call(tools, answered=answered)
        steps.append(TextDelta(text=self.words(), index=1))
        if call is None:
            extra = self._signature(model, "text")
            steps.append(ExtraDelta(kind="message", index=1, extra=extra))
        else:
            name, arguments = call
            number = self.chance.randrange(1 << 30)
            for n in range(self.chance.choice((1, 1, 2)) if name != "handoff" else 1):
                steps.append(
                    ToolCallDelta(index=n, call_id=f"c{number}-{n}", name=name, arguments=arguments)
                )
                if not n:  # of parallel calls, the first is signed
                    steps.append(
                        ExtraDelta(kind="call", index=0, extra=self._signature(model, name))
                    )
        steps.append(UsageDelta(usage=Usage(input_tokens=len(request.body) // 4)))
        return Script(*steps, FinishDelta(finish="tool_calls" if call else "stop"))

    def _signature(self, model: str, what: str) -> Any:
        return kept_signature(f"{model}|{what}|{self.chance.randrange(1 << 30)}")


def model_of(request: UpstreamRequest) -> str:
    return request.route.rpartition("/models/")[2].partition(":")[0]


def is_said_by_user(content: Any) -> bool:
    return content["role"] == "user" and "functionResponse" not in content["parts"][0]


def part_kind(part: Any) -> str:
    return str(part["functionCall"]["name"]) if "functionCall" in part else "text"
