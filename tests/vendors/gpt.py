"""OpenAI's Responses API and chat completions, and the chat completions of DeepSeek and Moonshot, as strict as their pages say."""

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
from holdfast.wire.openai.responses.dialect import kept_reasoning
from tests.vendors.vendor import Refusal, Vendor, require

EFFORTS = {
    "gpt-5": {"minimal", "low", "medium", "high"},
    "gpt-5.1": {"none", "low", "medium", "high"},
    "gpt-6.1-sol": {"low", "medium", "high", "xhigh", "max"},
}


class Gpt(Vendor):
    """Responses. Encrypted reasoning can be read by the organization that it was made for."""

    organization = "org-1"

    def check(self, request: UpstreamRequest) -> None:
        body = request.json
        reasons = body["model"] in EFFORTS
        effort = body.get("reasoning", {}).get("effort")
        if effort is not None:
            require(effort in EFFORTS.get(body["model"], ()), f"Unsupported value: {effort}")
        if reasons and effort != "none":
            require("temperature" not in body, "Unsupported parameter: 'temperature'")
        if not reasons:
            require("include" not in body, "Encrypted content is not supported with this model.")
        self._check_items(body["input"])

    def _check_items(self, items: list[Any]) -> None:
        require(items, "input is empty")
        open_calls: set[str] = set()
        for n, item in enumerate(items):
            kind = item.get("type", "message")
            if kind == "reasoning":
                self._check_reasoning(item, items[n + 1 : n + 2])
            elif kind == "function_call":
                open_calls.add(item["call_id"])
            elif kind == "function_call_output":
                require(
                    item["call_id"] in open_calls, "No tool call found for function call output"
                )
                open_calls.remove(item["call_id"])
        require(not open_calls, "No tool output found for function call")

    def _check_reasoning(self, item: Any, following: list[Any]) -> None:
        if not item["encrypted_content"].startswith(f"{self.organization}|"):
            raise Refusal(
                "The encrypted content could not be verified.", code="invalid_encrypted_content"
            )
        kinds = [(each.get("type", "message"), each.get("role")) for each in following]
        require(
            kinds and kinds[0] in (("function_call", None), ("message", "assistant")),
            f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.",
        )
        self.thoughts_back += 1

    def answer(self, request: UpstreamRequest) -> Script:
        body = request.json
        tools = (
            [] if body.get("tool_choice") == "none" else [t["name"] for t in body.get("tools", ())]
        )
        answered = body["input"][-1].get("type") == "function_call_output"
        steps: list[Step] = []
        if body["model"] in EFFORTS:
            number = self.chance.randrange(1 << 30)
            sealed = f'{{"type":"reasoning","id":"rs_{number}","summary":[],'
            sealed += f'"encrypted_content":"{self.organization}|{number}"}}'
            extra = kept_reasoning(sealed.encode())
            assert extra is not None
            steps += [
                ReasoningDelta(text="Let me see.", index=0),
                ExtraDelta(kind="reasoning", index=0, extra=extra),
            ]
        return spoken(self, request, steps, tools, answered=answered)


class DeepSeek(Vendor):
    """Chat completions, where a call comes back with the reasoning before it."""

    blank_is_missing = False

    def check(self, request: UpstreamRequest) -> None:
        messages = request.json["messages"]
        self.check_calls(messages)
        for n, message in enumerate(messages):
            calls = message.get("tool_calls") or ()
            reasoning = message.get("reasoning_content")
            if calls:
                require(
                    reasoning is not None and (reasoning or not self.blank_is_missing),
                    f"reasoning_content is missing in assistant tool call message at index {n}",
                )
                self.thoughts_back += reasoning == "Let me see."

    def check_calls(self, messages: list[Any]) -> None:
        open_calls: set[str] = set()
        for message in messages:
            if message["role"] == "tool":
                require(message["tool_call_id"] in open_calls, "tool must follow tool_calls")
                open_calls.remove(message["tool_call_id"])
                continue
            require(not open_calls, "tool_calls must be followed by tool messages")
            open_calls = {call["id"] for call in message.get("tool_calls") or ()}

    def answer(self, request: UpstreamRequest) -> Script:
        body = request.json
        offered = [tool["function"]["name"] for tool in body.get("tools", ())]
        tools = [] if body.get("tool_choice") == "none" else offered
        thinks = self.chance.random() < 0.8
        steps: list[Step] = [ReasoningDelta(text="Let me see.", index=0)] if thinks else []
        return spoken(self, request, steps, tools, answered=body["messages"][-1]["role"] == "tool")


class Moonshot(DeepSeek):
    """As DeepSeek; an empty text counts as missing."""

    blank_is_missing = True


class GptChat(DeepSeek):
    """OpenAI's chat completions. What a model thought never comes back."""

    efforts = EFFORTS | {
        "gpt-5.6-terra": {"none", "low", "medium", "high", "xhigh", "max"},
        "o3": {"low", "medium", "high"},
    }
    free = ("temperature", "top_p", "logit_bias", "frequency_penalty", "presence_penalty", "stop")

    def check(self, request: UpstreamRequest) -> None:
        body = request.json
        model, effort = body["model"], body.get("reasoning_effort")
        reasons = model in self.efforts
        if effort is not None:
            require(effort in self.efforts.get(model, ()), f"Unsupported value: {effort}")
        if reasons:
            require("max_tokens" not in body, "Use 'max_completion_tokens' instead.")
        if reasons and effort != "none":
            for name in self.free:
                require(name not in body, f"Unsupported parameter: '{name}'")
            refuses_tools = model == "gpt-5.6-terra" and body.get("tools")
            require(not refuses_tools, "Function tools with reasoning_effort are not supported")
        length = body.get("max_tokens") or body.get("max_completion_tokens") or 1
        bound = {"gpt-4.1": 32_768, "o3": 100_000}.get(model, 128_000)
        require(length <= bound, "max_tokens is too large")
        self.check_calls(body["messages"])


def spoken(
    vendor: Vendor, request: UpstreamRequest, steps: list[Step], tools: list[str], *, answered: bool
) -> Script:
    """These steps, then words, and perhaps a call."""
    call = vendor.wants_call(tools, answered=answered)
    steps.append(TextDelta(text=vendor.words(), index=1))
    if call is not None:
        name, arguments = call
        number = vendor.chance.randrange(1 << 30)
        steps.append(
            ToolCallDelta(index=2, call_id=f"call_{number}", name=name, arguments=arguments)
        )
    steps.append(UsageDelta(usage=Usage(input_tokens=len(request.body) // 4)))
    return Script(*steps, FinishDelta(finish="tool_calls" if call else "stop"))
