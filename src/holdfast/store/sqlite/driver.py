"""The SQLite home's driver: takes the steps of an operation on a connection.

Every statement is made of the tables and plans alone, once. An operation runs whole inside the writer's transaction, or
inside a reader's snapshot, so what it has read is still so when it writes; no condition is needed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from apsw import Connection

from holdfast.core.codec import Value, encode
from holdfast.store.dialects import QUESTIONS, SQLITE
from holdfast.store.statements import finding, looking
from holdfast.store.steps import (
    Asking,
    Change,
    Delete,
    Finding,
    Holder,
    Insert,
    Look,
    Looking,
    Moment,
    One,
    Operation,
    Put,
    Question,
    Update,
    Writing,
)
from holdfast.store.tables import CHUNKS, Column, R, Table
from holdfast.store.words import Needed

T = TypeVar("T")
Parse = Callable[[Any], object]
IsHeld = Callable[[int], bool]
"""Whether a living process holds a slot; see `locks.Liveness`."""


class Codec(Generic[R]):
    """Between the rows of one table and the values that SQLite keeps."""

    def __init__(self, table: Table[R]) -> None:
        self._make: Callable[..., R] = table.kind
        self.width = len(table.columns)
        numbered = tuple(enumerate(table.columns))
        self._json = tuple(n for n, each in numbered if each.holds == "json")
        self._times = tuple(n for n, each in numbered if each.name in table.times)
        self._parse = _readers((n, each, each.parse) for n, each in numbered)
        self._trust = _readers((n, each, each.trust) for n, each in numbered)

    def made(self, values: list[Any]) -> R:
        for at, parse in self._parse:
            value = values[at]
            if value is not None:
                values[at] = parse(value)
        return self._make(*values)

    def trusted(self, values: list[Any]) -> R:
        """The same for a row that a transaction reads in passing: ids were parsed before this server stored them."""
        # Most columns are plain, and this runs for every row of every turn.
        for at, parse in self._trust:
            value = values[at]
            if value is not None:
                values[at] = parse(value)
        return self._make(*values)

    def bound(self, row: R, now_ms: int) -> list[Any]:
        values: list[Any] = list(msgspec.structs.astuple(row))
        for at in self._json:
            values[at] = encode(values[at])
        for at in self._times:
            if type(values[at]) is Moment:
                values[at] += now_ms
        return values


def _readers(
    columns: Iterable[tuple[int, Column, Parse | None]],
) -> tuple[tuple[int, Parse], ...]:
    found = ((n, bool if each.holds == "truth" else how) for n, each, how in columns)
    return tuple((n, how) for n, how in found if how)


class _Read(NamedTuple):
    """How a look is taken: what is asked, by which of the given values, and what each part is made of."""

    sql: str
    given: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    parts: tuple[tuple[Codec[Any] | None, int, int, bool], ...]
    """The codec of a row, if it is one; where its columns begin and end; whether it is a holder."""


def _bound_by(sql: str) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """The values of a statement in the order in which it first names them: to bind them by name takes longer than
    SQLite does."""
    names = tuple(dict.fromkeys(re.findall(r":(\w+)", sql)))
    if len(names) > 1:
        return itemgetter(*names)
    return lambda given: tuple([given[each] for each in names])


class _Updated(NamedTuple):
    """How some columns of a row are written, and which of them are JSON, or times."""

    sql: str
    json: tuple[int, ...]
    times: tuple[int, ...]


class Driver:
    """Takes the steps of operations; knows every statement that it has needed."""

    def __init__(self) -> None:
        self._codecs: dict[type[Value], Codec[Any]] = {}
        self._looks: dict[Look[Any], _Read] = {}
        self._finders: dict[tuple[object, ...], tuple[str, Callable[..., tuple[Any, ...]]]] = {}
        self._questions: dict[Question[Any], tuple[str, Callable[..., tuple[Any, ...]]]] = {}
        self._updates: dict[tuple[object, ...], _Updated] = {}
        self._writes: dict[tuple[object, ...], str] = {}

    def run(
        self,
        db: Connection,
        operation: Operation[T],
        *,
        now_ms: int = 0,
        is_held: IsHeld = lambda slot: True,
    ) -> T:
        """Take the steps of an operation; `now_ms` may be left out by one that asks for no time."""
        came: object = None
        try:
            while True:
                step = operation.send(came)
                if type(step) is Looking:
                    came = self._look(db, step, now_ms, is_held)
                elif type(step) is Writing:
                    for change in step.changes:
                        self._write(db, change, now_ms)
                    came = now_ms
                elif type(step) is Finding:
                    came = self._find(db, step)
                elif type(step) is Asking:
                    came = self._ask(db, step, now_ms)
                else:
                    time.sleep(BREATH_S)
                    came = None
        except StopIteration as end:
            done: T = end.value
            return done

    def codec(self, table: Table[R]) -> Codec[R]:
        # Two tables may have the same name, and show more or less of the same rows.
        found = self._codecs.get(table.kind)
        if found is None:
            found = self._codecs[table.kind] = Codec(table)
        return found

    # reading

    def _look(self, db: Connection, step: Looking, now_ms: int, is_held: IsHeld) -> Value:
        look = step.look
        read = self._looks.get(look)
        if read is None:
            read = self._looks[look] = self._planned(look)
        row: tuple[Any, ...] | None = db.execute(read.sql, read.given(step.given)).fetchone()
        assert row is not None
        found: list[Any] = []
        for codec, at, upto, is_holder in read.parts:
            value = row[at]
            # The first field of each row is part of its key, and never null.
            if codec is not None and value is not None:
                value = codec.trusted(list(row[at:upto]))
                if is_holder and not is_held(value.slot):
                    value = None
            found.append(value)
        made: Value = look.kind(now_ms, *found)
        return made

    def _planned(self, look: Look[Any]) -> _Read:
        at, parts = 0, list[tuple[Codec[Any] | None, int, int, bool]]()
        for part in look.parts.values():
            codec = self.codec(part.table) if isinstance(part, One) else None
            upto = at + (codec.width if codec else 1)
            parts.append((codec, at, upto, isinstance(part, Holder)))
            at = upto
        sql = looking(look)
        return _Read(sql, _bound_by(sql), tuple(parts))

    def _find(self, db: Connection, step: Finding) -> tuple[Value, ...]:
        finder = step.finder
        bounds = (step.above is not None, step.upto is not None, step.limit is not None)
        known = self._finders.get((finder, *bounds))
        if known is None:
            sql = finding(finder, *bounds)
            known = self._finders[finder, *bounds] = sql, _bound_by(sql)
        sql, bound = known
        made = self.codec(finder.table).made
        given = {**step.given, "above": step.above, "upto": step.upto, "limit": step.limit}
        # All of them, before one is made: a row that cannot be read leaves no cursor open.
        rows = db.execute(sql, bound(given)).fetchall()
        return tuple([made(list(row)) for row in rows])

    def _ask(self, db: Connection, step: Asking, now_ms: int) -> tuple[Value, ...]:
        question = step.question
        known = self._questions.get(question)
        if known is None:
            sql = SQLITE.spelled(QUESTIONS[question.name], question.words)
            known = self._questions[question] = sql, _bound_by(sql)
        sql, bound = known
        given = {name: _plain(value) for name, value in step.given.items()}
        made = self.codec(question.rows).made
        rows = db.execute(sql, bound({**given, "now_ms": now_ms})).fetchall()
        return tuple([made(list(row)) for row in rows])

    # writing

    def _write(self, db: Connection, change: Change, now_ms: int) -> None:
        table = change.table
        if type(change) is Update:
            shape = (table, *change.columns)
            update = self._updates.get(shape)
            if update is None:
                update = self._updates[shape] = _update(table, *change.columns)
            values = [*change.columns.values(), *change.key]
            for at in update.json:
                if values[at] is not None:
                    values[at] = encode(values[at])
            for at in update.times:
                if type(values[at]) is Moment:
                    values[at] += now_ms
            db.execute(update.sql, values)
        elif type(change) is Insert:
            sql = self._statement(("insert", table, change.if_absent), _insert)
            bound = self.codec(table).bound
            if len(change.rows) == 1:
                db.execute(sql, bound(change.rows[0], now_ms))
            else:
                db.executemany(sql, [bound(row, now_ms) for row in change.rows])
        elif type(change) is Delete:
            by_key = self._statement(("delete", table, len(change.key)), _delete)
            # The words of a chunk go with it, by the same key.
            db.execute(by_key, change.key * 2 if table.name == CHUNKS.name else change.key)
        else:
            assert type(change) is Put
            for row in change.rows:
                self._write(db, Delete(table, table.key_of(row)), now_ms)
            self._write(db, Insert(table, change.rows), now_ms)

    def _statement(self, shape: tuple[Any, ...], make: Callable[..., str]) -> str:
        sql = self._writes.get(shape)
        if sql is None:
            sql = self._writes[shape] = make(*shape[1:])
        return sql


def _plain(value: Any) -> Any:
    """A given value as SQLite takes it: a list is JSON."""
    if isinstance(value, Needed):
        return SQLITE.index.asked(value)
    return encode(value).decode() if isinstance(value, list) else value


def _insert(table: Table[Any], if_absent: bool) -> str:
    # What SQLite numbers by itself begins where a row leaves it out: at nought.
    own = [each for each in table.columns if each.holds != "lexemes"]
    listed = ", ".join([each.quoted for each in own])
    values = ", ".join(["nullif(?, 0)" if each.name == table.serial else "?" for each in own])
    done = " on conflict do nothing" if if_absent else ""
    insert = f"insert into {table.name} ({listed}) values ({values}){done}"
    words = "insert into search_word (rowid, words) values (last_insert_rowid(), ?)"
    return insert if len(own) == len(table.columns) else f"{insert}; {words}"


def _update(table: Table[Any], *columns: str) -> _Updated:
    to = ", ".join(f"{table.by_name[name].quoted} = ?" for name in columns)
    return _Updated(
        f"update {table.name} set {to} where {_by_key(table, len(table.key))}",
        tuple(n for n, name in enumerate(columns) if table.by_name[name].holds == "json"),
        tuple(n for n, name in enumerate(columns) if name in table.times),
    )


def _delete(table: Table[Any], size: int) -> str:
    by_key = f"from {table.name} where {_by_key(table, size)}"
    words = f"delete from search_word where rowid in (select id {by_key}); "
    return f"{words if table.name == CHUNKS.name else ''}delete {by_key}"


def _by_key(table: Table[Any], size: int) -> str:
    return " and ".join(f"{table.by_name[name].quoted} = ?" for name in table.key[:size])


BREATH_S = 0.0005
"""Long enough for a thread that waits for its turn to get it; a hundredth of what a piece of text takes would not be."""

DRIVER = Driver()
"""What one connection has needed, another one needs as well."""
