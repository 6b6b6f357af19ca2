"""The SQLite home's driver: it executes the steps of an operation on a connection.

Every statement is compiled from tables, looks and finders, once. An operation runs whole inside the writer's
transaction, or inside a reader's snapshot, so the rows that it has read are unchanged when it writes; it needs no
condition.

A read that meets a damaged page is tried in two other ways.

1. In the other direction. SQLite looks for a row by its key on the leaf before it, even if the row itself is on the page
   above that leaf; from the other side, it comes to the row by the leaf after it. So a row is damaged only if its own
   page is. The operation goes on in that direction, and a writer writes the row in it.
2. By the tables alone, for a moment: everything in an index is in its table, too. A writer does not try this: it could
   not write to that index, and every other write would wait.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import apsw
from apsw import Connection, Cursor
from msgspec.structs import astuple

from holdfast.core.codec import Value, encode
from holdfast.errors import StoreDamaged
from holdfast.store import steps
from holdfast.store.search.words import Needed
from holdfast.store.sql.codecs import Codec, Parse
from holdfast.store.sql.dialects import SQLITE, text_of
from holdfast.store.sql.statements import finding, looking
from holdfast.store.sql.tables import CHUNKS, TABLES, R, Table
from holdfast.store.sqlite.faults import described
from holdfast.store.sqlite.faults import is_damage as is_page_damage
from holdfast.store.steps import Delete, Insert, Moment, Put, Update
from holdfast.store.verification.damage import damage_beside, damage_of, is_damage

T = TypeVar("T")
Met = Callable[[Connection, StoreDamaged], None]
"""Is told of a damaged page that a read has done without."""
IsHeld = Callable[[int], bool]
"""Whether a live process holds a slot; see `locks.Liveness`."""


@cache
def _codec(table: Table[R]) -> Codec[R]:
    return Codec(table, {"truth": bool})


# Plain tuples, and not structs: Python unpacks a tuple faster, and every step unpacks some.

_Given = Callable[[Mapping[str, Any]], tuple[Any, ...]]
"""Picks the values of a statement from those that a step brings."""

_Part = tuple[int, int, Callable[..., Any] | None, tuple[tuple[int, Parse], ...], bool]
"""A part of a look: where its columns begin and end; if it is a row, its type and the parsers of its columns; whether
it is a holder."""

_Bounded = tuple[steps.Finder[Any], bool, bool, bool]
"""A finder, and whether `above`, `upto` and `limit` are given."""

_Written = tuple[str, tuple[int, ...], tuple[int, ...]]
"""A statement that writes a row, and which of its values are JSON, and which are times."""


def _numbered(sql: str) -> tuple[str, _Given]:
    """A statement with numbers for the names of its values, and what picks these values: binding values by name would take
    longer than SQLite's own work, and looking a statement up takes as long as its text is."""
    names = list(dict.fromkeys(re.findall(r":(\w+)", sql)))
    numbered = re.sub(r":(\w+)", lambda name: f"?{names.index(name[1]) + 1}", sql)
    if len(names) > 1:
        return numbered, itemgetter(*names)
    return numbered, lambda given: tuple([given[each] for each in names])


class SqliteDriver:
    """Executes the steps of operations; caches every statement that it has compiled."""

    def __init__(self, *, indexes: bool = True) -> None:
        """`indexes`: whether statements may use any beside the tables' own order."""
        self._spelled = str if indexes else _without_indexes
        self._looks: dict[steps.Look[Any], tuple[str, _Given, tuple[_Part, ...]]] = {}
        self._finders: dict[_Bounded, tuple[str, _Given, Callable[[tuple[Any, ...]], Any]]] = {}
        self._questions: dict[steps.Question[Any], tuple[str, _Given]] = {}
        self._written: dict[tuple[Any, ...], _Written] = {}
        self._in_vain: WeakKeyDictionary[Connection, dict[object, float]] = WeakKeyDictionary()
        """Kinds of reads without indexes that were no help, and when it is worth trying each again."""

    def run(
        self,
        db: Connection,
        operation: steps.Operation[T],
        *,
        now_ms: int = 0,
        is_held: IsHeld = lambda slot: True,
        met: Met = lambda db, damage: None,
    ) -> T:
        """Execute the steps of an operation; `now_ms` may be left out if the operation uses no time."""
        came: object
        has_written = has_turned = False
        cursor = (
            db.cursor()
        )  # one for all statements: making one costs as much as a short statement
        try:
            step = next(operation)
            while True:
                try:
                    if type(step) is steps.LookStep:
                        came = self._look(cursor, step, now_ms, is_held)
                    elif type(step) is steps.WriteStep:
                        has_written = True
                        self._write(cursor, step.changes, now_ms)
                        came = now_ms
                    elif type(step) is steps.FindStep:
                        came = self._find(cursor, step)
                    elif type(step) is steps.AskStep:
                        came = self._ask(cursor, step, now_ms)
                    else:
                        time.sleep(BREATH_S)
                        came = None
                except Exception as error:
                    # The error keeps its cursor for as long as it lives, and an unfinished statement keeps a snapshot.
                    cursor.close(True)
                    cursor = db.cursor()
                    in_pages = is_page_damage(error)
                    if not is_damage(step, error, in_pages=in_pages):
                        raise
                    if type(step) is steps.WriteStep:
                        raise damage_of(
                            step, error, in_pages=in_pages, why=described(error)
                        ) from error
                    damage = damage_of(step, error, in_pages=in_pages, why=described(error))
                    came, has_turned = NO_HELP, has_turned or in_pages
                    if in_pages:
                        came = self._read_otherwise(
                            db, step, now_ms, is_held, has_written=has_written
                        )
                    if came is NO_HELP:
                        step = operation.throw(damage)
                    else:
                        if db.readonly("main"):
                            met(db, damage_beside(step, damage))
                        step = operation.send(came)
                else:
                    step = operation.send(came)
        except StopIteration as end:
            done: T = end.value
            return done
        except BaseException:
            cursor.close(True)  # as above
            raise
        finally:
            if has_turned:
                # As above: the damage that was met lives on, and with it this frame.
                cursor.close(True)
                db.config(apsw.SQLITE_DBCONFIG_REVERSE_SCANORDER, 0)

    # reading

    def _read_otherwise(
        self,
        db: Connection,
        step: steps.Step,
        now_ms: int,
        is_held: IsHeld,
        *,
        has_written: bool,
    ) -> object:
        """The result of a step that has met a damaged page, read in another way; NO_HELP if there is none."""
        came: object = NO_HELP
        if not has_written:
            _begin_anew(db)
            came = self._read_turned(db, step, now_ms, is_held)
        if came is NO_HELP:
            came = self._read_plainly(db, step, now_ms, is_held)
        _begin_anew(db)
        return came

    def _read_turned(
        self, db: Connection, step: steps.Step, now_ms: int, is_held: IsHeld
    ) -> object:
        """The result of a step, read in the other direction, which all later steps keep; NO_HELP if that meets damage."""
        before = db.config(apsw.SQLITE_DBCONFIG_REVERSE_SCANORDER, -1)
        db.config(apsw.SQLITE_DBCONFIG_REVERSE_SCANORDER, 1 - before)
        try:
            return self._read(db, step, now_ms, is_held)
        except Exception as error:
            db.config(apsw.SQLITE_DBCONFIG_REVERSE_SCANORDER, before)
            if not is_damage(step, error, in_pages=is_page_damage(error)):
                raise
            return NO_HELP

    def _read_plainly(
        self, db: Connection, step: steps.Step, now_ms: int, is_held: IsHeld
    ) -> object:
        """The result of a step that has met a damaged page, read without indexes; NO_HELP if that is none."""
        if not db.readonly("main"):
            return NO_HELP
        began, kind = time.monotonic(), _kind_of(step)
        in_vain = self._in_vain.setdefault(db, {})
        if began < in_vain.get(kind, began):
            return NO_HELP
        until = began + PLAIN_READ_S
        db.set_progress_handler(lambda: time.monotonic() > until, PROGRESS_STEPS)
        try:
            return PLAIN_DRIVER._read(db, step, now_ms, is_held)
        except Exception as error:
            is_damaged = is_damage(step, error, in_pages=is_page_damage(error))
            if not is_damaged and not isinstance(error, apsw.InterruptError):  # no time is left
                raise
            in_vain[kind] = time.monotonic() + PLAIN_PAUSE_S
            return NO_HELP
        finally:
            db.set_progress_handler(None)

    def _read(
        self, db: Connection, step: steps.Step, now_ms: int, is_held: IsHeld
    ) -> Value | tuple[Value, ...]:
        cursor = db.cursor()
        try:
            if type(step) is steps.LookStep:
                return self._look(cursor, step, now_ms, is_held)
            if type(step) is steps.FindStep:
                return self._find(cursor, step)
            assert type(step) is steps.AskStep
            return self._ask(cursor, step, now_ms)
        finally:
            cursor.close(True)

    def _look(self, cursor: Cursor, step: steps.LookStep, now_ms: int, is_held: IsHeld) -> Value:
        look = step.look
        read = self._looks.get(look)
        if read is None:
            read = self._looks[look] = self._planned(look)
        sql, given, parts = read
        cells = cursor.execute(sql, given(step.given)).fetchone()
        assert cells is not None
        row: list[Any] = list(cells)
        found: list[Any] = [now_ms]
        # Most columns are plain, and this runs for every row of every turn.
        for at, upto, make, trust, is_holder in parts:
            value = row[at]
            # The first field of each row is part of its key, and never null.
            if make is not None and value is not None:
                for n, parse in trust:
                    cell = row[n]
                    if cell is not None:
                        row[n] = parse(cell)
                value = make(*row[at:upto])
                if is_holder and not is_held(value.slot):
                    value = None
            found.append(value)
        made: Value = look.kind(*found)
        return made

    def _planned(self, look: steps.Look[Any]) -> tuple[str, _Given, tuple[_Part, ...]]:
        at, parts = 0, list[_Part]()
        for part in look.parts.values():
            if isinstance(part, steps.One):
                codec, upto = _codec(part.table), at + len(part.table.columns)
                trust = tuple((at + n, parse) for n, parse in codec.trust)
                parts.append((at, upto, codec.make, trust, isinstance(part, steps.Holder)))
            else:
                upto = at + 1
                parts.append((at, upto, None, (), False))
            at = upto
        return *_numbered(self._spelled(looking(look))), tuple(parts)

    def _find(self, cursor: Cursor, step: steps.FindStep) -> tuple[Value, ...]:
        finder, given = step.finder, step.given
        shape = (finder, step.above is not None, step.upto is not None, step.limit is not None)
        known = self._finders.get(shape)
        if known is None:
            sql = self._spelled(finding(*shape))
            known = self._finders[shape] = *_numbered(sql), _codec(finder.table).made
        sql, bound, made = known
        if True in shape:
            given = {**given, "above": step.above, "upto": step.upto, "limit": step.limit}
        # Fetch all rows before making values of them: so a row that cannot be read leaves no cursor open.
        return tuple(map(made, cursor.execute(sql, bound(given)).fetchall()))

    def _ask(self, cursor: Cursor, step: steps.AskStep, now_ms: int) -> tuple[Value, ...]:
        question = step.question
        known = self._questions.get(question)
        if known is None:
            sql = self._spelled(SQLITE.spelled(text_of(question.name, question.words)))
            known = self._questions[question] = _numbered(sql)
        sql, bound = known
        given = {name: _plain(value) for name, value in step.given.items()}
        made = _codec(question.rows).made
        rows = cursor.execute(sql, bound({**given, "now_ms": now_ms})).fetchall()
        return tuple(map(made, rows))

    # writing

    def _write(self, cursor: Cursor, changes: tuple[steps.Change, ...], now_ms: int) -> None:
        for change in changes:
            table = change.table
            if type(change) is Update:
                columns = change.columns
                values = [*columns.values(), *change.key]
                self._write_row(cursor, (_update, table, *columns), values, now_ms)
            elif type(change) is Insert:
                shape = (_insert, table, change.if_absent)
                for row in change.rows:
                    values = list(astuple(row))
                    for proof in table.proofs:
                        values.append(proof.of(row))
                    self._write_row(cursor, shape, values, now_ms)
            elif type(change) is Delete:
                # The words of a chunk go with it, by the same key.
                values = [*change.key] * (2 if table.name == CHUNKS.name else 1)
                self._write_row(cursor, (_delete, table, len(change.key)), values, now_ms)
            else:
                assert type(change) is Put
                gone = tuple([Delete(table, table.key_of(row)) for row in change.rows])
                self._write(cursor, (*gone, Insert(table, change.rows)), now_ms)

    def _write_row(
        self, cursor: Cursor, shape: tuple[Any, ...], values: list[Any], now_ms: int
    ) -> None:
        written = self._written.get(shape)
        if written is None:
            written = self._written[shape] = shape[0](*shape[1:])
        sql, json, times = written
        for at in json:
            values[at] = encode(values[at])
        for at in times:
            if type(values[at]) is Moment:
                values[at] += now_ms
        cursor.execute(sql, values)


def _begin_anew(db: Connection) -> None:
    """Begin a transaction if SQLite has given up the last one at a damaged page, though nothing was written in it. What
    the operation writes next has to be in one; `Batch` repeats what was in the other."""
    if not db.in_transaction:
        db.execute("BEGIN" if db.readonly("main") else "BEGIN IMMEDIATE")


def _kind_of(step: steps.Step) -> object:
    match step:
        case steps.LookStep(look=look):
            return look
        case steps.FindStep(finder=finder):
            return finder
        case steps.AskStep(question=question):
            return question
        case _:
            raise AssertionError(step)


_READ_FROM = re.compile(
    rf"\b(from|join)\s+({'|'.join(TABLES)})\b"
    r"(\s+(?!where|on|order|limit|left|cross|join|group|union|indexed)\w+)?(\s+indexed by \w+)?"
)


_KEPT_BY_KEY = frozenset(
    """
    session session_key session_attribute session_past idempotency signal api_key tool_grant seal_key
    """.split()
)
"""Tables without row numbers: SQLite names their own order like an index, and does not heed `not indexed`."""


def _without_indexes(sql: str) -> str:
    """A statement that reads rows by the tables' own order."""

    def by_table(found: re.Match[str]) -> str:
        table = found[2]
        by_key = f"indexed by sqlite_autoindex_{table}_1"
        return (
            f"{found[1]} {table}{found[3] or ''} "
            f"{by_key if table in _KEPT_BY_KEY else 'not indexed'}"
        )

    return _READ_FROM.sub(by_table, sql)


def _plain(value: Any) -> Any:
    """A given value as SQLite takes it: a list is JSON."""
    if isinstance(value, Needed):
        return SQLITE.index.asked(value)
    return encode(value).decode() if isinstance(value, list) else value


def _insert(table: Table[Any], if_absent: bool) -> _Written:
    # SQLite numbers a serial column itself where the row has nought in it.
    own = [each for each in table.columns if each.holds != "lexemes"]
    beside = [each.column for each in table.proofs]
    listed = ",".join([*(each.quoted for each in own), *beside])
    values = ",".join(["nullif(?, 0)" if each.name == table.serial else "?" for each in own])
    values += ",?" * len(beside)
    done = " on conflict do nothing" if if_absent else ""
    sql = f"insert into {table.name} ({listed}) values ({values}){done}"
    if len(own) < len(table.columns):
        sql += "; insert into search_word (rowid, words) values (last_insert_rowid(), ?)"
    return sql, *_stored(table, table.names)


def _update(table: Table[Any], *columns: str) -> _Written:
    to = ",".join(f"{table.by_name[name].quoted}=?" for name in columns)
    hint = f" indexed by {table.index}" if table.index else ""
    sql = f"update {table.name}{hint} set {to} where {_by_key(table, len(table.key))}"
    return sql, *_stored(table, columns)


def _stored(table: Table[Any], columns: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which of these columns are JSON, and which are times."""
    json = (n for n, name in enumerate(columns) if table.by_name[name].holds == "json")
    times = (n for n, name in enumerate(columns) if name in table.times)
    return tuple(json), tuple(times)


def _delete(table: Table[Any], size: int) -> _Written:
    by_key = f"from {table.name} where {_by_key(table, size)}"
    words = f"delete from search_word where rowid in (select id {by_key}); "
    return f"{words if table.name == CHUNKS.name else ''}delete {by_key}", (), ()


def _by_key(table: Table[Any], size: int) -> str:
    return " and ".join(f"{table.by_name[name].quoted}=?" for name in table.key[:size])


BREATH_S = 0.0005
"""Long enough that a waiting thread gets to run; a hundredth of the time that a piece of text takes would not be."""

NO_HELP: Final = object()
"""What a read without indexes gives that cannot be made, or has met damage, too."""

PLAIN_READ_S = 1.0
"""How long a read without indexes may take: others wait for its connection meanwhile."""

PLAIN_PAUSE_S = 10.0
"""How long a kind of read is not tried without indexes after it was no help: the table itself is damaged, or large."""

PROGRESS_STEPS = 10_000
"""How many instructions SQLite executes before it looks at the clock: well under a millisecond."""

DRIVER = SqliteDriver()
"""Shared by all connections: a statement that one has needed, another one needs as well."""

PLAIN_DRIVER = SqliteDriver(indexes=False)
"""Reads around a damaged index."""
