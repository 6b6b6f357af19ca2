"""Between rows of PostgreSQL and the values of `store/rows.py`.

A query names a table's columns by `{table}` and gets them in the order of its struct's fields; so one small mapper
serves them all, and a row that joins several tables is read off from left to right (`Reader`).

What people and models say is UTF-8 in bytea (`Words`), because PostgreSQL's text cannot hold U+0000.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from holdfast.core.codec import Decoder, Value, encode
from holdfast.core.conversation import Lineage, settings_decoder
from holdfast.core.events import Change, Usage
from holdfast.ids import (
    CallId,
    GrantId,
    IdempotencyKey,
    ItemId,
    KeyId,
    NodeId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)
from holdfast.store.horizon import Horizon, Leap
from holdfast.store.queries import load_queries
from holdfast.store.rows import (
    AnnotationRow,
    ApiKeyRow,
    GrantRow,
    IdempotencyRow,
    ItemRow,
    JournalRow,
    KeyRow,
    MemoryRow,
    NodeRow,
    SealKeyRow,
    SessionRow,
    SignalRow,
    StateRow,
    TurnRow,
)

R = TypeVar("R", bound=Value)
Column: TypeAlias = str | int | bytes | bool | None
Bound: TypeAlias = Column | Sequence[Column]
Bindings: TypeAlias = Mapping[str, Bound]
Row: TypeAlias = Sequence[Any]
"""As asyncpg gives it: the columns in their order."""


class Read:
    """How a column becomes a field, and back."""

    def __init__(
        self, read: Callable[[Any], object], write: Callable[[Any], Column] | None = None
    ) -> None:
        self.read = read
        self.write = write


def utf8(text: str) -> bytes:
    """What somebody said, as a column."""
    return text.encode()


WORDS = Read(bytes.decode, utf8)


def _json(decode: Callable[[bytes], object]) -> Read:
    return Read(decode, encode)


class Table(Generic[R]):
    """How one kind of row is read and bound."""

    def __init__(self, kind: type[R], **columns: Read | type) -> None:
        """`columns` names the fields that are more than a plain column, and how they are read."""
        self._kind = kind
        self.fields = kind.__struct_fields__
        self.width = len(self.fields)
        known = {name: how if isinstance(how, Read) else Read(how) for name, how in columns.items()}
        self._read = tuple((self.fields.index(name), how.read) for name, how in known.items())
        self._write = tuple((name, how.write) for name, how in known.items() if how.write)

    def made(self, row: Row) -> R:
        """The value of a row whose columns are in the order of the fields."""
        values = list(row)
        for at, read in self._read:
            if values[at] is not None:
                values[at] = read(values[at])
        return self._kind(**dict(zip(self.fields, values, strict=True)))

    def bound(self, row: R) -> dict[str, Column]:
        """A row's fields by name, as columns."""
        values: dict[str, Column] = msgspec.structs.asdict(row)
        for name, write in self._write:
            if values[name] is not None:
                values[name] = write(values[name])
        return values


class Reader:
    """Reads a row that joins several tables, from left to right."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._at = 0

    def one(self, table: Table[R]) -> R | None:
        """The next columns as a row of this table; None if the join found none."""
        part = self._row[self._at : self._at + table.width]
        self._at += table.width
        # Every table's first column is part of its key, so it is null only if the whole row is.
        return None if part[0] is None else table.made(part)

    def value(self) -> Any:
        """The next column as it is."""
        self._at += 1
        return self._row[self._at - 1]

    def number(self) -> int:
        """The next column, which is a number; 0 if the join found none."""
        return int(self.value() or 0)


lineage_decoder: Decoder[Lineage] = Decoder(Lineage)
_changes: Decoder[tuple[Change, ...]] = Decoder(tuple[Change, ...])
_usage: Decoder[Usage] = Decoder(Usage)
_leaps: Decoder[tuple[Leap, ...]] = Decoder(tuple[Leap, ...])
_scopes: Decoder[tuple[str, ...]] = Decoder(tuple[str, ...])

horizons = Table(Horizon, leaps=_json(_leaps.strict))
nodes = Table(NodeRow, node_id=NodeId)
sessions = Table(
    SessionRow,
    tenant=Tenant,
    id=SessionId,
    head=Version,
    lease_node=NodeId,
    open_turn=TurnId,
    source_key=WORDS,
    entry_agent=WORDS,
    agent=WORDS,
    lineage=_json(lineage_decoder.strict),
    settings=_json(settings_decoder.strict),
    title=WORDS,
    opening=WORDS,
    unfinished=Version,
)
keys = Table(KeyRow, tenant=Tenant, key=SessionKey, session_id=SessionId)
turns = Table(
    TurnRow,
    tenant=Tenant,
    turn_id=TurnId,
    session_id=SessionId,
    base_head=Version,
    seq=Version,
    detail=WORDS,
    retry_of=TurnId,
    agent=WORDS,
    source_digest=WORDS,
    changes=_json(_changes.strict),
    usage=_json(_usage.strict),
    continues=TurnId,
)
claims = Table(IdempotencyRow, tenant=Tenant, key=IdempotencyKey, turn_id=TurnId)
signals = Table(SignalRow, tenant=Tenant, turn_id=TurnId)
notes = Table(AnnotationRow, tenant=Tenant, session_id=SessionId, item=ItemId)
state = Table(StateRow, tenant=Tenant, session_id=SessionId, name=WORDS, seq=Version, value=WORDS)
memories = Table(MemoryRow, tenant=Tenant, agent=WORDS, memory_id=WORDS, text=WORDS, turn_id=TurnId)
api_keys = Table(ApiKeyRow, key_id=KeyId, tenant=Tenant, name=WORDS, scopes=_json(_scopes.strict))
seal_keys = Table(SealKeyRow, key_id=KeyId)
grants = Table(
    GrantRow,
    tenant=Tenant,
    grant_id=GrantId,
    source_key=WORDS,
    agent=WORDS,
    tool=WORDS,
    arguments=WORDS,
    call=CallId,
    made_by=KeyId,
)
items = Table(ItemRow, turn_id=TurnId)
journal = Table(JournalRow)

# ── queries ──────────────────────────────────────────────────────────────────────────────────

_COLUMNS: dict[str, tuple[str, ...]] = {
    "horizon": horizons.fields,
    "node": nodes.fields,
    "session": sessions.fields,
    "session_key": keys.fields,
    "turn": turns.fields,
    "idempotency": claims.fields,
    "signal": signals.fields,
    "annotation": notes.fields,
    "state": state.fields,
    "memory": memories.fields,
    "api_key": api_keys.fields,
    "seal_key": seal_keys.fields,
    "tool_grant": grants.fields,
    "item": items.fields,
    "journal": journal.fields,
}

NOW = "coalesce(:now_ms::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)"
"""The time when this is reached, not when the transaction began: a statement may have waited before."""

_PLACEHOLDER = re.compile(r"(\w+\.)?\{(:?)(\w+)\}")
_NAME = re.compile(r"(?<![:\w]):([a-z_]\w*)")


class Query(Value):
    """A statement with numbered parameters, and their names in that order."""

    name: str
    sql: str
    names: tuple[str, ...]

    def arguments(self, bindings: Bindings) -> tuple[Bound, ...]:
        return tuple([bindings[name] for name in self.names])


def compiled(name: str, text: str) -> Query:
    """A named query as PostgreSQL takes it: columns spelled out, `:names` as `$1`, `$2` and so on."""
    names: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    sql = _NAME.sub(numbered, _PLACEHOLDER.sub(_spelled_out, text))
    return Query(name=name, sql=sql, names=tuple(names))


def _spelled_out(found: re.Match[str]) -> str:
    alias, bound, table = found[1] or "", found[2], found[3]
    if table == "now":
        return NOW
    columns = _COLUMNS[table]
    if bound:
        return ", ".join(f":{name}" for name in columns)
    return ", ".join(f'{alias}"{name}"' for name in columns)


def load(*names: str) -> dict[str, Query]:
    """The queries of these files, by name."""
    folder = Path(__file__).parent / "sql"
    found = load_queries(*(folder / name for name in names))
    return {name: compiled(name, text) for name, text in found.items()}


queries = load("turns.sql", "queue.sql", "sessions.sql", "search.sql", "upkeep.sql", "access.sql")
