"""The calls of a turn that wait for this editor or for its user: they are asked about, run, and answered.

1. A call runs here once. A call that another process left behind may have run there: what only reads is run now, and
   of anything else the model is told that its outcome is not known.
2. The user is asked before a call that changes something, that leaves the session's directories, or that is the first
   to look around in them. Leave for the session is for one tool, and never for a call outside the directories.
3. What the user was shown is what is done.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.cli.acp.editor import Editor, EditorGone
from holdfast.cli.acp.editor_session import EditorSession
from holdfast.cli.acp.local_tools import (
    CallPreview,
    LocalCall,
    LocalCallFailed,
    LocalTool,
    within_bounds,
)
from holdfast.cli.acp.questions import Questions
from holdfast.core.codec import Value
from holdfast.core.items import ToolCall
from holdfast.tools.schema import InvalidArguments, parse_arguments
from holdfast.wire.acp.blocks import AcpText
from holdfast.wire.acp.shown_calls import SHOWN_CHARS_MAX
from holdfast.wire.acp.updates import CallStatus, CallUpdated, ShownBlock, ShownDiff, ShownTerminal
from holdfast.wire.api import objects as api

log = logging.getLogger("holdfast.acp")

UNKNOWN = (
    "Outcome unknown: the editor was closed before the result of this call was recorded. It may have been done. "
    "Look before you do it again."
)
REFUSED = "Refused: the user did not allow this call."


class CallAnswers(Value):
    """The answers to all waiting calls of a turn."""

    decisions: dict[str, api.Decision]
    """By the ids of calls that wait for an approval."""
    results: dict[str, str]
    """By the `call_id` of calls that run here."""


class EditorCalls:
    """Answers the waiting calls of one editor's sessions."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._questions = Questions(editor)

    async def answers(
        self, session: EditorSession, calls: Sequence[ToolCall], *, fresh: bool
    ) -> CallAnswers | None:
        """Answer these calls, one after the other. None if one of them is not for this editor. `fresh`: they were made
        while this process was there. Raises PromptCancelled and EditorGone."""
        mine = [each for each in calls if each.waits_for == "client"]
        if any(session.find(each.name) is None for each in mine):
            return None
        decisions: dict[str, api.Decision] = {}
        for call in calls:
            if call.waits_for == "approval":
                decisions[call.id] = await self._decision(session, call)
        results: dict[str, str] = {}
        for call in mine:
            results[call.call_id] = await self._result(session, call, fresh=fresh)
        return CallAnswers(decisions=decisions, results=results)

    async def _decision(self, session: EditorSession, call: ToolCall) -> api.Decision:
        if session.reads_only:
            return api.Decision(approve=False)
        leave = await self._questions.about_call(session.id, call, session.place.cwd)
        return api.Decision(
            approve=leave != "never", remember="session" if leave == "always" else None
        )

    async def _result(self, session: EditorSession, call: ToolCall, *, fresh: bool) -> str:
        """Run a call, show how it went, and return the words for the model."""
        tool = session.find(call.name)
        assert tool is not None, "`answers` leaves other calls alone"
        status: CallStatus = "completed"
        preview = CallPreview()
        try:
            if not fresh and not tool.spec.read_only:
                raise LocalCallFailed(UNKNOWN)
            if session.reads_only and not tool.spec.read_only:
                raise LocalCallFailed(REFUSED)
            arguments = parse_arguments(tool.spec, call.arguments)
            preview = await tool.preview(arguments)
            if not await self._is_allowed(session, tool, call, preview):
                raise LocalCallFailed(REFUSED)
            await self._show(session, call, "in_progress", diff=preview.diff)

            async def show(terminal: ShownTerminal) -> None:
                await self._show(session, call, "in_progress", terminal=terminal)

            run = LocalCall(key=call.id, arguments=arguments, preview=preview, show=show)
            said = within_bounds(await tool.run(run))
        except (LocalCallFailed, InvalidArguments) as failed:
            said, status = within_bounds(str(failed)), "failed"
        except EditorGone:
            raise
        except Exception as error:  # a tool can raise anything
            log.exception("%s failed", call.name)
            said, status = f"{call.name!r} failed: {type(error).__name__}: {error}", "failed"
        keeps_diff = preview.diff if status == "completed" else None
        await self._show(session, call, status, words=said, diff=keeps_diff)
        return said

    async def _is_allowed(
        self, session: EditorSession, tool: LocalTool, call: ToolCall, preview: CallPreview
    ) -> bool:
        if tool.spec.read_only and not tool.asks and not preview.outside:
            return True
        if tool.grant in session.allowed and not preview.outside:
            return True
        leave = await self._questions.about_call(
            session.id, call, session.place.cwd, preview, may_remember=not preview.outside
        )
        if leave == "always":
            session.allowed.add(tool.grant)
        return leave != "never"

    async def _show(
        self,
        session: EditorSession,
        call: ToolCall,
        status: CallStatus,
        *,
        words: str = "",
        diff: ShownDiff | None = None,
        terminal: ShownTerminal | None = None,
    ) -> None:
        content: tuple[ShownBlock | ShownDiff | ShownTerminal, ...] = ()
        if terminal is not None or diff is not None:
            content = tuple(each for each in (terminal, diff) if each is not None)
        elif words and call.name != "shell":  # the editor shows a command's terminal
            content = (ShownBlock(content=AcpText(text=words[:SHOWN_CHARS_MAX])),)
        update = CallUpdated(tool_call_id=call.id, status=status, content=content or None)
        await self._editor.show(session.id, update)
