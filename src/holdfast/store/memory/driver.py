"""The memory home's driver: takes the steps of an operation on rows that lie in dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.core.codec import Value
from holdfast.store.steps import (
    Delete,
    Field,
    Finding,
    Found,
    Given,
    Has,
    Insert,
    Last,
    Look,
    Looking,
    Moment,
    Operation,
    Part,
    Source,
    Writing,
)
from holdfast.store.tables import R, Table, key_of

T = TypeVar("T")
Key = tuple[Any, ...]


class Rows(Generic[R]):
    """The rows of one table by their keys, and by whatever columns they were asked for."""

    def __init__(self, table: Table[R]) -> None:
        self.table = table
        self.by_key: dict[Key, R] = {}
        self._indexes: dict[
            tuple[str, ...], tuple[Callable[[R], Key], dict[Key, dict[Key, R]]]
        ] = {}

    def put(self, row: R) -> None:
        key = self.table.key_of(row)
        before = self.by_key.get(key)
        self.by_key[key] = row
        for values_of, index in self._indexes.values():
            values = values_of(row)
            if before is not None and (was := values_of(before)) != values:
                del index[was][key]
            index.setdefault(values, {})[key] = row

    def drop(self, key: Key) -> None:
        row = self.by_key.pop(key, None)
        if row is not None:
            for values_of, index in self._indexes.values():
                del index[values_of(row)][key]

    def index(self, columns: tuple[str, ...]) -> dict[Key, dict[Key, R]]:
        """The rows by the values of these columns. It is kept up from now on."""
        known = self._indexes.get(columns)
        if known is None:
            values_of = key_of(columns)
            index: dict[Key, dict[Key, R]] = {}
            for key, row in self.by_key.items():
                index.setdefault(values_of(row), {})[key] = row
            known = self._indexes[columns] = values_of, index
        return known[1]

    def where(self, columns: tuple[str, ...], values: Key) -> Iterator[R]:
        """Those with these values, in no order."""
        if columns == self.table.key:
            row = self.by_key.get(values)
            return iter(() if row is None else (row,))
        return iter(tuple(self.index(columns).get(values, {}).values()))


class Driver:
    """Takes steps; since nothing here waits, each operation happens at one moment."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._rows: dict[str, Rows[Any]] = {}
        self._looks: dict[Look[Any], Callable[[Mapping[str, Any], int], Value]] = {}

    def of(self, table: Table[R]) -> Rows[R]:
        found = self._rows.get(table.name)
        if found is None:
            found = self._rows[table.name] = Rows(table)
        return found

    def run(self, operation: Operation[T]) -> T:
        now_ms = self._now_ms()
        came: object = None
        try:
            while True:
                step = operation.send(came)
                if type(step) is Looking:
                    look = self._looks.get(step.look)
                    if look is None:
                        look = self._looks[step.look] = self._made(step.look)
                    came = look(step.given, now_ms)
                elif type(step) is Writing:
                    self._write(step, now_ms)
                    came = now_ms
                else:
                    assert type(step) is Finding
                    came = self._find(step)
        except StopIteration as end:
            done: T = end.value
            return done

    def _made(self, look: Look[Any]) -> Callable[[Mapping[str, Any], int], Value]:
        """What a statement is to a database, a function is here, made of the same plan."""
        known: dict[str, Any] = {"kind": look.kind}
        lines: list[str] = []
        for name, part in look.parts.items():
            rows = self.of(part.table)
            is_key = part.columns == part.table.key
            known[f"rows_{name}"] = rows.by_key if is_key else rows.index(part.columns)
            values = "".join(f"{_spelled(each)}, " for each in part.where.values())
            lines.append(f"{name} = {_sought(part, f'rows_{name}', f'({values})', is_key=is_key)}")
        lines.append(f"return kind(now_ms, {', '.join(look.parts)})")
        exec("def look(given, now_ms):\n    " + "\n    ".join(lines), known)
        made: Callable[[Mapping[str, Any], int], Value] = known["look"]
        return made

    def _find(self, step: Finding) -> tuple[Value, ...]:
        finder = step.finder
        values = tuple([_value(each, step.given) for each in finder.where.values()])
        rows = self._stretch(step, values)
        if rows is None:
            rows = list(self.of(finder.selected).where(tuple(finder.where), values))
        if finder.of is not None:
            _, shared = finder.of
            belonging, values_of = self.of(finder.table), key_of(shared)
            rows = [each for row in rows for each in belonging.where(shared, values_of(row))]
        for column, value in finder.unlike.items():
            rows = [row for row in rows if getattr(row, column) not in (None, value)]
        for column in finder.choice:
            wanted = step.given[column]
            rows = [row for row in rows if wanted is None or getattr(row, column) == wanted]
        over = finder.over
        if over is not None:
            rows = [row for row in rows if _lies_in(getattr(row, over), step.above, step.upto)]
        for name in reversed(finder.order):
            rows.sort(key=lambda row: getattr(row, name.lstrip("-")), reverse=name[0] == "-")
        return tuple(rows[: step.limit])

    def _stretch(self, step: Finding, values: Key) -> list[Any] | None:
        """Rows by the numbers that they lie between, one after the other; None if they are not found so."""
        finder = step.finder
        is_bounded = isinstance(step.above, int) and isinstance(step.upto, int)
        if finder.over is None or finder.of is not None or not is_bounded:
            return None
        rows, columns = self.of(finder.table), (*finder.where, finder.over)
        if step.upto - step.above > len(rows.by_key):
            return None
        numbers = range(step.above + 1, step.upto + 1)
        return [row for n in numbers for row in rows.where(columns, (*values, n))]

    def _write(self, step: Writing, now_ms: int) -> None:
        for each in step.changes:
            rows = self.of(each.table)
            match each:
                case Insert(rows=fresh):
                    for row in fresh:
                        is_there = each.table.key_of(row) in rows.by_key
                        assert each.if_absent or not is_there, f"{row} is there already"
                        if not is_there:
                            rows.put(_timed(each.table, row, now_ms))
                case Delete(key=key):
                    size = len(key)
                    for gone in tuple(rows.where(each.table.key[:size], key)):
                        rows.drop(each.table.key_of(gone))
                case _:
                    row = rows.by_key.get(each.key)
                    if row is None:
                        continue
                    changed = msgspec.structs.replace(row, **each.columns)
                    rows.put(_timed(each.table, changed, now_ms))


def _timed(table: Table[R], row: R, now_ms: int) -> R:
    """The row, with the times in it that were to be filled in."""
    moments = [name for name in table.times if type(getattr(row, name)) is Moment]
    if not moments:
        return row
    return msgspec.structs.replace(row, **{name: now_ms + getattr(row, name) for name in moments})


def _sought(part: Part, rows: str, values: str, *, is_key: bool) -> str:
    """What finds a part, as Python has it."""
    few = f"{rows}.get({values}, {{}})"
    match part:
        case Has():
            return f"{values} in {rows}" if is_key else f"bool({few})"
        case Field(column=column):
            return f"None if (row := {rows}.get({values})) is None else row.{column}"
        case Last(column=column):
            return f"max([row.{column} for row in {few}.values()], default=None)"
        case _:
            return f"{rows}.get({values})" if is_key else f"next(iter({few}.values()), None)"


def _spelled(sources: tuple[Source, ...]) -> str:
    """The first of these values that is there; none of them is ever nought."""
    return " or ".join(map(_one_spelled, sources))


def _one_spelled(source: Source) -> str:
    match source:
        case Given(name=name):
            return f"given[{name!r}]"
        case Found(part=part, column=column):
            return f"(None if {part} is None else {part}.{column})"
        case constant:
            return repr(constant)


def _value(source: Source, given: Mapping[str, Any]) -> object:
    return given[source.name] if isinstance(source, Given) else source


def _lies_in(value: Any, above: Any, upto: Any) -> bool:
    if value is None:
        return False
    return (above is None or value > above) and (upto is None or value <= upto)
