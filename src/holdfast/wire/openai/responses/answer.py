"""A turn as a Response object: every field is present, in every state of the turn.

A Response repeats the parameters of its request (the echo). They are stored with the turn, as an `Opaque` on the last
item of its input: committed with the turn, copied with the session, and hidden from models. A turn whose request
came by another API has no echo, and is shown with the API's defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from holdfast import limits
from holdfast.core.approval_questions import question_in
from holdfast.core.codec import Decoder, Unreadable, Value, encode
from holdfast.core.items import AssistantMessage, EndedBy, Item, Opaque, StoredItem, ToolCall
from holdfast.core.turns import events as ev
from holdfast.ids import ResponseId, SessionId, Version
from holdfast.wire.openai.chat.messages import url_of
from holdfast.wire.openai.responses.item_addresses import ItemAddress
from holdfast.wire.openai.responses.items import (
    IncludedFields,
    ItemObject,
    is_output,
    message_object,
    output_objects,
    question_message,
)
from holdfast.wire.pictures import pictures_in
from holdfast.wire.problems import Problem
from holdfast.wire.seal import Seal
from holdfast.wire.turn_answers import about_turn

OWNER = "holdfast.responses"
"""The owner of an `Opaque` that holds an echo."""

Status: TypeAlias = Literal[
    "queued", "in_progress", "completed", "incomplete", "failed", "cancelled"
]

# ── the echo of a request ────────────────────────────────────────────────────────────────────


class Echo(Value):
    """The parameters that a Response repeats from its request. Members of any type are kept as JSON."""

    model: str = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: str = "[]"
    tool_choice: str = '"auto"'
    parallel_tool_calls: bool = True
    text: str = '{"format":{"type":"text"}}'
    reasoning_effort: str | None = None
    reasoning_summary: str | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    truncation: str = "disabled"
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    store: bool = True
    background: bool = False
    metadata: tuple[tuple[str, str], ...] = ()
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    named: bool = False
    """The request named its conversation, so the answer does, too."""
    show_tools: bool = False
    seal_reasoning: bool = False
    asks_in_words: bool = True
    """A question about calls that wait for an approval is a message of the output."""
    asks_in_items: bool = True
    """Such calls are items of the output."""
    functions: tuple[str, ...] = ()
    """The names of the client's own tools, if the tools are too large to be stored."""


class _EchoedTool(Struct, frozen=True):
    type: str = ""
    name: str | None = None


_decoder: Decoder[Echo] = Decoder(Echo)


def note_of(echo: Echo) -> Opaque:
    """An echo for storing. Members that would make it too large are left out."""
    said = encode(echo)
    if len(said) > limits.echo_bytes_max:
        functions = tuple(sorted(functions_in(echo)))
        small = msgspec.structs.replace(echo, tools="[]", instructions=None, functions=functions)
        said = encode(small)
    return Opaque(owner=OWNER, json=said.decode())


def functions_in(echo: Echo) -> frozenset[str]:
    """The names of the client's own tools."""
    if echo.functions:
        return frozenset(echo.functions)
    tools = msgspec.json.decode(echo.tools, type=list[_EchoedTool])
    return frozenset(each.name for each in tools if each.type == "function" and each.name)


def echo_of(items: Iterable[StoredItem]) -> Echo | None:
    """The echo among a turn's items; None if there is none."""
    for item in items:
        for extra in getattr(item, "extras", ()):
            if extra.owner == OWNER:
                found = _decoder.lenient(extra.json.encode())
                return None if isinstance(found, Unreadable) else found
    return None


# ── the object ───────────────────────────────────────────────────────────────────────────────


class ResponseHead(Value):
    """The fields that are the same in every state of a Response."""

    response_id: ResponseId
    session_id: SessionId | None
    """None if nothing is stored."""
    created_s: int
    echo: Echo
    seal: Seal | None = None
    """Seals reasoning, if the request asked for encrypted reasoning."""

    @property
    def shows(self) -> IncludedFields:
        """The optional fields that the request asked for."""
        return IncludedFields(
            tools=self.echo.show_tools,
            thoughts=self.echo.reasoning_summary is not None,
            seal=self.seal if self.echo.seal_reasoning else None,
            approvals=self.echo.asks_in_items,
        )

    def question(self, end: ResponseEnd) -> AssistantMessage | None:
        """The question that ends the output; None if nothing is asked."""
        if not self.echo.asks_in_words:
            return None
        is_kept = end.version is not None
        found = question_in(end.items, self.response_id.turn_id, is_kept=is_kept)
        if found is None:
            return None
        text = end.again if end.again is not None else found.text
        has_said = any(isinstance(each, AssistantMessage) and each.agent for each in end.items)
        return question_message(f"\n\n{text}" if has_said else text, found.calls)


class ResponseEnd(Value):
    """The end of a Response: the facts that are known once its turn is settled."""

    status: Status
    items: tuple[Item, ...] = ()
    usage: ev.Usage = ev.Usage()
    completed_s: int | None = None
    version: Version | None = None
    """The version that the turn made; None if nothing is stored."""
    incomplete_reason: str | None = None
    error: Problem | None = None
    again: str | None = None
    """The answer is only a question that is asked again: this text; the items are the calls that it is about."""


_CUT_SHORT = "max_output_tokens"
_STOPPED: frozenset[EndedBy] = frozenset({"cancelled", "disconnected"})


def ended_response(
    by: EndedBy,
    *,
    kept: bool,
    items: tuple[Item, ...],
    usage: ev.Usage,
    completed_s: int,
    version: Version | None,
    problem: Problem,
    filtered: bool = False,
) -> ResponseEnd:
    """The outcome of a turn in the terms of the Responses API. `problem` is shown if the turn failed."""
    status: Status = "failed"
    reason: str | None = None
    if by == "completed" and kept:
        status, reason = ("incomplete", "content_filter") if filtered else ("completed", None)
    elif by == "limit":
        status, reason = "incomplete", _CUT_SHORT
    elif by in _STOPPED:
        status = "cancelled"
    return ResponseEnd(
        status=status,
        items=items,
        usage=usage,
        completed_s=completed_s,
        version=version,
        incomplete_reason=reason,
        error=problem if status == "failed" else None,
    )


_CODES = frozenset({"rate_limit_exceeded"})


def error_object(problem: Problem) -> dict[str, str]:
    """An error, with one of the codes that clients know for a Response."""
    if problem.code in _CODES:
        code = problem.code
    else:
        code = "invalid_prompt" if problem.status == 400 else "server_error"
    return {"code": code, "message": problem.message}


def usage_object(usage: ev.Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def response_object(
    head: ResponseHead, status: Status, end: ResponseEnd | None, output: Sequence[ItemObject]
) -> dict[str, object]:
    """A Response. Numbers are never null, and no field is left out."""
    echo = head.echo
    reason = end.incomplete_reason if end else None
    error = end.error if end else None
    session_id = head.session_id if echo.named else None
    turn_id = head.response_id.turn_id
    return {
        "id": str(head.response_id),
        "object": "response",
        "created_at": head.created_s,
        "completed_at": end.completed_s if end and status == "completed" else None,
        "status": status,
        "background": echo.background,
        "conversation": {"id": str(session_id)} if session_id else None,
        "error": error_object(error) if error else None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": echo.instructions,
        "max_output_tokens": echo.max_output_tokens,
        "max_tool_calls": echo.max_tool_calls,
        "model": echo.model,
        "output": output,
        "parallel_tool_calls": echo.parallel_tool_calls,
        "previous_response_id": echo.previous_response_id,
        "prompt_cache_key": echo.prompt_cache_key,
        "reasoning": {"effort": echo.reasoning_effort, "summary": echo.reasoning_summary},
        "safety_identifier": echo.safety_identifier,
        "service_tier": "default",
        "store": echo.store,
        "temperature": echo.temperature,
        "text": Raw(echo.text.encode()),
        "tool_choice": Raw(echo.tool_choice.encode()),
        "tools": Raw(echo.tools.encode()),
        "top_logprobs": echo.top_logprobs,
        "top_p": echo.top_p,
        "presence_penalty": echo.presence_penalty,
        "frequency_penalty": echo.frequency_penalty,
        "truncation": echo.truncation,
        "usage": usage_object(end.usage) if end else None,
        "user": echo.user,
        "metadata": dict(echo.metadata),
        "holdfast": about_turn(turn_id, end.version, end.items, end.usage)
        if end
        else about_turn(turn_id),
    }


def picture_objects(items: Sequence[Item], session_id: SessionId | None) -> list[ItemObject]:
    """The pictures that a turn's model has made, in order, as clients know them: each as the call of a tool for them."""
    return [
        {
            "id": f"ig_{n}_{ItemAddress(item=each.id, session_id=session_id)}",
            "type": "image_generation_call",
            "status": "completed",
            "result": url_of(part.source).partition(";base64,")[2] or None,
        }
        for each in items
        if is_output(each)
        for n, part in enumerate(pictures_in(each))
    ]


def whole_response(head: ResponseHead, end: ResponseEnd) -> dict[str, object]:
    """A Response that has ended."""
    shows = head.shows
    if any(isinstance(each, ToolCall) and each.state == "set_aside" for each in end.items):
        shows = msgspec.structs.replace(shows, functions=functions_in(head.echo))
    output = output_objects(end.items, head.session_id, shows)
    output += picture_objects(end.items, head.session_id)
    asked = head.question(end)
    if asked is not None:
        where = str(ItemAddress(item=asked.id, session_id=head.session_id))
        output.append(message_object(asked, where))
    return response_object(head, end.status, end, output)
