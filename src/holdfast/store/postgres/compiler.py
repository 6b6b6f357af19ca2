"""What an operation writes, compiled to one statement that writes all of it or nothing.

A statement may carry the writes of several operations, each with a number of its own (`w`): those whose conditions hold
are *ready*, with the time at which that was, and everything else is joined with what is ready. It gives their numbers
back; an operation whose number is missing has written nothing.

What keeps that right, and must stay:

1. Each condition is in the statement that writes: the sessions as they were read, by their stamps; the node alive; rows
   as they were read, locked; rows absent, by their unique keys.
2. A row is written once in a statement: PostgreSQL does not say which of two writes would win.
3. After the wait for a lock only the locked row is read anew, and everything else is seen as it was when the statement
   began. So each row that an operation depends on lies behind the stamp of a locked session, behind a locked row, or
   behind a unique key.
4. Sessions, and rows as they were read, are locked in the order of their keys, so that two statements cannot wait for
   each other; several operations in one statement do not wait at all, and leave out what is locked.
5. No column that changes with every turn is in an index, so that a row stays on its page (HOT).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from holdfast.core.codec import encode
from holdfast.ids import SessionId, Tenant
from holdfast.store.postgres.queries import NOW, PostgresQuery, utf8
from holdfast.store.sql.tables import SESSIONS, Column, Holds, Table
from holdfast.store.steps import AsRead, Change, Delete, Insert, Moment, Put, Update, WriteStep

SCHEMA = "holdfast."
Stamps: TypeAlias = dict[tuple[Tenant, SessionId], int]
"""The stamps of sessions as they were read."""

_TYPES: dict[Holds, str] = {
    "text": "text",
    "words": "bytea",
    "lexemes": "text",
    "number": "bigint",
    "truth": "boolean",
    "bytes": "bytea",
    "json": "bytea",
}


class Slot(Struct, frozen=True, eq=False):
    """One kind of change: which table, which columns come with it, which of them are moments, and which columns are
    what they are by default. There is one of each kind (`_slot`), so that shapes are compared quickly."""

    verb: str
    """`move` is an update that moves a session's stamp."""
    table: Table[Any]
    columns: tuple[str, ...]
    moments: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()

    @property
    def types(self) -> dict[str, str]:
        """The columns that come with it, and of what type they are."""
        columns = self.table.by_name
        return {name: _TYPES[columns[name].holds] for name in self.columns}


_slot = cache(Slot)


class WriteShape(NamedTuple):
    """What two writes have in common that go into one statement."""

    slots: tuple[Slot, ...]
    sessions: int
    """How many sessions each has to find as they were read."""
    live: bool
    as_read: tuple[Slot, ...]

    @property
    def inputs(self) -> list[tuple[str, dict[str, str]]]:
        """What comes with it, each as a relation: what it is called, and its columns."""
        inputs: list[tuple[str, dict[str, str]]] = []
        if self.sessions:
            inputs.append(("on", {"tenant": "text", "id": "text", "stamp": "bigint"}))
        if self.live:
            inputs.append(("live", {"node": "text"}))
        slots = (*self.as_read, *self.slots)
        return inputs + [(each.table.name, each.types) for each in slots]


class WriteRequest(NamedTuple):
    """A write, by its shape and values."""

    shape: WriteShape
    rows: list[list[list[Any]]]
    """The rows of each input."""

    @property
    def size(self) -> int:
        """About how many bytes its values have."""
        values = (value for rows in self.rows for row in rows for value in row)
        return sum(len(value) for value in values if isinstance(value, bytes))


# ── what is asked for ────────────────────────────────────────────────────────────────────────


def asked_for(writing: WriteStep, stamps: Stamps) -> WriteRequest:
    """A write as it goes into a statement."""
    slots: dict[Slot, list[list[Any]]] = {}
    places = sorted([(each.tenant, each.id) for each in writing.on])
    unmoved = {*places}
    for each in writing.changes:
        moves = False
        if type(each) is Update and each.table.name == SESSIONS.name:
            moves = each.key in unmoved
            unmoved.discard(each.key)
            assert moves or each.table is not SESSIONS, "a session is written as it was read"
        for slot, values in _slots(each, "move" if moves else "update"):
            slots.setdefault(slot, []).append(values)
    for place in places:
        if place in unmoved:
            slots.setdefault(_MOVED, []).append([*place])
    guards: dict[Slot, list[list[Any]]] = {}
    for guard in writing.as_read:
        slot, values = _guard(guard)
        guards.setdefault(slot, []).append(values)
    rows: list[list[list[Any]]] = []
    if places:
        rows.append([[*place, stamps[place]] for place in places])
    if writing.live is not None:
        rows.append([[writing.live]])
    shape = WriteShape(tuple(slots), len(places), writing.live is not None, tuple(guards))
    return WriteRequest(shape, [*rows, *guards.values(), *slots.values()])


_MOVED = _slot("move", SESSIONS, SESSIONS.key)
"""A session that is written only by what belongs to it."""


def _slots(change: Change, update: str) -> Iterator[tuple[Slot, list[Any]]]:
    table = change.table
    if type(change) is Insert:
        verb = "insert if absent" if change.if_absent else "insert"
        for row in change.rows:
            yield _inserted(verb, table, row)
    elif type(change) is Update:
        named = dict(zip(table.key, change.key, strict=True))
        yield _filled(update, table, {**named, **change.columns})
    elif type(change) is Put:
        for row in change.rows:
            yield _inserted("put", table, row)
    else:
        assert type(change) is Delete
        yield _filled("delete", table, dict(zip(table.key, change.key, strict=False)))


def _inserted(verb: str, table: Table[Any], row: Any) -> tuple[Slot, list[Any]]:
    """What is as it is by default is not sent: it stands in the statement."""
    values: dict[str, Any] = {}
    defaults: list[str] = []
    for (name, default), value in zip(table.defaults, astuple(row), strict=True):
        if value == default and type(value) is not Moment:
            defaults.append(name)
        elif name != table.serial:
            values[name] = value
    for proof in table.proofs:
        proven = proof.of(row)
        if proven is not None:
            values[proof.column] = proven
    return _filled(verb, table, values, tuple(defaults))


def _filled(
    verb: str, table: Table[Any], values: dict[str, Any], defaults: tuple[str, ...] = ()
) -> tuple[Slot, list[Any]]:
    columns = table.by_name
    moments: list[str] = []
    sent: list[Any] = []
    for name, value in values.items():
        kind = type(value)
        if kind is Moment:
            moments.append(name)
            value = int(value)
        elif value is not None and kind not in _SENT:
            value = stored(columns[name], value)
        elif kind is str and columns[name].holds == "words":
            value = utf8(value)
        sent.append(value)
    return _slot(verb, table, tuple(values), tuple(moments), defaults), sent


_SENT = frozenset((str, int, bytes, bool))


def _guard(guard: AsRead) -> tuple[Slot, list[Any]]:
    names = (*guard.table.key, *guard.columns)
    columns = guard.table.by_name
    values = [stored(columns[name], getattr(guard.row, name)) for name in names]
    return _slot("as read", guard.table, names), values


def cast(column: Column) -> str:
    """The type of a column, where a statement cannot tell."""
    return f"::{_TYPES[column.holds]}"


def stored(column: Column, value: Any) -> Any:
    """A field as PostgreSQL keeps it."""
    if value is None:
        return None
    match column.holds:
        case "words":
            return utf8(value)
        case "json":
            return encode(value)
        case "number":
            return int(value)
        case _:
            return value


# ── the statement ────────────────────────────────────────────────────────────────────────────


Form: TypeAlias = Literal["one", "some", "many"]
"""How an input comes: as one row of one write, as several rows of one write, or as rows of many writes."""


class Compiler:
    """Compiles each shape once, for each form in which its inputs come."""

    def __init__(self) -> None:
        self._queries: dict[tuple[WriteShape, tuple[Form, ...], bool], PostgresQuery] = {}

    def statement(
        self, group: Sequence[WriteRequest], *, waits: bool
    ) -> tuple[PostgresQuery, list[Any]]:
        """The statement for writes of one shape, and its values in their order. `waits`: for locks."""
        shape = group[0].shape
        forms: list[Form] = []
        values: list[Any] = []
        if len(group) == 1:
            for rows in group[0].rows:
                if len(rows) == 1:
                    forms.append("one")
                    values += rows[0]
                else:
                    forms.append("some")
                    values += map(list, zip(*rows, strict=True))
        else:
            for inputs in zip(*(each.rows for each in group), strict=True):
                forms.append("many")
                numbered = [[w, *row] for w, rows in enumerate(inputs, 1) for row in rows]
                values += map(list, zip(*numbered, strict=True))
        known = (shape, tuple(forms), waits)
        query = self._queries.get(known)
        if query is None:
            query = self._queries[known] = _compiled(*known)
        return query, values


def _compiled(shape: WriteShape, forms: tuple[Form, ...], waits: bool) -> PostgresQuery:
    names: list[str] = []
    inputs = iter([_relation(*each, names) for each in zip(shape.inputs, forms, strict=True)])
    guards = forms[len(forms) - len(shape.slots) - len(shape.as_read) :]
    parts: list[str] = []
    ready = "select 1::bigint as w, {now} as now_ms"
    if shape.sessions:
        skip = "" if waits else " skip locked"
        ready = (
            "select h.w, {now} as now_ms"
            f" from {next(inputs)} h join {SCHEMA}session s"
            " on s.tenant = h.tenant_ and s.id = h.id_ and s.stamp = h.stamp_"
            f" order by s.tenant, s.id for no key update of s{skip}"
        )
    if shape.sessions > 1:
        parts.append(f"held as ({ready})")
        ready = (
            "select h.w, max(h.now_ms) as now_ms from held h"
            f" group by h.w having count(*) = {shape.sessions}"
        )
    if shape.live:
        ready = (
            f"select r.w, r.now_ms from ({ready}) r join {next(inputs)} l on l.w = r.w"
            f" join {SCHEMA}node n on n.node_id = l.node_ and n.expires_ms > r.now_ms"
        )
    for nth, slot in enumerate(shape.as_read):
        parts += _guarded(slot, next(inputs), nth, shape, several=guards[nth] != "one")
        ready = (
            f"select r.w, r.now_ms from ({ready}) r where (select count(*) from given{nth} where w = r.w)"
            f" = (select count(*) from same{nth} where w = r.w)"
        )
    parts.append(f"ready as materialized ({ready})")
    for nth, slot in enumerate(shape.slots):
        source = f"{next(inputs)} u join ready r on r.w = u.w"
        parts.append(f"done{nth} as ({_changed(slot, source)})")
    sql = f"with {', '.join(parts)} select w, now_ms from ready"
    return _timed(sql, tuple(names))


def _relation(what: tuple[str, dict[str, str]], form: Form, names: list[str]) -> str:
    """An input as a relation, of a number `w` and its columns; its parameters are added to `names`."""
    name, columns = what
    if form == "many":
        columns = {"w": "bigint", **columns}
    first = len(names) + 1
    names += [f"{first} {name}.{column}" for column in columns]
    parameters = [f"${n}::{of}" for n, of in enumerate(columns.values(), first)]
    called = [column if column == "w" else f"{column}_" for column in columns]
    if form == "one":
        listed = ", ".join(f"{each} as {as_}" for each, as_ in zip(parameters, called, strict=True))
        return f"(select 1::bigint as w, {listed})"
    arrays, listed = ", ".join(f"{each}[]" for each in parameters), ", ".join(called)
    number = "1::bigint as w, " if form == "some" else ""
    return f"(select {number}v.* from unnest({arrays}) as v ({listed}))"


def _guarded(slot: Slot, source: str, nth: int, shape: WriteShape, *, several: bool) -> list[str]:
    """Which rows were to be as they were read, and which of them are: those are locked."""
    same = " and ".join(
        f"x.{_quoted(slot, name)} = g.{name}_"
        if name in slot.table.key
        else f"x.{_quoted(slot, name)} is not distinct from g.{name}_"
        for name in slot.columns
    )
    # A share of a lock cannot become the whole of it while others have theirs.
    changes = any(each.table.name == slot.table.name for each in shape.slots)
    lock = "no key update" if changes else "share"
    found = f"given{nth} g join {SCHEMA}{slot.table.name} x on {same}"
    if several:
        found += f" order by {', '.join(f'x.{_quoted(slot, name)}' for name in slot.table.key)}"
    return [
        f"given{nth} as (select * from {source} g)",
        f"same{nth} as (select g.w from {found} for {lock} of x)",
    ]


def _timed(sql: str, names: tuple[str, ...]) -> PostgresQuery:
    """With the time spelled out; a clock that was given comes last."""
    at = f"${len(names) + 1}"
    return PostgresQuery(
        name="write",
        sql=sql.replace("{now}", NOW.replace(":now_ms", at)),
        names=(*names, "now_ms"),
    )


def _changed(slot: Slot, source: str) -> str:
    table = f"{SCHEMA}{slot.table.name}"
    key = slot.columns if slot.verb == "delete" else slot.table.key
    by_key = " and ".join(f"x.{_quoted(slot, name)} = u.{name}_" for name in key)
    if slot.verb == "delete":
        return f"delete from {table} x using {source} where {by_key}"
    if slot.verb in ("update", "move"):
        sets = [
            f"{_quoted(slot, name)} = {_value(slot, name)}"
            for name in slot.columns[len(slot.table.key) :]
        ]
        if slot.verb == "move":
            sets.append("stamp = x.stamp + 1")
        return f"update {table} x set {', '.join(sets)} from {source} where {by_key}"
    names = (*slot.columns, *slot.defaults)
    listed = ", ".join(_quoted(slot, name) for name in names)
    values = ", ".join(_value(slot, name) for name in names)
    done = " on conflict do nothing" if slot.verb == "insert if absent" else ""
    if slot.verb == "put":
        sets = [f"{_quoted(slot, name)} = excluded.{_quoted(slot, name)}" for name in names]
        keys = ", ".join(_quoted(slot, name) for name in slot.table.key)
        done = f" on conflict ({keys}) do update set {', '.join(sets)}"
    return f"insert into {table} ({listed}) select {values} from {source}{done}"


def _value(slot: Slot, name: str) -> str:
    if name in slot.defaults:
        return _literal(slot.table, name)
    if slot.table.by_name[name].holds == "lexemes":
        return f"array_to_tsvector(string_to_array(u.{name}_, ' '))"
    return f"u.{name}_ + r.now_ms" if name in slot.moments else f"u.{name}_"


def _literal(table: Table[Any], name: str) -> str:
    """The default of a column, as a statement has it."""
    column = table.by_name[name]
    value = stored(column, dict(table.defaults)[name])
    match value:
        case None:
            spelled = "null"
        case bool() | int():
            spelled = str(value).lower()
        case bytes():
            # With E, it means the same whether `standard_conforming_strings` is on or off.
            spelled = f"E'\\\\x{value.hex()}'"
        case _:
            assert str(value).replace("_", "").isalnum() or not value, "a word of our own"
            spelled = f"'{value}'"
    return f"{spelled}{cast(column)}"


def _quoted(slot: Slot, name: str) -> str:
    return slot.table.by_name[name].quoted
