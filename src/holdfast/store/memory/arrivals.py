"""Sessions that come from elsewhere."""

from __future__ import annotations

from holdfast.ids import Tenant
from holdfast.store import decisions, moving
from holdfast.store.base import Refused, Restored, RestoreOutcome, SessionDump
from holdfast.store.memory import reading
from holdfast.store.memory.tables import Tables
from holdfast.store.operations.arrivals import arrived
from holdfast.store.rows import SessionRow


def restore(tables: Tables, tenant: Tenant, dump: SessionDump) -> RestoreOutcome:
    session = dump.session
    flaw = moving.flaw_in(dump, tenant=tenant, past=_ancestors(tables, tenant, session))
    if flaw is not None:
        return Refused(why=flaw)
    if (tenant, session.id) in tables.sessions.by_key:
        here = reading.dump(tables, tenant, session.id)
        if here is not None and moving.is_same(here, dump):
            return Restored(fresh=False)
        return moving.taken("session", session.id)
    for key in dump.keys:
        if (tenant, key.key) in tables.keys.by_key:
            return moving.taken("key", key.key)
    for turn in dump.turns:
        if (tenant, turn.turn_id) in tables.turns.by_key:
            return moving.taken("turn", turn.turn_id)
    for claim in dump.claims:
        if (tenant, claim.key) in tables.claims.by_key:
            return moving.taken("idempotency key", claim.key)
    tables.run(arrived(dump))
    return Restored(fresh=True)


def _ancestors(tables: Tables, tenant: Tenant, session: SessionRow) -> tuple[moving.Ancestor, ...]:
    return tuple(
        moving.Ancestor(
            segment=segment,
            session=tables.sessions.by_key.get((tenant, segment.session_id)),
            turn=tables.turn_at(
                tenant, decisions.owner_of(session, segment.upto_version), segment.upto_version
            ),
        )
        for segment in session.lineage
    )
