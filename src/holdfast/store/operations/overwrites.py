"""Retention beside a damaged page: a step whose write meets damage is taken apart.

1. `planned` tells what a step would write, in groups: the rows of one turn go together, every other change by itself.
2. `narrowed` takes the step again and writes some of these groups. A store tries ever smaller halves, so that only
   groups that meet the damage themselves stay.
3. `overwrite` takes the words out of a row that stays (`store/overwritten.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any, TypeAlias

from msgspec import Raw

from holdfast.core.codec import Value
from holdfast.store.overwritten import WORDS, overwritten
from holdfast.store.rows import Words
from holdfast.store.sql.tables import (
    ANNOTATIONS,
    BLOBS,
    ITEMS,
    JOURNAL,
    SIGNALS,
    STATE,
    TOMBSTONES,
    TURNS,
    Table,
)
from holdfast.store.steps import (
    Change,
    Delete,
    Finder,
    Operation,
    Start,
    Update,
    WriteStep,
    find,
    taken_until,
    write,
)


class TurnWords(Value):
    """What a turn says, as it is stored."""

    tenant: str
    turn_id: str
    detail: Words
    changes: Raw


TURN_WORDS = Table("turn", TurnWords, *TURNS.key, part_of=TURNS)
_TABLES: dict[str, Table[Any]] = {
    each.name: each for each in (ITEMS, STATE, ANNOTATIONS, BLOBS, TURN_WORDS, JOURNAL, SIGNALS)
}
_OF_TURNS = (TURNS.name, JOURNAL.name, SIGNALS.name)

Group: TypeAlias = tuple[Any, ...]
"""What is written together: a turn by its key, or a row by its table and key."""


def planned(step: Start[int]) -> Operation[tuple[Group, ...]]:
    """What a step of retention would write, without writing it."""
    going = yield from _written(step)
    # That nothing is left of a session is for a step to say that meets no damage.
    changes = [each for each in going.changes if each.table is not TOMBSTONES]
    return tuple(dict.fromkeys(map(_group, changes)))


def narrowed(step: Start[int], groups: Collection[Group]) -> Operation[int]:
    """Take a step of retention, and write these groups alone; how many."""
    going = yield from _written(step)
    changes = tuple(each for each in going.changes if _group(each) in groups)
    yield WriteStep(changes, going.on, going.live, going.as_read)
    return len(groups)


def overwrite(step: Start[int], group: Group, table: Table[Any]) -> Operation[None]:
    """Take the words out of the rows of a table that this group would remove."""
    going = yield from _written(step)
    updates: list[Update] = []
    for change in going.changes:
        if (
            isinstance(change, Delete)
            and change.table.name == table.name
            and _group(change) == group
        ):
            updates += yield from _updates(change)
    if updates:
        yield from write(*updates, on=going.on)


def tables_with_words(group: Group) -> tuple[Table[Any], ...]:
    """The tables that a group may remove words from."""
    named = _OF_TURNS if group[0] == TURNS.name else (group[0],)
    return tuple(_TABLES[name] for name in named if name in WORDS)


def _group(change: Change) -> Group:
    assert isinstance(change, Delete | Update), "retention inserts nothing"
    if change.table.name in _OF_TURNS:
        return (TURNS.name, *change.key[:2])
    return (change.table.name, *change.key)


def _written(step: Start[int]) -> Operation[WriteStep]:
    """Take the steps of an operation up to the one that writes, and give that back instead of taking it."""
    found = yield from taken_until(WriteStep, step())
    return found if isinstance(found, WriteStep) else WriteStep(())


def _updates(going: Delete) -> Operation[list[Update]]:
    """Overwrite the words of rows that cannot be deleted, unless they were overwritten before."""
    table, size = _TABLES[going.table.name], len(going.key)
    rows = yield from find(_finder(table, size), **dict(zip(table.key, going.key, strict=False)))
    updates = []
    for row in rows:
        said = {name: getattr(row, name) for name in WORDS[table.name]}
        blank = {name: overwritten(value) for name, value in said.items()}
        if blank != said:
            updates.append(Update(table, table.key_of(row), blank))
    return updates


@cache
def _finder(table: Table[Any], size: int) -> Finder[Any]:
    """Rows by the first columns of their key."""
    by: dict[str, Any] = {name: f":{name}" for name in table.key[:size]}
    return Finder(table, **by)
