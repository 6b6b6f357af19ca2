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
    with on_disk() as folder:
        asyncio.run(_rounds(stage, folder, lines))
    return list(lines.values())


async def _rounds(stage: Stage, folder: Path, lines: dict[int, Line]) -> None:
    """Ours and theirs in turns."""
    peers = dict(PEERS) if environments.is_built(PEERS_LOCK) else {}
    if not peers:
        stage.late |= dict.fromkeys(PEERS, "not installed: `make bench-install` installs it")
    store = await SqliteStore.open(folder / "ours.db")
    async with Sessions(store, play) as sessions:
        stage.tell(f"{OURS}, as a library: conversations of up to {max(lines):,} messages")
        filled = {length: await _filled(sessions, length) for length in LENGTHS}
        for number in range(stage.rounds):
            stage.tell(f"round {number + 1} of {stage.rounds}: {OURS}, as a library")
            for length, conversations in filled.items():
                spent_ms = await _round(length, conversations)
                lines[length.messages].values.setdefault(OURS, []).append(spent_ms)
            for name, script in peers.items():
                if number < stage.rounds_of(name):
                    stage.tell(f"round {number + 1} of {stage.rounds}: {name}")
                    # In a thread: our own sessions stay alive meanwhile, and have nothing to do.
                    await asyncio.to_thread(take_peer, name, script, lines)
    await store.close()


async def _round(length: Length, conversations: list[Measured]) -> float:
    """CPU time of a turn, in milliseconds."""
    began = time.process_time()
    for each in conversations:
        await each.grow(2 * length.turns)
    return (time.process_time() - began) / (length.turns * len(conversations)) * 1e3


def take_peer(name: str, script: str, lines: dict[int, Line]) -> None:
    """What a peer's script has found; or, in every line, why it has found nothing."""
    try:
        rows = _peer(script)
    except subprocess.CalledProcessError as failure:
        why = failure.stderr.decode(errors="replace").strip()[-2000:]
    except subprocess.TimeoutExpired:
        why = f"stopped after {PATIENCE_S:.0f} s"
    else:
        for row in rows:
            lines[row.history].values.setdefault(name, []).append(row.cpu_us / 1e3)
        return
    for line in lines.values():
        line.notes[name] = why


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
