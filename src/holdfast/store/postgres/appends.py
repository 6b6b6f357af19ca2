"""Journal appends of many turns, in one statement and one sync.

1. Each append is fenced by itself: it is written if its turn is still held as it says, and left out otherwise.
2. One that was left out is looked at alone (`turns.append`): that knows whether it is there already, comes too late,
   or may not be.
3. A statement takes one append of a turn at most, and the turn's next one comes after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from holdfast.core.codec import Value
from holdfast.store.base import Fence
from holdfast.store.postgres.engine import Db, Engine
from holdfast.store.postgres.gathering import Gathering
from holdfast.store.postgres.recall import Recall
from holdfast.store.postgres.turns import append


class Append(Value):
    """Records of one turn, from number `n` on."""

    fence: Fence
    n: int
    records: bytes


def gathered_appends(engine: Engine, recall: Recall) -> Gathering[Append, Literal[True]]:
    """The way to the journal."""

    async def alone(asked: Append) -> Literal[True]:
        await engine.run(
            lambda db: append(db, asked.fence, recall, n=asked.n, records=asked.records)
        )
        return True

    async def together(db: Db, group: Sequence[Append]) -> list[Literal[True] | None]:
        fences = [asked.fence for asked in group]
        rows = await db.write(
            "append_many",
            tenants=[each.tenant for each in fences],
            session_ids=[each.session_id for each in fences],
            turn_ids=[each.turn_id for each in fences],
            tokens=[each.token for each in fences],
            nonces=[each.nonce for each in fences],
            ns=[asked.n for asked in group],
            records=[asked.records for asked in group],
        )
        stamps = {(tenant, turn_id): stamp for tenant, turn_id, stamp in rows}
        written: list[Literal[True] | None] = []
        for asked in group:
            stamp = stamps.get((asked.fence.tenant, asked.fence.turn_id))
            if stamp is not None:
                recall.moved(asked.fence, stamp=stamp, n=asked.n)
            written.append(None if stamp is None else True)
        return written

    return Gathering(
        engine,
        together,
        key=lambda asked: asked.fence.turn_id,
        size=lambda asked: len(asked.records),
        alone=alone,
        at_once=1,
        in_order=True,
    )
