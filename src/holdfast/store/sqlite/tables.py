"""Between rows of SQLite and the values of `store/rows.py`.

A query selects a table's columns in the order of its struct's fields; so one small mapper serves them all.
Ids are parsed on the way in, values that are not plain columns are JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import Generic, TypeAlias, TypeVar

from apsw import Connection

from holdfast.core.codec import Decoder, Value, encode
from holdfast.core.conversation import Lineage, settings_decoder
from holdfast.core.events import Change, Usage
from holdfast.ids import (
    IdempotencyKey,
    ItemId,
    NodeId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)
from holdfast.store.rows import (
    AnnotationRow,
    IdempotencyRow,
    ItemRow,
    JournalRow,
    KeyRow,
    MemoryRow,
    NodeRow,
    SessionRow,
    SignalRow,
    StateRow,
    TurnRow,
)
from holdfast.store.sqlite.queries import load_queries

_sql = files("holdfast.store.sqlite") / "sql"
queries = load_queries(*(_sql / name for name in ("turns.sql", "sessions.sql", "upkeep.sql")))

R = TypeVar("R", bound=Value)
Column: TypeAlias = str | int | float | bytes | None
Read = Callable[[Column], object]


class Table(Generic[R]):
    """How one kind of row is read and bound."""

    def __init__(self, kind: type[R], **columns: Read) -> None:
        """`columns` names the fields that are more than a plain column, and how they are read."""
        self._kind = kind
        self._fields = kind.__struct_fields__
        self._read = tuple((name, columns.get(name)) for name in self._fields)

    def one(self, db: Connection, query: str, /, **bindings: Column) -> R | None:
        """The first row of a named query, or None."""
        row = db.execute(queries[query], bindings).fetchone()
        return None if row is None else self.made(row)

    def all(self, db: Connection, query: str, /, **bindings: Column) -> tuple[R, ...]:
        """All rows of a named query."""
        return tuple(map(self.made, db.execute(queries[query], bindings)))

    def made(self, row: Iterable[Column]) -> R:
        """The value of a row whose columns are in the order of the fields."""
        return self._kind(
            **{
                name: value if read is None or value is None else read(value)
                for (name, read), value in zip(self._read, row, strict=True)
            }
        )

    def put(self, db: Connection, query: str, *rows: R) -> None:
        """Execute a named query for each row, its fields bound by name."""
        db.executemany(
            queries[query],
            [{name: to_column(getattr(row, name)) for name in self._fields} for row in rows],
        )


def to_column(value: object) -> Column:
    """A field as a column: plain values as they are, everything else as JSON."""
    if value is None or isinstance(value, bytes | int | str):
        return value
    return encode(value)


def run(db: Connection, query: str, /, **bindings: Column) -> None:
    """Execute a named query for its effect."""
    db.execute(queries[query], bindings)


def scalar(db: Connection, query: str, /, **bindings: Column) -> Column:
    """The first column of a named query's first row; None if there is none."""
    row = db.execute(queries[query], bindings).fetchone()
    return None if row is None else row[0]


def texts(db: Connection, query: str, /, **bindings: Column) -> list[tuple[str, ...]]:
    """All rows of a named query that selects nothing but text."""
    return [tuple(map(_text, row)) for row in db.execute(queries[query], bindings)]


def numbers(db: Connection, query: str, /, **bindings: Column) -> tuple[int, ...]:
    """The one row of a named query that counts things."""
    return tuple(map(_number, db.execute(queries[query], bindings).fetchall()[0]))


def _text(value: Column) -> str:
    assert isinstance(value, str)
    return value


def _number(value: Column) -> int:
    assert isinstance(value, int)
    return value


def _id(kind: Callable[[str], object]) -> Read:
    return lambda value: kind(_text(value))


def _json(decode: Callable[[bytes], object]) -> Read:
    def read(value: Column) -> object:
        assert isinstance(value, bytes)
        return decode(value)

    return read


def _version(value: Column) -> Version:
    return Version(_number(value))


_lineage: Decoder[Lineage] = Decoder(Lineage)
_changes: Decoder[tuple[Change, ...]] = Decoder(tuple[Change, ...])
_usage: Decoder[Usage] = Decoder(Usage)

node_rows = Table(NodeRow, node_id=_id(NodeId))
session_rows = Table(
    SessionRow,
    tenant=_id(Tenant),
    id=_id(SessionId),
    head=_version,
    lease_node=_id(NodeId),
    open_turn=_id(TurnId),
    lineage=_json(_lineage.strict),
    settings=_json(settings_decoder.strict),
    anonymous=bool,
)
key_rows = Table(KeyRow, tenant=_id(Tenant), key=_id(SessionKey), session_id=_id(SessionId))
turn_rows = Table(
    TurnRow,
    tenant=_id(Tenant),
    turn_id=_id(TurnId),
    session_id=_id(SessionId),
    base_head=_version,
    seq=_version,
    retry_of=_id(TurnId),
    replayable=bool,
    changes=_json(_changes.strict),
    usage=_json(_usage.strict),
    acked=bool,
)
idempotency_rows = Table(
    IdempotencyRow, tenant=_id(Tenant), key=_id(IdempotencyKey), turn_id=_id(TurnId)
)
signal_rows = Table(SignalRow, tenant=_id(Tenant), turn_id=_id(TurnId), consumed=bool)
annotation_rows = Table(
    AnnotationRow, tenant=_id(Tenant), session_id=_id(SessionId), item=_id(ItemId)
)
state_rows = Table(StateRow, tenant=_id(Tenant), session_id=_id(SessionId), seq=_version)
memory_rows = Table(MemoryRow, tenant=_id(Tenant), turn_id=_id(TurnId))
item_rows = Table(ItemRow, turn_id=_id(TurnId))
journal_rows = Table(JournalRow)
