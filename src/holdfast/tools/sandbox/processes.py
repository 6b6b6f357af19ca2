"""Processes that others have started, for the launcher: who they are, and what they take."""

from __future__ import annotations

import os
import resource


def descendants(of: int = 0) -> list[int]:
    """Every process that this one, or another, has started, and theirs; parents first."""
    found, looked = [of or os.getpid()], 0
    while looked < len(found):
        found += children_of(found[looked])
        looked += 1
    return found[1:]


def children_of(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    except OSError:
        pass  # it has gone
    return children


def threads_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def memory_of(pid: int) -> int:
    """The bytes of a process that no file holds."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
        return (resident - shared) * resource.getpagesize()
    except OSError:
        return 0


def group_of(number: int) -> set[int]:
    """The processes of a group."""
    found = set()
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getpgid(int(name)) == number:
                found.add(int(name))
        except ProcessLookupError:
            continue
    return found


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def tasks_here() -> int:
    """How many processes and threads this machine has."""
    with open("/proc/loadavg", "rb") as file:
        return int(file.read().split()[3].partition(b"/")[2])
