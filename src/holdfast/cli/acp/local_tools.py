"""The tools that run here, beside the editor, in place of the agent's own tools of the same name.

To the server they are tools of the client: a turn that calls them is committed with the calls waiting, and their results
begin the next turn. Files are read and written through the editor, so that unsaved text counts; commands run in its
terminal. What the editor does not offer and a model needs, looking around in the working directory, is the `filesystem`
toolset, reading only, below that directory.
"""

from __future__ import annotations

import asyncio
import os.path
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

from holdfast import limits
from holdfast.cli.acp.editor import Editor, RequestFailed
from holdfast.core.codec import Value
from holdfast.core.items import text_of
from holdfast.core.transcript import ends
from holdfast.tools.built_in_tools import number_in, text_in
from holdfast.tools.files.file_operations import edited
from holdfast.tools.files.rooted_paths import PathRefused
from holdfast.tools.tool import Json, Tool, ToolRun, ToolSpec
from holdfast.tools.toolsets.filesystem import FilesystemToolset, edits_in
from holdfast.tools.toolsets.shell import TIMEOUT_S, ShellToolset
from holdfast.wire.acp.requests import CreateTerminal, EditorCapabilities, ExitStatus
from holdfast.wire.acp.updates import CallLocation, ShownDiff, ShownTerminal

Arguments: TypeAlias = Mapping[str, Json]

DIRECTORY = "directory"
"""The name under which leave to look around is remembered."""

TERMINAL_BYTES_MAX = 200_000
"""How much of a command's output the editor keeps for us."""


class LocalCallFailed(Exception):
    """A call has no result but these words, which are for the model."""


class CallPreview(Value):
    """What a user sees of a call before it runs."""

    diff: ShownDiff | None = None
    locations: tuple[CallLocation, ...] = ()
    outside: bool = False
    """The call leaves the directories of its session."""


class LocalCall(Value):
    """A call that runs now."""

    key: str
    arguments: Arguments
    preview: CallPreview
    show: Callable[[ShownTerminal], Awaitable[None]]
    """Shows a terminal in the call."""


class LocalTool(Protocol):
    """A tool that runs here."""

    spec: ToolSpec
    grant: str
    """The name under which a user's leave for the whole session is remembered."""
    asks: bool
    """Whether the user is asked before a call, also if it only reads."""

    async def preview(self, arguments: Arguments) -> CallPreview:
        """What a call would do; nothing is changed. Raises LocalCallFailed if it could not be done."""
        ...

    async def run(self, call: LocalCall) -> str:
        """Do what was previewed, and return the words for the model. Raises LocalCallFailed."""
        ...


class Workplace(Value):
    """Where a session works: the directories that its user has opened, the first of them its own."""

    directories: tuple[str, ...]
    reserved: tuple[str, ...] = ()
    """Files that the server reads or writes itself, as far as they are known here: agent files and the store. A leave for
    the session does not reach them: an agent that may edit its own file could allow itself everything."""

    @property
    def cwd(self) -> str:
        return self.directories[0]

    def path(self, arguments: Arguments, name: str = "path") -> str:
        """The path that a call names, absolute and without detours."""
        return os.path.normpath(os.path.join(self.cwd, text_in(arguments, name)))

    def holds(self, path: str) -> bool:
        """Whether a path leads to a place below one of the directories, links followed, and to no reserved file."""
        real = os.path.realpath(path)
        if real in map(os.path.realpath, self.reserved):
            return False
        return any(
            real == root or real.startswith(f"{root.rstrip('/')}/")
            for root in map(os.path.realpath, self.directories)
        )


def local_tools(
    editor: Editor, can: EditorCapabilities, session_id: str, place: Workplace
) -> dict[str, LocalTool]:
    """The tools of a session, by name: those of the working directory, and the editor's in their place."""
    cwd = Path(place.cwd)
    files = {each.spec.name: each for each in FilesystemToolset(cwd).listed}
    around = FilesystemToolset(*map(Path, place.directories), read_only=True, denied=place.reserved)
    found: list[LocalTool] = [
        ToolsetTool(each, grant=DIRECTORY, asks=True) for each in around.listed
    ]
    if can.reads:
        found.append(ReadTool(files["read_file"].spec, editor, session_id, place))
    if can.reads and can.writes:
        found.append(WriteTool(files["write_file"].spec, editor, session_id, place))
        found.append(EditTool(files["edit_file"].spec, editor, session_id, place))
    if can.terminal:
        (shell,) = ShellToolset(cwd).listed
        found.append(TerminalTool(shell.spec, editor, session_id, place))
    return {each.spec.name: each for each in found}


def within_bounds(text: str) -> str:
    """The text within the bounds of a result."""
    return ends(text, limits.tool_output_chars_max)


class ToolsetTool:
    """A tool of one of our toolsets, run here."""

    def __init__(self, tool: Tool, *, grant: str, asks: bool) -> None:
        self.spec = tool.spec
        self.grant = grant
        self.asks = asks
        self._tool = tool

    async def preview(self, arguments: Arguments) -> CallPreview:
        return CallPreview()

    async def run(self, call: LocalCall) -> str:
        run = ToolRun(
            call_key=call.key,
            arguments=call.arguments,
            tenant="",
            session_id="",
            agent="",
            state={},
        )
        output = await self._tool.run(run)
        text = text_of(output.content) or f"[{len(output.content)} parts without text]"
        if output.outcome == "error":
            raise LocalCallFailed(text)
        return text


class _EditorTool:
    """What the tools of the editor share."""

    asks = False

    def __init__(self, spec: ToolSpec, editor: Editor, session_id: str, place: Workplace) -> None:
        self.spec = spec
        self.grant = spec.name
        self._editor = editor
        self._session_id = session_id
        self._place = place

    async def _text(self, path: str, *, line: int | None = None, limit: int | None = None) -> str:
        """A file's text. Raises LocalCallFailed if the editor cannot read it."""
        try:
            return await self._editor.read_text(self._session_id, path, line=line, limit=limit)
        except RequestFailed as error:
            raise LocalCallFailed(f"The editor cannot read {path}: {error}") from error


class ReadTool(_EditorTool):
    """`read_file`: a file as the editor has it, unsaved changes included."""

    async def preview(self, arguments: Arguments) -> CallPreview:
        path = self._place.path(arguments)
        location = CallLocation(path=path, line=number_in(arguments, "line", 0) or None)
        return CallPreview(locations=(location,), outside=not self._place.holds(path))

    async def run(self, call: LocalCall) -> str:
        return await self._text(
            self._place.path(call.arguments),
            line=number_in(call.arguments, "line", 0) or None,
            limit=number_in(call.arguments, "lines", 0) or None,
        )


class _ChangeTool(_EditorTool):
    """A tool that replaces a file's text. What the user was shown is written, or nothing is."""

    async def preview(self, arguments: Arguments) -> CallPreview:
        path = self._place.path(arguments)
        before = await self._before(path)
        after = self._after(path, before, arguments)
        return CallPreview(
            diff=ShownDiff(path=path, old_text=before, new_text=after),
            locations=(CallLocation(path=path, line=_first_change(before or "", after)),),
            outside=not self._place.holds(path),
        )

    async def run(self, call: LocalCall) -> str:
        diff = call.preview.diff
        assert diff is not None, "a change is previewed before it runs"
        if await self._before(diff.path) != diff.old_text:
            words = "was changed in the editor meanwhile. Nothing was written; read it again"
            raise LocalCallFailed(f"{diff.path} {words}.")
        try:
            await self._editor.write_text(self._session_id, diff.path, diff.new_text)
        except RequestFailed as error:
            raise LocalCallFailed(f"The editor cannot write {diff.path}: {error}") from error
        return f"Wrote {diff.path} ({len(diff.new_text.encode())} bytes) in the editor."

    async def _before(self, path: str) -> str | None:
        """The text now; None for a new file."""
        raise NotImplementedError

    def _after(self, path: str, before: str | None, arguments: Arguments) -> str:
        raise NotImplementedError


class WriteTool(_ChangeTool):
    """`write_file`, into the editor's buffer."""

    async def _before(self, path: str) -> str | None:
        try:
            return await self._text(path)
        except LocalCallFailed:
            return None

    def _after(self, path: str, before: str | None, arguments: Arguments) -> str:
        return text_in(arguments, "content")


class EditTool(_ChangeTool):
    """`edit_file`, in the editor's buffer."""

    async def _before(self, path: str) -> str | None:
        return await self._text(path)

    def _after(self, path: str, before: str | None, arguments: Arguments) -> str:
        try:
            return edited(path, before or "", edits_in(arguments))
        except PathRefused as error:
            raise LocalCallFailed(f"{error}.") from error


def _first_change(before: str, after: str) -> int:
    """The number of the first line that differs."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    same = 0
    for old, new in pairs:
        if old != new:
            break
        same += 1
    return same + 1


class TerminalTool(_EditorTool):
    """`shell`, in a terminal of the editor, which its user sees."""

    async def preview(self, arguments: Arguments) -> CallPreview:
        return CallPreview(outside=not self._place.holds(self._place.path(arguments, "cwd")))

    async def run(self, call: LocalCall) -> str:
        asked = CreateTerminal(
            session_id=self._session_id,
            command="/bin/sh",
            args=("-c", text_in(call.arguments, "cmd")),
            cwd=self._place.path(call.arguments, "cwd"),
            output_byte_limit=TERMINAL_BYTES_MAX,
        )
        limit_s = number_in(call.arguments, "timeout", TIMEOUT_S)
        try:
            terminal = await self._editor.create_terminal(asked)
            try:
                await call.show(ShownTerminal(terminal_id=terminal.terminal_id))
                ended = None
                try:
                    async with asyncio.timeout(limit_s):
                        ended = await self._editor.wait_for_exit(terminal)
                finally:
                    if ended is None:
                        await self._editor.kill(terminal)
            except TimeoutError:
                printed = await self._editor.output_of(terminal)
                raise LocalCallFailed(f"{printed.output}\n[stopped after {limit_s} s]") from None
            else:
                printed = await self._editor.output_of(terminal)
                return _told(printed.output, ended)
            finally:
                await self._editor.release(terminal)
        except RequestFailed as error:
            raise LocalCallFailed(f"The editor's terminal failed: {error}") from error


def _told(printed: str, ended: ExitStatus) -> str:
    """A command's output, and how it ended unless that was well."""
    if ended.signal:
        return f"{printed}\n[ended by {ended.signal}]"
    return (
        f"{printed}\n[exit code {ended.exit_code}]" if ended.exit_code else printed or "[no output]"
    )
