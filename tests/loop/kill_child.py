"""A turn that is killed at every point, one process after the other: `python -m tests.loop.kill_child FOLDER MODE`.

For each point a process begins a turn on a store of its own and is killed there by `kill -9`, from inside, so that
the point is exact; another one starts on what is left, as a server would, and tells what became of the turn. Both
are forks of this process, which has everything imported and opens no store itself.

Each tool appends its call's key to a file, and is done when that is on disk.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path

import msgspec

from holdfast.agents.agent import Agent, Team
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import (
    AssistantMessage,
    Permissions,
    Text,
    ToolCall,
    ToolResult,
    plain_text,
)
from holdfast.core.ports import OpenTurn, Play
from holdfast.core.turns import events as ev
from holdfast.ids import IdempotencyKey, SessionKey, Tenant
from holdfast.loop.player import Player
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.store.outcomes import Attempt
from holdfast.store.sqlite import SqliteStore
from holdfast.store.verification.verification import Finding, verify
from holdfast.testing import says
from holdfast.tools.tool import ToolOutput, ToolRun, ToolSpec
from tests.loop.stage import Tools, by_place

ACME = Tenant("acme")
KEY = SessionKey("errand")

Tick = Callable[[], None]


class Became(msgspec.Struct):
    """What is found of a turn after it was killed and the server was started again."""

    runs: list[str]
    """`tool:call key`, in the order in which tools ran, in both processes."""
    outcomes: dict[str, str]
    """By `tool:call key`; empty if the turn was discarded."""
    said: list[str]
    ended_by: str
    retried: str
    """How a retry under the same key ended; empty without a key."""
    findings: list[str]
    """What `holdfast db verify` says."""


# ── what is played ───────────────────────────────────────────────────────────────────────────


class Written:
    """A tool whose effect is a line in a file, on disk when it is done."""

    def __init__(
        self,
        name: str,
        file: Path,
        tick: Tick,
        *,
        read_only: bool = False,
        idempotent: bool = False,
    ) -> None:
        self.spec = ToolSpec(
            name=name,
            description="",
            parameters='{"type":"object"}',
            read_only=read_only,
            idempotent=idempotent,
        )
        self._file = file
        self._tick = tick

    async def run(self, run: ToolRun) -> ToolOutput:
        self._tick()
        to = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(to, f"{self.spec.name}:{run.call_key}\n".encode())
            os.fsync(to)
        finally:
            os.close(to)
        self._tick()
        return ToolOutput(content=(Text(text=f"{self.spec.name} done"),))


class Ticking:
    """An open turn that ticks before and after everything that is recorded, but for single words."""

    def __init__(self, turn: OpenTurn, tick: Tick) -> None:
        self._turn = turn
        self._tick = tick

    def __getattr__(self, name: str) -> object:
        return getattr(self._turn, name)

    async def record(self, *events: ev.Event) -> None:
        if all(map(ev.is_fine, events)):
            await self._turn.record(*events)
            return
        self._tick()
        await self._turn.record(*events)
        self._tick()


def new_player(folder: Path, tick: Tick) -> Play:
    file = folder / "effects"
    tools = Tools(
        Written("look", file, tick, read_only=True),
        Written("book", file, tick),
        Written("pay", file, tick, idempotent=True),
    )
    calls = [("look", "{}"), ("book", "{}"), ("pay", "{}")]
    model = by_place(
        lambda: says("At once.", calls=calls),
        lambda: says("And once more.", calls=[("book", "{}", "again")]),
        lambda: says("Everything is settled."),
    )
    butler = Agent("butler", model, toolsets=(tools,), permissions=Permissions(allow=("*",)))
    team = Team({"butler": butler}, entry="butler", digest="d1")

    player = Player(lambda _: nullcontext(team))

    async def play(turn: OpenTurn) -> None:
        await player(Ticking(turn, tick))  # type: ignore[arg-type]

    return play


def ask(mode: str) -> Ask:
    key = IdempotencyKey("once") if mode == "resumed" else None
    return Ask(
        tenant=ACME,
        name=KEY,
        messages=(Incoming(role="user", content=plain_text("Please see to it")),),
        attempt=Attempt(request_hash=b"the same", key=key),
    )


# ── the two processes ────────────────────────────────────────────────────────────────────────


async def begin(folder: Path, mode: str, *, kill_at: int) -> None:
    """Play the turn, and die at the `kill_at`-th tick; return if there are fewer."""
    ticks = count(1)

    def tick() -> None:
        if next(ticks) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store = await SqliteStore.open(folder / "store.db")
    async with Sessions(store, new_player(folder, tick)) as sessions:
        watch = await sessions.submit(ask(mode))
        await watch.ended()
    await store.close()


async def start_again(folder: Path, mode: str) -> Became:
    store = await SqliteStore.open(folder / "store.db")
    retried = ""
    async with Sessions(store, new_player(folder, lambda: None)) as sessions:
        for live in sessions._owner.playing:
            await asyncio.shield(live.done)
        if mode == "resumed":
            retried = (await (await sessions.submit(ask(mode))).ended()).by
        row = await store.resolve(ACME, KEY)
        assert row is not None
        snapshot = await store.snapshot(ACME, row.session_id)
        assert snapshot is not None
        (turn,) = await store.turns(ACME, row.session_id, limit=10)
        findings = [str(each) async for each in verify(store) if isinstance(each, Finding)]
    await store.close()
    return told(folder, snapshot, str(turn.ended_by), retried, findings)


def told(
    folder: Path,
    snapshot: Snapshot,
    ended_by: str,
    retried: str,
    findings: list[str],
) -> Became:
    items = list(snapshot.items)
    names = {
        each.id: f"{each.name}:{each.id}"
        for each in items
        if isinstance(each, ToolCall) and each.state == "complete"
    }
    outcomes = {names[each.call]: each.outcome for each in items if isinstance(each, ToolResult)}
    said = [
        f"{each.state}: {''.join(p.text for p in each.content if isinstance(p, Text))}"
        for each in items
        if isinstance(each, AssistantMessage)
    ]
    return Became(
        runs=runs_in(folder),
        outcomes={name: str(outcome) for name, outcome in outcomes.items()},
        said=said,
        ended_by=ended_by,
        retried=retried,
        findings=findings,
    )


def runs_in(folder: Path) -> list[str]:
    file = folder / "effects"
    return file.read_text().split() if file.exists() else []


def in_a_process(work: Callable[[], None]) -> int:
    """Do this in a fork of ours, and wait for its end: 0 if it came to one, the signal if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
            os._exit(70)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return -os.waitstatus_to_exitcode(status)


def main(folder: Path, mode: str) -> None:
    for kill_at in count(1):
        place = folder / f"{mode}-{kill_at}"
        place.mkdir()

        def first(place: Path = place, kill_at: int = kill_at) -> None:
            asyncio.run(begin(place, mode, kill_at=kill_at))

        def second(place: Path = place) -> None:
            became = asyncio.run(start_again(place, mode))
            (place / "became").write_bytes(msgspec.json.encode(became))

        ended = in_a_process(first)
        assert ended in (0, signal.SIGKILL), ended
        assert in_a_process(second) == 0
        if not ended:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
