"""Session updates: what an editor shows of a turn while it is played."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Raw

from holdfast.wire.acp.blocks import AcpValue, ContentBlock
from holdfast.wire.acp.requests import PermissionOption, SessionParams

CallKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]
CallStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]


class MessageChunk(AcpValue, tag_field="sessionUpdate"):
    content: ContentBlock
    message_id: str | None = None


class UserMessageChunk(MessageChunk, tag="user_message_chunk"):
    pass


class AgentMessageChunk(MessageChunk, tag="agent_message_chunk"):
    pass


class AgentThoughtChunk(MessageChunk, tag="agent_thought_chunk"):
    pass


class CallContent(AcpValue, tag_field="type"):
    """Something that a tool call shows."""


class ShownBlock(CallContent, tag="content"):
    content: ContentBlock


class ShownDiff(CallContent, tag="diff", omit_defaults=False):
    path: str
    new_text: str
    old_text: str | None = None
    """Null for a new file."""


class ShownTerminal(CallContent, tag="terminal"):
    terminal_id: str


class CallLocation(AcpValue):
    path: str
    line: int | None = None


class CallFields(AcpValue):
    """A tool call, as far as something of it is told."""

    tool_call_id: str
    title: str | None = None
    kind: CallKind | None = None
    status: CallStatus | None = None
    content: tuple[ShownBlock | ShownDiff | ShownTerminal, ...] | None = None
    locations: tuple[CallLocation, ...] | None = None
    raw_input: Raw | None = None


class CallStarted(CallFields, tag_field="sessionUpdate", tag="tool_call"):
    """A new tool call; it has a title."""


class CallUpdated(CallFields, tag_field="sessionUpdate", tag="tool_call_update"):
    """A tool call has changed."""


class PlanEntry(AcpValue, omit_defaults=False):
    content: str
    status: Literal["pending", "in_progress", "completed"]
    priority: Literal["high", "medium", "low"] = "medium"


class PlanUpdate(AcpValue, tag_field="sessionUpdate", tag="plan"):
    entries: tuple[PlanEntry, ...]


class CommandHint(AcpValue):
    hint: str


class OfferedCommand(AcpValue):
    name: str
    description: str
    input: CommandHint | None = None


class CommandsUpdate(AcpValue, tag_field="sessionUpdate", tag="available_commands_update"):
    available_commands: tuple[OfferedCommand, ...]


class ModeUpdate(AcpValue, tag_field="sessionUpdate", tag="current_mode_update"):
    current_mode_id: str


class InfoUpdate(AcpValue, tag_field="sessionUpdate", tag="session_info_update"):
    title: str


Update: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | CallStarted
    | CallUpdated
    | PlanUpdate
    | CommandsUpdate
    | ModeUpdate
    | InfoUpdate
)


class SessionNotification(SessionParams):
    update: Update


class RequestPermission(SessionParams):
    tool_call: CallFields
    options: tuple[PermissionOption, ...]
