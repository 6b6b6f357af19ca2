"""The memory that all request bodies together may take.

A body of small messages takes some twenty times its size in memory while it is parsed. Ten of four megabytes are more
than a small machine has; and a process without memory cannot be relied on for anything, not even for an error:
CPython ends in a segmentation fault there. So a large body that does not fit is refused while it comes in, and its
client retries in a moment. Small bodies are always taken: most clients send no others.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from holdfast import limits
from holdfast.wire.problems import Problem, Refused

READ = limits.body_memory_ratio
"""The weight of each byte of a body that has arrived whole. While it is still coming in, a byte weighs one."""


class BodyMemory:
    """The total weight of the bodies that a process holds."""

    def __init__(self, memory_bytes: int) -> None:
        """`memory_bytes` is all the memory that the process may use."""
        self._weight_max = memory_bytes // limits.bodies_memory_share
        self.held = 0
        """The weight of all large bodies now."""

    def weigh(self, before: int, after: int) -> int:
        """Change the weight of a large body that has grown, and return it. A body that is alone may weigh anything.

        Raises Refused, and changes nothing, if there is no room for it.
        """
        others = self.held - before
        if others and others + after > self._weight_max:
            raise Refused(_NO_ROOM)
        self.held = others + after
        return after

    def release(self, weight: int) -> None:
        """Free the weight of a body that is not needed any more."""
        self.held -= weight


def memory_bytes(*, processes: int = 1) -> int:
    """The memory that each of `processes` on this machine, or in this container, may use from now on."""
    shared = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            shared.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    found = min(shared) // processes
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    return found if own == resource.RLIM_INFINITY else max(0, min(found, own - _addressed_bytes()))


def _addressed_bytes() -> int:
    """The addresses that this process has taken. A limit on them counts those without memory behind them, too: half a
    gigabyte in a server that has just started."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):  # not a Linux
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


_NO_ROOM = Problem(
    status=503,
    code="server_overloaded",
    message="as many large requests are being read as there is memory for; retry in a moment",
    kind="server_error",
    retry_after_s=1,
    should_retry=True,
)
