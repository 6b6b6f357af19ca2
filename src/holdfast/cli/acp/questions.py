"""Questions to the user of an editor: may this call run? An answer is good for the call, or for the session."""

from __future__ import annotations

from typing import Literal, TypeAlias

from holdfast.cli.acp.editor import Editor
from holdfast.cli.acp.local_tools import CallPreview
from holdfast.core.items import ToolCall
from holdfast.wire.acp.blocks import AcpText
from holdfast.wire.acp.requests import PermissionOption
from holdfast.wire.acp.shown_calls import call_update, kind_of, title_of
from holdfast.wire.acp.updates import CallFields, CallStarted, CallStatus, CallUpdated, ShownBlock

Leave: TypeAlias = Literal["once", "always", "never"]

_ONCE = PermissionOption(option_id="once", name="Allow", kind="allow_once")
_ALWAYS = PermissionOption(option_id="always", name="Allow for this session", kind="allow_always")
_NEVER = PermissionOption(option_id="never", name="Reject", kind="reject_once")


class PromptCancelled(Exception):
    """The user cancelled the prompt instead of answering."""


class Questions:
    """Asks the user of one editor."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor

    async def about_call(
        self,
        session_id: str,
        call: ToolCall,
        cwd: str,
        preview: CallPreview | None = None,
        *,
        may_remember: bool = True,
    ) -> Leave:
        """Ask about a call, with what it would change. Raises PromptCancelled."""
        shown = call_update(call, cwd)
        preview = preview or CallPreview()
        fields = CallFields(
            tool_call_id=call.id,
            title=title_of(call.name, call.arguments),
            kind=kind_of(call.name),
            status="pending",
            content=(preview.diff,) if preview.diff is not None else None,
            locations=preview.locations or shown.locations,
            raw_input=shown.raw_input,
        )
        return await self._ask(session_id, fields, may_remember=may_remember)

    async def about(self, session_id: str, name: str, title: str, words: str) -> Leave:
        """Ask about something that no model has called. An editor shows it like a call. Raises PromptCancelled."""
        content = (ShownBlock(content=AcpText(text=words)),)
        started = CallStarted(
            tool_call_id=name, title=title, kind="other", status="pending", content=content
        )
        await self._editor.show(session_id, started)
        fields = CallFields(tool_call_id=name, title=title, content=content)
        leave: Leave = "never"
        try:
            leave = await self._ask(session_id, fields, may_remember=False)
        finally:
            status: CallStatus = "failed" if leave == "never" else "completed"
            await self._editor.show(session_id, CallUpdated(tool_call_id=name, status=status))
        return leave

    async def _ask(self, session_id: str, call: CallFields, *, may_remember: bool) -> Leave:
        options = (_ONCE, _ALWAYS, _NEVER) if may_remember else (_ONCE, _NEVER)
        match await self._editor.choice(session_id, call, options):
            case "once":
                return "once"
            case "always" if may_remember:
                return "always"
            case None:
                raise PromptCancelled
            case _:
                return "never"
