"""Rows on damaged leaves of a table, and the entries that an index has for them: found out from all that can be read.

A row that no entry leads to would be missing for readers of the index, and they would not know it. So a leaf of an index is
made anew only with an entry for each row that the leaf may have led to, if that row cannot be read:

1. Numbers of rows tell how many may be lost. If each has its entry on another page of the index, this leaf had none.
2. Sessions say which positions, versions and revisions there are, their own and those of their past. What has no entry is
   lost, and gets an entry that leads to a damaged leaf: a reader meets damage there, and the conversation is told as damaged.
3. Turns are named by two indexes with all of them, by items, and by sessions that they are open in. If one of the two is
   sound, or as many are named as are lost, these are all.
4. As in 2, sessions get entries that a list would not name as damaged without one, and those without a name.
5. Some indexes only tell what upkeep may do with a row (`UPKEEP`). Nothing can be done with a row that cannot be read.

What cannot be found out is not guessed: then the leaf is left as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

from apsw import Connection
from msgspec import Struct

from holdfast.core.codec import Decoder, Unreadable
from holdfast.core.history.conversation import Lineage, Segment
from holdfast.ids import SessionId, Version
from holdfast.store.decisions import Stretch, stretches
from holdfast.store.sqlite.pages.records import Bound, Cells, Record
from holdfast.store.sqlite.pages.survey import FilePages
from holdfast.store.sqlite.pages.trees import (
    ALL_ROWS,
    Index,
    Leaf,
    damaged_leaves,
    indexes,
    is_between,
    order_of,
    pages_of,
)

PAGES_MAX = 50_000
"""How large a table with damaged leaves may be: its rows are read page by page, which takes a second for some thousands."""

LOST_MAX = 100_000
"""How many numbers the rows on damaged leaves may have."""

UPKEEP = frozenset(
    """
    turn_discarded turn_replayable session_to_clear session_anonymous session_expiring session_held session_to_index
    idempotency_to_prune idempotency_by_turn blob_to_judge
    """.split()
)
"""Indexes whose rows are also found without them, by all that is served."""

_NUMBERED_BY: dict[str, Callable[[Stretch], range]] = {
    "sqlite_autoindex_item_1": lambda each: range(each.from_pos, each.upto_pos),
    "sqlite_autoindex_annotation_1": lambda each: range(each.from_rev + 1, each.upto_rev + 1),
    "turn_by_seq": lambda each: range(each.from_version + 1, each.upto_version + 1),
}
"""Indexes by tenant, session and a number: which numbers a stretch of a history has."""

_ALL_TURNS = ("sqlite_autoindex_turn_1", "turn_by_session")
"""Indexes that have each turn."""

_lineage: Decoder[Lineage] = Decoder(Lineage)


class DamagedTable:
    """A table with damaged leaves, in a file that does not change meanwhile."""

    def __init__(self, db: Connection, index: Index) -> None:
        """`index` is one of the table's."""
        self._db = db
        self._index = index
        self._pages = FilePages(db)
        self._cells = Cells(self._pages)

    def entries(self, leaf: Leaf) -> list[Record] | None:
        """All entries of a leaf of the index; None if it cannot be said which these are."""
        if self._leaves is None or self._count(self._index.table_root) > PAGES_MAX:
            return None
        found = [each for each in self._readable if is_between(leaf, each)]
        lost = self._lost(leaf, found)
        return None if lost is None else sorted((*found, *lost), key=order_of)

    @cached_property
    def _leaves(self) -> list[Leaf] | None:
        """The damaged leaves of the table."""
        index = self._index
        return damaged_leaves(self._pages, index.table_root, is_numbered=index.is_numbered)

    def _pages_of(self, root: int) -> Iterator[int]:
        """The sound pages of a tree."""
        return (number for number, page in pages_of(self._pages, root) if page)

    def _count(self, root: int) -> int:
        return sum(1 for _ in self._pages_of(root))

    # rows that can be read

    @cached_property
    def _readable(self) -> list[Record]:
        """The entries of the index for all rows that can be read."""
        index = self._index
        rows = _Rows(self._db, self._cells, index.table)
        return [
            [row if place < 0 else record[place] for place in index.places]
            for number in self._pages_of(index.table_root)
            for row, record in rows.on(number, is_numbered=index.is_numbered)
            if record is not None and (index.condition == ALL_ROWS or rows.has(record, index))
        ]

    @cached_property
    def _numbers(self) -> set[int]:
        """The numbers that rows may have that cannot be read; none if there are too many."""
        numbers = _numbers_on(self._leaves or ())
        for number in self._pages_of(self._index.table_root):
            numbers.update(row for row, each in self._cells.rows(number, True) if each is None)
        return numbers

    def _entries_of(self, index: Index) -> Iterator[Record]:
        """The entries of an index that can be read."""
        for number in self._pages_of(index.root):
            yield from (each for each in self._cells.records(number, False) if each)

    # rows that cannot be read

    def _lost(self, leaf: Leaf, found: list[Record]) -> list[Record] | None:
        """The entries of a leaf for rows that cannot be read."""
        index = self._index
        if index.name in UPKEEP:
            return []
        if index.name == "session_listed":
            return self._unlisted(leaf, found)
        if index.name == "session_key_by_session":
            return self._unnamed(leaf, found)
        if not index.is_numbered or not self._numbers:
            return None
        left = self._numbers.difference(each[-1] for each in self._entries_of(index))
        if index.condition == ALL_ROWS and not left:
            return []
        if index.name in _NUMBERED_BY:
            return self._unnumbered(leaf, found, min(self._numbers))
        return self._turns(leaf) if index.name in _ALL_TURNS else None

    def _turns(self, leaf: Leaf) -> list[Record] | None:
        """By all that names a turn and its session: the two indexes that have all turns, that of versions, items, and
        open turns."""
        found = {each.name: each for each in indexes(self._db) if each.table == "turn"}
        by_id, by_session = found["sqlite_autoindex_turn_1"], found["turn_by_session"]
        place = 2 if self._index.name == by_session.name else 1
        read = {(each[0], each[place]) for each in self._readable}
        whose = {(each[0], each[1]): "" for each in self._entries_of(by_id)}
        whose |= self._numbered(by_id, found["turn_by_seq"])
        whose |= {(each[0], each[2]): each[1] for each in self._entries_of(by_session)}
        has_all = self._is_sound(by_id) or self._is_sound(by_session)
        if not has_all or not all(whose[each] for each in whose.keys() - read):
            whose |= self._acting()
        lost = {each: session for each, session in whose.items() if each not in read}
        # Turns that did nothing, such as a discarded one, are named by these two indexes alone.
        if not has_all and len(lost) != len(self._numbers):
            return None
        row = min(self._numbers)
        made: list[Record]
        if self._index.name == by_id.name:
            made = [[*each, row] for each in lost]
        elif all(lost.values()):
            made = [[tenant, session, turn, row] for (tenant, turn), session in lost.items()]
        else:
            return None
        return [each for each in made if is_between(leaf, each)]

    def _numbered(self, by_id: Index, by_seq: Index) -> dict[tuple[str, str], str]:
        """The sessions of turns, by the numbers that two indexes give to the same row; none if these may be wrong: entries
        that were made anew have the number of any row that cannot be read."""
        if not (self._is_sound(by_id) and self._is_sound(by_seq)):
            return {}
        turns, sessions = (
            [each for each in self._entries_of(index) if each[-1] in self._numbers]
            for index in (by_id, by_seq)
        )
        turn_of = {number: (tenant, turn) for tenant, turn, number in turns}
        session_of = {number: session for _, session, _, number in sessions}
        is_exact = len(turn_of) == len(turns) and len(session_of) == len(sessions)
        if not is_exact or not session_of.keys() <= turn_of.keys():
            return {}
        return {turn_of[number]: session for number, session in session_of.items()}

    def _acting(self) -> dict[tuple[str, str], str]:
        """The sessions of the turns that have items, or are open."""
        whose = {
            (each.tenant, each.open_turn): each.id for each in self._sessions if each.open_turn
        }
        root = self._roots["item"]
        if self._count(root) <= PAGES_MAX:
            rows = _Rows(self._db, self._cells, "item")
            for number in self._pages_of(root):
                for _, record in rows.on(number, is_numbered=True):
                    if record is not None:
                        item = rows.named(record)
                        whose[item["tenant"], item["turn_id"]] = item["session_id"]
        return whose

    def _is_sound(self, index: Index) -> bool:
        return damaged_leaves(self._pages, index.root) == []

    def _unnumbered(self, leaf: Leaf, found: list[Record], lost: int) -> list[Record]:
        """By what sessions say of their numbers. `lost` is the number of a row that cannot be read."""
        known = {tuple(each[:3]) for each in (*found, *self._entries_of(self._index))}
        numbers = _NUMBERED_BY[self._index.name]
        wanted = {
            (session.tenant, stretch.session_id, number)
            for session in self._sessions
            for stretch in stretches(session.lineage)
            for number in numbers(stretch)
        }
        made = [[*each, lost] for each in wanted - known]
        return [each for each in made if is_between(leaf, each)]

    def _unlisted(self, leaf: Leaf, found: list[Record]) -> list[Record] | None:
        """By the ids of sessions that cannot be read, which their turns or items, and their ancestors have; each at some
        place of the leaf, since nothing else has the time that orders them."""
        past, own = self._tree("session_past"), self._tree("turn_by_session")
        own = self._tree("sqlite_autoindex_item_1") if own is None else own
        if past is None or own is None:
            return None
        told = {(each[0], each[1]) for each in own} | {(each[0], each[2]) for each in past}
        listed = {(each[0], each[3]) for each in (*found, *self._entries_of(self._index))}
        places = [each for each in (leaf.above, *found, leaf.below) if each is not None]
        made = list[Record]()
        for tenant, session_id in told - listed:
            if not any(_is_on(each, (tenant, session_id)) for each in self._leaves or ()):
                continue
            tried = ([*each[:3], session_id] for each in places if each[0] == tenant)
            place = next((each for each in tried if is_between(leaf, each)), None)
            if place is None and _may_have(leaf, tenant):
                return None
            made += [place] if place else []
        return made

    def _unnamed(self, leaf: Leaf, found: list[Record]) -> list[Record] | None:
        """For each session without a name that can be read, a name that would be on a damaged leaf."""
        named = {(each[0], each[1]) for each in (*found, *self._entries_of(self._index))}
        made = list[Record]()
        for session in self._sessions:
            if session.anonymous or (session.tenant, session.id) in named:
                continue
            name = _name_on(self._leaves or (), session.tenant)
            entry = [session.tenant, session.id, name]
            if name is not None and is_between(leaf, entry):
                made.append(entry)
        return made

    def _tree(self, name: str) -> list[Record] | None:
        """The records of a table without numbers, or of an index; None if not all can be read."""
        root = self._roots[name]
        if damaged_leaves(self._pages, root) != []:
            return None
        return [
            each for n in self._pages_of(root) for each in self._cells.records(n, False) if each
        ]

    @cached_property
    def _roots(self) -> dict[str, int]:
        found = self._db.execute("select name, rootpage from sqlite_schema").fetchall()
        return {str(name): int(str(root)) for name, root in found}

    @cached_property
    def _sessions(self) -> list[KnownSession]:
        """The live sessions whose rows can be read. Of the others, nothing is served."""
        root = self._roots["session"]
        rows = _Rows(self._db, self._cells, "session")
        found = (
            rows.named(record)
            for number in self._pages_of(root)
            for _, record in rows.on(number, is_numbered=False)
            if record is not None
        )
        return [KnownSession.of(each) for each in found if each["state"] == "live"]


class KnownSession(Struct, frozen=True):
    """What the row of a session says of its rows in other tables."""

    tenant: str
    id: str
    anonymous: bool
    open_turn: str | None
    lineage: Lineage
    """Its past and its own part; empty if it cannot be read. Then nothing of the session is served."""

    @classmethod
    def of(cls, row: dict[str, Any]) -> KnownSession:
        past = _lineage.lenient(row["lineage"])
        end = Segment(
            session_id=SessionId(row["id"]),
            upto_pos=row["length"],
            upto_version=Version(row["head"]),
            upto_rev=row["meta_rev"],
        )
        lineage = () if isinstance(past, Unreadable) else (*past, end)
        return cls(row["tenant"], row["id"], bool(row["anonymous"]), row["open_turn"], lineage)


class _Rows:
    """Makes rows of records, as SQL would see them: a row from before a column was added has its default there."""

    def __init__(self, db: Connection, cells: Cells, table: str) -> None:
        found = db.execute(f"PRAGMA table_info({table})").fetchall()
        # Keys come first in a record of a table without row numbers, and in our tables.
        self._names = [str(each[1]) for each in found]
        self._defaults = [db.execute(f"select {each[4] or 'null'}").get for each in found]
        self._db = db
        self._cells = cells

    def on(self, page: int, *, is_numbered: bool) -> Iterator[tuple[int, Record | None]]:
        """The rows on a page, with their numbers; None for one that goes on on a damaged page."""
        for number, record in self._cells.rows(page, is_numbered):
            yield number, None if record is None else [*record, *self._defaults[len(record) :]]

    def named(self, row: Record) -> dict[str, Any]:
        return dict(zip(self._names, row, strict=True))

    def has(self, row: Record, index: Index) -> bool:
        """Whether an index has an entry for a row, by its condition."""
        values = ", ".join(f'? as "{name}"' for name in self._names)
        return bool(self._db.execute(f"select {index.condition} from (select {values})", row).get)


# ── bounds ───────────────────────────────────────────────────────────────────────────────────


def _numbers_on(leaves: Iterable[Leaf]) -> set[int]:
    """The numbers that rows on these leaves of a table may have; none if there are too many."""
    firsts = [each.above[0] + 1 if each.above else 1 for each in leaves]
    lasts = [each.below[0] if each.below else sys.maxsize for each in leaves]
    if sum(lasts) - sum(firsts) > LOST_MAX:
        return set()
    return {n for first, last in zip(firsts, lasts, strict=True) for n in range(first, last + 1)}


def _is_on(leaf: Leaf, key: Bound) -> bool:
    """Whether a row with this key would be on a leaf of its table, which has no numbers."""
    above, below = leaf.above, leaf.below
    return (above is None or above[: len(key)] < key) and (below is None or key < below[: len(key)])


def _may_have(leaf: Leaf, tenant: str) -> bool:
    above, below = leaf.above, leaf.below
    return (above is None or above[0] <= tenant) and (below is None or tenant <= below[0])


def _name_on(leaves: Iterable[Leaf], tenant: str) -> str | None:
    """A name of this tenant that would be on one of these leaves; None if there is none."""
    for leaf in leaves:
        is_after = leaf.above is not None and leaf.above[0] == tenant
        name = leaf.above[1] + "\0" if leaf.above is not None and is_after else ""
        if _is_on(leaf, (tenant, name)):
            return name
    return None
