"""Agents as tools: their names, what a call of one takes, and calls as clients send them.

A call brings a message, and perhaps the name or id of a conversation. Models that call tools often misname arguments, and
some agents need no words at all: the arguments of a call without a message are the message, as JSON. Not so in a
conversation that the call names: there something new has to be said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from holdfast.core.codec import Value
from holdfast.wire.body_parser import NULL
from holdfast.wire.json_rpc import INVALID_PARAMS
from holdfast.wire.mcp.messages import McpFault, McpRequest
from holdfast.wire.mcp.revisions import McpClient, RequestMeta
from holdfast.wire.problems import bad_request

NAME_CHARS_MAX: Final = 64
"""The protocol allows 128 characters and dots; widely used hosts take 64, and no dots."""


def tool_names(ids: Iterable[str]) -> dict[str, str]:
    """The ids of agents by the names of their tools. An agent's name depends only on the set of agents."""
    known = list(dict.fromkeys(ids))
    plain = {each: re.sub(r"[^A-Za-z0-9_-]", "_", each)[:NAME_CHARS_MAX] for each in known}
    shared = Counter(plain.values())
    return {_unique(each, plain[each], shared): each for each in known}


def _unique(agent: str, name: str, shared: Counter[str]) -> str:
    if shared[name] == 1 or name == agent:
        return name
    mark = sha256(agent.encode()).hexdigest()[:6]
    return f"{name[: NAME_CHARS_MAX - len(mark) - 1]}-{mark}"


INPUT_SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What to say to the agent."},
        "conversation": {
            "type": "string",
            "description": "The conversation to go on with, as an earlier answer names it. "
            "Leave it out to begin a new one.",
        },
    },
    "required": ["message"],
}

OUTPUT_SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "description": "What the agent says."},
        "conversation": {
            "type": "string",
            "description": "The conversation: pass it on to go on with it.",
        },
        "status": {
            "type": "string",
            "enum": ["completed", "cut_short", "waiting_for_approval"],
            "description": "cut_short: a limit was reached. waiting_for_approval: a person has to decide about "
            "what the agent wants to do.",
        },
        "turn": {"type": "string", "description": "The id of the turn."},
        "version": {"type": "integer", "description": "The version of the conversation."},
    },
    "required": ["answer", "conversation", "status", "turn"],
}


def tool_shown(name: str, agent: str, description: str, *, is_current: bool) -> dict[str, object]:
    """An agent as a tool of `tools/list`."""
    shown: dict[str, object] = {
        "name": name,
        "title": agent,
        "description": description or f"The agent {agent}.",
        "inputSchema": INPUT_SCHEMA,
        "outputSchema": OUTPUT_SCHEMA,
    }
    if not is_current:
        shown["execution"] = {"taskSupport": "optional"}
    return shown


# ── calls ────────────────────────────────────────────────────────────────────────────────────


class TaskWish(Struct):
    """A client before 2026-07-28 wants a task in place of a result."""

    ttl: float | None = None


class _CallParams(Struct):
    name: str
    arguments: Raw = NULL
    meta: RequestMeta = field(name="_meta", default_factory=RequestMeta)
    task: TaskWish | UnsetType = UNSET
    answers: dict[str, Raw] | None = field(name="inputResponses", default=None)
    state: str | None = field(name="requestState", default=None)


class _Arguments(Struct):
    message: object = UNSET
    conversation: object = UNSET


class ToolRequest(Value):
    """A call of a tool, as its client sends it."""

    name: str
    arguments: bytes
    """The arguments as one JSON object, in a form that does not depend on the order of members or on white space."""
    meta: RequestMeta
    wants_task: bool
    """The client asks for a task, before 2026-07-28."""
    answers: dict[str, Raw]
    """What the client's user says to questions of an earlier answer, by the names of these questions."""
    state: str | None
    """What that answer gave the client to bring back."""


def read_tool_request(request: McpRequest, client: McpClient) -> ToolRequest:
    """The parameters of `tools/call`. Raises McpFault."""
    said = request.read(_CallParams)
    raw = Raw(b"{}") if bytes(said.arguments) == b"null" else said.arguments
    if not bytes(raw).lstrip().startswith(b"{"):
        raise McpFault(INVALID_PARAMS, "tools/call: arguments must be an object")
    return ToolRequest(
        name=said.name,
        arguments=msgspec.json.encode(msgspec.json.decode(raw), order="sorted"),
        meta=said.meta,
        wants_task=said.task is not UNSET and not client.is_current,
        answers=said.answers or {},
        state=said.state,
    )


class ToolWords(Value):
    """What a call says, and where."""

    message: str
    conversation: str | None


def words_of(use: ToolRequest, *, is_named: bool) -> ToolWords:
    """The message of a call, and the conversation that it names. `is_named`: the URL or a header names one already.
    Raises Refused."""
    said = msgspec.json.decode(use.arguments, type=_Arguments)
    conversation = None if said.conversation in (UNSET, None, "") else said.conversation
    if conversation is not None and not isinstance(conversation, str):
        raise bad_request("invalid_type", "conversation must be a string", param="conversation")
    if isinstance(said.message, str):
        return ToolWords(message=said.message, conversation=conversation)
    if said.message is not UNSET:
        raise bad_request("invalid_type", "message must be a string", param="message")
    if conversation is not None or is_named:
        raise bad_request(
            "missing_required_parameter",
            "message is missing: say something new in this conversation",
            param="message",
        )
    return ToolWords(message=use.arguments.decode(), conversation=None)
