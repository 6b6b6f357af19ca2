"""The editor at the other end of our standard streams: its requests are handled, and it can be asked and told things.

1. Requests and notifications are handled side by side, each in a task of its own: a prompt that takes an hour does not
   delay the notification that cancels it.
2. An error of a handler is the answer to its request, and of nothing else.
3. When the editor is gone, what it was asked raises EditorGone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from io import FileIO
from itertools import count
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from holdfast import limits
from holdfast.errors import HoldfastError, InvalidValue, ServerRefused
from holdfast.wire import json_rpc
from holdfast.wire.acp import rpc
from holdfast.wire.acp.requests import (
    CreatedTerminal,
    CreateTerminal,
    ExitStatus,
    FileText,
    Nothing,
    PermissionAnswer,
    PermissionOption,
    ReadTextFile,
    TerminalName,
    TerminalOutput,
    WriteTextFile,
)
from holdfast.wire.acp.updates import CallFields, RequestPermission, SessionNotification, Update

log = logging.getLogger("holdfast.acp")

T = TypeVar("T")


class Handled(NamedTuple):
    """The result of a request, and what is to be done once the editor has it."""

    result: msgspec.Struct
    then: Callable[[], Awaitable[None]] | None = None


Handle: TypeAlias = Callable[[str, msgspec.Raw], Awaitable[Handled]]
"""Carries out a method. Raises RequestFailed, or an error of ours."""


class EditorGone(Exception):
    """The editor has closed its end."""


class RequestFailed(Exception):
    """A request has no result; the error is the answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = rpc.RpcError(code=code, message=message)


class Editor:
    """The connection to one editor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[rpc.RpcAnswer]] = {}
        self._handled: set[asyncio.Task[None]] = set()
        self._gone = False

    async def serve(self, handle: Handle) -> None:
        """Handle what the editor sends until it closes its end."""
        try:
            while line := await self._line():
                if line.strip():
                    self._take(rpc.read_line(line), handle)
        finally:
            await self._end()

    async def _line(self) -> bytes:
        try:
            return await self._reader.readline()
        except ValueError:  # longer than the reader's limit; it has dropped what it held
            why = f"a message has at most {limits.acp_message_bytes_max} bytes"
            await self._write(
                rpc.error_line(None, rpc.RpcError(code=json_rpc.INVALID_REQUEST, message=why))
            )
            return b"\n"
        except OSError:
            return b""

    async def _end(self) -> None:
        self._gone = True
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(EditorGone())
        for task in self._handled:
            task.cancel()
        await asyncio.gather(*self._handled, return_exceptions=True)

    def _take(self, received: rpc.Received, handle: Handle) -> None:
        match received:
            case rpc.RpcAnswer(id=int(number)) if number in self._asked:
                answer = self._asked.pop(number)
                if not answer.done():
                    answer.set_result(received)
            case rpc.RpcAnswer():
                log.warning("an answer to no request: %r", received.id)
            case _:
                task = asyncio.create_task(self._handle(received, handle))
                self._handled.add(task)
                task.add_done_callback(self._handled.discard)

    async def _handle(
        self,
        received: json_rpc.RpcRequest | json_rpc.RpcNotification | rpc.BadMessage,
        handle: Handle,
    ) -> None:
        try:
            match received:
                case rpc.BadMessage(id=given, error=error):
                    await self._write(rpc.error_line(given, error))
                case json_rpc.RpcNotification(method=method, params=params):
                    await _outcome(handle, method, params)
                case json_rpc.RpcRequest(id=given, method=method, params=params):
                    ended = await _outcome(handle, method, params)
                    if isinstance(ended, rpc.RpcError):
                        await self._write(rpc.error_line(given, ended))
                        return
                    await self._write(rpc.result_line(given, ended.result))
                    if ended.then is not None:
                        await ended.then()
        except EditorGone:
            pass  # nothing can be told any more

    def close(self) -> None:
        """Close our end."""
        self._writer.close()

    async def _write(self, line: bytes) -> None:
        try:
            self._writer.write(line)
            await self._writer.drain()
        except OSError as error:
            raise EditorGone from error

    async def ask(self, method: str, params: msgspec.Struct, answer: type[T]) -> T:
        """Ask the editor something. Raises RequestFailed if it refuses, or answers something else, and EditorGone."""
        if self._gone:
            raise EditorGone
        number = next(self._numbers)
        self._asked[number] = waiting = asyncio.get_running_loop().create_future()
        try:
            await self._write(rpc.request_line(number, method, params))
            said = await waiting
        finally:
            self._asked.pop(number, None)
        if said.error is not None:
            raise RequestFailed(said.error.code, said.error.message)
        try:
            if answer is Nothing:  # some editors say null
                return answer()
            return msgspec.json.decode(said.result, type=answer)
        except msgspec.DecodeError as error:
            words = f"the editor's answer to {method} does not fit: {error}"
            raise RequestFailed(json_rpc.INTERNAL_ERROR, words) from error

    # ── what an editor can do ──

    async def show(self, session_id: str, update: Update) -> None:
        shown = SessionNotification(session_id=session_id, update=update)
        await self._write(rpc.notification_line("session/update", shown))

    async def choice(
        self, session_id: str, call: CallFields, options: tuple[PermissionOption, ...]
    ) -> str | None:
        """The option that the user chooses; None if the prompt was cancelled instead."""
        asked = RequestPermission(session_id=session_id, tool_call=call, options=options)
        said = (await self.ask("session/request_permission", asked, PermissionAnswer)).outcome
        return said.option_id if said.outcome == "selected" else None

    async def read_text(
        self, session_id: str, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """A file's text as the editor has it, unsaved changes included."""
        asked = ReadTextFile(session_id=session_id, path=path, line=line, limit=limit)
        return (await self.ask("fs/read_text_file", asked, FileText)).content

    async def write_text(self, session_id: str, path: str, content: str) -> None:
        asked = WriteTextFile(session_id=session_id, path=path, content=content)
        await self.ask("fs/write_text_file", asked, Nothing)

    async def create_terminal(self, asked: CreateTerminal) -> TerminalName:
        made = await self.ask("terminal/create", asked, CreatedTerminal)
        return TerminalName(session_id=asked.session_id, terminal_id=made.terminal_id)

    async def wait_for_exit(self, terminal: TerminalName) -> ExitStatus:
        return await self.ask("terminal/wait_for_exit", terminal, ExitStatus)

    async def output_of(self, terminal: TerminalName) -> TerminalOutput:
        return await self.ask("terminal/output", terminal, TerminalOutput)

    async def kill(self, terminal: TerminalName) -> None:
        await self.ask("terminal/kill", terminal, Nothing)

    async def release(self, terminal: TerminalName) -> None:
        await self.ask("terminal/release", terminal, Nothing)


async def _outcome(handle: Handle, method: str, params: msgspec.Raw) -> Handled | rpc.RpcError:
    """The result of a method, or the error to answer with. Raises EditorGone."""
    try:
        return await handle(method, params)
    except EditorGone:
        raise
    except RequestFailed as failed:
        return failed.error
    except HoldfastError as error:
        return rpc.RpcError(code=_code_of(error), message=str(error))
    except Exception as error:
        log.exception("%s failed", method)
        words = f"a bug of ours: {type(error).__name__}: {error}"
        return rpc.RpcError(code=json_rpc.INTERNAL_ERROR, message=words)


def _code_of(error: HoldfastError) -> int:
    match error:
        case ServerRefused(status=401 | 403):
            return rpc.AUTH_REQUIRED
        case ServerRefused(status=404 | 410):
            return rpc.RESOURCE_NOT_FOUND
        case ServerRefused(status=400 | 413 | 422) | InvalidValue():
            return json_rpc.INVALID_PARAMS
        case _:
            return json_rpc.INTERNAL_ERROR


def taken_output() -> FileIO:
    """Our standard output, for the protocol alone: what is printed from now on goes to the standard error."""
    sys.stdout.flush()
    output = FileIO(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


async def standard_editor(output: FileIO) -> Editor:
    """The editor at our standard input, which reads this output."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limits.acp_message_bytes_max)
    protocol = asyncio.StreamReaderProtocol(reader)
    await loop.connect_read_pipe(lambda: protocol, sys.stdin.buffer)
    transport, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, output)
    return Editor(reader, asyncio.StreamWriter(transport, flow, reader, loop))
