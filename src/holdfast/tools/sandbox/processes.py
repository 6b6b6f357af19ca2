"""Processes that others have started, for the launcher: who they are, and what they take."""

from __future__ import annotations

import os


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


def memory_of(pids: list[int], *, most: int) -> int:
    """The bytes of processes that no file holds. Memory that they share counts once, if it has to: that is slow."""
    told = {pid: _sizes(pid, "status") for pid in pids}
    own = sum(each.get(b"RssAnon:", 0) for each in told.values())
    shared = {pid: each.get(b"RssShmem:", 0) for pid, each in told.items()}
    if own + sum(shared.values()) > most:
        for pid, size in shared.items():
            if size:
                shared[pid] = _sizes(pid, "smaps_rollup").get(b"Pss_Shmem:", size)
    return own + sum(shared.values())


def _sizes(pid: int, name: str) -> dict[bytes, int]:
    """The sizes in a file of a process's, in bytes."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            lines = [line.split() for line in file]
    except OSError:
        return {}  # it has gone, or is none of ours
    return {words[0]: int(words[1]) * 1024 for words in lines if words[2:] == [b"kB"]}


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
