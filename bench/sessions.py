"""What a turn costs besides the model: resolve, begin, ten records, commit.

CPU time of one process, from the submission to the acknowledgement, at two lengths of history; in memory, where
only our own code is measured, and on SQLite, where the writer thread and the disk come in; on the event loop that
`holdfast serve` runs on. `make bench GROUP=library` has the same beside the session layers of two frameworks.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop
from rich.console import Console
from rich.table import Table

from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import AssistantMessage, plain_text
from holdfast.core.ports import OpenTurn
from holdfast.core.turns import events as ev
from holdfast.ids import MessageId, SessionKey, Tenant
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.store.memory_store import MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store

SHORT, LONG = 10, 1000
ROUNDS, TURNS = 7, 100
GOAL_US = 150


async def play(turn: OpenTurn) -> None:
    """A step of ten records: it starts, opens a message, grows six times, and is answered."""
    message = turn.mint(MessageId)
    await turn.record(ev.StepStarted(model="bench"))
    await turn.record(ev.ItemOpened(item=message, kind="message"))
    for _ in range(6):
        await turn.record(ev.Grew(item=message, text="word "))
    words = plain_text("word " * 6)
    await turn.record(ev.Answered(items=(AssistantMessage(id=message, content=words),)))


class Measured:
    """A session of some length on some store, and what its turns have cost."""

    def __init__(self, sessions: Sessions, key: str) -> None:
        self._sessions = sessions
        self._ask = Ask(
            tenant=Tenant("local"),
            name=SessionKey(key),
            messages=(Incoming(role="user", content=plain_text("hello")),),
        )
        self.cpu_us: list[float] = []
        self.wall_us: list[float] = []

    async def grow(self, items: int) -> None:
        for _ in range(items // 2):
            await self._turn()

    async def round(self) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(TURNS):
            await self._turn()
        self.cpu_us.append((time.process_time() - cpu) / TURNS * 1e6)
        self.wall_us.append((time.perf_counter() - wall) / TURNS * 1e6)

    async def _turn(self) -> None:
        watch = await self._sessions.submit(self._ask)
        async with watch:
            assert (await watch.ended()).ok


async def measure(store: Store) -> tuple[Measured, Measured]:
    """Rounds at both lengths in turn, so that whatever else the machine does hits both."""
    async with Sessions(store, play) as sessions:
        short, long = Measured(sessions, "short"), Measured(sessions, "long")
        await short.grow(SHORT)
        await long.grow(LONG)
        for _ in range(ROUNDS):
            await short.round()
            await long.round()
    return short, long


async def measure_all() -> dict[str, tuple[Measured, Measured]]:
    found = {"Holdfast, in memory": await measure(MemoryStore())}
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "bench.db")
        found["Holdfast, SQLite, synced"] = await measure(store)
        await store.close()
    return found


def main() -> None:
    ours = uvloop.run(measure_all())
    table = Table("a turn, without its model", f"at {SHORT} items", f"at {LONG} items", "growth")
    for name, (short, long) in ours.items():
        near, far = median(short.cpu_us), median(long.cpu_us)
        table.add_row(f"{name}: CPU", f"{near:.0f} µs", f"{far:.0f} µs", f"{far / near:.2f}×")
    name, (short, long) = list(ours.items())[-1]
    near, far = median(short.wall_us), median(long.wall_us)
    table.add_row(f"{name}: elapsed", f"{near:.0f} µs", f"{far:.0f} µs", f"{far / near:.2f}×")
    console = Console()
    console.print(table)
    in_memory = median(ours["Holdfast, in memory"][0].cpu_us)
    console.print(
        f"goal: ≤ {GOAL_US} µs of CPU in memory, flat in history; here {in_memory:.0f} µs"
    )


if __name__ == "__main__":
    main()
