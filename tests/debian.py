"""Programs of Debian's for tests: found on this machine; else fetched as a package into `.venv`, where nothing needs root."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from holdfast.core.codec import Value
from tests.means import skip_without
from tests.postgres import scratch_folder

CACHE = Path(sys.prefix) / "debian"
_PROGRAMS = ("usr/bin", "usr/sbin")


class DebianProgram(Value):
    """A program, and the package that has it. Libraries that the package depends on, by how their names begin, are
    fetched along with it."""

    name: str
    package: str
    libraries: tuple[str, ...] = ()

    def path(self) -> str:
        """Where it is. Skips the test if it is nowhere."""
        found = self.found()
        if found is None:
            skip_without(self.name, enable=f"apt-get install {self.package}")
        return found

    def found(self) -> str | None:
        """Where it is, if it is anywhere."""
        return _found(self)


@cache
def _found(wanted: DebianProgram) -> str | None:
    name = wanted.name
    if found := shutil.which(name) or _program_below("/", name) or _program_below(CACHE, name):
        return found
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return None
    folder = scratch_folder("holdfast-apt-")
    try:
        packages = [wanted.package, *_needed(wanted)]
        _quietly(["apt-get", "download", *packages], cwd=folder)
        for each in folder.glob("*.deb"):
            _quietly(["dpkg", "-x", str(each), str(CACHE)])
    except subprocess.CalledProcessError:
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _program_below(CACHE, name)


def library_path() -> str:
    """Where libraries of fetched packages are, for `LD_LIBRARY_PATH`; empty if there are none."""
    return ":".join(map(str, (CACHE / "usr/lib").glob("*-linux-gnu")))


def _program_below(top: str | Path, name: str) -> str | None:
    found = (shutil.which(name, path=str(Path(top) / folder)) for folder in _PROGRAMS)
    return next(filter(None, found), None)


def _needed(wanted: DebianProgram) -> list[str]:
    if not wanted.libraries:
        return []
    told = subprocess.run(
        ["apt-cache", "depends", wanted.package], capture_output=True, text=True, check=False
    ).stdout
    words = (line.split() for line in told.splitlines())
    names = (found[1] for found in words if len(found) == 2 and found[0] == "Depends:")
    return [each for each in names if each.startswith(wanted.libraries)]


def _quietly(command: list[str], cwd: Path | None = None) -> None:
    subprocess.run(command, cwd=cwd, check=True, capture_output=True)
