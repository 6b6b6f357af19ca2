"""The `filesystem` toolset: files below some directories.

Reading needs no permission; writing does. No tool here reaches files that the server itself reads, reloads or runs
(`files/reserved_files.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import Parts, Text, text_of
from holdfast.tools.built_in_tools import (
    BuiltInTool,
    BuiltInToolset,
    number_in,
    parameters,
    text_in,
    texts_in,
)
from holdfast.tools.execution import failure
from holdfast.tools.files import file_operations as files
from holdfast.tools.files.reserved_files import ReservedFiles
from holdfast.tools.files.rooted_paths import PathRefused, RootedDirectories
from holdfast.tools.process import run_command
from holdfast.tools.sandbox.sandbox import ConfinedCommand
from holdfast.tools.threads import in_thread
from holdfast.tools.tool import Json, ToolOutput, ToolRun, ToolSpec
from holdfast.tools.toolsets.script import in_words

Work: TypeAlias = Callable[[ToolRun, threading.Event], Parts]

TIMEOUT_S = 60.0
EDITORS = ("write_file", "edit_file")
EDIT_TIMEOUT_S = 60.0
"""For each command after a file was written."""

_PATH: Json = {
    "type": "string",
    "description": "Where: relative to the working directory, or absolute.",
}
_PATHS: Json = {
    "type": "array",
    "items": {"type": "string"},
    "minItems": 1,
    "maxItems": limits.files_at_once_max,
}
_EDITS: Json = {
    "type": "array",
    "minItems": 1,
    "maxItems": 100,
    "items": {
        "type": "object",
        "properties": {
            "oldText": {"type": "string", "description": "Exactly as it is in the file, once."},
            "newText": {"type": "string"},
        },
        "required": ["oldText", "newText"],
        "additionalProperties": False,
    },
}
_COUNT: Json = {"type": "integer", "minimum": 1}


class EditCommand(Value):
    """A command that runs after a file was written whose name is like `pattern`. `$path` is the file."""

    pattern: str
    cmd: str


class AfterWriting:
    """The commands that run after a file was written."""

    def __init__(
        self,
        *commands: EditCommand,
        directory: Path,
        environment: Mapping[str, str],
        cell: ConfinedCommand,
    ) -> None:
        self._commands = commands
        self._directory = directory
        self._environment = environment
        self._cell = cell

    @property
    def longest_s(self) -> float:
        return EDIT_TIMEOUT_S * len(self._commands)

    async def run(self, path: Path, run: ToolRun) -> str:
        """Run those for this file, one after the other. Returns why one failed, for the model; empty if none did."""
        for each in self._commands:
            if not fnmatchcase(path.name, each.pattern):
                continue
            try:
                ended = await run_command(
                    each.cmd,
                    environment={**self._environment, "path": str(path)},
                    directory=self._directory,
                    mark=run.call_key,
                    timeout_s=EDIT_TIMEOUT_S,
                    cell=self._cell,
                    tenant=run.tenant,
                )
            except (OSError, ValueError) as error:
                return f"the command after it could not be started: {error}"
            if ended.code != 0:
                return f"the command after it failed:\n{text_of(in_words(ended).content)}"
        return ""


class FilesystemToolset(BuiltInToolset):
    """Reads, writes and searches files below `roots`; relative paths start in the first root."""

    def __init__(
        self,
        *roots: Path,
        skip_version_control: bool = True,
        read_only: bool = False,
        denied: Collection[str] = (),
        after_writing: AfterWriting | None = None,
    ) -> None:
        """`read_only`: leave out the tools that write. `denied`: directories and files that no tool here reaches.
        `after_writing`: commands that run after a file was written.
        """
        self._after_writing = after_writing
        self._denied = ReservedFiles(trees=frozenset(denied))
        self._all = RootedDirectories(*roots)
        self._skip = skip_version_control
        self._writing = threading.Lock()
        places = ", ".join(map(str, self._all.roots))
        super().__init__(
            *self._readers(),
            *(() if read_only else self._writers()),
            instruction=f"Your file tools {'read' if read_only else 'reach'} what is below {places}, and nothing else.",
        )

    def _readers(self) -> tuple[BuiltInTool, ...]:
        page: dict[str, Json] = {"line": _COUNT, "lines": _COUNT}
        return (
            self._tool("read_file", "Read a file: its text, or some lines of it, or a picture.",
                       parameters(["path"], path=_PATH, **page), self._read, changes=False),
            self._tool("read_multiple_files", "Read several files.",
                       parameters(["paths"], paths=_PATHS), self._read_several, changes=False),
            self._tool("list_directory", "What is in a directory.",
                       parameters(["path"], path=_PATH), self._list, changes=False),
            self._tool("directory_tree", "What is in a directory and those below it.",
                       parameters(["path"], path=_PATH, max_depth=_COUNT), self._tree, changes=False),
            self._tool("search_files", "Find files by name; the pattern is a shell's: *.py, src/*.",
                       parameters(["path", "pattern"], path=_PATH, pattern={"type": "string", "minLength": 1}),
                       self._search_names, changes=False),
            self._tool("search_files_content", "Find lines that contain a text, in all files below a directory.",
                       parameters(
                           ["path", "query"], path=_PATH, query={"type": "string", "minLength": 1},
                           pattern={"type": "string", "description": "Only in files of such names: *.py"},
                           ignore_case={"type": "boolean"},
                       ), self._search_content, changes=False),
        )  # fmt: skip

    def _writers(self) -> tuple[BuiltInTool, ...]:
        content: Json = {"type": "string"}
        return (
            self._tool("write_file", "Write a file, in place of what was there; makes directories as needed.",
                       parameters(["path", "content"], path=_PATH, content=content), self._write, again=True),
            self._tool("edit_file", "Replace pieces of a file's text, all of them or none.",
                       parameters(["path", "edits"], path=_PATH, edits=_EDITS), self._edit),
            self._tool("create_directory", "Make a directory, and those above it.",
                       parameters(["path"], path=_PATH), self._make_directory, again=True),
        )  # fmt: skip

    def _tool(
        self,
        name: str,
        description: str,
        schema: str,
        work: Work,
        *,
        changes: bool = True,
        again: bool = False,
    ) -> BuiltInTool:
        spec = ToolSpec(
            name=name,
            description=description,
            parameters=schema,
            read_only=not changes,
            idempotent=(again and self._after_writing is None) or not changes,
            timeout_s=TIMEOUT_S + (self._after_writing.longest_s if self._after_writing else 0),
        )

        async def run(run: ToolRun) -> ToolOutput:
            output = await _in_thread(work, run)
            if self._after_writing is None or output.outcome != "ok" or name not in EDITORS:
                return output
            trouble = await self._after_writing.run(self._all.roots[0] / _path(run), run)
            return failure(f"{_path(run)} was written, but {trouble}") if trouble else output

        return BuiltInTool(spec, run)

    # ── the work of each tool, in a thread ──

    def _reach(self, run: ToolRun) -> RootedDirectories:
        return self._all.keeping_off(run.reserved | self._denied)

    def _read(self, run: ToolRun, stopped: threading.Event) -> Parts:
        line, lines = number_in(run.arguments, "line", 1), number_in(run.arguments, "lines", 0)
        return (files.read_part(self._reach(run), _path(run), line=line, lines=lines),)

    def _read_several(self, run: ToolRun, stopped: threading.Event) -> Parts:
        parts: Parts = ()
        for path in texts_in(run.arguments, "paths"):
            try:
                parts += (Text(text=f"── {path}\n"), files.read_part(self._reach(run), path))
            except (PathRefused, OSError, ValueError) as error:
                parts += (Text(text=f"── {path}\n[{_why(error)}]"),)
        return parts

    def _list(self, run: ToolRun, stopped: threading.Event) -> Parts:
        return _text_parts(files.list_directory(self._reach(run), _path(run)))

    def _tree(self, run: ToolRun, stopped: threading.Event) -> Parts:
        depth = min(number_in(run.arguments, "max_depth", 8), limits.file_tree_depth_max)
        return _text_parts(
            files.directory_tree(
                self._reach(run), _path(run), depth=depth, skip_version_control=self._skip
            )
        )

    def _search_names(self, run: ToolRun, stopped: threading.Event) -> Parts:
        return _text_parts(
            files.search_names(
                self._reach(run),
                _path(run),
                text_in(run.arguments, "pattern"),
                skip_version_control=self._skip,
                stopped=stopped,
            )
        )

    def _search_content(self, run: ToolRun, stopped: threading.Event) -> Parts:
        return _text_parts(
            files.search_content(
                self._reach(run),
                _path(run),
                text_in(run.arguments, "query"),
                pattern=text_in(run.arguments, "pattern", "*"),
                ignore_case=run.arguments.get("ignore_case") is True,
                skip_version_control=self._skip,
                stopped=stopped,
            )
        )

    def _write(self, run: ToolRun, stopped: threading.Event) -> Parts:
        with self._writing:
            content = text_in(run.arguments, "content")
            return _text_parts(files.write_text(self._reach(run), _path(run), content))

    def _edit(self, run: ToolRun, stopped: threading.Event) -> Parts:
        with self._writing:  # two edits of one file at once must not lose either
            return _text_parts(
                files.edit_text(self._reach(run), _path(run), edits_in(run.arguments))
            )

    def _make_directory(self, run: ToolRun, stopped: threading.Event) -> Parts:
        is_new = self._reach(run).make_directory(_path(run))
        return _text_parts(f"{_path(run)} {'was made' if is_new else 'was there already'}.")


async def _in_thread(work: Work, run: ToolRun) -> ToolOutput:
    """Do file work in a thread, because files can be slow. A cancelled call sets an event that tells it to give up."""
    stopped = threading.Event()
    try:
        return ToolOutput(content=await in_thread(lambda: work(run, stopped), name="files"))
    except (PathRefused, OSError, ValueError) as error:
        return failure(f"{_why(error)}.")
    except asyncio.CancelledError:
        stopped.set()
        raise


def _why(error: Exception) -> str:
    match error:
        case FileNotFoundError():
            return "There is no such file or directory"
        case OSError():
            return f"That is not possible: {error.strerror or type(error).__name__}"
        case UnicodeEncodeError():
            return "That is not a path"
        case _:
            return str(error)


def _path(run: ToolRun) -> str:
    return text_in(run.arguments, "path")


def _text_parts(words: str) -> Parts:
    return (Text(text=words),)


def edits_in(arguments: Mapping[str, Json]) -> tuple[files.Edit, ...]:
    """The edits that a call of `edit_file` asks for."""
    given = arguments.get("edits")
    return tuple(
        files.Edit(old=text_in(each, "oldText"), new=text_in(each, "newText"))
        for each in (given if isinstance(given, list) else ())
        if isinstance(each, dict)
    )
