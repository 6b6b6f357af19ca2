"""So many turns of one session begun and committed, in one thread: on SQLite, or on the PostgreSQL at `--store`; with
`--keyed` each under an idempotency key. Run by `bench/_instructions.py`.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from functools import partial
from pathlib import Path

import uvloop
from _turns import Session, mint

from holdfast.ids import NodeId
from holdfast.store.outcomes import Committed, Started
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.store import Store


async def opened(url: str | None, folder: str) -> Store:
    if url is not None:
        return await PostgresStore.open(parse_address(f"{url}?listen=off"))
    engine = partial(SqliteEngine.open, inline=True)
    return await SqliteStore.open(Path(folder) / "counted.db", engine=engine)


async def main(count: int, url: str | None, *, keyed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = await opened(url, folder)
        node = mint(NodeId)
        await store.renew(node, ttl_ms=3_600_000)
        session = Session("counted", node, keyed=keyed)
        for _ in range(count):
            turn = session.next_turn()
            begun = await store.begin(turn.ask)
            assert isinstance(begun, Started)
            done = await store.commit(begun.fence, turn.commit, n=1, records=b"")
            assert isinstance(done, Committed)
        await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--keyed", action="store_true")
    parser.add_argument("--store")
    asked = parser.parse_args()
    gc.disable()  # when it collects depends on everything that went before
    uvloop.run(main(asked.count, asked.store, keyed=asked.keyed))
