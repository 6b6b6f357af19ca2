"""Claude's Messages API, as strict as its pages say.

A signature holds the digest of everything before its block, so a block that comes back after anything else is refused:
system, tools, an earlier message, or a thought that was left out or moved. Marks for the cache are not compared.
"""

from __future__ import annotations

import json
from hashlib import sha256
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
from holdfast.wire.anthropic.thoughts import kept_thought
from tests.vendors.vendor import Refusal, Vendor, require, without

ALWAYS = frozenset({"claude-opus-5-5", "claude-fable-5-2"})
BOUND = ALWAYS | {"claude-sonnet-5-5", "claude-haiku-5-5"}
TYPES = {
    "claude-opus-5-5": {"adaptive"},
    "claude-fable-5-2": {"adaptive"},
    "claude-sonnet-5-5": {"adaptive", "between_tools"},
    "claude-haiku-5-5": {"adaptive", "disabled"},
    "claude-opus-4-8": {"adaptive", "disabled"},
    "claude-haiku-4-5": {"enabled", "disabled"},
}
OUTPUT = {"claude-haiku-4-5": 64_000}
UNFORCED = ALWAYS | {"claude-sonnet-5-5"}


class Claude(Vendor):
    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.thoughts_expected = 0
        """How many would have come back if every request had brought all that were made before it."""
        self._made = 0

    def check(self, request: UpstreamRequest) -> None:
        body = request.json
        model = body["model"]
        require(model in TYPES, f"model: {model}")
        require(1 <= body["max_tokens"] <= OUTPUT.get(model, 128_000), "max_tokens is too large")
        self._check_thinking(model, body)
        if model != "claude-haiku-4-5":
            require(not {"temperature", "top_p"} & body.keys(), "temperature is not supported")
            require(body["messages"][-1]["role"] == "user", "prefill is not supported")
        forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
        require(not (forced and model in UNFORCED), "tool_choice: forced tool use is not supported")
        require(not (forced and thinks(model, body)), "thinking may not be on with a forced tool")
        for tool in body.get("tools", ()):
            require(tool["input_schema"].get("type") == "object", "input_schema.type: required")
        _check_messages(body["messages"])
        self._check_thoughts(model, body)
        self.thoughts_expected += self._made

    def _check_thinking(self, model: str, body: Any) -> None:
        asked = body.get("thinking")
        if asked is None:
            return
        require(asked["type"] in TYPES[model], f'"thinking.type.{asked["type"]}" is not supported')
        effort = body.get("output_config", {}).get("effort")
        require(
            asked["type"] not in ("disabled", "between_tools") or effort not in ("xhigh", "max"),
            "effort is too high with thinking off",
        )
        if asked["type"] == "enabled":
            require(1024 <= asked["budget_tokens"] < body["max_tokens"], "budget_tokens")

    def _check_thoughts(self, model: str, body: Any) -> None:
        compared = without(body, lambda name: name == "cache_control")
        messages = compared["messages"]
        for i, message in enumerate(messages):
            for j, block in enumerate(message["content"]):
                if block["type"] not in ("thinking", "redacted_thinking"):
                    continue
                made_by, _, prefix = (block.get("signature") or block.get("data")).split("|")
                if made_by not in BOUND or model not in BOUND or made_by != model:
                    continue  # ignored, or dropped without an error
                if prefix != prefix_of(compared, messages[:i], message["content"][:j]):
                    raise Refusal(
                        f"messages.{i}.content.{j}: Invalid `signature` in `thinking` block. "
                        "The block is bound to a different conversation."
                    )
                self.thoughts_back += 1
        if body.get("thinking", {}).get("type") == "enabled":
            _check_loop(messages)

    def answer(self, request: UpstreamRequest) -> Script:
        body = without(request.json, lambda name: name == "cache_control")
        answered = body["messages"][-1]["content"][0]["type"] == "tool_result"
        tools = [each["name"] for each in body.get("tools", ())]
        call = self.wants_call(tools, answered=answered)
        steps: list[Step] = []
        blocks: list[dict[str, Any]] = []
        model = body["model"]
        if thinks(model, body):
            self._think(body, steps, blocks)
        words = self.words()
        steps.append(TextDelta(text=words, index=len(blocks)))
        blocks.append({"type": "text", "text": words})
        if thinks(model, body) and self.chance.random() < 0.3:
            self._think(body, steps, blocks)
        if call is not None:
            name, arguments = call
            number = self.chance.randrange(1 << 30)
            steps.append(
                ToolCallDelta(
                    index=len(blocks), call_id=f"toolu_{number}", name=name, arguments=arguments
                )
            )
        size = len(request.body) // 4
        steps.append(UsageDelta(usage=Usage(input_tokens=size, output_tokens=10)))
        return Script(*steps, FinishDelta(finish="tool_calls" if call else "stop"))

    def _think(self, body: Any, steps: list[Step], blocks: list[dict[str, Any]]) -> None:
        """A thought, whose signature holds for everything before it."""
        model = body["model"]
        self._made += 1
        prefix = prefix_of(body, body["messages"], blocks)
        sealed = f"{model}|{self.chance.randrange(1 << 30)}|{prefix}"
        place = len(blocks)
        if self.chance.random() < 0.2:
            steps.append(ExtraDelta(kind="reasoning", index=place, extra=kept_thought(data=sealed)))
            blocks.append({"type": "redacted_thinking", "data": sealed})
            return
        shown = body.get("thinking", {}).get("display") == "summarized" or model not in BOUND
        text = "Let me see." if shown else ""
        if text:
            steps.append(ReasoningDelta(text=text, index=place))
        steps.append(
            ExtraDelta(kind="reasoning", index=place, extra=kept_thought(signature=sealed))
        )
        blocks.append({"type": "thinking", "thinking": text, "signature": sealed})


def thinks(model: str, body: Any) -> bool:
    asked = body.get("thinking", {}).get("type")
    return asked in ("adaptive", "enabled") or (asked is None and model in BOUND)


def prefix_of(body: Any, messages: list[Any], blocks: list[Any]) -> str:
    before = [body.get("system"), body.get("tools"), messages, blocks]
    return sha256(json.dumps(before, sort_keys=True).encode()).hexdigest()[:16]


def _check_messages(messages: list[Any]) -> None:
    require(messages and messages[0]["role"] == "user", "messages: first must be the user's")
    open_calls: set[str] = set()
    for message in messages:
        blocks = message["content"]
        require(blocks, "messages: content is empty")
        results = {each["tool_use_id"] for each in blocks if each["type"] == "tool_result"}
        require(results == open_calls, "`tool_use` ids were found without `tool_result` blocks")
        open_calls = {each["id"] for each in blocks if each["type"] == "tool_use"}
        for each in blocks:
            require(each["type"] != "text" or each["text"].strip(), "text must not be white space")
    require(not open_calls, "`tool_use` ids were found without `tool_result` blocks")


def _check_loop(messages: list[Any]) -> None:
    if messages[-1]["content"][0]["type"] != "tool_result":
        return
    last = next(each for each in reversed(messages) if each["role"] == "assistant")
    first = last["content"][0]["type"]
    require("thinking" in first, f"Expected `thinking` or `redacted_thinking`, but found `{first}`")
