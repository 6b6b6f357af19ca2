"""Turns without a server: the session layer as a library, beside the session layers of two frameworks.

CPU time of one process, with a model that answers at once, on SQLite, at several lengths of history. The frameworks
run in an environment of their own (`peers/`).
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import msgspec
from _figures import OURS, Line
from _names import LIBRARY_CPU, at_history
from sessions import Measured, play
from systems import environments

from holdfast.sessions.sessions import Sessions
from holdfast.store.sqlite import SqliteStore
from speed.servers import on_disk
from speed.stage import Stage
from speed.subjects import BENCH
from speed.turns import LENGTHS, Length

PEERS = {"OpenAI Agents SDK": "agents_sdk.py", "LangGraph": "langgraph_sqlite.py"}
PEERS_LOCK = "requirements"
PEER_TURNS = 4
"""A conversation of ten messages is none any more after more of them."""
PATIENCE_S = 120.0


class Row(msgspec.Struct):
    """What a peer's script prints."""

    history: int
    cpu_us: float


def library(stage: Stage) -> list[Line]:
    lines = {
        length.messages: Line(
            at_history(LIBRARY_CPU, length.messages),
            "ms",
            "lower",
            curve=LIBRARY_CPU,
            at=length.messages,
        )
        for length in LENGTHS
    }
    stage.tell("Holdfast, as a library")
    with on_disk() as folder:
        for messages, values in asyncio.run(_ours(folder, stage.rounds)).items():
            lines[messages].values[OURS] = values
    if not environments.is_built(PEERS_LOCK):
        stage.skipped |= dict.fromkeys(PEERS, "not installed: `make bench-install` installs it")
        return list(lines.values())
    for number in range(stage.rounds):
        for name, script in PEERS.items():
            stage.tell(f"round {number + 1} of {stage.rounds}: {name}")
            for row in _peer(script):
                lines[row.history].values.setdefault(name, []).append(row.cpu_us / 1e3)
    return list(lines.values())


async def _ours(folder: Path, rounds: int) -> dict[int, list[float]]:
    store = await SqliteStore.open(folder / "ours.db")
    spent: dict[int, list[float]] = {length.messages: [] for length in LENGTHS}
    async with Sessions(store, play) as sessions:
        filled = {length: await _filled(sessions, length) for length in LENGTHS}
        for _ in range(rounds):
            for length, conversations in filled.items():
                began = time.process_time()
                for each in conversations:
                    await each.grow(2 * length.turns)
                turns = length.turns * len(conversations)
                spent[length.messages].append((time.process_time() - began) / turns * 1e3)
    await store.close()
    return spent


async def _filled(sessions: Sessions, length: Length) -> list[Measured]:
    conversations = [Measured(sessions, name) for name in length.names()]
    for each in conversations:
        await each.grow(length.messages)
    return conversations


def _peer(script: str) -> list[Row]:
    command = [
        str(environments.python_of(PEERS_LOCK)),
        str(BENCH / "peers" / script),
        str(PEER_TURNS),
    ]
    command += [str(length.messages) for length in LENGTHS]
    done = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    return [msgspec.json.decode(line, type=Row) for line in done.stdout.splitlines()]
