"""The steps of an operation: look, find, ask, write, and give way.

An operation of the store is one text for every home: a generator that yields steps, is sent what came of each, and
decides in between. A home is a driver: it knows how to take these steps, and no rule.

    def release(fence: Fence) -> Operation[None]:
        session = demand_fence(fence, (yield from get(SESSIONS, fence.tenant, fence.session_id)))
        yield from write(change(SESSIONS, session, lease_node=None), on=(session,))

1. An operation may be run again from its start, and changes nothing but by `write`; clocks, ids and randomness are
   arguments. It writes once at most, and that is the last step that can fail; or it finds what it has written, and
   goes on after it.
2. A home that has no lock around an operation writes on condition that what was decided on is still so: each session in
   `on` as it was read, `live` a node that is alive, each row in `as_read` with the same values in these columns, each
   inserted row absent. If it is not, the operation is run again.
3. So all that an operation reads belongs to a session in `on`, or to a row in `as_read`, or never changes.
4. A row is written once in a step.
5. `NOW` stands for the time at which a home writes, which is what `write` gives back.
6. Two looks may be two moments, and nothing guards a refusal: one look has found what it is decided on, or the later
   look cannot make it wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from holdfast.core.codec import Value
from holdfast.ids import NodeId
from holdfast.store.rows import SessionRow, Tombstone
from holdfast.store.sql.tables import NODES, R, Table

F = TypeVar("F", bound="Facts")
T = TypeVar("T")


class Moment(int):
    """Milliseconds after the time at which a home writes."""

    __slots__ = ()


NOW: Final = Moment(0)

# ── looking ──────────────────────────────────────────────────────────────────────────────────


class GivenValue(Struct, frozen=True):
    """A value that comes with the step."""

    name: str


class FoundColumn(Struct, frozen=True):
    """A column of a row that an earlier part of the same look has found."""

    part: str
    column: str


Constant: TypeAlias = str | int | bool | None
Source: TypeAlias = GivenValue | FoundColumn | Constant
"""What a column is compared with."""


def _source(text: Constant) -> Source:
    """`:name` is given, `part.column` was found, everything else is meant as it is."""
    if not isinstance(text, str):
        return text
    if text.startswith(":"):
        return GivenValue(text[1:])
    part, dot, column = text.partition(".")
    return FoundColumn(part, column) if dot else text


class Part:
    """Something to be looked for in one table, by the values of some columns.

    Several sources of a column are tried in their order: the first that is there counts.
    """

    def __init__(self, table: Table[Any], **where: str | int | bool | tuple[str, ...]) -> None:
        self.table = table
        self.where: dict[str, tuple[Source, ...]] = {
            column: tuple(map(_source, each if isinstance(each, tuple) else (each,)))
            for column, each in where.items()
        }
        self.columns = tuple(where)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.table.name} by {', '.join(self.where)}>"


class One(Part):
    """The row, or None."""


class Holder(One):
    """The row of a node that holds something, unless its process is known to be dead; None then, as if it had resigned."""

    def __init__(self, node_id: str) -> None:
        super().__init__(NODES, node_id=node_id)


class RowPresence(Part):
    """Whether there is such a row."""


class LastNumber(Part):
    """The greatest number in a column, or None."""

    def __init__(
        self, table: Table[Any], column: str, /, **where: str | int | bool | tuple[str, ...]
    ) -> None:
        super().__init__(table, **where)
        self.column = column


class Field(LastNumber):
    """One column of the row, as it is stored, or None."""


# The parts, as the defaults of fields that have the types of what is found.
one: Callable[..., Any] = One
holder: Callable[..., Any] = Holder
has: Callable[..., Any] = RowPresence
last: Callable[..., Any] = LastNumber
field: Callable[..., Any] = Field


class Facts(Value):
    """What a look finds, and when: the default of each further field is the part that it comes of.

    class Takeover(Facts):
        session: SessionRow | None = one(SESSIONS, tenant=":tenant", id=":session_id")
        holder: NodeRow | None = holder("session.lease_node")
    """

    now_ms: int


class Look(Generic[F]):
    """What is looked at together: parts of `kind`, in the order of its fields. No part finds more than one row."""

    def __init__(self, kind: type[F], parts: Mapping[str, Part]) -> None:
        self.kind = kind
        self.parts = parts

    def __repr__(self) -> str:
        return f"<Look {self.kind.__name__}>"


@cache
def look_of(kind: type[F]) -> Look[F]:
    named = zip(kind.__struct_fields__[1:], kind.__struct_defaults__, strict=True)
    return Look(kind, dict(named))


class Row(Facts, Generic[R]):
    """A row, or None."""

    row: R | None


@cache
def by_key(table: Table[R]) -> Look[Row[R]]:
    """Looks for one row of a table."""
    return Look(Row, {"row": One(table, **{name: f":{name}" for name in table.key})})


class Finder(Generic[R]):
    """Rows of one table, by the values of some columns, in the order of others (`-name`: the greatest first).

    `over` is a column that lies above the given `above`, up to the given `upto`. `choice` are columns that may have any
    value where none is given for them, `unlike` values that some must not have. Constants in `where` may be what an
    index is made for; `index` names one that SQLite would not choose.

    `of` is another table, and columns that both have: the rows that belong to those which `where` is about.
    """

    def __init__(
        self,
        table: Table[R],
        *,
        order: Sequence[str] = (),
        over: str | None = None,
        choice: Sequence[str] = (),
        unlike: Mapping[str, str] = MappingProxyType({}),
        index: str | None = None,
        of: tuple[Table[Any], tuple[str, ...]] | None = None,
        **where: Constant,
    ) -> None:
        self.table = table
        self.of = of
        self.selected: Table[Any] = of[0] if of else table
        """The table that `where` is about."""
        self.where = {column: _source(each) for column, each in where.items()}
        self.choice = choice
        self.unlike = unlike
        self.order = order
        self.over = over
        self.index = index

    def __repr__(self) -> str:
        return f"<Finder {self.table.name} by {', '.join(self.where)}>"


class Question(Generic[R]):
    """A query that is worth reading, by its name in `store/sql`: its columns are the fields of `kind`, in their order.

    Lists are given as they are, of values or of rows. `words` stand for others in a text that is about several tables.
    """

    def __init__(self, name: str, kind: type[R], **words: str) -> None:
        self.name = name
        self.words = words
        self.rows = Table(name, kind)

    def __repr__(self) -> str:
        return f"<Question {self.name}>"


# ── writing ──────────────────────────────────────────────────────────────────────────────────


class Insert(Struct, frozen=True):
    """Rows that were not there. `if_absent`: one that is there stays as it is, and that is fine."""

    table: Table[Any]
    rows: tuple[Any, ...]
    if_absent: bool = False


class Put(Struct, frozen=True):
    """Rows that are there afterwards, in place of those with the same keys."""

    table: Table[Any]
    rows: tuple[Any, ...]


class Update(Struct, frozen=True):
    """Other values in some columns of a row that is there."""

    table: Table[Any]
    key: tuple[Any, ...]
    columns: Mapping[str, Any]


class Delete(Struct, frozen=True):
    """The rows whose keys begin so."""

    table: Table[Any]
    key: tuple[Any, ...]


Change: TypeAlias = Insert | Put | Update | Delete


def insert(table: Table[R], *rows: R, if_absent: bool = False) -> Insert:
    return Insert(table, rows, if_absent)


def change(table: Table[R], row: R, **columns: object) -> Update:
    return Update(table, table.key_of(row), columns)


def become(table: Table[R], row: R, *columns: str) -> Update:
    """A row that is there has the values of this one in these columns."""
    return Update(table, table.key_of(row), {name: getattr(row, name) for name in columns})


class AsRead(Struct, frozen=True):
    """A row that has to be as it was read, in these columns."""

    table: Table[Any]
    row: Any
    columns: tuple[str, ...]


# ── steps ────────────────────────────────────────────────────────────────────────────────────


class LookStep(Struct, frozen=True):
    look: Look[Any]
    given: Mapping[str, Any]


class FindStep(Struct, frozen=True):
    finder: Finder[Any]
    given: Mapping[str, Any]
    above: Any = None
    upto: Any = None
    limit: int | None = None


class AskStep(Struct, frozen=True):
    question: Question[Any]
    given: Mapping[str, Any]


class WriteStep(Struct, frozen=True):
    changes: tuple[Change, ...]
    on: tuple[SessionRow | Tombstone, ...] = ()
    live: NodeId | None = None
    as_read: tuple[AsRead, ...] = ()


class PauseStep(Struct, frozen=True):
    """Other threads and tasks go first; an operation whose caller has given up may end here."""


Step: TypeAlias = LookStep | FindStep | AskStep | WriteStep | PauseStep
Operation: TypeAlias = Generator[Step, Any, T]
Start: TypeAlias = Callable[[], Operation[T]]
"""Begins an operation, as often as that is needed."""


def look(kind: type[F], /, **given: object) -> Operation[F]:
    facts: F = yield LookStep(look_of(kind), given)
    return facts


def look_up(table: Table[R], /, *key: object) -> Operation[Row[R]]:
    """The row with this key, or None, and when that was."""
    found: Row[R] = yield LookStep(by_key(table), dict(zip(table.key, key, strict=True)))
    return found


def get(table: Table[R], /, *key: object) -> Operation[R | None]:
    """The row with this key, or None."""
    return (yield from look_up(table, *key)).row


def find(
    finder: Finder[R],
    /,
    *,
    above: object = None,
    upto: object = None,
    limit: int | None = None,
    **given: object,
) -> Operation[tuple[R, ...]]:
    rows: tuple[R, ...] = yield FindStep(finder, given, above, upto, limit)
    return rows


def ask(question: Question[R], /, **given: object) -> Operation[tuple[R, ...]]:
    rows: tuple[R, ...] = yield AskStep(question, given)
    return rows


def give_way() -> Operation[None]:
    """Between two pieces of long work."""
    yield PauseStep()


def write(
    *changes: Change,
    on: tuple[SessionRow | Tombstone, ...] = (),
    live: NodeId | None = None,
    as_read: tuple[AsRead, ...] = (),
) -> Operation[int]:
    """Write all of it, or nothing. When that was."""
    now_ms: int = yield WriteStep(changes, on, live, as_read)
    return now_ms
