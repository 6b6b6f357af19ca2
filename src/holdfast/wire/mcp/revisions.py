"""Which revision of the protocol a request speaks, and what its client can do.

Revision 2026-07-28 has no sessions: each request says in `_meta` which revision it speaks and what its client can do,
and headers repeat what routers need. Revisions before it begin with `initialize`. Their session id is a value here: it
says what the client declared, and names nothing that a server would have to remember, so that any replica answers any
request. A client that makes up such an id only deceives itself.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType, field

from holdfast.core.codec import Value
from holdfast.wire.headers import MCP_METHOD, MCP_NAME, MCP_PROTOCOL_VERSION, MCP_SESSION_ID
from holdfast.wire.json_rpc import INVALID_PARAMS, RpcId
from holdfast.wire.mcp.messages import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    McpFault,
    McpMessage,
    McpRequest,
)

CURRENT: Final = "2026-07-28"
PREVIOUS: Final = "2025-11-25"
HANDSHAKES: Final = (PREVIOUS, "2025-06-18")
"""The revisions that begin with `initialize`, the newest first."""
SUPPORTED: Final = (CURRENT, *HANDSHAKES)

TASKS: Final = "io.modelcontextprotocol/tasks"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"

_NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter that the header `mcp-name` repeats."""


class McpClient(Value):
    """The client of a request, as far as its answers depend on it."""

    revision: str
    elicits: bool = False
    """The client can show a form to its user."""
    has_tasks: bool = False
    """The client takes a task in place of a result."""
    session: str = ""
    """The session id that the client sent, before 2026-07-28."""

    @property
    def is_current(self) -> bool:
        """Whether the client speaks a revision without sessions."""
        return self.revision == CURRENT

    def demand_tasks(self) -> None:
        """Raise McpFault for a client of the current revision that has not declared the extension for tasks."""
        if self.is_current and not self.has_tasks:
            raise McpFault(
                MISSING_CAPABILITY,
                f"this needs the extension {TASKS}",
                data={"requiredCapabilities": {"extensions": {TASKS: {}}}},
            )


class Elicitation(Struct):
    form: Raw | UnsetType = UNSET
    url: Raw | UnsetType = UNSET


class ClientCapabilities(Struct):
    """The parts of a client's capabilities that we use."""

    elicitation: Elicitation | UnsetType = UNSET
    extensions: dict[str, Raw] = {}

    @property
    def elicits(self) -> bool:
        """Whether the client shows forms: it says so, or names no kind of elicitation."""
        said = self.elicitation
        return not isinstance(said, UnsetType) and (said.form is not UNSET or said.url is UNSET)


class RequestMeta(Struct):
    """The parts of a request's `_meta` that we use."""

    version: object = field(name="io.modelcontextprotocol/protocolVersion", default=UNSET)
    capabilities: ClientCapabilities | UnsetType = field(
        name="io.modelcontextprotocol/clientCapabilities", default=UNSET
    )
    progress_token: RpcId | UnsetType = field(name="progressToken", default=UNSET)
    idempotency_key: str | UnsetType = field(name="holdfast/idempotencyKey", default=UNSET)


class _Params(Struct):
    meta: RequestMeta = field(name="_meta", default_factory=RequestMeta)


def read_meta(request: McpRequest) -> RequestMeta:
    """The `_meta` of a request. Raises McpFault."""
    return request.read(_Params).meta


def has_handshake(headers: Mapping[str, str]) -> bool:
    """Whether a request comes from a client before 2026-07-28, as far as its headers say."""
    return headers.get(MCP_PROTOCOL_VERSION.name) in (None, *HANDSHAKES)


def client_of(request: McpRequest, headers: Mapping[str, str]) -> McpClient:
    """The client of a request over HTTP. Raises McpFault if the request contradicts itself, or speaks a revision that
    we do not."""
    meta = read_meta(request)
    told = headers.get(MCP_PROTOCOL_VERSION.name)
    if told in HANDSHAKES or (told is None and meta.version is UNSET):
        return _with_session(headers, told or PREVIOUS)
    missing = [
        name
        for name, value in (
            ("protocolVersion", meta.version),
            ("clientCapabilities", meta.capabilities),
        )
        if value is UNSET
    ]
    if missing:
        names = " and ".join(f"io.modelcontextprotocol/{each}" for each in missing)
        raise McpFault(INVALID_PARAMS, f"params._meta lacks {names}")
    _compare(request, headers, meta)
    if meta.version != CURRENT:
        raise McpFault(
            UNSUPPORTED_VERSION,
            "this revision of the protocol is not spoken here",
            data={"supported": SUPPORTED, "requested": meta.version},
        )
    said = meta.capabilities
    assert not isinstance(said, UnsetType)
    return McpClient(revision=CURRENT, elicits=said.elicits, has_tasks=TASKS in said.extensions)


def _compare(request: McpRequest, headers: Mapping[str, str], meta: RequestMeta) -> None:
    """Raise McpFault if a header that routers read does not repeat the body."""
    named = _NAMED_BY.get(request.method)
    name = request.read(dict[str, object]).get(named) if named else None
    expected = {MCP_PROTOCOL_VERSION.name: meta.version, MCP_METHOD.name: request.method}
    if name is not None:
        expected[MCP_NAME.name] = name
    for header, value in expected.items():
        told = headers.get(header)
        if told is None or _decoded(told.strip()) != value:
            raise McpFault(HEADER_MISMATCH, f"the header {header} does not repeat the body")


_ENCODED = re.compile(r"=\?base64\?(.*)\?=")


def _decoded(value: str) -> str | None:
    """The value of a header; None if it is encoded and cannot be decoded."""
    found = _ENCODED.fullmatch(value)
    if found is None:
        return value
    try:
        return b64decode(found[1], validate=True).decode()
    except (NotBase64, UnicodeDecodeError):
        return None


def _encoded(value: str) -> str:
    """The value as a header can have it."""
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if plain and not _ENCODED.fullmatch(value):
        return value
    return f"=?base64?{b64encode(value.encode()).decode()}?="


def routing_headers(message: McpMessage) -> dict[str, str]:
    """The headers that a client of the current revision sends with a message; none for other messages."""
    if not isinstance(message, McpRequest):
        return {}
    meta = read_meta(message)
    if not isinstance(meta.version, str):
        return {}
    headers = {
        MCP_PROTOCOL_VERSION.name: _encoded(meta.version),
        MCP_METHOD.name: _encoded(message.method),
    }
    named = _NAMED_BY.get(message.method)
    name = message.read(dict[str, object]).get(named) if named else None
    if isinstance(name, str):
        headers[MCP_NAME.name] = _encoded(name)
    return headers


# ── revisions with a session ─────────────────────────────────────────────────────────────────


class InitializeParams(Struct):
    version: str = field(name="protocolVersion")
    capabilities: ClientCapabilities = field(default_factory=ClientCapabilities)


def agreed(version: str) -> str:
    """The revision to speak with a client that offers this one."""
    return version if version in HANDSHAKES else PREVIOUS


_SESSION = re.compile(r"mcp-([ep])-[0-9a-f]{32}")


def session_id(capabilities: ClientCapabilities, *, nonce: str) -> str:
    """The session id of a client with these capabilities; `nonce` are 32 hexadecimal digits."""
    return f"mcp-{'e' if capabilities.elicits else 'p'}-{nonce}"


def _with_session(headers: Mapping[str, str], revision: str) -> McpClient:
    """The client as its session id describes it. Raises McpFault: 404, upon which a client begins again."""
    told = headers.get(MCP_SESSION_ID.name)
    if told is None:
        return McpClient(revision=revision)
    found = _SESSION.fullmatch(told)
    if found is None:
        raise McpFault(INVALID_PARAMS, "there is no such session: initialize again", status=404)
    return McpClient(revision=revision, elicits=found[1] == "e", session=told)
