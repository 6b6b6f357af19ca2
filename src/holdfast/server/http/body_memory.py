"""How much memory the bodies of requests may take, all together.

A body of small messages becomes some twenty times its size in memory while it is read. Ten of four megabytes are more
than a small machine has; and a process that is out of memory cannot be relied on for anything, not even for an error:
CPython ends in a segmentation fault there. So a large body that does not fit is refused while it comes in, and its client
retries in a moment. Small ones are always taken: they are what everybody else sends.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from holdfast import limits
from holdfast.wire.problems import Problem, Refused

READ = limits.body_memory_ratio
"""What a byte of a body that was read whole weighs; one of a body that still comes in weighs one."""


class BodyMemory:
    """The bodies that a process holds at a time."""

    def __init__(self, memory_bytes: int) -> None:
        """`memory_bytes` is what the process may use for everything."""
        self._weight_max = memory_bytes // limits.bodies_memory_share
        self.held = 0
        """What they weigh."""

    def weigh(self, before: int, after: int) -> int:
        """A large body weighs this much `after` it has grown. One alone may weigh anything.

        Raises Refused, and changes nothing, if there is no room for it.
        """
        others = self.held - before
        if others and others + after > self._weight_max:
            raise Refused(_NO_ROOM)
        self.held = others + after
        return after

    def release(self, weight: int) -> None:
        """A body is not needed any more."""
        self.held -= weight


def memory_bytes(*, processes: int = 1) -> int:
    """What one of so many processes on this machine, or in this container, may use."""
    shared = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            shared.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    found = min(shared) // processes
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    return found if own == resource.RLIM_INFINITY else min(found, own)


_NO_ROOM = Problem(
    status=503,
    code="server_overloaded",
    message="as many large requests are being read as there is memory for; retry in a moment",
    kind="server_error",
    retry_after_s=1,
    should_retry=True,
)
