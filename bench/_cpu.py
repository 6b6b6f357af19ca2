"""What the processes of a PostgreSQL have used, for the measurements that count CPU time beside seconds."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tests.postgres import Server

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(server: Server) -> float:
    """What all processes of the server have used, those that have ended included."""
    postmaster = int((server.data / "postmaster.pid").read_text().split()[0])
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(stat.parent.name) == postmaster:
                total += sum(map(int, fields[11:15]))  # its own, and its dead children's
            elif int(fields[1]) == postmaster:
                total += sum(map(int, fields[11:13]))
    return total / TICKS
