"""A store whose caller dies at a chosen write: the way to try every bad moment instead of guessing one.

    for nth in count(1):
        try:
            await one_turn(CrashingStore(store, at_write=nth))
        except Crash:
            ...  # look at `store`: whole or not at all
        else:
            break  # it has fewer writes than that

1. The write happens, or it does not, as `moment` says; its caller never learns which.
2. From then on every call dies: whoever has crashed does nothing more.
3. Reads are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Literal, ParamSpec, TypeVar

from holdfast.store.base import Store

P = ParamSpec("P")
T = TypeVar("T")

Moment = Literal["before", "after"]
"""`before`: the write never reaches the store. `after`: it is durable, and its answer is lost."""


class Crash(BaseException):
    """The caller is dead. Not an Exception: the dead handle no errors."""

    def __init__(self, write: str, *, nth: int, moment: Moment) -> None:
        super().__init__(f"crashed {moment} write {nth}, {write}")
        self.write = write
        self.nth = nth
        self.moment = moment


class CrashingStore:
    """A store like the one that it wraps, until the caller's `at_write`-th write (from 1)."""

    def __init__(self, store: Store, *, at_write: int, moment: Moment = "after") -> None:
        self.writes = 0
        """How many writes were begun."""
        self._at_write = at_write
        self._moment: Moment = moment
        self._crash: Crash | None = None

        self._store = store

        self.renew = self._write(store.renew)
        self.resign = self._write(store.resign)
        self.begin = self._write(store.begin)
        self.append = self._write(store.append)
        self.commit = self._write(store.commit)
        self.end = self._write(store.end)
        self.release = self._write(store.release)
        self.takeover = self._write(store.takeover)
        self.enqueue = self._write(store.enqueue)
        self.open_queued = self._write(store.open_queued)
        self.withdraw = self._write(store.withdraw)
        self.acknowledge = self._write(store.acknowledge)
        self.signal = self._write(store.signal)
        self.annotate = self._write(store.annotate)
        self.bind = self._write(store.bind)
        self.fork = self._write(store.fork)
        self.remove = self._write(store.remove)
        self.restore = self._write(store.restore)
        self.restore_memories = self._write(store.restore_memories)
        self.put_blob = self._write(store.put_blob)
        self.put_api_key = self._write(store.put_api_key)
        self.revoke_api_key = self._write(store.revoke_api_key)
        self.put_seal_key = self._write(store.put_seal_key)
        self.remove_seal_key = self._write(store.remove_seal_key)
        self.put_grant = self._write(store.put_grant)
        self.revoke_grant = self._write(store.revoke_grant)
        self.index = self._write(store.index)
        self.prune = self._write(store.prune)

        self.find_attempt = self._read(store.find_attempt)
        self.orphans = self._read(store.orphans)
        self.queued = self._read(store.queued)
        self.signals = self._read(store.signals)
        self.find_signal = self._read(store.find_signal)
        self.resolve = self._read(store.resolve)
        self.session = self._read(store.session)
        self.info = self._read(store.info)
        self.snapshot = self._read(store.snapshot)
        self.turn = self._read(store.turn)
        self.turn_unfinished = self._read(store.turn_unfinished)
        self.turns = self._read(store.turns)
        self.journal = self._read(store.journal)
        self.idempotency = self._read(store.idempotency)
        self.memories = self._read(store.memories)
        self.blob = self._read(store.blob)
        self.sessions = self._read(store.sessions)
        self.search = self._read(store.search)
        self.dump = self._read(store.dump)
        self.tenants = self._read(store.tenants)
        self.session_ids = self._read(store.session_ids)
        self.forks = self._read(store.forks)
        self.nodes = self._read(store.nodes)
        self.all_memories = self._read(store.all_memories)
        self.api_key = self._read(store.api_key)
        self.api_keys = self._read(store.api_keys)
        self.seal_keys = self._read(store.seal_keys)
        self.grants = self._read(store.grants)
        self.stats = self._read(store.stats)
        self.close = self._read(store.close)

    @property
    def queue_length(self) -> int:
        return self._store.queue_length

    @property
    def crashed(self) -> bool:
        return self._crash is not None

    def _write(
        self, method: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        async def write(*args: P.args, **kwargs: P.kwargs) -> T:
            self._check()
            self.writes += 1
            if self.writes != self._at_write:
                answer = await method(*args, **kwargs)
                self._check()  # another task of the same caller may have died meanwhile
                return answer
            self._crash = Crash(_name(method), nth=self.writes, moment=self._moment)
            if self._moment == "after":
                await method(*args, **kwargs)
            raise self._crash

        return write

    def _read(
        self, method: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        async def read(*args: P.args, **kwargs: P.kwargs) -> T:
            self._check()
            return await method(*args, **kwargs)

        return read

    def _check(self) -> None:
        if self._crash is not None:
            raise self._crash

    def __repr__(self) -> str:
        state = "crashed" if self.crashed else f"crashes {self._moment} write {self._at_write}"
        return f"<CrashingStore {state} writes={self.writes}>"


def _name(method: Callable[..., object]) -> str:
    return getattr(method, "__name__", "?")
