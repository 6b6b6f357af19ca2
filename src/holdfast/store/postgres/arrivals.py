"""Sessions that come from elsewhere, as work on the database."""

from __future__ import annotations

from holdfast.ids import Tenant
from holdfast.store import decisions, moving
from holdfast.store.base import Refused, Restored, RestoreOutcome, SessionDump
from holdfast.store.operations.arrivals import arrived
from holdfast.store.operations.finders import claim_under, key_named, turn_at, turn_of
from holdfast.store.postgres import reading, tables
from holdfast.store.postgres.driver import STEPS
from holdfast.store.postgres.engine import Db
from holdfast.store.rows import SessionRow


async def restore(db: Db, tenant: Tenant, dump: SessionDump) -> RestoreOutcome:
    async with db.transaction():
        flaw = moving.flaw_in(dump, tenant=tenant, past=await _ancestors(db, tenant, dump.session))
        if flaw is not None:
            return Refused(why=flaw)
        in_the_way = await _in_the_way(db, tenant, dump)
        if in_the_way is not None:
            return in_the_way
        await STEPS.take(db, arrived(dump))
    return Restored(fresh=True)


async def _in_the_way(db: Db, tenant: Tenant, dump: SessionDump) -> RestoreOutcome | None:
    session = dump.session
    there = await reading.dump_within(db, tenant, session.id)
    if there is not None:
        same = moving.is_same(there, dump)
        return Restored(fresh=False) if same else moving.taken("session", session.id)
    for key in dump.keys:
        if await STEPS.take(db, key_named(tenant, key.key)) is not None:
            return moving.taken("key", key.key)
    for turn in dump.turns:
        if await STEPS.take(db, turn_of(tenant, turn.turn_id)) is not None:
            return moving.taken("turn", turn.turn_id)
    for claim in dump.claims:
        if await STEPS.take(db, claim_under(tenant, claim.key)) is not None:
            return moving.taken("idempotency key", claim.key)
    return None


async def _ancestors(db: Db, tenant: Tenant, session: SessionRow) -> tuple[moving.Ancestor, ...]:
    ids = [segment.session_id for segment in session.lineage]
    held = await db.all(tables.sessions, "hold_ancestors", tenant=tenant, ids=ids) if ids else ()
    known = {each.id: each for each in held}
    return tuple(
        [
            moving.Ancestor(
                segment=segment,
                session=known.get(segment.session_id),
                turn=await STEPS.take(
                    db,
                    turn_at(
                        tenant,
                        decisions.owner_of(session, segment.upto_version),
                        segment.upto_version,
                    ),
                ),
            )
            for segment in session.lineage
        ]
    )
