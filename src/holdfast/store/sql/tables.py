"""The tables of every home: names, keys and columns. No other module lists the columns of a row.

A table is made from its row type in `rows.py`, and the kind of each column from the type of its field; so a new column
is one line there, and one in a migration.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as hints_of

from msgspec import Raw, Struct
from msgspec.structs import fields as struct_fields

from holdfast.core.codec import Decoder, Value
from holdfast.ids import Name, Version, trusted
from holdfast.store import rows
from holdfast.store.expiry import Horizon
from holdfast.store.verification import proofs
from holdfast.store.verification.proofs import Proof

R = TypeVar("R", bound=Value)

Holds: TypeAlias = Literal["text", "words", "lexemes", "number", "truth", "bytes", "json"]
"""The kinds of columns. `words` are text from people and models, which may contain U+0000; `lexemes` go into the search
index, and are never read back."""


class Column(Struct, frozen=True, kw_only=True):
    """One column: its kind, and how its value becomes a field."""

    name: str
    holds: Holds
    nullable: bool
    parse: Callable[[Any], object] | None = None
    """Makes the field from the stored value; None if the stored value is the field."""
    trust: Callable[[Any], object] | None = None
    """The same for a value that this server parsed before it stored it."""

    @property
    def quoted(self) -> str:
        return f'"{self.name}"' if self.name in _RESERVED else self.name


_RESERVED = frozenset(("end", "key", "text", "call"))
"""Names of columns that are reserved words in SQL."""


class Table(Generic[R]):
    """One table: its name, its key, and its columns in the order of the fields."""

    def __init__(
        self,
        name: str,
        kind: type[R],
        *key: str,
        serial: str | None = None,
        part_of: Table[Any] | None = None,
        index: str | None = None,
        proofs: tuple[Proof, ...] = (),
    ) -> None:
        """`serial` is a column that a home may number itself. `part_of` is the table of which this one is a part, with
        fewer columns. `index` is an index on the key, for a table where SQLite would rather read all rows of a tenant.
        `proofs` are stored in columns beside those of the fields."""
        self.name = name
        self.kind = kind
        self.key = key
        self.serial = serial
        self.index = index
        hints = hints_of(kind, include_extras=True)
        self.columns = tuple(_column(each, hints[each]) for each in kind.__struct_fields__)
        self.names = kind.__struct_fields__
        self.proofs = proofs
        beside = (Column(name=each.column, holds="number", nullable=True) for each in proofs)
        left_out = part_of.by_name if part_of else {}
        self.by_name: dict[str, Column] = {
            **left_out,
            **{each.name: each for each in (*self.columns, *beside)},
        }
        self.defaults = tuple((each.name, each.default) for each in struct_fields(kind))
        """Each field and its default; `NODEFAULT` if it is required."""
        self.times = tuple(name for name in self.names if name.endswith("_ms"))
        self.key_of: Callable[[R], tuple[Any, ...]] = key_of(key)

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    def listed(self, alias: str = "") -> str:
        """All columns, comma-separated, as a query lists them."""
        before = f"{alias}." if alias else ""
        return ",".join([before + each.quoted for each in self.columns])


def key_of(key: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the values of these columns of a row."""
    if len(key) > 1:
        return attrgetter(*key)
    return lambda row: tuple([getattr(row, name) for name in key])


def _column(name: str, hint: Any) -> Column:
    nullable = False
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
        nullable = True
    if get_origin(hint) is Annotated and hint.__metadata__[0] in _SAID:
        return Column(name=name, holds=_SAID[hint.__metadata__[0]], nullable=nullable)
    if get_origin(hint) is Literal:
        return Column(name=name, holds="text", nullable=nullable, parse=_one_of(get_args(hint)))
    if hint is str:
        return Column(name=name, holds="text", nullable=nullable)
    if hint in _PLAIN:
        return Column(name=name, holds=_PLAIN[hint], nullable=nullable)
    if isinstance(hint, type) and issubclass(hint, Name | Version):
        holds: Holds = "number" if issubclass(hint, Version) else "text"
        return Column(name=name, holds=holds, nullable=nullable, parse=hint, trust=trusted(hint))
    if hint is Raw:  # as it is stored
        return Column(name=name, holds="json", nullable=nullable, parse=Raw, trust=Raw)
    decode = Decoder[object](hint).strict
    return Column(name=name, holds="json", nullable=nullable, parse=decode, trust=decode)


def _one_of(words: tuple[str, ...]) -> Callable[[Any], object]:
    known = {word: word for word in words}

    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"{text!r} is none of {', '.join(known)}")
        return text

    return parse


_SAID: dict[object, Holds] = {rows.WORDS: "words", rows.LEXEMES: "lexemes"}
_PLAIN: dict[object, Holds] = {int: "number", bool: "truth", bytes: "bytes"}

NODES = Table("node", rows.NodeRow, "node_id", serial="slot")
SESSIONS = Table("session", rows.SessionRow, "tenant", "id", proofs=(proofs.SESSION, proofs.AGENT))
SESSION_NAMES = Table("session", rows.SessionName, *SESSIONS.key, part_of=SESSIONS)
TOMBSTONES = Table("session", rows.Tombstone, *SESSIONS.key)
KEYS = Table("session_key", rows.KeyRow, "tenant", "key", proofs=(proofs.KEY,))
TURNS = Table("turn", rows.TurnRow, "tenant", "turn_id", proofs=(proofs.TURN, proofs.END))
CLAIMS = Table("idempotency", rows.IdempotencyRow, "tenant", "key", proofs=(proofs.CLAIM,))
TURN_CLAIMS = Table(
    "idempotency", rows.IdempotencyRow, "tenant", "turn_id", index="idempotency_by_turn"
)
SIGNALS = Table("signal", rows.SignalRow, "tenant", "turn_id", "n", proofs=(proofs.SIGNAL,))
JOURNAL = Table("journal", rows.JournalRow, "tenant", "turn_id", "n", proofs=(proofs.JOURNAL,))
ITEMS = Table("item", rows.ItemRow, "tenant", "session_id", "pos")
ITEM_BODIES = Table("item", rows.ItemBody, *ITEMS.key, part_of=ITEMS)
BLOBS = Table("blob", rows.BlobRow, "tenant", "session_id", "digest")
BLOB_NAMES = Table("blob", rows.BlobName, "tenant", "session_id", "digest")
ATTRIBUTES = Table("session_attribute", rows.AttributeRow, "tenant", "session_id", "name")
PASTS = Table("session_past", rows.PastRow, "tenant", "ancestor", "session_id")
CHUNKS = Table("search_chunk", rows.ChunkRow, "tenant", "session_id", "from_pos")
CHUNK_WORDS = Table("search_chunk", rows.ChunkWords, *CHUNKS.key)
INDEXED = Table("session", rows.IndexedRow, *SESSIONS.key)
STATE = Table("state", rows.StateRow, "tenant", "session_id", "seq", "name")
ANNOTATIONS = Table(
    "annotation", rows.AnnotationRow, "tenant", "session_id", "rev", proofs=(proofs.ANNOTATION,)
)
MEMORIES = Table("memory", rows.MemoryRow, "tenant", "agent", "memory_id", proofs=(proofs.MEMORY,))
API_KEYS = Table("api_key", rows.ApiKeyRow, "key_id", proofs=(proofs.API_KEY,))
SEAL_KEYS = Table("seal_key", rows.SealKeyRow, "key_id", proofs=(proofs.SEAL_KEY,))
GRANTS = Table("tool_grant", rows.GrantRow, "tenant", "grant_id", proofs=(proofs.GRANT,))
HORIZON = Table("horizon", Horizon, "one")

TABLES: dict[str, Table[Any]] = {
    each.name: each
    for each in (
        *(NODES, SESSIONS, KEYS, TURNS, CLAIMS, SIGNALS, JOURNAL, ITEMS, STATE, ANNOTATIONS),
        *(MEMORIES, API_KEYS, SEAL_KEYS, GRANTS, HORIZON, BLOBS, ATTRIBUTES, PASTS),
    )
}
