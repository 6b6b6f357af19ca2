"""How a PostgreSQL is, read without opening it as a store: nothing is changed, made or taken over."""

from __future__ import annotations

import time

from holdfast.store.condition import Condition, Replication
from holdfast.store.operations.nodes import holders, nodes
from holdfast.store.postgres.address import DatabaseAddress
from holdfast.store.postgres.driver import STEPS
from holdfast.store.postgres.engine import Db, PostgresEngine
from holdfast.store.postgres.migration import load_migrations, step_of
from holdfast.store.postgres.queries import compiled

_SERVER = compiled(
    "server",
    """
    select current_setting('server_version'), (extract(epoch from clock_timestamp()) * 1000)::bigint,
           pg_database_size(current_database()), current_setting('synchronous_commit'),
           current_setting('synchronous_standby_names'), pg_is_in_recovery(),
           (select count(*) from pg_stat_replication),
           (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum'))
    """,
)
"""Its version, its clock, its size, and how it hands on what it commits."""


async def examine(address: DatabaseAddress) -> Condition:
    """How this database is. Raises StoreUnusable if it cannot be one, StoreUnavailable if it does not answer."""
    engine = PostgresEngine.at(address)
    try:
        return await engine.run(_examine)
    finally:
        await engine.close()


async def _examine(db: Db) -> Condition:
    before_ms = time.time_ns() // 1_000_000
    ((version, clock_ms, size, commit, names, is_standby, standbys, synchronous),) = await db.fetch(
        _SERVER, {}
    )
    asked_ms = (before_ms + time.time_ns() // 1_000_000) // 2
    step = await step_of(db)
    condition = Condition(
        kind="PostgreSQL",
        version=str(version).split(" ", maxsplit=1)[0],
        step=step,
        newest=load_migrations()[-1].number,
        bytes=size,
        clock_ms=clock_ms - asked_ms,
        replication=Replication(
            commit=commit,
            names=names,
            standbys=standbys,
            synchronous=synchronous,
            is_standby=is_standby,
        ),
    )
    return condition if step == 0 else await _with_nodes(db, condition, now_ms=clock_ms)


async def _with_nodes(db: Db, condition: Condition, *, now_ms: int) -> Condition:
    return condition.with_nodes(
        await STEPS.take(db, nodes()),
        await STEPS.take(db, holders()),
        is_alive=lambda node: node.expires_ms > now_ms,
        # An id is minted by its process's own clock, just before the database first writes it down.
        ahead_ms=lambda node: node.node_id.minted_at_ms - node.since_ms,
    )
