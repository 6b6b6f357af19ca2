"""What we send is what the protocol's own SDK takes, and what it sends is what we take."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from acp import schema
from msgspec import Raw

from holdfast.core.codec import encode
from holdfast.wire.acp import requests as ours
from holdfast.wire.acp import updates as up
from holdfast.wire.acp.blocks import (
    AcpAudio,
    AcpImage,
    AcpLink,
    AcpResource,
    AcpText,
    Resource,
)

TEXT = AcpText(text="words")
CALL: dict[str, Any] = {
    "tool_call_id": "fc_1",
    "title": "read_file: a",
    "kind": "read",
    "status": "in_progress",
    "content": (
        up.ShownBlock(content=TEXT),
        up.ShownDiff(path="/a", old_text=None, new_text="b"),
        up.ShownTerminal(terminal_id="t"),
    ),
    "locations": (up.CallLocation(path="/a", line=3),),
    "raw_input": Raw(b'{"path":"/a"}'),
}
UPDATES: list[up.Update] = [
    *(
        up.UserMessageChunk(content=block, message_id="m")
        for block in (
            TEXT,
            AcpImage(data="aGk=", mime_type="image/png"),
            AcpAudio(data="aGk=", mime_type="audio/wav"),
            AcpLink(uri="file:///a", name="a"),
            AcpResource(resource=Resource(uri="file:///a", text="t")),
            AcpResource(resource=Resource(uri="file:///a", blob="aGk=")),
        )
    ),
    up.AgentMessageChunk(content=TEXT),
    up.AgentThoughtChunk(content=TEXT),
    up.CallStarted(**CALL),
    up.CallUpdated(**CALL),
    up.PlanUpdate(entries=(up.PlanEntry(content="read", status="pending"),)),
    up.CommandsUpdate(
        available_commands=(
            up.OfferedCommand(name="a", description="b", input=up.CommandHint(hint="c")),
        )
    ),
    up.ModeUpdate(current_mode_id="m"),
    up.InfoUpdate(title="t"),
]
MODES = ours.SessionModes(
    current_mode_id="a",
    available_modes=(ours.SessionMode(id="a", name="A", description="first"),),
)
OPTION = ours.PermissionOption(option_id="once", name="Allow", kind="allow_once")
SENT: list[tuple[msgspec.Struct, type[Any]]] = [
    *(
        (up.SessionNotification(session_id="s", update=each), schema.SessionNotification)
        for each in UPDATES
    ),
    (
        ours.Initialized(agent_info=ours.ProgramName(name="holdfast", version="1")),
        schema.InitializeResponse,
    ),
    (ours.OpenedSession(modes=MODES, session_id="s"), schema.NewSessionResponse),
    (ours.OpenedSession(modes=MODES, session_id="s"), schema.ForkSessionResponse),
    (ours.OpenedSession(modes=MODES), schema.LoadSessionResponse),
    (ours.OpenedSession(modes=MODES), schema.ResumeSessionResponse),
    (
        ours.ListedSessions(
            sessions=(ours.ListedSession(session_id="s", cwd="/", title="t", updated_at="now"),),
            next_cursor="c",
        ),
        schema.ListSessionsResponse,
    ),
    (
        ours.PromptEnded(
            stop_reason="max_turn_requests",
            usage=ours.PromptUsage(total_tokens=3, input_tokens=1, output_tokens=2),
        ),
        schema.PromptResponse,
    ),
    (
        up.RequestPermission(session_id="s", tool_call=up.CallFields(**CALL), options=(OPTION,)),
        schema.RequestPermissionRequest,
    ),
    (ours.ReadTextFile(session_id="s", path="/a", line=1, limit=2), schema.ReadTextFileRequest),
    (ours.WriteTextFile(session_id="s", path="/a", content=""), schema.WriteTextFileRequest),
    (
        ours.CreateTerminal(
            session_id="s", command="sh", args=("-c", "ls"), cwd="/", output_byte_limit=9
        ),
        schema.CreateTerminalRequest,
    ),
    (ours.TerminalName(session_id="s", terminal_id="t"), schema.TerminalOutputRequest),
]


@pytest.mark.parametrize(("value", "theirs"), SENT, ids=lambda each: type(each).__name__)
def test_what_we_send_is_taken_and_nothing_of_it_is_lost(
    value: msgspec.Struct, theirs: type[Any]
) -> None:
    sent = msgspec.json.decode(encode(value))
    taken = theirs.model_validate(sent).model_dump(by_alias=True, exclude_unset=True, mode="json")
    assert taken == sent


PLACE: dict[str, Any] = {
    "cwd": "/",
    "mcp_servers": [
        schema.McpServerStdio(
            name="a", command="b", args=["c"], env=[schema.EnvVariable(name="K", value="v")]
        ),
        schema.HttpMcpServer(type="http", name="h", url="https://h", headers=[]),
        schema.SseMcpServer(type="sse", name="s", url="https://s", headers=[]),
    ],
    "additional_directories": ["/tmp"],
}
RECEIVED: list[tuple[Any, type[msgspec.Struct]]] = [
    (
        schema.InitializeRequest(
            protocol_version=1,
            client_capabilities=schema.ClientCapabilities(terminal=True),
            client_info=schema.Implementation(name="zed", version="1"),
        ),
        ours.Initialize,
    ),
    (schema.InitializeRequest(protocol_version=1), ours.Initialize),
    (schema.NewSessionRequest(**PLACE), ours.NewSession),
    (schema.LoadSessionRequest(session_id="s", **PLACE), ours.PlacedSession),
    (schema.ResumeSessionRequest(session_id="s", cwd="/"), ours.PlacedSession),
    (schema.ForkSessionRequest(session_id="s", cwd="/"), ours.PlacedSession),
    (schema.ListSessionsRequest(), ours.ListSessions),
    (schema.CloseSessionRequest(session_id="s"), ours.SessionParams),
    (schema.SetSessionModeRequest(session_id="s", mode_id="m"), ours.SetMode),
    (schema.CancelNotification(session_id="s"), ours.SessionParams),
    (
        schema.PromptRequest(
            session_id="s",
            prompt=[
                schema.TextContentBlock(type="text", text="t"),
                schema.ResourceContentBlock(type="resource_link", uri="file:///a", name="a"),
            ],
        ),
        ours.PromptRequest,
    ),
    (
        schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id="once")
        ),
        ours.PermissionAnswer,
    ),
    (
        schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled")),
        ours.PermissionAnswer,
    ),
    (schema.WaitForTerminalExitResponse(signal="SIGKILL"), ours.ExitStatus),
    (schema.TerminalOutputResponse(output="", truncated=True), ours.TerminalOutput),
]


@pytest.mark.parametrize("nulls", [True, False])
@pytest.mark.parametrize(("value", "mine"), RECEIVED, ids=lambda each: type(each).__name__)
def test_what_an_editor_sends_is_taken(value: Any, mine: type, nulls: bool) -> None:
    """With and without the members that it leaves null."""
    sent = value.model_dump_json(by_alias=True, exclude_none=not nulls)
    assert isinstance(msgspec.json.decode(sent, type=mine), mine)
