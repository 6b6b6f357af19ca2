"""Copies of a whole store into another one, of any home: `holdfast db copy`.

Each session and each memory is copied whole or not at all, and one that the target has already stays. So the operator
repeats a copy that broke off, and it goes on where it stopped. Not copied: leases, signals, and the search index, which
is made anew. The source is verified first: a session that is broken is left out and named, and so is a key, a memory or
an approval that is not what was written, since the copy would look sound. With `damaged`, only what cannot be read is
left out: a session that lacks items is copied with marks in their places, so that `verify` names it in the copy, too.
The source should be at rest: if a session goes on after it was copied, a second copy meets a different session, leaves
it as it is there, and names it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from holdfast.core.codec import Value
from holdfast.errors import InvalidValue, StoreDamaged
from holdfast.ids import SessionId, Tenant
from holdfast.store.outcomes import RestoreRefused, SessionDump
from holdfast.store.rows import ItemRow
from holdfast.store.store import Store
from holdfast.store.transfer import exports
from holdfast.store.verification.verification import Finding, verify

R = TypeVar("R")

PAGE = 500
"""How many memories, keys or approvals are read at once."""


class CopyProgress(Value):
    """How far a copy has come, and how much was new to the target."""

    tenant: Tenant
    done: int
    of: int
    fresh: int
    memories: int


class NotCopied(Value):
    """A session, or a row beside the sessions, that is not in the copy because it is damaged, or because something else
    of its name is there."""

    tenant: str
    what: str
    why: str
    is_damaged: bool = True


MADE_ANEW = frozenset(
    ("index_off", "derived_off", "open_off", "queued_off", "signal_off", "file_damaged")
)
"""Findings about what a copy makes anew, or does not copy: they are no reason to leave a session out."""


class Flaws:
    """What `verify` has found in the source of a copy."""

    def __init__(self) -> None:
        self.sessions: dict[Tenant, dict[SessionId, str]] = defaultdict(dict)
        """Broken sessions, and what is wrong with each."""
        self.rows: dict[tuple[str, str], str] = {}
        """Broken rows that belong to no session, by tenant and name, and what is wrong with each."""

    @classmethod
    async def of(cls, source: Store) -> Flaws:
        flaws = cls()
        async for report in verify(source):
            if isinstance(report, Finding) and report.violation.code not in MADE_ANEW:
                flaws._add(report)
        return flaws

    def _add(self, finding: Finding) -> None:
        found = finding.violation
        name = finding.session_id or found.where or "a part that cannot be read"
        with suppress(InvalidValue):  # an id that is none is no session's
            if finding.session_id:
                whose = self.sessions[Tenant(finding.tenant)]
                whose.setdefault(SessionId(finding.session_id), found.what)
                return
        self.rows.setdefault((finding.tenant, name), found.what)

    def without(self, tenant: str, rows: Iterable[R], name_of: Callable[[R], str]) -> list[R]:
        """The rows that are what was written."""
        return [row for row in rows if (tenant, name_of(row)) not in self.rows]


async def copy(
    source: Store, target: Store, *, damaged: bool = False
) -> AsyncIterator[CopyProgress | NotCopied]:
    """Copy everything that lasts and is sound; with `damaged`, everything that can be read. What
    cannot be copied is told, and does not end the copy."""
    flaws = Flaws() if damaged else await Flaws.of(source)
    for (owner, name), why in flaws.rows.items():
        yield NotCopied(tenant=owner, what=name, why=why)
    everyone = {
        tenant: await exports.session_ids(source, tenant) for tenant in await source.tenants()
    }
    of = sum(map(len, everyone.values()))
    # API keys come first: a server that finds conversations but no keys would serve them to every client.
    async for api_keys in _pages(source.api_keys, lambda row: row.key_id):
        for api_key in flaws.without("", api_keys, lambda row: row.key_id):
            await target.put_api_key(api_key)
    for seal_key in flaws.without("", await source.seal_keys(), lambda row: row.key_id):
        await target.put_seal_key(seal_key)
    done = fresh = memories = 0
    for tenant, ids in everyone.items():
        try:
            async for rows in _pages(partial(source.all_memories, tenant), lambda row: row):
                sound = flaws.without(tenant, rows, lambda row: row.memory_id)
                memories += await target.restore_memories(tenant, tuple(sound))
        except StoreDamaged as damage:
            yield NotCopied(tenant=tenant, what="memories, from one on", why=damage.why)
        try:
            async for grants in _pages(partial(source.grants, tenant), lambda row: row.grant_id):
                for grant in flaws.without(tenant, grants, lambda row: row.grant_id):
                    await target.put_grant(grant)
        except StoreDamaged as damage:
            yield NotCopied(tenant=tenant, what="approvals, from one on", why=damage.why)
        broken, missing = flaws.sessions[tenant], set[SessionId]()
        async for dump in exports.dumps(source, tenant, ids, tombstones=True, broken=broken):
            if isinstance(dump, exports.LeftOut):
                yield NotCopied(tenant=tenant, what=dump.session_id, why=dump.why)
                continue
            sound_dump = msgspec.structs.replace(
                dump,
                keys=tuple(flaws.without(tenant, dump.keys, lambda row: row.key)),
                claims=tuple(flaws.without(tenant, dump.claims, lambda row: row.key)),
            )
            if lost := missing.intersection(each.session_id for each in dump.session.lineage):
                why = f"it goes on from {min(lost)}, which is left out"
                yield NotCopied(tenant=tenant, what=dump.session.id, why=why)
                continue
            outcome = await target.restore(tenant, marked(sound_dump) if damaged else sound_dump)
            if isinstance(outcome, RestoreRefused):
                missing.add(dump.session.id)
                yield NotCopied(
                    tenant=tenant,
                    what=dump.session.id,
                    why=outcome.why,
                    is_damaged=not outcome.conflict,
                )
                continue
            done, fresh = done + 1, fresh + outcome.fresh
            yield CopyProgress(
                tenant=tenant, done=done, of=max(done, of), fresh=fresh, memories=memories
            )


LOST = b"lost"
"""Stands for an item that is gone. It is no JSON, so that each reader and `verify` take it for damaged."""


def marked(dump: SessionDump) -> SessionDump:
    """A dump with a mark in the place of each item that its turns have and that is gone."""
    session, kept = dump.session, {row.pos: row for row in dump.items}
    for turn in dump.turns:
        for pos in range(turn.start, turn.end) if turn.seq is not None else ():
            lost = ItemRow(
                tenant=session.tenant,
                session_id=session.id,
                pos=pos,
                turn_id=turn.turn_id,
                path="",
                body=LOST,
            )
            kept.setdefault(pos, lost)
    return msgspec.structs.replace(dump, items=tuple(kept[pos] for pos in sorted(kept)))


async def _pages(
    read: Callable[..., Awaitable[tuple[R, ...]]], place_of: Callable[[R], object]
) -> AsyncIterator[tuple[R, ...]]:
    """All rows of a list, page by page; `place_of` the last row of a page is where the next page begins."""
    after: object = None
    while rows := await read(after=after, limit=PAGE):
        yield rows
        after = place_of(rows[-1])
