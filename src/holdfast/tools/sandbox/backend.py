"""Finds the sandbox of this machine: bubblewrap, otherwise Landlock, otherwise none."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from typing import Literal, TypeAlias

from holdfast.core.codec import Value
from holdfast.environment import variable

Kind: TypeAlias = Literal["bubblewrap", "landlock", "none"]

PROBE_S = 20.0
_TOOLS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_START = f"""
import sys
for name, folder in (("holdfast", {os.path.dirname(_TOOLS)!r}), ("holdfast.tools", {_TOOLS!r})):
    sys.modules[name] = module = type(sys)(name)
    module.__path__ = [folder]
from holdfast.tools.sandbox import launcher
"""
"""Imports the launcher's modules without running `holdfast/__init__.py`."""
_PYTHON = (sys.executable, "-I", "-S", "-X", "utf8", "-c")


class Backend(Value):
    """How this machine confines commands."""

    kind: Kind
    program: str = ""
    """The path of bubblewrap."""
    abi: int = 0
    """The version of Landlock."""
    why: str = ""
    """Why this machine has no sandbox."""

    @property
    def words(self) -> str:
        """A description of the sandbox for people."""
        network = "with seccomp; no network unless an agent file gives it"
        match self.kind:
            case "bubblewrap":
                return f"bubblewrap, {network}"
            case "landlock":
                return f"Landlock (ABI {self.abi}), {network}"
            case _:
                return f"no sandbox: {self.why}"


WAY_OUT = (
    "run on Linux 5.13 or later, or install bubblewrap (apt-get install bubblewrap); "
    f"{variable('sandbox')}=off runs commands as this user, who can do whatever the server can"
)


def launcher(*options: str) -> list[str]:
    """The command line of the launcher; `--` and the command follow it."""
    scratch = os.path.join(tempfile.gettempdir(), f"holdfast-{secrets.token_hex(8)}")
    start = [*_PYTHON, _START + "launcher.main(sys.argv[1:])"]
    return [*start, "--parent", str(os.getpid()), "--scratch", scratch, *options]


@cache
def find_backend() -> Backend:
    """The best backend that works here; tried once per process.

    For root that is Landlock: the devices in bubblewrap's /dev are the machine's, and root could change their modes.
    """
    if sys.platform != "linux":
        return Backend(kind="none", why=f"there is none for {sys.platform} yet")
    wrapped = ("bubblewrap", shutil.which("bwrap") or "")
    kinds = [wrapped, ("landlock", "")] if os.getuid() else [("landlock", ""), wrapped]
    missing = []
    for kind, program in kinds:
        why = "it is not installed" if kind == "bubblewrap" and not program else ""
        why = why or (trouble("--bwrap", program) if program else trouble())
        if not why:
            abi = 0 if program else landlock_abi()
            return Backend(kind="bubblewrap" if program else "landlock", program=program, abi=abi)
        missing.append(f"{kind}: {why}")
    return Backend(kind="none", why="; ".join(missing))


def trouble(*options: str) -> str:
    """Why the launcher cannot start a command with these options; empty if it can."""
    try:
        ended = _ended([*launcher(*options), "--", "/bin/sh", "-c", "exit 0"])
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    message = ended.stderr.decode(errors="replace").strip().removeprefix("[sandbox] ")
    return "" if ended.returncode == 0 else message or f"exit code {ended.returncode}"


def landlock_abi() -> int:
    """The version of Landlock on this machine; 0 if it has none."""
    return int(_ended([*_PYTHON, _START + "print(launcher.landlock_abi())"]).stdout)


def _ended(words: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        words,
        cwd="/",
        env={"PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PROBE_S,
        check=False,
    )
