"""Everything that operations look for and write, to be held against how databases would do it."""

from __future__ import annotations

import asyncio
import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from typing import Any, TypeVar

from holdfast.ids import Minter
from holdfast.store import operations
from holdfast.store.memory_store import MemoryStore
from holdfast.store.operations.inspection import OWNERS, PROVEN, pages_of
from holdfast.store.operations.nodes import HELD, HELD_BY_ONE
from holdfast.store.operations.retention import LINES_AMONG, PARTS, STALE_LINES
from holdfast.store.operations.search import BEHIND, BEHIND_AMONG
from holdfast.store.postgres.compiler import WriteRequest, asked_for
from holdfast.store.sql.dialects import QUESTIONS, SqlDialect, text_of
from holdfast.store.sql.tables import HORIZON, TABLES
from holdfast.store.steps import (
    Facts,
    Finder,
    Operation,
    Question,
    Start,
    WriteStep,
    by_key,
    look_of,
)
from holdfast.testing import ManualClock
from tests.store.furnishing import furnish_fully

T = TypeVar("T")


def _named() -> Iterator[tuple[str, object]]:
    for module in pkgutil.iter_modules(operations.__path__, f"{operations.__name__}."):
        found = vars(import_module(module.name))
        yield from ((name.lower(), each) for name, each in found.items())


LOOKS = {
    **{f"one {name}": by_key(each) for name, each in TABLES.items() if each is not HORIZON},
    **{each.__name__: look_of(each) for each in Facts.__subclasses__() if each.__struct_defaults__},
}
FINDERS = {name: each for name, each in _named() if isinstance(each, Finder)}


def questions(dialect: SqlDialect) -> dict[str, str]:
    """All that operations ask, as a database is asked; a text about several tables once for each."""
    several: dict[str, Question[Any]] = {f"owners of {kind}": each for kind, each in OWNERS.items()}
    several |= {"held turns": HELD, "held turns of one session": HELD_BY_ONE}
    several |= {"sessions_behind": BEHIND, "behind_among": BEHIND_AMONG}
    several |= {"stale_lines": STALE_LINES, "lines_among": LINES_AMONG}
    several |= {f"parts in {each.words['rows']}": each for each in PARTS}
    for table in PROVEN:
        first, later = pages_of(table)
        several |= {f"first {table.name}": first, f"later {table.name}": later}
    asked = {
        name: dialect.spelled(text_of(each.name, each.words)) for name, each in several.items()
    }
    names = {each.name for each in several.values()}
    return asked | {
        name: dialect.spelled(text) for name, text in QUESTIONS.items() if name not in names
    }


class _Noting(MemoryStore):
    """A store that notes what its operations write."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(now_ms=clock.now_ms)
        self.noted: list[tuple[str, WriteStep]] = []

    async def _write(self, start: Start[T], *, once: bool = False) -> T:
        name = getattr(start, "func", start).__name__
        return await super()._write(lambda: self._watched(name, start()))

    def _watched(self, name: str, operation: Operation[T]) -> Operation[T]:
        came: object = None
        try:
            while True:
                step = operation.send(came)
                if isinstance(step, WriteStep):
                    self.noted.append((name, step))
                came = yield step
        except StopIteration as end:
            done: T = end.value
            return done


def writes() -> dict[str, WriteRequest]:
    """One write of each shape that a full story has, by the operation that wrote it."""
    clock, steps = ManualClock(), count()
    store = _Noting(clock)
    mint = Minter(now_ms=clock.now_ms, random_bits=lambda bits: next(steps) % (1 << bits))
    asyncio.run(furnish_fully(store, clock, mint))
    found: dict[str, WriteRequest] = {}
    seen = set()
    for name, writing in store.noted:
        asked = asked_for(writing, defaultdict(int))
        if asked.shape not in seen:
            seen.add(asked.shape)
            found[f"{name} {sum(each.startswith(name) for each in found)}"] = asked
    return found
