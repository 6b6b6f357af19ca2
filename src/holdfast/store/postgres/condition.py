"""How a PostgreSQL is, read without opening it as a store: nothing is changed, made or taken over."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from holdfast.store.condition import Condition, Replication
from holdfast.store.operations.nodes import nodes
from holdfast.store.postgres.address import Address
from holdfast.store.postgres.driver import STEPS
from holdfast.store.postgres.engine import Db, Engine
from holdfast.store.postgres.migrate import load_migrations, step_of
from holdfast.store.postgres.tables import Query
from holdfast.store.queries import load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "condition.sql")
_SERVER, _HOLDERS = (
    Query(name=f"condition_{name}", sql=_SQL[name], names=()) for name in ("server", "holders")
)


async def examine(address: Address) -> Condition:
    """How this database is. Raises StoreUnusable if it cannot be one, StoreUnavailable if it does not answer."""
    engine = Engine.at(address)
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
    rows = await STEPS.take(db, nodes())
    alive = [each for each in rows if each.expires_ms > now_ms]
    living = {each.node_id for each in alive}
    holders = [node for (node,) in await db.fetch(_HOLDERS, {})]
    # An id is minted by its process's own clock, just before the database first writes it down.
    ahead = (each.node_id.minted_at_ms - each.since_ms for each in alive)
    return msgspec.structs.replace(
        condition,
        nodes=len(alive),
        nodes_gone=len(rows) - len(alive),
        open_turns=len(holders),
        # What waits in the background has no holder yet, and was left by nobody.
        orphans=sum(node is not None and node not in living for node in holders),
        node_ahead_ms=max(0, *ahead, 0),
    )
