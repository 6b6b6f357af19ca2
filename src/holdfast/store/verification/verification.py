"""`holdfast db verify`: every promise that a store can show, checked session by session.

    async for each in verify(store):
        match each:
            case Finding(): ...     # something that must never be
            case Progress(): ...    # how far we have come

1. It reads and never writes; each read is short, so turns go on meanwhile.
2. Several reads see several moments. So what looks wrong is looked at again, and a finding is what was found
   both times: a turn that ended in between is no damage.
3. What cannot be read is a finding, and the rest is still checked. Only a store that stops ends the walk.
4. A session is named if something of its own is wrong. A page of the search index belongs to no session: what cannot be
   read of it is one finding for all.

What is checked of a session is in `verification/session_audit.py`, what lies between the tables in `operations/inspection.py`; a home adds
what only it can see (`Store.inspect`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

from holdfast.core.history.checks import Violation
from holdfast.errors import StoreDamaged, StoreError
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.store.outcomes import SessionDump
from holdfast.store.row_changes import has_ended
from holdfast.store.rows import JournalRow, SignalRow, TurnRow
from holdfast.store.store import Store
from holdfast.store.verification.findings import USELESS_TO_GO_ON, Report
from holdfast.store.verification.findings import Finding as Finding
from holdfast.store.verification.findings import Progress as Progress
from holdfast.store.verification.pairings import judge_turns
from holdfast.store.verification.session_audit import (
    audit,
    judge_journal,
    judge_signals,
    judge_unfinished,
)

PAGE = 100
"""Ids or turns in one read: some milliseconds."""


async def verify(store: Store) -> AsyncIterator[Report]:
    """Go through everything that is there. Raises StoreError if the store stops."""
    useless = False
    async for report in store.inspect():
        yield report
        useless |= isinstance(report, Finding) and report.violation.code in USELESS_TO_GO_ON
    if useless:
        return
    done, of = 0, await _count(store)
    index = IndexCheck(store)
    try:
        for tenant in await store.tenants():
            async for session_id in _session_ids(store, tenant):
                for violation in await check_session(store, tenant, session_id, index=index):
                    yield Finding(violation=violation, tenant=tenant, session_id=session_id)
                done += 1
                yield Progress(what="sessions", done=done, of=max(done, of))
    except StoreDamaged as damage:
        # Neither the sessions nor their turns tell which ones there are.
        yield Finding(violation=Violation(code="unreadable", where="session", what=damage.why))
    if index.damage is not None:
        yield Finding(
            violation=Violation(code="unreadable", where="the search index", what=index.damage)
        )


async def _count(store: Store) -> int:
    """About how many sessions there are; 0 if that cannot be read."""
    try:
        return (await store.stats()).sessions
    except StoreDamaged:
        return 0


async def _session_ids(store: Store, tenant: Tenant) -> AsyncIterator[SessionId]:
    after: SessionId | None = None
    while page := await store.session_ids(tenant, after=after, limit=PAGE):
        for session_id in page:
            yield session_id
        after = page[-1]


class IndexCheck:
    """Compares sessions with the search index, and notes whether the index itself can be read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.damage: str | None = None
        """Why a part of the index cannot be read."""

    async def flaws(self, tenant: Tenant, session_id: SessionId) -> list[Violation]:
        """What the search index does not know of a session, and should."""
        try:
            flaw = await self._store.index_flaw(tenant, session_id)
        except StoreDamaged as damage:
            self.damage = damage.why
            return []
        return [Violation(code="index_off", where=session_id, what=flaw)] if flaw else []


async def check_session(
    store: Store, tenant: Tenant, session_id: SessionId, *, index: IndexCheck | None = None
) -> list[Violation]:
    """What is wrong with one session, its past included, and with what `index` has of it; nothing, if there is no such
    session."""
    found = await _look(store, tenant, session_id, index)
    again = await _look(store, tenant, session_id, index) if found else []
    return [each for each in found if each in again]


async def _look(
    store: Store, tenant: Tenant, session_id: SessionId, index: IndexCheck | None
) -> list[Violation]:
    try:
        dump = await store.dump(tenant, session_id)
        if dump is None:
            return []
        return [
            *audit(dump, await _past(store, dump)),
            *await _keys(store, dump),
            *await _turns_of(store, dump),
            *(await index.flaws(tenant, session_id) if index else ()),
        ]
    except StoreDamaged as error:
        return [Violation(code="unreadable", where=session_id, what=error.why)]
    except StoreError:
        raise
    except Exception as error:
        # Whatever keeps rows from being read, it keeps the session from being read.
        return [Violation(code="unreadable", where=session_id, what=_told(error))]


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


async def _past(store: Store, dump: SessionDump) -> list[SessionDump | None]:
    session = dump.session
    return [await store.dump(session.tenant, each.session_id) for each in session.lineage]


async def _keys(store: Store, dump: SessionDump) -> list[Violation]:
    """A key that a session has must lead to it. What it leads to if no session has it, a home can see."""
    wrong = []
    for row in dump.keys:
        if await store.resolve(row.tenant, row.key) != row:
            what = f"the key {row.key!r} means another session, or none"
            wrong.append(Violation(code="key_off", where=dump.session.id, what=what))
    return wrong


async def _turns_of(store: Store, dump: SessionDump) -> list[Violation]:
    """What is wrong with a session's turns and journals, open and queued turns included."""
    tenant, session_id = dump.session.tenant, dump.session.id
    turns = await _turns(store, tenant, session_id)
    session = await store.session(tenant, session_id)
    assert session is not None, "a session that can be dumped has a row"
    wrong = [*judge_turns(session, turns)]
    if session.state == "deleted":
        return wrong
    wrong += judge_unfinished(session, turns)
    kept: dict[TurnId, list[JournalRow]] = defaultdict(list)
    for row in dump.journals:
        kept[row.turn_id].append(row)
    for turn in turns:
        rows: Sequence[JournalRow] = kept[turn.turn_id]
        if not wrong and turn.state in ("open", "queued"):
            rows = await store.journal(tenant, turn.turn_id)
            wrong += judge_signals(turn, rows, await _signals(store, turn))
        elif not has_ended(turn):
            continue
        wrong += judge_journal(turn, rows)
    return wrong


async def _signals(store: Store, turn: TurnRow) -> list[SignalRow]:
    signals: list[SignalRow] = []
    while row := await store.find_signal(turn.tenant, turn.turn_id, len(signals) + 1):
        signals.append(row)
    return signals


async def _turns(store: Store, tenant: Tenant, session_id: SessionId) -> list[TurnRow]:
    turns: list[TurnRow] = []
    before: TurnId | None = None
    while page := await store.turns(tenant, session_id, before=before, limit=PAGE):
        turns += page
        before = page[-1].turn_id
    return turns
