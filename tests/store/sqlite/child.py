"""What the other processes do. Run as `python -m tests.store.sqlite.child COMMAND PATH …`."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw
from apsw import Connection

from holdfast.errors import StoreClosed, StoreUnusable
from holdfast.store.sqlite.engine.engine import SqliteEngine
from tests.store.sqlite.opened import opened
from tests.store.sqlite.rows import add


def say(line: object) -> None:
    os.write(1, f"{line}\n".encode())


def write(path: Path, name: str, number: str, callers: str) -> None:
    """Write that many notes when told to; say the longest wait, in seconds."""

    async def main() -> None:
        async with opened(path, timeout_s=60) as engine:
            say("ready")
            await asyncio.to_thread(sys.stdin.readline)
            left = iter(range(int(number)))
            waits: list[float] = []

            async def caller() -> None:
                for index in left:
                    began = time.monotonic()
                    await engine.write(add(f"{name}-{index}"))
                    waits.append(time.monotonic() - began)

            await asyncio.gather(*(caller() for _ in range(int(callers))))
            say(max(waits))

    asyncio.run(main())


def hold(path: Path) -> None:
    """Stop in the middle of a transaction, with a note written, until told to go on."""

    def work(connection: Connection) -> None:
        add("half")(connection)
        say("inside")
        sys.stdin.readline()

    async def main() -> None:
        async with opened(path) as engine:
            await engine.write(work)
            say("done")

    asyncio.run(main())


def live(path: Path, slot: str) -> None:
    """Hold a slot until told to go."""

    async def main() -> None:
        async with opened(path) as engine:
            say(engine.liveness.hold_nowait(int(slot)))
            sys.stdin.readline()

    asyncio.run(main())


def fork(path: Path, slot: str) -> None:
    """Hold a slot and the write turn, and fork in the middle of it; both live until killed."""
    engine = SqliteEngine.open(path)
    assert engine.liveness.hold_nowait(int(slot))
    inside = threading.Event()
    threading.Thread(target=_write_until_told, args=(engine, inside), daemon=True).start()
    inside.wait()
    pid = os.fork()
    if pid:
        say(pid)
    threading.Event().wait()


def exit_fork(path: Path) -> None:
    """In the middle of a transaction, fork a child that tries everything and exits normally."""
    disk = _Watched()
    engine = SqliteEngine.open(path, vfs=disk.name)
    inside = threading.Event()
    thread = threading.Thread(target=_write_until_told, args=(engine, inside))
    thread.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        _try_everything(engine, path)
        del engine
        gc.collect()
        sys.exit(0)  # with all the finalisation that os._exit would leave out
    assert os.waitpid(pid, 0)[1] == 0
    say("child ended")
    thread.join()
    asyncio.run(engine.close())
    say("parent done")


def drop_fork(path: Path) -> None:
    """Fork a child in which nothing, no thread's frame either, refers to the engine any more."""
    disk = _Watched()
    engine = SqliteEngine.open(path, vfs=disk.name, inline=True)
    asyncio.run(engine.write(add("by the parent")))
    pid = os.fork()
    if pid == 0:
        del engine
        gc.collect()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    say("child ended")
    asyncio.run(engine.write(add("and again")))
    asyncio.run(engine.close())
    say("parent done")


def _write_until_told(engine: SqliteEngine, inside: threading.Event) -> None:
    def work(connection: Connection) -> None:
        add("by the parent")(connection)
        inside.set()
        sys.stdin.readline()

    asyncio.run(engine.write(work))


def _try_everything(engine: SqliteEngine, path: Path) -> None:
    attempts: list[tuple[str, Callable[[], object]]] = [
        ("write", lambda: asyncio.run(engine.write(add("by the child")))),
        ("read", lambda: asyncio.run(engine.read(lambda _: None))),
        ("is_held", lambda: engine.liveness.is_held(1)),
        ("hold", lambda: engine.liveness.hold_nowait(1)),
        ("close", lambda: asyncio.run(engine.close())),
        ("open", lambda: SqliteEngine.open(path)),
    ]
    for name, attempt in attempts:
        try:
            attempt()
        except (StoreClosed, StoreUnusable) as error:
            say(f"{name}: {type(error).__name__}")
        else:
            say(f"{name}: nothing")


class _Watched(apsw.VFS):
    """Says so if another process than the first ever touches a file through SQLite."""

    def __init__(self) -> None:
        self.name = "watched"
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _WatchedFile("", name, flags)


class _WatchedFile(apsw.VFSFile):
    _owner = os.getpid()

    def xUnlock(self, level: int) -> None:
        self._watch("xUnlock")
        super().xUnlock(level)

    def xClose(self) -> None:
        self._watch("xClose")
        super().xClose()

    def _watch(self, operation: str) -> None:
        if os.getpid() != self._owner:
            say(f"touched by {operation}")


COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__: command for command in (write, hold, live, fork, exit_fork, drop_fork)
}

if __name__ == "__main__":
    _, command, path, *arguments = sys.argv
    COMMANDS[command](Path(path), *arguments)
