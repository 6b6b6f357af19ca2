"""Runs one tool call: time and output are bounded, and nothing is left running.

1. An error of the tool becomes the call's output. An error of ours (the store does not answer, another node has taken
   over the turn) is raised.
2. The output can be written to a journal and read back. A tool's own output is checked for that, never trusted.
3. Changes come with a successful result only. A failed call changes no state.
4. A tool that raises, takes too long or returns what cannot be kept is broken, which its operator is told. An output
   that says "error" is the tool's answer, and none of the operator's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from holdfast import limits
from holdfast.core.codec import Decoder, encode
from holdfast.core.items import (
    Audio,
    Blob,
    File,
    Image,
    Inline,
    Link,
    Part,
    Parts,
    Refusal,
    Source,
    Text,
)
from holdfast.core.transcript import ends
from holdfast.core.turns.events import Change, MemoryAdded, MemoryDeleted, StateSet
from holdfast.tools.schema import InvalidArguments as InvalidArguments
from holdfast.tools.schema import parse_arguments as parse_arguments
from holdfast.tools.tool import Tool, ToolBroken, ToolOutput, ToolRun

Keep: TypeAlias = Callable[[bytes, str], Awaitable[Blob]]
"""Stores bytes that are too large for an item as a blob."""

PLAIN_TEXT = "text/plain; charset=utf-8"

_read_back: Decoder[ToolOutput] = Decoder(ToolOutput)


class BadOutput(Exception):
    """A tool's return value cannot be stored; the message says why."""


Tell: TypeAlias = Callable[[str, str], None]
"""Takes the cause of a failure, which is the same for calls that fail alike, and what there is to say about this one."""


async def execute(
    tool: Tool,
    run: ToolRun,
    keep: Keep,
    *,
    chars_max: int | None = None,
    tell_broken: Tell = lambda cause, detail: None,
) -> ToolOutput:
    """Run a tool within its bounds. Any error of the tool becomes its output; text longer than `chars_max` is shortened.

    Cancelling this cancels the tool. Errors of `keep` are raised.
    """
    spec = tool.spec
    try:
        output = await _attempt(tool, run)
        _check(output, run)
        return _readable(
            msgspec.structs.replace(output, content=await _fitted(output, keep, chars_max))
        )
    except ToolBroken as error:
        tell_broken(error.cause, "" if error.__cause__ is None else _words_of(error.__cause__))
        return failure(str(error))
    except BadOutput as error:
        tell_broken("what it returned cannot be kept", str(error))
        return failure(f"{spec.name!r} ran, but what it returned cannot be kept: {error}.")


def failure(words: str) -> ToolOutput:
    """The output of a failed call; the words are for the model."""
    shown = clean(words)[: limits.tool_output_chars_max]
    return ToolOutput(content=(Text(text=shown),), outcome="error")


def clean(text: str) -> str:
    """The text with lone surrogates, which JSON cannot hold, replaced."""
    return text.encode(errors="replace").decode() if _is_broken(text) else text


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


async def _attempt(tool: Tool, run: ToolRun) -> ToolOutput:
    """Run the tool and return its output. Raises ToolBroken."""
    spec = tool.spec
    patience = asyncio.timeout(spec.timeout_s)
    try:
        async with patience:
            return await tool.run(run)
    except TimeoutError as error:
        if not patience.expired():  # the tool raised its own TimeoutError
            raise _failure_of(spec.name, error) from error
        cause = f"did not finish within {spec.timeout_s:g} s"
        raise ToolBroken(f"{spec.name!r} {cause} and was stopped.", cause=cause) from None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The tool cancelled something of its own; this task was not cancelled.
        raise _failure_of(spec.name, error) from error
    except ToolBroken:
        raise
    except (Exception, SystemExit) as error:  # a tool can raise anything
        raise _failure_of(spec.name, error) from error


def _failure_of(name: str, error: BaseException) -> ToolBroken:
    kind, words = type(error).__name__, _words_of(error)
    return ToolBroken(
        f"{name!r} failed: {kind}" + (f": {words}" if words else ""), cause=kind + _place_of(error)
    )


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as worse:
        return f"and says nothing about it ({type(worse).__name__})"


def _place_of(error: BaseException) -> str:
    """Where an error was raised, as ` in tools.py:12`."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return f" in {Path(step.tb_frame.f_code.co_filename).name}:{step.tb_lineno}" if step else ""


# ── checks of a tool's output ────────────────────────────────────────────────────────────────


def _check(output: object, run: ToolRun) -> None:
    if not isinstance(output, ToolOutput):
        raise BadOutput(f"it is a {type(output).__name__}, not a ToolOutput")
    if {type(output.content), type(output.changes)} != {tuple}:
        raise BadOutput("its content and its changes have to be tuples")
    if len(output.content) > limits.tool_parts_max:
        raise BadOutput(f"it has {len(output.content)} parts, at most {limits.tool_parts_max}")
    if output.outcome == "error" and output.changes:
        raise BadOutput("an error cannot have changes")
    if len(output.changes) > limits.tool_changes_max:
        raise BadOutput(f"it has {len(output.changes)} changes, at most {limits.tool_changes_max}")
    for change in output.changes:
        _check_change(change, run)


def _check_change(change: Change, run: ToolRun) -> None:
    match change:
        case StateSet(name=str(name), value=str(value)):
            if not 1 <= len(name) <= limits.state_name_chars_max or not name.isprintable():
                raise BadOutput(
                    f"a name of state has 1–{limits.state_name_chars_max} printable characters"
                )
            _check_size(f"the state {name!r}", value, limits.state_value_bytes_max)
            _check_json(name, value)
        case MemoryAdded(memory_id=str(memory), agent=agent, text=str(text)):
            _check_memory(memory, agent, run)
            _check_size(f"the memory {memory!r}", text, limits.memory_text_bytes_max)
        case MemoryDeleted(memory_id=str(memory), agent=agent):
            _check_memory(memory, agent, run)
        case _:
            raise BadOutput(f"a {type(change).__name__} is not a change, or not a whole one")


def _check_memory(memory: str, agent: str, run: ToolRun) -> None:
    if not 1 <= len(memory) <= limits.memory_id_chars_max or not memory.isprintable():
        raise BadOutput(f"a memory's id has 1–{limits.memory_id_chars_max} printable characters")
    if agent != run.agent:
        raise BadOutput(f"it changes a memory of {agent!r}, and belongs to {run.agent!r}")


def _check_size(what: str, text: str, bytes_max: int) -> None:
    size = len(text.encode(errors="surrogatepass"))
    if size > bytes_max:
        raise BadOutput(f"{what} has {size} bytes, at most {bytes_max}")


def _check_json(name: str, value: str) -> None:
    if not value:
        return  # no value: the state is removed
    try:
        msgspec.json.decode(value)
    except (ValueError, RecursionError) as error:
        raise BadOutput(f"the state {name!r} is not JSON: {error}") from error


def _readable(output: ToolOutput) -> ToolOutput:
    """The output as a journal would give it back: encoded and decoded."""
    try:
        return _read_back.strict(encode(output))
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise BadOutput(str(error)) from error


# ── output that fits a prompt ────────────────────────────────────────────────────────────────


async def _fitted(output: ToolOutput, keep: Keep, chars_max: int | None) -> Parts:
    """The content, small enough for a prompt and an item: long text is shortened, large bytes become blobs."""
    room = min(limits.tool_output_chars_max, chars_max or limits.tool_output_chars_max)
    fitted: list[Part] = []
    for part in output.content:
        if isinstance(part, Text | Refusal):
            if not isinstance(part.text, str):
                raise BadOutput("its text is not text")
            text = clean(part.text)
            parts = await _shortened(text, room, keep)
            fitted += parts if isinstance(part, Text) else (Refusal(text=parts[0].text),)
            room = max(0, room - len(text))
        elif isinstance(part, Image | Audio | File):
            source = await _placed(part.source, keep)
            fitted.append(msgspec.structs.replace(part, source=source))
        else:
            raise BadOutput(f"a {type(part).__name__} is not a part")
    return tuple(fitted)


async def _shortened(text: str, room: int, keep: Keep) -> tuple[Text, *tuple[File, ...]]:
    """The text if it fits; otherwise its beginning and end, and a blob with the whole text."""
    if len(text) <= room:
        return (Text(text=text),)
    shown = Text(text=ends(text, room))
    data = text.encode()
    if len(data) > limits.tool_output_bytes_max:
        return (shown,)
    return (shown, File(source=await keep(data, PLAIN_TEXT), name="output.txt"))


async def _placed(source: Source, keep: Keep) -> Source:
    match source:
        case Inline(data=data, media_type=media_type):
            if not isinstance(data, bytes):
                raise BadOutput("its bytes are not bytes")
            if len(data) > limits.tool_output_bytes_max:
                raise BadOutput(
                    f"a file in it has {len(data)} bytes, at most {limits.tool_output_bytes_max}"
                )
            if len(data) > limits.inline_bytes_max:
                return await keep(data, media_type)
            return source
        case Blob() | Link():
            return source
        case _:
            raise BadOutput(f"a {type(source).__name__} is not a place for bytes")
