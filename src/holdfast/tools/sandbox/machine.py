"""What the machine has left while a command runs, for the launcher."""

from __future__ import annotations

import os

UNKNOWN = 2**62


class Machine:
    """What a command has to leave to others, of memory and on the disks that it writes to.

    Some of what a command takes is in no process: what lies in pipes, on disks, in memory that was shared and is no
    longer mapped. Where there was little to begin with, half of it has to be left.
    """

    def __init__(self, paths: list[str], *, memory_left: int, disk_left: int) -> None:
        left = {"memory": memory_left, **dict.fromkeys(paths, disk_left)}
        self._least = {each: min(most, free_bytes(each) // 2) for each, most in left.items()}

    def scarce(self) -> str:
        """What there is too little of by now, if anything."""
        for each, least in self._least.items():
            if free_bytes(each) < least:
                what = each if each == "memory" else f"disk at {each}"
                return f"left the machine less than {least:,} bytes of {what}"
        return ""


def free_bytes(what: str) -> int:
    """How much there is of memory, or on the disk of a path. Very much, if that cannot be told."""
    try:
        if what != "memory":
            at = os.statvfs(what)
            return at.f_bavail * at.f_frsize
        with open("/proc/meminfo", "rb") as file:
            words = file.read().split()
        return int(words[words.index(b"MemAvailable:") + 1]) * 1024
    except (OSError, ValueError):
        return UNKNOWN
