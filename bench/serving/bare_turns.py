"""The bare proxy with T1 and T2: what a turn costs that keeps our promises of the store, and none of the server's.

As `bare.py`, except that a turn of a new session is begun on our own SQLite store before the upstream is asked, and
committed before the answer is sent. It knows what to write: nothing is read from the request, looked up, decided,
recorded, shown to anybody else, or checked. So this is the floor of a JSON turn on these tables.

Run by `bench/_quick.py` in a process of its own: `python bare_turns.py PORT UPSTREAM_PORT DATABASE`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import aiohttp
import uvicorn
from _turns import Session, Turn, mint
from bare import Bare

from holdfast.ids import NodeId
from holdfast.store.outcomes import Started
from holdfast.store.sqlite import SqliteStore


class BareTurns(Bare):
    """The ASGI application. Answers as JSON only."""

    def __init__(self, upstream: str, path: str) -> None:
        super().__init__(upstream, path)
        self._path = f"{path}-turns"
        self._store: SqliteStore | None = None
        self._node = mint(NodeId)
        self._numbers = count()

    async def __call__(
        self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        if scope["method"] == "GET":
            await self._answer(send, b"{}")
            return
        body = (await receive())["body"]
        if self._http is None:
            self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
            self._store = await SqliteStore.open(self._path)
            await self._store.renew(self._node, ttl_ms=3_600_000)
        assert self._store is not None
        turn: Turn = Session(f"bare-{next(self._numbers)}", self._node, chars=40).next_turn()
        begun = await self._store.begin(turn.ask)
        assert isinstance(begun, Started)
        headers = {"content-type": "application/json"}
        async with self._http.post(self._upstream, data=body, headers=headers) as response:
            answer = await response.read()
        await self._store.commit(begun.fence, turn.commit, n=1, records=b"")
        await self._answer(send, answer)


if __name__ == "__main__":
    port, upstream_port, path = sys.argv[1:]
    app = BareTurns(f"http://127.0.0.1:{upstream_port}/v1/chat/completions", path)
    uvicorn.run(app, port=int(port), log_level="error", access_log=False, lifespan="off")
