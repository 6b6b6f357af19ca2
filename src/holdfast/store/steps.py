"""The steps of an operation: look, find, ask, write, and give way.

An operation of the store is written once for all homes: a generator that yields steps, is sent the result of each, and
decides in between. A home is a driver: it executes these steps, and contains no rule.

    def release(fence: Fence) -> Operation[None]:
        session = demand_fence(fence, (yield from get(SESSIONS, fence.tenant, fence.session_id)))
        yield from write(change(SESSIONS, session, lease_node=None), on=(session,))

1. An operation may be run again from its start, and changes rows only by `write`; clocks, ids and randomness are
   arguments. It writes at most once, and that is the last step that can fail; or, when run again, it finds its own
   earlier writes and goes on after them.
2. A home that holds no lock around an operation writes on condition that the rows behind the decision are unchanged:
   each session in `on` is as it was read, the node `live` is alive, each row in `as_read` has the same values in its
   columns, each inserted row is absent. If a condition fails, the operation is run again.
3. So every row that an operation reads belongs to a session in `on`, or is in `as_read`, or never changes.
4. A step writes each row at most once.
5. `NOW` stands for the time at which a home writes; `write` returns that time.
6. Two looks may see two moments, and no condition guards a refusal. So a refusal is decided on the rows of one look,
   or a later look cannot make it wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.codec import Value
from holdfast.errors import StoreDamaged
from holdfast.ids import NodeId
from holdfast.store.rows import SessionRow, Tombstone
from holdfast.store.sql.tables import NODES, R, Table

F = TypeVar("F", bound="Facts")
S = TypeVar("S", bound="Step")
T = TypeVar("T")


class Moment(int):
    """Milliseconds after the time at which a home writes."""

    __slots__ = ()


NOW: Final = Moment(0)

# ── looking ──────────────────────────────────────────────────────────────────────────────────


class GivenValue(Struct, frozen=True):
    """A value that the step brings."""

    name: str


class FoundColumn(Struct, frozen=True):
    """A column of a row that an earlier part of the same look has found."""

    part: str
    column: str


Constant: TypeAlias = str | int | bool | None
Source: TypeAlias = GivenValue | FoundColumn | Constant
"""The value that a column is compared with."""


def _source(text: Constant) -> Source:
    """`:name` is a given value, `part.column` a found column, everything else a constant."""
    if not isinstance(text, str):
        return text
    if text.startswith(":"):
        return GivenValue(text[1:])
    part, dot, column = text.partition(".")
    return FoundColumn(part, column) if dot else text


class Part:
    """One part of a look: a search in one table, by the values of some columns.

    If a column has several sources, the first that is not null counts.
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
    """The row of the node that holds a turn; None if its process is known to be dead, as if the node had resigned."""

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


# The parts again, typed so that each can be the default of a field of the found type.
one: Callable[..., Any] = One
holder: Callable[..., Any] = Holder
has: Callable[..., Any] = RowPresence
last: Callable[..., Any] = LastNumber
field: Callable[..., Any] = Field


class Facts(Value):
    """The result of a look, and its time: the default of each further field is the part that fills it.

    class Takeover(Facts):
        session: SessionRow | None = one(SESSIONS, tenant=":tenant", id=":session_id")
        holder: NodeRow | None = holder("session.lease_node")
    """

    now_ms: int


class Look(Generic[F]):
    """A read of several parts at once: those of `kind`, in the order of its fields. Each part finds at most one row."""

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
    """A look for one row of a table, by its key."""
    return Look(Row, {"row": One(table, **{name: f":{name}" for name in table.key})})


class Finder(Generic[R]):
    """A search for rows of one table, by the values of some columns, in the order of others (`-name`: descending).

    The column `over` must be greater than the given `above`, and at most the given `upto`. A column in `choice` is
    compared only if a value is given for it; a column in `unlike` must not have the given constant. Constants in
    `where` let a partial index be used; `index` names an index that SQLite would not choose.

    `of` is another table and the columns to join it by: then `where` selects rows of that table, and the finder
    returns the rows of `table` that belong to them.
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
        """The table that `where` selects from."""
        self.where = {column: _source(each) for column, each in where.items()}
        self.choice = choice
        self.unlike = unlike
        self.order = order
        self.over = over
        self.index = index

    def __repr__(self) -> str:
        return f"<Finder {self.table.name} by {', '.join(self.where)}>"


class Question(Generic[R]):
    """A named query in `store/sql`: its columns are the fields of `kind`, in their order.

    A given list, of values or of rows, is passed as it is. `words` replace placeholders of the query, so that one text
    serves several tables.
    """

    def __init__(self, name: str, kind: type[R], **words: str) -> None:
        self.name = name
        self.words = words
        self._kind = kind

    @cached_property
    def rows(self) -> Table[R]:
        """Its rows; made when they are first read, since a server asks few of all questions."""
        return Table(self.name, self._kind)

    def __repr__(self) -> str:
        return f"<Question {self.name}>"


# ── writing ──────────────────────────────────────────────────────────────────────────────────


class Insert(Struct, frozen=True, gc=False):
    """New rows. With `if_absent`, a row that exists already stays as it is; without, it is a conflict."""

    table: Table[Any]
    rows: tuple[Any, ...]
    if_absent: bool = False


class Put(Struct, frozen=True, gc=False):
    """Rows that are inserted, or replace the rows with the same keys."""

    table: Table[Any]
    rows: tuple[Any, ...]


class Update(Struct, frozen=True, gc=False):
    """New values for some columns of an existing row."""

    table: Table[Any]
    key: tuple[Any, ...]
    columns: Mapping[str, Any]


class Delete(Struct, frozen=True, gc=False):
    """Removes the rows whose keys begin with these values."""

    table: Table[Any]
    key: tuple[Any, ...]


Change: TypeAlias = Insert | Put | Update | Delete


def insert(table: Table[R], *rows: R, if_absent: bool = False) -> Insert:
    return Insert(table, rows, if_absent)


def change(table: Table[R], row: R, **columns: object) -> Update:
    """Update a row that was read; the proofs that cover these columns change with them."""
    after = replace(row, **columns)
    proofs = {
        each.column: each.of(after) for each in table.proofs if each.of(after) != each.of(row)
    }
    return Update(table, table.key_of(row), {**columns, **proofs})


def become(table: Table[R], row: R) -> Update:
    """Update the row with this key to what `row` is, in every column that a home does not number itself."""
    names = (each for each in table.names if each not in table.key and each != table.serial)
    return Update(table, table.key_of(row), {name: getattr(row, name) for name in names})


class AsRead(Struct, frozen=True, gc=False):
    """A condition of a write: the row still has the values that were read, in these columns."""

    table: Table[Any]
    row: Any
    columns: tuple[str, ...]


# ── steps ────────────────────────────────────────────────────────────────────────────────────


class LookStep(Struct, frozen=True, gc=False):
    look: Look[Any]
    given: Mapping[str, Any]


class FindStep(Struct, frozen=True, gc=False):
    finder: Finder[Any]
    given: Mapping[str, Any]
    above: Any = None
    upto: Any = None
    limit: int | None = None


class AskStep(Struct, frozen=True, gc=False):
    question: Question[Any]
    given: Mapping[str, Any]


class WriteStep(Struct, frozen=True, gc=False):
    changes: tuple[Change, ...]
    on: tuple[SessionRow | Tombstone, ...] = ()
    live: NodeId | None = None
    as_read: tuple[AsRead, ...] = ()


class PauseStep(Struct, frozen=True):
    """Lets other threads and tasks run; an operation whose caller has given up may end here."""


Step: TypeAlias = LookStep | FindStep | AskStep | WriteStep | PauseStep
Operation: TypeAlias = Generator[Step, Any, T]
Start: TypeAlias = Callable[[], Operation[T]]
"""Starts an operation; called again each time that the operation is repeated."""


def look(kind: type[F], /, **given: object) -> Operation[F]:
    facts: F = yield LookStep(look_of(kind), given)
    return facts


def look_up(table: Table[R], /, *key: object) -> Operation[Row[R]]:
    """The row with this key, or None, and the time of the look."""
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


def taken_until(kind: type[S], operation: Operation[T]) -> Generator[Step, Any, S | T]:
    """Take the steps of an operation up to the next one of this kind, and return that step; or the operation's result, if
    there is none."""
    try:
        step = next(operation)
        while not isinstance(step, kind):
            try:
                came = yield step
            except StoreDamaged as damage:
                step = operation.throw(damage)
            else:
                step = operation.send(came)
    except StopIteration as end:
        done: T = end.value
        return done
    return step


def give_way() -> Operation[None]:
    """Let others run, between two pieces of long work."""
    yield PauseStep()


def write(
    *changes: Change,
    on: tuple[SessionRow | Tombstone, ...] = (),
    live: NodeId | None = None,
    as_read: tuple[AsRead, ...] = (),
) -> Operation[int]:
    """Write all of these changes, or none. Returns the time of the write."""
    now_ms: int = yield WriteStep(changes, on, live, as_read)
    return now_ms
