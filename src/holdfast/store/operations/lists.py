"""Lists of turns, sessions, memories and tenants. A list reads at most one row more than it returns.

A session that cannot be read is left out and named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import EndedBy
from holdfast.errors import StoreDamaged
from holdfast.ids import NodeId, SessionId, SessionKey, Tenant, TurnId
from holdfast.store import decisions, pages
from holdfast.store.operations import reads
from holdfast.store.outcomes import EVERYTHING, ListPage, SessionFilter, SessionInfo, StoreStats
from holdfast.store.rows import KeyRow, MemoryRow, SessionName, SessionRow, TurnRow
from holdfast.store.steps import Operation, Question, ask

R = TypeVar("R", bound=Value)

TURNS = Question("turns", TurnRow)


def turns(
    tenant: Tenant, session_id: SessionId, *, before: TurnId | None = None, limit: int = 100
) -> Operation[tuple[TurnRow, ...]]:
    """The session's own turns, newest first, in every state: by the version that they made, or that they began from;
    queued turns come last. With `before`, only the turns older than that turn; none if it is not a turn of this
    session's own."""
    return ask(TURNS, tenant=tenant, session_id=session_id, before=before, limit=limit)


RECENT = Question("recent_turns", TurnRow)
AFTER_ALL = "turn_~"
"""Sorts after the id of every turn."""


def recent_turns(
    tenant: Tenant, *, before: TurnId | None = None, limit: int = 100
) -> Operation[tuple[TurnRow, ...]]:
    """A tenant's turns in every state, by the time of their beginning, newest first; with `before`, only the older
    ones."""
    return ask(RECENT, tenant=tenant, before=before or AFTER_ALL, limit=limit)


class PlayingTurn(Value):
    """An open turn, and the node that plays it; None if it waits to be taken over."""

    session_id: SessionId
    turn_id: TurnId
    node: NodeId | None


PLAYING = Question("playing_turns", PlayingTurn)
ASKING = Question("asking_turns", TurnRow)
UNFINISHED = Question("unfinished_turns", TurnRow)
DISCARDED = Question("discarded_turns", TurnRow)
WAITS = b'"waits_for":"approval"'
"""A part of the bytes of a call that waits for an approval. Inside of a text its quotes would be escaped."""

LOOKED_AT_ONCE = 200
"""How many sessions are looked at together for a turn in some state."""

FAILURES: frozenset[EndedBy] = frozenset(
    {"model_error", "tool_error", "deadline", "crash", "superseded", "shutdown"}
)
"""Ends of a turn that an operator should look at: neither its client nor a person wanted it to end."""


def playing(tenant: Tenant, *, limit: int) -> Operation[tuple[PlayingTurn, ...]]:
    """A tenant's open turns, the oldest first."""
    return ask(PLAYING, tenant=tenant, limit=limit)


def asking(tenant: Tenant, *, since_ms: int, limit: int) -> Operation[tuple[TurnRow, ...]]:
    """A tenant's turns since a time whose calls wait for an approval that can be given, the newest first."""
    return _heads(ASKING, tenant, since_ms=since_ms, waiting=WAITS, limit=limit)


def unfinished(tenant: Tenant, *, since_ms: int, limit: int) -> Operation[tuple[TurnRow, ...]]:
    """A tenant's turns that broke off since a time and can be continued, the newest first."""
    return _heads(UNFINISHED, tenant, since_ms=since_ms, limit=limit)


def troubled(
    tenant: Tenant, ids: Sequence[SessionId], *, since_ms: int
) -> Operation[tuple[TurnRow, ...]]:
    """Of these sessions, the last turns whose calls wait for an approval, and turns that failed since a time and were
    discarded."""
    asking = yield from ask(ASKING, tenant=tenant, ids=list(ids), waiting=WAITS)
    ends, limit = sorted(FAILURES), LOOKED_AT_ONCE
    gone = yield from ask(DISCARDED, tenant=tenant, since_ms=since_ms, ends=ends, limit=limit)
    return (*asking, *(each for each in gone if each.session_id in ids))


def failures(tenant: Tenant, *, since_ms: int, limit: int) -> Operation[tuple[TurnRow, ...]]:
    """A tenant's turns that failed since a time, the newest first: those that were discarded, and those that were kept
    and not continued."""
    found = yield from unfinished(tenant, since_ms=since_ms, limit=limit)
    ends = sorted(FAILURES)
    gone = yield from ask(DISCARDED, tenant=tenant, since_ms=since_ms, ends=ends, limit=limit)
    failed = (each for each in (*found, *gone) if each.ended_by in FAILURES)
    return tuple(sorted(failed, key=lambda each: each.turn_id, reverse=True)[:limit])


def _heads(
    question: Question[TurnRow], tenant: Tenant, *, since_ms: int, limit: int, **given: object
) -> Operation[tuple[TurnRow, ...]]:
    """The last turns that fit a question, of the sessions that were active since a time; the sessions that were active
    last are looked at first, some at a time."""

    read = partial(ask, question, tenant=tenant, **given)
    found: list[TurnRow] = []
    for anonymous in (False, True):
        where, enough = SessionFilter(anonymous=anonymous), len(found) + limit
        walk = ListCursor(tenant, where=where, before=pages.start(None), ids=None)
        while len(found) < enough and not walk.at_end:
            shown = yield from walk.next(LOOKED_AT_ONCE)
            recent = [each.session.id for each in shown if each.session.active_ms >= since_ms]
            found += yield from by_halves(recent, read, walk.damaged)
            if len(recent) < len(shown):
                break
    return tuple(sorted(found, key=lambda each: each.turn_id, reverse=True)[:limit])


# ── sessions ─────────────────────────────────────────────────────────────────────────────────


class ListedPlace(Value):
    """A session's place in the list."""

    id: SessionId
    active_ms: int


LISTED = Question("listed_sessions", SessionRow)
KEYED = Question("keyed_sessions", SessionName)
PLACES = Question("named_places", ListedPlace)
NAMED = Question("named_sessions", SessionRow)
KEYS = Question("keys_of", KeyRow)

NAMED_AT_ONCE = 25
"""How many sessions are read together: a page of a list and a little more."""

IDS_AT_ONCE = 1_000
"""How many ids are asked about together."""


def by_halves(
    ids: Sequence[SessionId],
    read: Callable[..., Operation[tuple[R, ...]]],
    damaged: list[SessionId],
) -> Operation[list[R]]:
    """What `read` finds of these `ids`, in their order; `damaged` gets the sessions that cannot be read. If some that
    are read together meet damage, each half of them is read by itself."""
    left = [list(ids[at : at + IDS_AT_ONCE]) for at in range(0, len(ids), IDS_AT_ONCE)][::-1]
    found: list[R] = []
    while left:
        some = left.pop()
        try:
            found += yield from read(ids=some)
        except StoreDamaged:
            if len(some) == 1:
                damaged += some
            else:
                middle = len(some) // 2
                left += (some[middle:], some[:middle])
    return found


AMONG = "tenant = :tenant and id {in ids}"


def among_all(question: Question[R], **given: object) -> Operation[list[R]]:
    """The answers about all sessions of all tenants but those that cannot be read: for sweeps that meet one of these.
    The index of a sweep leads to the next session only by way of the row of this one."""
    found: list[R] = []
    for tenant in (yield from tenants()):
        ids = yield from reads.every_id(tenant)
        found += yield from by_halves(ids, partial(ask, question, tenant=tenant, **given), [])
    return found


def sessions(
    tenant: Tenant,
    *,
    where: SessionFilter = EVERYTHING,
    cursor: str | None = None,
    limit: int = limits.page_size_default,
) -> Operation[ListPage]:
    """List sessions with a committed turn by last activity. Raises InvalidCursor."""
    ids = yield from _keyed(tenant, where.key_prefix)
    walk = ListCursor(tenant, where=where, before=pages.start(cursor), ids=ids)
    # One session more than `limit` is read, to know whether there is a next page.
    found: list[SessionInfo] = []
    while len(found) <= limit and not walk.at_end:
        found += yield from walk.next(limit + 1 - len(found))
    shown = pages.page_of(tuple(found[: limit + 1]), limit=limit)
    return msgspec.structs.replace(shown, damaged=tuple(walk.damaged)) if walk.damaged else shown


def _keyed(tenant: Tenant, prefix: str | None) -> Operation[set[SessionId] | None]:
    """The sessions whose keys begin with `prefix`; None if they are many: then it is quicker to walk the list."""
    if not prefix:
        return None
    most = limits.listed_by_key_max
    found = yield from ask(KEYED, tenant=tenant, limit=most + 1, **_keys_from(prefix))
    return None if len(found) > most else {each.id for each in found}


def _keys_from(prefix: str | None) -> dict[str, str | None]:
    """The bounds of the keys that begin with `prefix`: keys are ASCII, without its last character."""
    return {"key_first": prefix, "key_end": None if prefix is None else prefix + "\x7f"}


class ListCursor:
    """Walks through a filtered list from a place on, some sessions at a time; only through `ids`, if they are given.

    If a session on the way cannot be read, the walk goes on by the ids of all sessions: the index of the list leads to
    the next session only by way of the row of this one.
    """

    def __init__(
        self,
        tenant: Tenant,
        *,
        where: SessionFilter,
        before: pages.Place,
        ids: Collection[SessionId] | None,
    ) -> None:
        self._tenant = tenant
        self._where = where
        self._before = before
        self._ids = ids
        self._places: list[SessionId] | None = None
        """The ids that are left, in the order of the list."""
        self.at_end = False
        self.damaged: list[SessionId] = []
        """The sessions that were left out so far, because they cannot be read."""

    def next(self, limit: int) -> Operation[tuple[SessionInfo, ...]]:
        """The next sessions, about `limit`. There may be none although the walk is not at its end."""
        if self._ids is None:
            before = self._before
            try:
                return (yield from self._listed(limit))
            except StoreDamaged:
                self._before, self._ids = before, (yield from reads.every_id(self._tenant))
        if self._places is None:
            placed = partial(ask, PLACES, tenant=self._tenant, **self._after())
            found = yield from by_halves(sorted(self._ids), placed, self.damaged)
            found.sort(key=lambda each: (each.active_ms, each.id), reverse=True)
            self._places = [each.id for each in found]
        some, self._places = self._places[:NAMED_AT_ONCE], self._places[NAMED_AT_ONCE:]
        self.at_end = not self._places
        shown = yield from by_halves(some, self._named, self.damaged)
        return tuple(
            each for each in shown if pages.is_listed(each.session, each.keys, self._where)
        )

    def _named(self, ids: list[SessionId]) -> Operation[tuple[SessionInfo, ...]]:
        rows = yield from ask(NAMED, tenant=self._tenant, ids=ids)
        return (yield from self._with_keys(tuple(sorted(rows, key=pages.place_of, reverse=True))))

    def _listed(self, limit: int) -> Operation[tuple[SessionInfo, ...]]:
        where = self._where
        rows = yield from ask(
            LISTED,
            tenant=self._tenant,
            agent=where.agent,
            attributes=list(where.attributes),
            active_from_ms=where.active_from_ms,
            active_before_ms=where.active_before_ms,
            busy=where.busy,
            anonymous=where.anonymous,
            limit=limit,
            **_keys_from(where.key_prefix),
            **self._after(),
        )
        self.at_end = len(rows) < limit
        if rows:
            self._before = pages.place_of(rows[-1])
        return (yield from self._with_keys(rows))

    def _after(self) -> dict[str, object]:
        before_ms, before_id = self._before
        return {"before_ms": before_ms, "before_id": before_id}

    def _with_keys(self, rows: tuple[SessionRow, ...]) -> Operation[tuple[SessionInfo, ...]]:
        if not rows:
            return ()
        keys: dict[SessionId, list[SessionKey]] = {}
        for row in (yield from ask(KEYS, tenant=self._tenant, ids=[each.id for each in rows])):
            keys.setdefault(row.session_id, []).append(row.key)
        return tuple(SessionInfo(session=each, keys=tuple(keys.get(each.id, ()))) for each in rows)


class FamilyMember(Value):
    """A line by its id and its family's."""

    id: SessionId
    family: SessionId


LISTED_LINES = Question("listed_lines", FamilyMember)


def listed_lines(
    tenant: Tenant, families: Iterable[SessionId]
) -> Operation[tuple[FamilyMember, ...]]:
    """The lines of these families that lists show."""
    return ask(LISTED_LINES, tenant=tenant, families=sorted(families), no=False)


def stands_for_family(session: SessionRow) -> Operation[bool]:
    """Whether the name of its family means this line: another one may be listed because it has a name of its own."""
    listed = yield from listed_lines(session.tenant, [session.family_id])
    ids = sorted(each.id for each in listed)
    if len(ids) < 2:
        return True
    keys = yield from ask(KEYS, tenant=session.tenant, ids=ids)
    return session.id == (decisions.line_of_family(ids, keys) or ids[0])


# ── all that there is ────────────────────────────────────────────────────────────────────────


class TenantName(Value):
    tenant: Tenant


ALL_MEMORIES = Question("all_memories", MemoryRow)
NEXT_TENANT = Question("next_tenant", TenantName)
NEXT_TENANT_WITH_TURNS = Question("next_tenant_with_turns", TenantName)
COUNTS = Question("counts", StoreStats)


def all_memories(
    tenant: Tenant, *, after: MemoryRow | None, limit: int
) -> Operation[tuple[MemoryRow, ...]]:
    """The memories of all agents of a tenant, by agent and id. For operators."""
    agent, memory_id = (after.agent, after.memory_id) if after else ("", "")
    return ask(ALL_MEMORIES, tenant=tenant, agent=agent, after=memory_id, limit=limit)


def tenants() -> Operation[tuple[Tenant, ...]]:
    """The tenants that have a session, a memory or a remembered approval. For operators: verify, copy, stats."""
    found: list[Tenant] = []
    while rows := (yield from _next_tenant(found[-1] if found else "")):
        found += [each.tenant for each in rows]
    return tuple(found)


def _next_tenant(after: str) -> Operation[tuple[TenantName, ...]]:
    try:
        return (yield from ask(NEXT_TENANT, after=after))
    except StoreDamaged:
        return (yield from ask(NEXT_TENANT_WITH_TURNS, after=after))


def stats() -> Operation[StoreStats]:
    """Counts of the store's content."""
    return (yield from ask(COUNTS))[0]
