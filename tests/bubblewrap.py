"""A real bubblewrap for tests: found on the PATH; else fetched as a Debian package into `.venv`, where nothing needs root."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.means import skip_without
from tests.postgres import scratch_folder

CACHE = Path(sys.prefix) / "bubblewrap"


def program() -> str:
    """Where `bwrap` is. Skips the test if it is nowhere."""
    found = _found_program()
    if found is None:
        skip_without("bubblewrap", enable="apt-get install bubblewrap")
    return found


@cache
def _found_program() -> str | None:
    for folder in (None, str(CACHE / "usr/bin")):
        if found := shutil.which("bwrap", path=folder):
            return found
    return _fetched()


def _fetched() -> str | None:
    """The program from Debian's package; None if there is no Debian."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return None
    folder = scratch_folder("holdfast-apt-")
    try:
        download = ["apt-get", "download", "bubblewrap"]
        subprocess.run(download, cwd=folder, check=True, capture_output=True)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, str(CACHE)], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return shutil.which("bwrap", path=str(CACHE / "usr/bin"))
