"""The health of the engine, shared by all its threads: whether it may be used, and if not, why."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

from holdfast.errors import StoreClosed, StoreError, StorePoisoned
from holdfast.store.sqlite.faults import inherited, poisoned

OnPoison = Callable[[StorePoisoned], None]


class EngineHealth:
    """Begins healthy, and ends closed, poisoned or forked; it never becomes healthy again.

    `on_poison` is called once, in the thread that met the failure, after all waiting callers
    have got their errors. It should be brief: end the process, or notify an event loop.
    """

    def __init__(self, name: str, *, on_poison: OnPoison | None = None) -> None:
        self._name = name
        self._on_poison = on_poison
        self._guard = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.refusal: Callable[[], StoreError] | None = None
        """Makes the error that callers get; None while the engine is healthy."""
        self.fatal: str | None = None
        """Why the store is poisoned; None if it is not."""
        _all.add(self)

    def when_poisoned(self, listener: Callable[[], None]) -> None:
        """Call `listener` before `on_poison`, in the thread that met the failure."""
        self._listeners.append(listener)

    def poison(self, reason: str, *, tell: Callable[[], None] = lambda: None) -> None:
        """Stop the engine for good: its state is unknown. The first reason counts; later ones change nothing.

        First, new calls are refused; only then does `tell` answer the callers whose work failed, so that a caller
        that has got the error cannot be served afterwards.
        """
        with self._guard:
            first = self.fatal is None
            if first:
                self.fatal = reason
                self.refusal = lambda: poisoned(reason)
        tell()
        if not first:
            return
        for listener in self._listeners:
            listener()
        if self._on_poison is not None:
            self._on_poison(poisoned(reason))

    def close(self) -> None:
        """Refuse further calls. A poisoned store keeps raising StorePoisoned."""
        with self._guard:
            if self.refusal is None:
                self.refusal = lambda: StoreClosed(f"{self._name} is closed")

    @property
    def forked(self) -> bool:
        return self.refusal == self._after_fork

    def _after_fork(self) -> StoreError:
        return inherited(self._name)


_all: weakref.WeakSet[EngineHealth] = weakref.WeakSet()


def _disown() -> None:
    """In a forked child: every engine that was open belongs to the parent."""
    for health in tuple(_all):
        health.refusal = health._after_fork


os.register_at_fork(after_in_child=_disown)
