"""Whether the engine may be used, and if not, why. One word for all its threads."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

from holdfast.errors import StoreClosed, StoreError, StorePoisoned
from holdfast.store.sqlite.faults import inherited, poisoned

OnPoison = Callable[[StorePoisoned], None]


class EngineHealth:
    """Starts well, and ends closed, poisoned or forked; it never gets better.

    `on_poison` is called once, in the thread that met the failure, after all waiting callers
    have been told. It should be brief: end the process, or tell an event loop.
    """

    def __init__(self, name: str, *, on_poison: OnPoison | None = None) -> None:
        self._name = name
        self._on_poison = on_poison
        self._guard = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.refusal: Callable[[], StoreError] | None = None
        """Makes the error that callers get; None while all is well."""
        self.fatal: str | None = None
        """Why the store is poisoned; None if it is not."""
        _all.add(self)

    def when_poisoned(self, listener: Callable[[], None]) -> None:
        """Call `listener`, in whatever thread finds out, before `on_poison`."""
        self._listeners.append(listener)

    def poison(self, reason: str, *, tell: Callable[[], None] = lambda: None) -> None:
        """Nothing may be trusted any more. The first reason counts; later ones change nothing.

        From the first moment on, callers are refused; only then does `tell` answer the callers whose work
        it was, so that no caller who has heard of the failure can still be served.
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
        """Refuse further calls. A poisoned store goes on saying that it is poisoned."""
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
    """In a forked child: whatever was open belongs to the parent."""
    for health in tuple(_all):
        health.refusal = health._after_fork


os.register_at_fork(after_in_child=_disown)
