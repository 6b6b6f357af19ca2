"""What a server costs while it does nothing: to start, at rest, with streams that are open, with sessions that wait."""

from __future__ import annotations

from _figures import Line
from _names import AT_REST, READY, SESSION_KB, STREAM_KB
from serving.load import Job

from speed.servers import CannotMeasure, Server, measured, settle
from speed.stage import TIME_IS_UP, Stage

STREAMS = 400
CLIENTS, SESSIONS_EACH = 16, 40
LIMIT_S = 8.0


def start(stage: Stage) -> list[Line]:
    """Of those that were started for `memory`, if it has run before this: some take long to start."""
    ready = Line(READY, "s", "lower")
    rest = Line(AT_REST, "MB", "lower")
    if not stage.starts:
        for _ in stage.fresh():
            pass
    for each in stage.starts:
        ready.values.setdefault(each.name, []).append(each.ready_s)
        rest.values.setdefault(each.name, []).append(each.rest_mb)
    missing = {each.name for each in stage.subjects} - set(ready.values) - set(stage.skipped)
    stage.late |= dict.fromkeys(missing, TIME_IS_UP)
    return [ready, rest]


def memory(stage: Stage) -> list[Line]:
    """Of servers that are fresh each time: memory that was given back once is no memory that grows."""
    lines: dict[str, Line] = {what: Line(what, "kB", "lower") for what in (STREAM_KB, SESSION_KB)}
    jobs = {
        STREAM_KB: Job("open", "idle", streams=STREAMS, limit_s=LIMIT_S),
        SESSION_KB: Job("sessions", "short", streams=CLIENTS, turns=SESSIONS_EACH, limit_s=LIMIT_S),
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
        per_turn = found.rss_grown_mb * 1e3 / found.turns
        line.values.setdefault(server.name, []).append(per_turn)
    else:
        line.notes[server.name] = f"too few turns in {job.limit_s:.0f} s"
