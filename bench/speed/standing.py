"""What a server costs while it does nothing: to start, at rest, with streams that are open, with sessions that wait."""

from __future__ import annotations

from _figures import Line
from _names import AT_REST, READY, SESSION_KB, STREAM_KB
from serving.load import Job
from serving.process import rss_mb

from speed.servers import CannotMeasure, Server, measured, settle
from speed.stage import Stage

STREAMS = 400
CLIENTS, SESSIONS_EACH = 16, 40


def _put(line: Line, server: Server, value: float) -> None:
    line.values.setdefault(server.name, []).append(value)


def start(stage: Stage) -> list[Line]:
    ready = Line(READY, "s", "lower")
    rest = Line(AT_REST, "MB", "lower")
    for server in stage.fresh():
        settle(server)
        _put(ready, server, server.ready_s)
        _put(rest, server, rss_mb(server.pid))
    return [ready, rest]


def memory(stage: Stage) -> list[Line]:
    """Of servers that are fresh each time: memory that was given back once is no memory that grows."""
    lines: dict[str, Line] = {what: Line(what, "kB", "lower") for what in (STREAM_KB, SESSION_KB)}
    jobs = {
        STREAM_KB: Job("open", "idle", streams=STREAMS),
        SESSION_KB: Job("sessions", "short", streams=CLIENTS, turns=SESSIONS_EACH, limit_s=20.0),
    }
    for server in stage.fresh():
        for what, job in jobs.items():
            stage.tell(f"{what}, {server.name}")
            line = lines[what]
            if what == SESSION_KB and server.past == "sent again":
                line.notes[server.name] = "keeps no sessions"
                continue
            _take(line, server, job)
            settle(server)
    return list(lines.values())


def _take(line: Line, server: Server, job: Job) -> None:
    try:
        found = measured(server, job)
    except CannotMeasure as failure:
        line.notes[server.name] = str(failure)
        return
    if found.turns:
        _put(line, server, found.rss_grown_mb * 1e3 / found.turns)
