"""The last hour of a server's numbers, kept in memory: an operator who opens the console sees what has just happened.

Every process keeps its own ring of the numbers of the whole server (`numbers.py`), so any worker can be asked.
A sample is taken by a task of its own; no request does anything for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast import limits
from holdfast.observe.tally import SECONDS
from holdfast.server.processes.numbers import Numbers, OwnNumbers
from holdfast.sessions.sessions import Sessions
from holdfast.wire.api.overview import NumberSample, NumbersOverTime


class NumberHistory:
    """A bounded number of samples, the oldest first."""

    def __init__(self, sessions: Sessions, numbers: Numbers | None = None) -> None:
        self._sessions = sessions
        self._numbers = numbers or OwnNumbers()
        self._samples: deque[NumberSample] = deque(maxlen=limits.number_samples_max)

    def shown(self) -> NumbersOverTime:
        """All samples, and the numbers of this moment."""
        return NumbersOverTime(
            every_s=limits.number_sample_s,
            bounds_s=tuple(map(float, SECONDS)),
            samples=(*self._samples, self._now()),
        )

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Take samples while the context lasts."""

        async def take_and_wait() -> None:
            self._samples.append(self._now())
            await asyncio.sleep(limits.number_sample_s)

        task = self._sessions.supervisor.keep("number history", take_and_wait)
        try:
            yield
        finally:
            await self._sessions.supervisor.stop(task)

    def _now(self) -> NumberSample:
        tally = self._numbers.tally(self._sessions)
        ends: Counter[str] = Counter()
        for (ended_by, _), number in tally.turns.items():
            ends[ended_by] += number
        return NumberSample(
            at=time.time(),
            ends=dict(ends),
            admission=tuple(tally.admitting.counts),
            first_words=tuple(tally.first_words.counts),
            commit=tuple(tally.settling.counts),
        )
