"""What this machine has to confine a command with: bubblewrap, else Landlock, else nothing."""

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
"""The launcher's modules, without what `import holdfast` would bring along."""
_PYTHON = (sys.executable, "-I", "-S", "-X", "utf8", "-c")


class Backend(Value):
    """How commands are confined here."""

    kind: Kind
    program: str = ""
    """bubblewrap's."""
    abi: int = 0
    """Landlock's."""
    why: str = ""
    """Why there is none."""

    @property
    def words(self) -> str:
        """What is in force, for people."""
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
    """The words that start a command in a sandbox; `--` and the command follow them."""
    scratch = os.path.join(tempfile.gettempdir(), f"holdfast-{secrets.token_hex(8)}")
    start = [*_PYTHON, _START + "launcher.main(sys.argv[1:])"]
    return [*start, "--parent", str(os.getpid()), "--scratch", scratch, *options]


@cache
def find_backend() -> Backend:
    """The best that works here, tried once in a process.

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
    """Why a command cannot be started so; empty if it can."""
    try:
        ended = _ended([*launcher(*options), "--", "/bin/sh", "-c", "exit 0"])
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    told = ended.stderr.decode(errors="replace").strip().removeprefix("[sandbox] ")
    return "" if ended.returncode == 0 else told or f"exit code {ended.returncode}"


def landlock_abi() -> int:
    """The version of Landlock here; 0 if there is none."""
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
