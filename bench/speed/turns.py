"""Whole turns: what one takes, what it writes, what a long history adds to it, and how many become durable in a second."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import store
from _figures import BARE, OURS, Line
from _names import (
    BARE_STATEMENTS,
    BARE_VALUES,
    DISK,
    HISTORY_CPU,
    HISTORY_P50,
    JSON_CPU,
    JSON_P50,
    JSON_P99,
    WRITTEN,
    at_history,
    in_store,
    over_http,
)
from msgspec import Struct
from msgspec.structs import replace
from serving.load import Found, Job

from speed.servers import CannotMeasure, Server, measured, on_disk
from speed.stage import TIME_IS_UP, Notebook, Probe, Reading, Stage, edge, is_peer

TURNS = 100
LIMIT_S = 8.0
FILL_S = 60.0
"""How long filling conversations of one length may take: a peer that needs longer is not asked about it."""
OURS_FILL_S = 180.0
FILLING = 2
"""How many servers are filled at once: nobody measures that."""
SYNC_S = 1.0


def turn(stage: Stage) -> list[Line]:
    readings = [
        Reading(JSON_P50, "ms", "lower", lambda found: median(found.each_ms)),
        Reading(JSON_P99, "ms", "lower", lambda found: edge(found.each_ms)),
        Reading(JSON_CPU, "ms", "lower", lambda found: found.cpu_s / found.turns * 1e3),
    ]
    probe = Probe(Job("whole", "short", turns=TURNS, limit_s=LIMIT_S), readings)
    return Notebook(stage, [probe]).fill(stage.cast.servers)


# ── history ──────────────────────────────────────────────────────────────────────────────────


class Length(Struct, frozen=True):
    """A length of history: in how many conversations, and by how many turns of each it is measured in a round.

    Few turns on short ones: a conversation of ten messages is none any more after five of them.
    """

    messages: int
    conversations: int
    turns: int
    for_peers: bool = True
    tag: str = "of"
    """Lengths with the same tag share their conversations."""

    @property
    def filling(self) -> int:
        """How many turns it takes until they are there: each is a question and its answer."""
        return self.messages // 2 * self.conversations

    def names(self) -> tuple[str, ...]:
        stem = f"{self.tag}-{self.messages}"
        return tuple(f"{stem}-{number}" for number in range(self.conversations))


LENGTHS = (
    Length(10, 20, 1),
    Length(100, 4, 4),
    Length(1000, 1, 12),
    Length(5000, 1, 12, for_peers=False),
)


class Histories:
    """Conversations of every length at every server that keeps them; the others get all of it with each request."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def fill_all(self, servers: Sequence[Server], lengths: tuple[Length, ...]) -> None:
        """Ours first; then the peers, as long as the group has time for them."""
        for server in servers:
            if not is_peer(server.name):
                self.fill(server, lengths, OURS_FILL_S)
        peers = [each for each in servers if is_peer(each.name)]
        short = tuple(each for each in lengths if each.for_peers)
        if not peers:
            return
        until = time.perf_counter() + self._stage.peers_left_s
        with self._stage.spending_on(peers[0].name), ThreadPoolExecutor(FILLING) as pool:
            list(pool.map(lambda server: self.fill(server, short, FILL_S, until), peers))

    def fill(
        self,
        server: Server,
        lengths: tuple[Length, ...],
        patience_s: float,
        until: float = math.inf,
    ) -> None:
        """Turn by turn, as clients would; once for all groups. Who had no time for one length has none for a longer."""
        why, per_turn_s = "", 0.0
        for length in lengths:
            filled = self._stage.filled
            key = server.name, length.names()
            if server.past != "kept" or key in filled:
                continue
            began = time.perf_counter()
            if not why and began > until:
                why = TIME_IS_UP
            elif not why and per_turn_s * length.filling > patience_s:
                why = f"left out: filling it would take more than {patience_s:.0f} s"
            why = filled[key] = why or self._fill(server, length, patience_s)
            per_turn_s = (time.perf_counter() - began) / length.filling

    def _fill(self, server: Server, length: Length, patience_s: float) -> str:
        self._stage.tell(f"{server.name}: conversations of {length.messages:,} messages")
        names = length.names()
        turns = length.filling
        job = Job("fill", "short", turns=turns, conversations=names, limit_s=patience_s)
        try:
            found = measured(server, job)
        except CannotMeasure as failure:
            return str(failure)
        said = f"{found.turns:,} of {turns:,} turns in {patience_s:.0f} s while filling it"
        return f"left out: only {said}" if found.cut else ""

    def job_for(self, length: Length, server: Server, job: Job) -> Job | str:
        if server.past == "out of reach":
            return "going on with a conversation takes more than one request"
        if server.past == "sent again":
            return replace(job, past=length.messages, conversations=())
        return self._stage.filled[server.name, length.names()] or job

    def probe(self, length: Length, *readings: Reading) -> Probe:
        count = length.turns * length.conversations
        job = Job(
            "whole",
            "short",
            turns=count,
            conversations=length.names(),
            limit_s=2 * LIMIT_S,
        )
        return Probe(
            job, readings, lambda server, job: self.job_for(length, server, job), length.for_peers
        )


def _cpu_ms(found: Found) -> float:
    return found.cpu_s / found.turns * 1e3


def history(stage: Stage) -> list[Line]:
    servers = stage.cast.servers
    histories = Histories(stage)
    histories.fill_all(servers, LENGTHS)
    probes = [
        histories.probe(length, _curve(HISTORY_CPU, length), _curve(HISTORY_P50, length))
        for length in LENGTHS
    ]
    return Notebook(stage, probes).fill(servers)


def _curve(name: str, length: Length) -> Reading:
    value = _cpu_ms if name == HISTORY_CPU else _p50
    what = at_history(name, length.messages)
    return Reading(what, "ms", "lower", value, curve=name, at=length.messages)


def _p50(found: Found) -> float:
    return median(found.each_ms)


# ── writes ───────────────────────────────────────────────────────────────────────────────────

WRITES = (Length(10, 20, 2, tag="written"), Length(1000, 1, 40))


def writes(stage: Stage) -> list[Line]:
    servers = stage.cast.servers
    histories = Histories(stage)
    histories.fill_all(servers, WRITES)
    probes = [histories.probe(length, _written(length)) for length in WRITES]
    return Notebook(stage, probes).fill(servers)


def _written(length: Length) -> Reading:
    what = at_history(WRITTEN, length.messages)
    return Reading(what, "kB", "lower", lambda found: found.written_bytes / found.turns / 1e3)


# ── durable ──────────────────────────────────────────────────────────────────────────────────

AT_ONCE = {1: 150, 64: 12}
"""Turns one after the other, by how many are asked for at once; each begins a conversation."""
IN_STORE = {1: 40, 256: 8}


def durable(stage: Stage) -> list[Line]:
    return [*_over_http(stage), *_in_store(stage)]


def _over_http(stage: Stage) -> list[Line]:
    servers = stage.cast.servers
    lines: list[Line] = []
    with on_disk() as folder:
        for clients, turns in AT_ONCE.items():
            job = Job(
                "answers",
                "short",
                streams=clients,
                turns=turns,
                stream=False,
                limit_s=LIMIT_S,
            )
            reading = Reading(over_http(clients), "/s", "higher", _per_second)
            notebook = Notebook(stage, [Probe(job, [reading], _who_keeps)])
            [line] = notebook.fill(servers)
            line.values[DISK] = [syncs_per_s(folder) for _ in range(stage.rounds)]
            lines.append(line)
    return lines


def _who_keeps(server: Server, job: Job) -> Job | str:
    is_kept = server.name == BARE or server.past != "sent again"
    return job if is_kept else "stores nothing, so that nothing can be durable"


def _per_second(found: Found) -> float:
    return found.turns / found.wall_s


def _in_store(stage: Stage) -> list[Line]:
    lines: list[Line] = []
    for sessions, turns in IN_STORE.items():
        stage.tell(f"the store, {sessions} at once")
        with on_disk() as folder:
            paces = asyncio.run(store.paces(folder, sessions, turns, rounds=stage.rounds))
            syncs = [syncs_per_s(folder) for _ in range(stage.rounds)]
        values = {
            BARE_VALUES: paces["bare"].per_s,
            BARE_STATEMENTS: paces["unasked"].per_s,
            OURS: paces["turns"].per_s,
            DISK: syncs,
        }
        lines.append(Line(in_store(sessions), "/s", "higher", values))
    return lines


def syncs_per_s(folder: Path, seconds: float = SYNC_S) -> float:
    """How often a page can be written and synced in a second: a loop that does nothing else."""
    file = os.open(folder / "syncs", os.O_WRONLY | os.O_CREAT)
    page, count, began = bytes(4096), 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        os.write(file, page)
        os.fdatasync(file)
        count += 1
    spent = time.perf_counter() - began
    os.close(file)
    return count / spent
