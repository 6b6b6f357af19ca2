"""The memory and disk space that the machine has left while a command runs, for the launcher."""

from __future__ import annotations

import os

UNKNOWN = 2**62


class Machine:
    """How much memory and disk space a command must leave free.

    Some of what a command uses belongs to no process: data in pipes, on disks, in shared memory that is no longer
    mapped. If little was free at the start, half of it has to stay free.
    """

    def __init__(self, paths: list[str], *, memory_left: int, disk_left: int) -> None:
        left = {"memory": memory_left, **dict.fromkeys(paths, disk_left)}
        self._least = {each: min(most, free_bytes(each) // 2) for each, most in left.items()}

    def scarce(self) -> str:
        """Names the resource that has become scarce; empty if none."""
        for each, least in self._least.items():
            if free_bytes(each) < least:
                what = each if each == "memory" else f"disk at {each}"
                return f"left the machine less than {least:,} bytes of {what}"
        return ""


def free_bytes(what: str) -> int:
    """The free memory, or the free space on a path's disk. A huge number if the system cannot tell."""
    try:
        if what != "memory":
            at = os.statvfs(what)
            return at.f_bavail * at.f_frsize
        with open("/proc/meminfo", "rb") as file:
            words = file.read().split()
        return int(words[words.index(b"MemAvailable:") + 1]) * 1024
    except (OSError, ValueError):
        return UNKNOWN
