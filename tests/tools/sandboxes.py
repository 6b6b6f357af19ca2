"""Sandboxes for tests: each kind that there is, and how to run an attack in it and without it."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

import msgspec

from holdfast.tools.process import Exit, run_command
from holdfast.tools.sandbox.backend import Backend, Kind, landlock_abi, trouble
from holdfast.tools.sandbox.sandbox import ConfinedCommand, Sandbox
from tests.debian import DebianProgram
from tests.means import skip_without

PATH = f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin"
ENVIRONMENT = {"PATH": PATH, "LANG": "C.UTF-8"}


def sandbox(kind: Kind, *, abi: int = 0) -> Sandbox:
    """A sandbox of this kind, as an older kernel would have it if `abi` says so; skips the test if there is none."""
    backend = _backend(kind)
    if abi:
        backend = msgspec.structs.replace(backend, abi=abi)
    return Sandbox("required", find=lambda: backend)


@cache
def _backend(kind: Kind) -> Backend:
    if kind == "bubblewrap":
        program = DebianProgram(name="bwrap", package="bubblewrap").path()
        if why := trouble("--bwrap", program):
            skip_without(f"user namespaces ({why})", enable="sysctl user.max_user_namespaces=10000")
        return Backend(kind="bubblewrap", program=program)
    if why := trouble():
        skip_without(f"Landlock and seccomp ({why})", enable="run on Linux 6.12 or later")
    return Backend(kind="landlock", abi=landlock_abi())


async def run(
    command: str, directory: Path, cell: ConfinedCommand | None, *, home: Path | None = None
) -> Exit:
    return await run_command(
        command,
        environment={**ENVIRONMENT, "HOME": str(home or directory)},
        directory=directory,
        mark=f"sandbox {os.getpid()}",
        timeout_s=60.0,
        cell=cell,
    )
