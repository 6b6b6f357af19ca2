"""A store whose caller crashes at a chosen write, so that a test can try every bad moment instead of guessing one.

    for nth in count(1):
        try:
            await one_turn(CrashingStore(store, at_write=nth))
        except Crash:
            ...  # look at `store`: whole or not at all
        else:
                    break  # the turn has fewer writes than that

1. The write happens, or it does not, as `moment` says; its caller never learns which.
2. From then on every call raises Crash: a crashed process does nothing more.
3. Reads are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, Literal, ParamSpec, TypeVar

from holdfast.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

Moment = Literal["before", "after"]
"""`before`: the write never reaches the store. `after`: it is durable, but its answer is lost."""


class Crash(BaseException):
    """The caller has crashed. Not an Exception: a crashed process handles no errors."""

    def __init__(self, write: str, *, nth: int, moment: Moment) -> None:
        super().__init__(f"crashed {moment} write {nth}, {write}")
        self.write = write
        self.nth = nth
        self.moment = moment


READS = frozenset(
    """
    find_attempt orphans queued signals find_signal resolve session info snapshot turn turn_unfinished turns journal
    idempotency memories blob sessions search dump tenants session_ids forks nodes all_memories api_key api_keys
    seal_keys grants stats close
    """.split()
)
"""The methods of a store that are not counted."""


class CrashingStore(Store):
    """Works like the wrapped store, until the caller's `at_write`-th write (from 1)."""

    def __init__(self, store: Store, *, at_write: int, moment: Moment = "after") -> None:
        self.writes = 0
        """How many writes were begun."""
        self._at_write = at_write
        self._moment: Moment = moment
        self._crash: Crash | None = None
        self._store = store
        for name, method in vars(Store).items():
            if iscoroutinefunction(method) and not name.startswith("_"):
                within = self._checked if name in READS else self._counted
                setattr(self, name, within(getattr(store, name)))

    @property
    def queue_length(self) -> int:
        return self._store.queue_length

    @property
    def crashed(self) -> bool:
        return self._crash is not None

    def _counted(
        self, method: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        async def write(*args: P.args, **kwargs: P.kwargs) -> T:
            self._check()
            self.writes += 1
            if self.writes != self._at_write:
                answer = await method(*args, **kwargs)
                self._check()  # another task of the same caller may have crashed meanwhile
                return answer
            self._crash = Crash(_name(method), nth=self.writes, moment=self._moment)
            if self._moment == "after":
                await method(*args, **kwargs)
            raise self._crash

        return write

    def _checked(
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
