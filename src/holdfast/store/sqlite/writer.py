"""Who runs the writer's desk: a thread, or the caller."""

from __future__ import annotations

import asyncio
from typing import Protocol

from holdfast.observe.supervisor import start_thread
from holdfast.store.sqlite.desk import Desk
from holdfast.store.sqlite.faults import described
from holdfast.store.sqlite.jobs import AnyJob, resolve


class Writer(Protocol):
    """Runs jobs in order, in batches, each durable before its caller is told."""

    def submit(self, job: AnyJob, *, wake: bool = True) -> None:
        """Queue a job; its future is resolved in its loop, or anywhere if it has none.

        It can be taken back from the desk's inbox until it is begun. Without `wake`, a writer that
        sleeps may sleep on until somebody wakes its inbox.
        """

    async def close(self) -> None:
        """Finish what has queued, check-point, and let go of the file. Repeating is harmless."""


class WriterFactory(Protocol):
    """Makes a writer for a desk; the two writers below are such."""

    def __call__(self, desk: Desk) -> Writer: ...


class WriterThread:
    """The writer of a server: a thread of its own."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._thread = start_thread("holdfast-writer", self._main)

    def submit(self, job: AnyJob, *, wake: bool = True) -> None:
        self._desk.accept(job, wake=wake)

    async def close(self) -> None:
        """As the protocol says; gives up waiting after `Bounds.close_s`.

        If another process sits on the write turn, the thread lets go when it gets it.
        """
        self._desk.inbox.close()
        await asyncio.to_thread(self._thread.join, self._desk.bounds.close_s)

    def _main(self) -> None:
        desk = self._desk
        try:
            while desk.standing:
                if desk.inbox.wait(desk.idle_in_s):
                    desk.run()
                elif desk.inbox.closed:
                    break
                else:
                    desk.rest()
        except BaseException as error:
            # A bug of ours. Nobody would answer the callers any more, so all of them are told.
            desk.health.poison(described(error))
            raise
        finally:
            desk.leave()


class InlineWriter:
    """A writer without a thread, for simulations and for commands that do one thing.

    Jobs run in the event loop's own thread, on its next pass, grouped as the thread would group
    them; with a deterministic loop this is deterministic, too. Waiting for a turn blocks the loop.
    """

    def __init__(self, desk: Desk) -> None:
        desk.deliver = resolve
        self._desk = desk
        self._scheduled = False

    def submit(self, job: AnyJob, *, wake: bool = True) -> None:
        self._desk.accept(job)
        if job.loop is None:
            self._run()
        elif not self._scheduled:
            self._scheduled = True
            job.loop.call_soon(self._run)

    async def close(self) -> None:
        self._run()
        self._desk.inbox.close()
        self._desk.leave()

    def _run(self) -> None:
        self._scheduled = False
        while self._desk.standing and len(self._desk.inbox):
            self._desk.run()
