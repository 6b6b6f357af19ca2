"""Names of conversations for clients that cannot send `X-Conversation-Id`: in the base URL, by the header of a chat
program, or in the body.

Programs like that resend their whole history with every request, also with those for titles and tags. So these names
stand for a family of lines (`core/history/branches.py`), unless a request says `X-History: append`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

import msgspec

from holdfast.core.codec import DAMAGE, Value
from holdfast.errors import InvalidValue
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.problems import bad_request

# ── in the base URL ──────────────────────────────────────────────────────────────────────────

BASE = "/c/"
"""Begins the paths that name a conversation: `/c/{name}/v1/…`, `/c/{name}/mcp`."""

MCP = "/mcp"


class NamedPath(Value):
    """A path with a name in front of it."""

    name: str
    path: str
    """The path without the name, as it was sent: `/v1/chat/completions`."""


def named_path(raw_path: str) -> NamedPath | None:
    """The name and the rest of `/c/{name}/v1/…` or `/c/{name}/mcp`; None for other paths.

    The name ends at the last step that is `v1`: a proxy may have decoded a `%2F` in the name on the way.
    """
    if not raw_path.startswith(BASE):
        return None
    after = raw_path[len(BASE) :]
    if after.endswith(MCP) and after != MCP:
        return NamedPath(name=unquote(after.removesuffix(MCP)), path=MCP)
    name, found, rest = after.rpartition("/v1")
    if not found or not name or (rest and not rest.startswith("/")):
        return None
    return NamedPath(name=unquote(name), path=found + rest)


_KEY = re.compile(r"hf_|(?:sk|gsk|xai|AIza|ghp)[-_]?[A-Za-z0-9_-]{20,}\Z")
"""An API key, of this server or of a well-known provider."""


def base_name(text: str) -> str:
    """The name in a base URL, checked. Raises Refused."""
    if _KEY.match(text):
        raise bad_request(
            "invalid_conversation_key",
            "the name in the base URL looks like an API key: addresses are logged on the way, so send the key "
            "as `Authorization: Bearer …`, and choose a name that is no secret",
        )
    if any(step in (".", "..") for step in text.split("/")):
        raise bad_request(
            "invalid_conversation_key",
            "the name in the base URL has a step `.` or `..`, which clients and proxies take out of addresses",
        )
    return text


# ── the headers of chat programs ─────────────────────────────────────────────────────────────

UNCOUNTED = frozenset(("x-claude-code-session-id",))
"""Headers of programs that send a request again until it is answered, and say every time that it is the first attempt.
They send no request twice for another reason."""

CHAT_IDS = (*UNCOUNTED, "x-openwebui-chat-id", "x-session-affinity")
"""Headers by which chat programs tell the id of a chat; docs/guides/clients.md says which program sends which. The first
one that a request has names its conversation: a proxy may add the last."""

_BRANCHES = ("x-claude-code-agent-id",)
"""Headers by which a program tells the sub-agent that asks: it has a history of its own, beside its chat's."""

_TEMPORARY = ("temporary", "local")
"""How the id of a chat begins that its chat program does not keep, up to the colon."""


def chat_id(headers: Mapping[str, str]) -> str | None:
    """The chat that a chat program's own header names, and the sub-agent that asks in it: `chat/agent`. None without
    such a header, and for a temporary chat."""
    for name in CHAT_IDS:
        text = filled(headers.get(name, ""))
        if text:
            branch = (headers.get(each, "").strip() for each in _BRANCHES)
            steps = map(_key_text, filter(None, (text, *branch)))
            return None if text.partition(":")[0] in _TEMPORARY else "/".join(steps)
    return None


_TEMPLATE = re.compile(r"\{\{\s*\w+\s*\}\}", re.ASCII)


def filled(text: str) -> str:
    """What a chat program has filled in in a header of its connection; empty if it does not know the template, as in
    versions from before it."""
    return "" if _TEMPLATE.fullmatch(text.strip()) else text.strip()


def has_template(text: str) -> bool:
    """Whether a name has a template that its client has not filled in: all chats would have this name."""
    return _TEMPLATE.search(text) is not None


# ── in the body ──────────────────────────────────────────────────────────────────────────────

_SOURCE = re.compile(r"user|session_id|metadata\.[A-Za-z0-9_.-]{1,64}", re.ASCII)


def parse_conversation_from(text: str) -> str:
    """The part of a request that names the conversation. Raises InvalidValue."""
    if not _SOURCE.fullmatch(text):
        raise InvalidValue(
            f"a conversation can be named by user, session_id or metadata.NAME, not by {text[:100]!r}"
        )
    return text


class _NamingBody(msgspec.Struct):
    user: object = None
    session_id: object = None
    metadata: dict[str, object] | None = None


_decoder: BodyDecoder[_NamingBody] = BodyDecoder(_NamingBody)


def derived_name(source: str, body: bytes) -> str | None:
    """The name that a body gives its conversation by its part `source`: `user:ada`. None if it has no such part, or an
    empty one; Refused if it is neither a text nor a number, since an answer without the conversation would be wrong.

    The prefix keeps it apart from names that other clients choose: a client that can say only who its user is cannot
    choose a whole name.
    """
    try:
        asked = _decoder.decode(body)
    except DAMAGE:
        return None  # the request's own reader refuses it, and says why
    part, _, name = source.partition(".")
    value = (asked.metadata or {}).get(name) if name else getattr(asked, part)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise bad_request(
            "invalid_conversation_key",
            f"{source} names the conversation of requests with this API key: it has to be a text",
            param=source,
        )
    return f"{source}:{_key_text(str(value))}"


def _key_text(text: str) -> str:
    """The text as characters that a session key may have; others are percent-encoded."""
    return quote(
        text, safe="".join(map(chr, range(0x21, 0x25))) + "".join(map(chr, range(0x26, 0x7F)))
    )
