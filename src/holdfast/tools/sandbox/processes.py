"""Processes of the machine, for the launcher: descendants, groups, threads and memory."""

from __future__ import annotations

import os


def descendants(of: int = 0) -> list[int]:
    """The descendants of a process (by default this one), parents first."""
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
        pass  # the process has gone
    return children


def threads_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def memory_of(pids: list[int], *, most: int) -> int:
    """The memory of processes that no file backs, in bytes. Beyond `most`, shared memory counts once: that is slow."""
    sizes = {pid: _sizes(pid, "status") for pid in pids}
    own = sum(each.get(b"RssAnon:", 0) for each in sizes.values())
    shared = {pid: each.get(b"RssShmem:", 0) for pid, each in sizes.items()}
    if own + sum(shared.values()) > most:
        for pid, size in shared.items():
            if size:
                shared[pid] = _sizes(pid, "smaps_rollup").get(b"Pss_Shmem:", size)
    return own + sum(shared.values())


def _sizes(pid: int, name: str) -> dict[bytes, int]:
    """The sizes in a file of a process's /proc folder, in bytes."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            lines = [line.split() for line in file]
    except OSError:
        return {}  # the process has gone, or is not ours
    return {words[0]: int(words[1]) * 1024 for words in lines if words[2:] == [b"kB"]}


def group_of(number: int) -> set[int]:
    """The processes of a process group."""
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
    """How many processes and threads this machine runs."""
    with open("/proc/loadavg", "rb") as file:
        return int(file.read().split()[3].partition(b"/")[2])
