"""Short words for tests of tools: a call to be run, a place to keep blobs, what was said."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from holdfast.core.items import Blob, text_of
from holdfast.tools.files.reserved_files import ReservedFiles
from holdfast.tools.tool import Json, ToolOutput, ToolRun, ToolSpec

KEY = f"fc_{os.getpid()}"
"""A call's key is nobody else's: whoever stops a command ends all processes that carry its key, on the whole machine,
and other tests run beside this one."""


def call_of(
    arguments: Mapping[str, Json] | None = None,
    *,
    key: str = KEY,
    agent: str = "root",
    state: Mapping[str, str] | None = None,
    memories: Mapping[str, str] | None = None,
    reserved: ReservedFiles = ReservedFiles(),  # noqa: B008
) -> ToolRun:
    return ToolRun(
        call_key=key,
        arguments=arguments or {},
        tenant="local",
        session_id="conv_1",
        agent=agent,
        state=state or {},
        memories=memories or {},
        reserved=reserved,
    )


def spec(
    name: str = "look", *, parameters: str = '{"type":"object"}', timeout_s: float = 5.0
) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters=parameters, timeout_s=timeout_s)


class Doing:
    """A tool that does what a test says."""

    def __init__(
        self, do: Callable[[ToolRun], Awaitable[ToolOutput]], *, timeout_s: float = 5.0
    ) -> None:
        self.spec = spec("doing", timeout_s=timeout_s)
        self._do = do

    async def run(self, run: ToolRun) -> ToolOutput:
        return await self._do(run)


class Blobs:
    """Keeps bytes, as a store would."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def __call__(self, data: bytes, media_type: str) -> Blob:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.kept[digest] = data
        return Blob(media_type=media_type, digest=digest, size_bytes=len(data))


class Pipe:
    """Where another process says how far it is. Never blocks: opened for both, it needs nobody at its other end."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        os.mkfifo(path)
        self._opened = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    async def heard(self) -> str:
        """What was written, once something has been."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._opened, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._opened)
        return os.read(self._opened, 4096).decode()

    def say(self, words: str) -> None:
        os.write(self._opened, words.encode())

    def close(self) -> None:
        os.close(self._opened)


PATIENCE_S = 60.0


class Lifeline:
    """A named pipe that a command and its children hold open while they live."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    async def next_word(self) -> str:
        """What is written next; waits for somebody who writes."""
        while True:
            await self._wait()
            try:
                return os.read(self._fd, 100).decode().strip()
            except BlockingIOError:
                continue

    async def wait_gone(self) -> None:
        """Wait until nobody is left who could write."""
        while True:
            try:
                if not os.read(self._fd, 100):
                    return
            except BlockingIOError:
                await self._wait()

    async def _wait(self) -> None:
        loop, found = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._fd, found.set)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await found.wait()
        finally:
            loop.remove_reader(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def leap(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let so much time pass for everybody who waits on this loop: what was to happen by then happens now."""
    loop = asyncio.get_running_loop()
    now_s = loop.time
    monkeypatch.setattr(loop, "time", lambda: now_s() + seconds)


def said(output: ToolOutput) -> str:
    return text_of(output.content)
