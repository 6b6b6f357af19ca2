"""So many turns of one session begun and committed on SQLite, in one thread. Run by `bench/_instructions.py`."""

from __future__ import annotations

import gc
import sys
import tempfile
from functools import partial
from pathlib import Path

import uvloop
from _turns import Session, mint

from holdfast.ids import NodeId
from holdfast.store.base import Started
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.engine import Engine
from holdfast.store.sqlite.writer import InlineWriter


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = partial(Engine.open, writer=InlineWriter, readers=0)
        store = await SqliteStore.open(Path(folder) / "counted.db", engine=engine)
        node = mint(NodeId)
        await store.renew(node, ttl_ms=3_600_000)
        session = Session("counted", node)
        for _ in range(count):
            turn = session.next_turn()
            begun = await store.begin(turn.ask)
            assert isinstance(begun, Started)
            await store.commit(begun.fence, turn.commit, n=1, records=b"")
        await store.close()


if __name__ == "__main__":
    gc.disable()  # when it collects depends on everything that went before
    uvloop.run(main(int(sys.argv[1])))
