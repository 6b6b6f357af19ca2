"""Sessions that come from elsewhere, as functions of a connection."""

from __future__ import annotations

from apsw import Connection

from holdfast.ids import Tenant
from holdfast.store import decisions, moving
from holdfast.store.base import Refused, Restored, RestoreOutcome, SessionDump
from holdfast.store.operations.arrivals import arrived
from holdfast.store.operations.finders import claim_under, key_named, turn_at, turn_of
from holdfast.store.rows import SessionRow
from holdfast.store.sqlite import reading
from holdfast.store.sqlite.driver import DRIVER


def restore(db: Connection, tenant: Tenant, dump: SessionDump) -> RestoreOutcome:
    session = dump.session
    flaw = moving.flaw_in(dump, tenant=tenant, past=_ancestors(db, tenant, session))
    if flaw is not None:
        return Refused(why=flaw)
    if reading.find_session(db, tenant, session.id) is not None:
        here = reading.dump(db, tenant, session.id)
        if here is not None and moving.is_same(here, dump):
            return Restored(fresh=False)
        return moving.taken("session", session.id)
    for key in dump.keys:
        if DRIVER.run(db, key_named(tenant, key.key)) is not None:
            return moving.taken("key", key.key)
    for turn in dump.turns:
        if DRIVER.run(db, turn_of(tenant, turn.turn_id)) is not None:
            return moving.taken("turn", turn.turn_id)
    for claim in dump.claims:
        if DRIVER.run(db, claim_under(tenant, claim.key)) is not None:
            return moving.taken("idempotency key", claim.key)
    _write_dump(db, dump)
    return Restored(fresh=True)


def _ancestors(db: Connection, tenant: Tenant, session: SessionRow) -> tuple[moving.Ancestor, ...]:
    return tuple(
        moving.Ancestor(
            segment=segment,
            session=reading.find_session(db, tenant, segment.session_id),
            turn=DRIVER.run(
                db,
                turn_at(
                    tenant,
                    decisions.owner_of(session, segment.upto_version),
                    segment.upto_version,
                ),
            ),
        )
        for segment in session.lineage
    )


def _write_dump(db: Connection, dump: SessionDump) -> None:
    DRIVER.run(db, arrived(dump))
