"""A start of `holdfast serve demo` on a new SQLite file, until `/readyz` has answered, and its end. The server is this
process; run by `bench/_instructions.py`: `python started.py COUNT`, where 0 starts nothing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import suppress
from socket import socket

CALLER = """
import os, signal, sys, time, urllib.request
while True:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/readyz"):
            break
    except OSError:
        time.sleep(0.05)
os.kill(os.getppid(), signal.SIGINT)
"""


def free_port() -> int:
    with socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port


def start(port: int) -> None:
    # Imported here: loading the command line is a part of a start.
    from holdfast.cli import main  # noqa: PLC0415

    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([sys.executable, "-c", CALLER, str(port)]),
    ):
        store = f"sqlite:///{folder}/started.db"
        with suppress(SystemExit):
            main(["serve", "demo", "--listen", f"127.0.0.1:{port}", "--store", store])


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        start(free_port())
