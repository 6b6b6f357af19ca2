"""So many rounds of turns on the PostgreSQL at `--store`, in one thread: in each round, 64 sessions begin a turn at
once, and then commit it. Run by `bench/_instructions.py`.

Of a round, two begin (or commit) alone and all others in one statement, however slow the database is: so it can be
counted.
"""

from __future__ import annotations

import argparse
import asyncio
import gc

import uvloop
from _turns import Session, mint

from holdfast.ids import NodeId
from holdfast.store.outcomes import Committed, Started
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore

SESSIONS = 64


async def main(count: int, url: str) -> None:
    store = await PostgresStore.open(parse_address(f"{url}?listen=off"))
    node = mint(NodeId)
    await store.renew(node, ttl_ms=3_600_000)
    sessions = [Session(f"counted-{n}", node) for n in range(SESSIONS)]
    for _ in range(count):
        turns = [each.next_turn() for each in sessions]
        begun = await asyncio.gather(*[store.begin(turn.ask) for turn in turns])
        commits = [
            store.commit(each.fence, turn.commit, n=1, records=b"")
            for each, turn in zip(begun, turns, strict=True)
            if isinstance(each, Started)
        ]
        assert len(commits) == SESSIONS
        assert all(isinstance(each, Committed) for each in await asyncio.gather(*commits))
    await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--store", required=True)
    asked = parser.parse_args()
    gc.disable()  # when it collects depends on everything that went before
    uvloop.run(main(asked.count, asked.store))
