"""So many JSON turns, or tokens of one stream at the pace of a reader, over HTTP: from a server's sockets and back to
them, on SQLite. The server is this process: `holdfast serve`, the bare proxy, or the bare proxy with T1 and T2. Run by
`bench/_instructions.py`: `python served.py COUNT {turns,tokens} {holdfast,bare,bare_turns}`.
"""

from __future__ import annotations

import gc
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from speed.subjects import BENCH, holdfast_on

from holdfast import limits
from holdfast.cli import main
from holdfast.store.sqlite.engine import engine

CLOCKED = (
    "file_poll_s",
    "files_look_s",
    "index_s",
    "key_cache_s",
    "number_sample_s",
    "numbers_s",
    "prune_s",
    "signal_poll_s",
    "sweep_count_s",
    "sweep_s",
)
"""What a server does by the clock: how often during a count depends on how busy the machine is, and no turn needs it."""


def holdfast(port: int, upstream: int, folder: Path) -> None:
    """`holdfast serve`, as `make bench` starts it."""
    for period in CLOCKED:
        setattr(limits, period, 3_600.0)
    # A note that an answer was received waits for the next turn, however slow the client is here.
    engine.COMPANY_S = 1.0
    os.environ["HOLDFAST_LEASE_TTL_S"] = "300"
    _, *command = holdfast_on(f"sqlite:///{folder}/ours.db").command(port, upstream, folder).argv
    with suppress(SystemExit):
        main(command)


def bare(script: str, port: int, upstream: int, folder: Path) -> None:
    path = BENCH / "serving" / script
    sys.path.insert(0, str(path.parent))
    sys.argv = [script, str(port), str(upstream), str(folder / "bare.db")]
    runpy.run_path(str(path), run_name="__main__")


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port


if __name__ == "__main__":
    count, what, server = sys.argv[1:]
    gc.disable()  # when it collects depends on everything that went before
    port, upstream = free_port(), free_port()
    partner = [sys.executable, str(Path(__file__).with_name("partner.py"))]
    asked = [str(port), str(upstream), what, count]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen([*partner, *asked]):
        if server == "holdfast":
            holdfast(port, upstream, Path(folder))
        else:
            bare(f"{server}.py", port, upstream, Path(folder))
