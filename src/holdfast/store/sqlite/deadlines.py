"""Jobs whose time is up while nobody has begun them, because a thread is stuck behind something.

The threads look at the deadlines of what they take; this is for what they do not come to. One timer for each
event loop does it. It is set for the earliest deadline, is left alone when that job is done, and looks round
when it rings. A timer for each job would cost more than all the rest of handing the job over.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle

from holdfast.errors import StoreUnavailable
from holdfast.store.sqlite.jobs import AnyJob, Inbox


class Deadlines:
    """Takes jobs back from an inbox in time, and tells their callers."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._rings: dict[AbstractEventLoop, TimerHandle] = {}

    def watch(self, loop: AbstractEventLoop, expires: float, now: float) -> None:
        """See to it that a job is not waited for beyond `expires`, by the clock of its loop."""
        ring = self._rings.get(loop)
        # One that should have rung and did not may never do so; it is not relied upon.
        if ring is None or not now <= ring.when() <= expires:
            self.close(loop)
            self._rings[loop] = loop.call_at(expires, self._ring, loop)

    def _ring(self, loop: AbstractEventLoop) -> None:
        del self._rings[loop]
        now = loop.time()
        waiting = [job for job in self._inbox.waiting() if job.loop is loop]
        for job in waiting:
            if job.expires <= now:
                self._give_up(job)
        later = [job.expires for job in waiting if job.expires > now]
        if later:
            self.watch(loop, min(later), now)

    def _give_up(self, job: AnyJob) -> None:
        if not job.future.done() and self._inbox.withdraw(job):
            job.future.set_exception(too_late())

    def close(self, loop: AbstractEventLoop) -> None:
        """Stop watching for this loop, and forget those that are closed."""
        for each in tuple(self._rings):
            if each is loop or each.is_closed():
                self._rings.pop(each).cancel()


def too_late() -> StoreUnavailable:
    """For a job that was not begun in time, and never will be."""
    return StoreUnavailable("the store did not come to it in time; nothing changed, retry later")
