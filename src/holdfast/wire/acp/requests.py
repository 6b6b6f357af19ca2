"""What an editor asks of us, and what we answer. The names of the types are those of the protocol's methods.

Only members that we use are here: the others are skipped, as the protocol asks. A member that the protocol allows to
be null may be null here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import field

from holdfast.core.codec import Value
from holdfast.wire.acp.blocks import AcpValue, Prompt

PROTOCOL_VERSION = 1

# ── meta ─────────────────────────────────────────────────────────────────────────────────────


class HoldfastMeta(AcpValue):
    """What a client that knows us may say beside the protocol."""

    conversation: str | None = None
    """The key of the conversation that a new session is to continue or begin."""
    idempotency_key: str | None = None
    """A name for a prompt: a prompt that is sent again under it is the same prompt."""


class Meta(Value):
    holdfast: HoldfastMeta = HoldfastMeta()


class Params(AcpValue):
    """The parameters of a request."""


# ── the beginning ────────────────────────────────────────────────────────────────────────────


class FileCapabilities(AcpValue):
    read_text_file: bool | None = None
    write_text_file: bool | None = None


class EditorCapabilities(AcpValue):
    fs: FileCapabilities | None = None
    terminal: bool | None = None

    @property
    def reads(self) -> bool:
        return self.fs is not None and bool(self.fs.read_text_file)

    @property
    def writes(self) -> bool:
        return self.fs is not None and bool(self.fs.write_text_file)


class ProgramName(AcpValue, omit_defaults=False):
    """The name and version of an editor or an agent."""

    name: str
    version: str
    title: str | None = None


class Initialize(Params):
    protocol_version: int
    client_capabilities: EditorCapabilities | None = None
    client_info: ProgramName | None = None


class Nothing(AcpValue):
    """An empty object: a capability that is there, or an answer without members."""


class PromptCapabilities(AcpValue):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class McpCapabilities(AcpValue):
    http: bool = False
    sse: bool = False


class SessionCapabilities(AcpValue, omit_defaults=False):
    list: Nothing = Nothing()
    delete: Nothing = Nothing()
    fork: Nothing = Nothing()
    resume: Nothing = Nothing()
    close: Nothing = Nothing()
    additional_directories: Nothing = Nothing()


class AgentCapabilities(AcpValue, omit_defaults=False):
    load_session: bool = True
    prompt_capabilities: PromptCapabilities = PromptCapabilities(image=True, embedded_context=True)
    mcp_capabilities: McpCapabilities = McpCapabilities(http=True, sse=True)
    session_capabilities: SessionCapabilities = SessionCapabilities()


class Initialized(AcpValue, omit_defaults=False):
    agent_info: ProgramName
    protocol_version: int = PROTOCOL_VERSION
    agent_capabilities: AgentCapabilities = AgentCapabilities()
    auth_methods: tuple[Nothing, ...] = ()


# ── sessions ─────────────────────────────────────────────────────────────────────────────────


class NamedValue(AcpValue):
    """A variable, or a header."""

    name: str
    value: str


class GivenMcpServer(AcpValue):
    """An MCP server that the editor asks us to use: a program to start, or a URL."""

    name: str
    type: str = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[NamedValue, ...] = ()
    url: str = ""
    headers: tuple[NamedValue, ...] = ()


class PlaceParams(Params):
    """Where a session works. Both are commands: see the guide about editors."""

    cwd: str
    mcp_servers: tuple[GivenMcpServer, ...] | None = None
    additional_directories: tuple[str, ...] | None = None


class NewSession(PlaceParams):
    meta: Meta | None = field(name="_meta", default=None)


class SessionParams(Params):
    session_id: str


class PlacedSession(PlaceParams, kw_only=True):
    """A session that is loaded, resumed or forked."""

    session_id: str


class ListSessions(Params):
    cwd: str | None = None
    cursor: str | None = None


class SetMode(SessionParams):
    mode_id: str


class PromptRequest(SessionParams):
    prompt: Prompt
    meta: Meta | None = field(name="_meta", default=None)


class SessionMode(AcpValue):
    id: str
    name: str
    description: str | None = None


class SessionModes(AcpValue):
    current_mode_id: str
    available_modes: tuple[SessionMode, ...]


class OpenedSession(AcpValue):
    """The answer to all that opens a session. Only new sessions and forks have an id in it."""

    modes: SessionModes
    session_id: str | None = None


class ListedSession(AcpValue):
    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None


class ListedSessions(AcpValue, omit_defaults=False):
    sessions: tuple[ListedSession, ...]
    next_cursor: str | None = None


StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"
]


class PromptUsage(AcpValue, omit_defaults=False):
    total_tokens: int
    input_tokens: int
    output_tokens: int


class PromptEnded(AcpValue):
    stop_reason: StopReason
    usage: PromptUsage | None = None


# ── what we ask of an editor ─────────────────────────────────────────────────────────────────


class ReadTextFile(SessionParams):
    path: str
    line: int | None = None
    limit: int | None = None


class FileText(AcpValue):
    content: str


class WriteTextFile(SessionParams, omit_defaults=False):
    path: str
    content: str


class CreateTerminal(SessionParams):
    command: str
    args: tuple[str, ...] = ()
    cwd: str | None = None
    output_byte_limit: int | None = None


class TerminalName(SessionParams):
    terminal_id: str


class CreatedTerminal(AcpValue):
    terminal_id: str


class ExitStatus(AcpValue):
    exit_code: int | None = None
    signal: str | None = None


class TerminalOutput(AcpValue):
    output: str
    truncated: bool = False
    exit_status: ExitStatus | None = None


class PermissionOption(AcpValue):
    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class PermissionOutcome(AcpValue):
    outcome: str
    """`selected` or `cancelled`."""
    option_id: str | None = None


class PermissionAnswer(AcpValue):
    outcome: PermissionOutcome
