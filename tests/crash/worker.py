"""What other processes do with a store. Started by a `Zygote`, or as `python -m tests.crash.worker COMMAND …`.

A child says what it is about to do before it does it, and what is durable after it is: whoever reads the
lines of a dead child knows what must be there, and what may.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias, TypeVar

import apsw
import msgspec
from apsw import Connection

from holdfast.errors import StorageFull, StoreError, StorePoisoned, Superseded
from holdfast.ids import Minter, SessionId
from holdfast.store.outcomes import CommitOutcome, Moved, Started
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.store import Store
from tests.crash.audit import audit
from tests.crash.turn_server import LONG_MS, Held, Plan, Poll, Server, plans_by_version

T = TypeVar("T")


class Pipe:
    """The way to the parent: lines out, each in one write, and lines in."""

    def __init__(self, told: int = 0, said: int = 1) -> None:
        self._told = os.fdopen(told, "rb", buffering=0, closefd=False)
        self._said = said

    def say(self, *words: object) -> None:
        os.write(self._said, (" ".join(map(str, words)) + "\n").encode())

    def close(self) -> None:
        os.close(self._said)

    def wait_line(self) -> str:
        return self._told.readline().decode().rstrip("\n")


def new_minter(seed: int) -> Minter:
    """Ids that differ between processes, and stay the same for a seed but for the time in them."""
    dice = random.Random(seed)
    return Minter(now_ms=lambda: time.time_ns() // 1_000_000, random_bits=dice.getrandbits)


# ── playing until killed ─────────────────────────────────────────────────────────────────────


def random_plan(name: str, dice: random.Random) -> Plan:
    return Plan(
        name=name,
        tools=dice.choice((0, 0, 1, 2)),
        end=dice.choice(("complete", "complete", "complete", "stop", "fail")),
        resumes=dice.random() < 0.3,
        padding="x" * dice.choice((0, 100, 5_000)),
    )


async def play(pipe: Pipe, path: str, seed: str, keys: str, turns: str = "1000000") -> None:
    """Clean up after the dead, then play random turns on some sessions at once, until killed."""
    store = await SqliteStore.open(path)
    await _play(pipe, store, seed=int(seed), keys=int(keys), turns=int(turns))
    await store.close()
    pipe.say("end")


async def _play(pipe: Pipe, store: Store, *, seed: int, keys: int, turns: int) -> None:
    server = Server(store, new_minter(seed))
    await server.enrol(ttl_ms=LONG_MS)
    await server.recover_all()
    pipe.say("ready")
    numbers = iter(range(turns))

    async def one_session(key: str, dice: random.Random) -> None:
        for number in numbers:
            plan = random_plan(f"{seed}.{number}", dice)
            pipe.say("try", plan.name, key)
            answer = await server.ask(key, plan, idempotent=True)
            # The answer is durable: from here on nothing may take it back.
            pipe.say("ack", plan.name, answer.version or 0)

    await asyncio.gather(
        *(one_session(f"key-{key}", random.Random(seed * 100 + key)) for key in range(keys))
    )


# ── dying at an exact operation ──────────────────────────────────────────────────────────────


class Deadly(apsw.VFS):
    """SQLite's own file system, where the nth write, sync or truncation is this process's last."""

    def __init__(self, nth: int, *, after: bool) -> None:
        self.name = "deadly"
        self.left = nth
        self.after = after
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _DeadlyFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.do(lambda: super(Deadly, self).xDelete(filename, syncdir))

    def do(self, operation: Callable[[], None]) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        operation()
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class _DeadlyFile(apsw.VFSFile):
    def __init__(self, vfs: Deadly, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._vfs.do(lambda: super(_DeadlyFile, self).xWrite(data, offset))

    def xSync(self, flags: int) -> None:
        self._vfs.do(lambda: super(_DeadlyFile, self).xSync(flags))

    def xTruncate(self, newsize: int) -> None:
        self._vfs.do(lambda: super(_DeadlyFile, self).xTruncate(newsize))


def open_inline(path: str, *, vfs: str | None = None) -> Awaitable[SqliteStore]:
    engine = partial(SqliteEngine.open, inline=True, vfs=vfs)
    return SqliteStore.open(path, engine=engine)


async def die(pipe: Pipe, path: str, seed: str, nth: str, after: str) -> None:
    """Play a short run and die before or after the nth operation on the files, if it has so many."""
    deadly = Deadly(int(nth), after=after == "True")
    store = await open_inline(path, vfs=deadly.name)
    await _play(pipe, store, seed=int(seed), keys=2, turns=4)
    await store.close()
    pipe.say("end")


# ── under a failing disk ─────────────────────────────────────────────────────────────────────


async def suffer(pipe: Pipe, path: str, seed: str) -> None:
    """Wait for `go`, then play a short run; failures are said, and a full disk is tried again.

    Meant to run under strace, which breaks one system call.
    """
    pipe.say("ready to suffer")
    pipe.wait_line()
    try:
        store = await _suffered(pipe, lambda: open_inline(path))
        server = Server(store, new_minter(int(seed)))
        await _suffered(pipe, server.enrol, store)
        await _suffered(pipe, server.recover_all, store)
        for number in range(4):
            plan = Plan(name=f"{seed}.{number}", tools=number % 3, resumes=number == 2)
            key = f"key-{number % 2}"
            pipe.say("try", plan.name, key)
            answer = await _suffered(pipe, partial(server.ask, key, plan, idempotent=True), store)
            pipe.say("ack", plan.name, answer.version or 0)
        await store.close()
    except StorePoisoned as error:
        pipe.say("poisoned", type(error.__cause__).__name__)
        return
    except StoreError as error:
        pipe.say("refused", type(error).__name__, str(error))
        return
    pipe.say("end")


async def _suffered(
    pipe: Pipe, work: Callable[[], Awaitable[T]], store: SqliteStore | None = None
) -> T:
    """Do it; if the disk is full, reading must still work, and doing it again as well."""
    for _ in range(2):
        try:
            return await work()
        except StorageFull:
            pipe.say("full")
            if store is not None:
                await store.stats()
                await store.tenants()
    return await work()


# ── looking ──────────────────────────────────────────────────────────────────────────────────


class Inspection(msgspec.Struct):
    """What a fresh process finds in a file."""

    wrong: list[str]
    histories: dict[str, list[str]]
    recovered: int
    waited_s: float
    """From opening the file until every session could be used."""


async def look(pipe: Pipe, path: str, keys: str) -> None:
    """Open the file, look at everything, clean up after the dead at once, and look again."""
    began = time.monotonic()
    store = await SqliteStore.open(path)
    server = Server(store, new_minter(time.time_ns()), waiting=_NobodyWaits())
    await server.enrol()
    recovered = await server.recover_all()
    waited_s = time.monotonic() - began
    wrong = await audit(store)
    for orphan in await store.orphans(node=server.node, limit=10):
        wrong.append(f"{orphan.turn_id} is still nobody's")
    names = [f"key-{key}" for key in range(int(keys))]
    found = Inspection(
        wrong=wrong,
        histories={name: await plans_by_version(store, name) for name in names},
        recovered=recovered,
        waited_s=waited_s,
    )
    await store.close()
    pipe.say(msgspec.json.encode(found).decode())


class _NobodyWaits(Poll):
    async def wait(self, session_id: SessionId) -> None:
        raise AssertionError(f"{session_id} is held by somebody who is dead")


# ── many at once ─────────────────────────────────────────────────────────────────────────────


async def crowd(pipe: Pipe, path: str, index: str, turns: str) -> None:
    """Play turns on a session that all share and on one of our own, in turn; say how long one waited."""
    store = await SqliteStore.open(path)
    server = Server(store, new_minter(int(index)))
    await server.enrol(ttl_ms=LONG_MS)
    pipe.say("ready")
    pipe.wait_line()
    waits: list[float] = []
    for number in range(int(turns)):
        key = "shared" if number % 2 else f"own-{index}"
        began = time.monotonic()
        await server.ask(key, Plan(name=f"{index}.{number}", tools=number % 2), idempotent=True)
        waits.append(time.monotonic() - began)
        pipe.say("turn", f"{time.monotonic():.6f}")
    await store.resign(server.node)
    await store.close()
    pipe.say("worst", max(waits))


async def first(pipe: Pipe, path: str, index: str, requests: str) -> None:
    """Told a key, send many first requests for it at once; say which sessions came of it."""
    store = await SqliteStore.open(path)
    server = Server(store, new_minter(int(index)))
    await server.enrol(ttl_ms=LONG_MS)
    pipe.say("ready")
    while key := pipe.wait_line():
        plan = Plan(name=f"{index}.{key}")
        asks = [await server.request(key, plan) for _ in range(int(requests))]
        pipe.say("set")
        pipe.wait_line()
        outcomes = await asyncio.gather(*map(store.begin, asks))
        started = [each for each in outcomes if isinstance(each, Started)]
        others = [each for each in outcomes if not isinstance(each, Started)]
        sessions = {each.fence.session_id for each in started}
        for each in others:
            # They were asked when there was no such session; now there is.
            assert isinstance(each, Moved), each
            sessions.add(each.session_id)
        pipe.say(len(started), *sorted(sessions))
    await store.close()


# ── stopped, and forked ──────────────────────────────────────────────────────────────────────


async def stop_inside(pipe: Pipe, path: str) -> None:
    """Stop in the middle of the transaction that commits a turn, and go on when continued."""
    store = await SqliteStore.open(path)
    server = Server(store, new_minter(1))
    await server.enrol()
    commit, write = store.commit, store.engine.write

    async def write_and_stop(work: Callable[[Connection], T]) -> T:
        def stopping(db: Connection) -> T:
            done = work(db)
            pipe.say("inside")
            _stop_here()
            return done

        return await write(stopping)

    async def commit_and_stop(*args: Any, **kwargs: Any) -> CommitOutcome:
        store.engine.write = write_and_stop  # type: ignore[method-assign,assignment]
        return await commit(*args, **kwargs)

    store.commit = commit_and_stop  # type: ignore[method-assign]
    answer = await server.ask("trip", Plan(name="stopped"))
    pipe.say("committed", answer.version)


async def stop_outside(pipe: Pipe, path: str) -> None:
    """Stop with an open turn and no transaction, and try to go on when continued."""
    store = await SqliteStore.open(path)
    server = Server(store, new_minter(2))
    await server.enrol()
    held = await _opened(server, "trip", Plan(name="stopped"))
    pipe.say("outside")
    _stop_here()
    try:
        answer = await held.play()
    except Superseded:
        pipe.say("superseded")
    else:
        pipe.say("committed", answer.version)


def _stop_here() -> None:
    """Stop the process in this very line: sent to it as a whole, another thread may take the signal first."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


async def fork(pipe: Pipe, path: str) -> None:
    """Open a turn, fork a child that lives on, and wait to be killed."""
    store = await SqliteStore.open(path)
    server = Server(store, new_minter(3))
    await server.enrol()
    await _opened(server, "trip", Plan(name="forked", tools=1))
    pid = os.fork()
    if pid == 0:
        pipe.close()  # the end of what the parent says is the parent's end, not ours
        signal.pause()
    pipe.say(pid)
    await asyncio.Event().wait()


async def _opened(server: Server, key: str, plan: Plan) -> Held:
    ask = await server.request(key, plan)
    outcome = await server.store.begin(ask)
    assert isinstance(outcome, Started)
    return server.held(ask, outcome)


# ── starting ─────────────────────────────────────────────────────────────────────────────────

Commands: TypeAlias = dict[str, Callable[..., Coroutine[Any, Any, None]]]

COMMANDS: Commands = {
    command.__name__: command
    for command in (play, die, suffer, look, crowd, first, stop_inside, stop_outside, fork)
}


def run(commands: Commands, command: str, arguments: list[str], pipe: Pipe) -> None:
    """Run a command to its end; what goes wrong is said, in one line."""
    try:
        asyncio.run(commands[command](pipe, *arguments))
    except BaseException:
        pipe.say("failed", traceback.format_exc().replace("\n", " | "))


def serve_forks(control: int, commands: Commands) -> None:
    """Fork a child for every message on this socket, until it is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    with socket.socket(fileno=control) as parent:
        while True:
            message, fds, _, _ = socket.recv_fds(parent, 65_536, 2)
            if not message:
                return
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                parent.close()
                command, arguments = msgspec.json.decode(message, type=tuple[str, list[str]])
                run(commands, command, arguments, Pipe(*fds))
                os._exit(0)
            for fd in fds:
                os.close(fd)
            parent.send(str(pid).encode())


if __name__ == "__main__":
    serve_forks(int(sys.argv[1]), COMMANDS)
