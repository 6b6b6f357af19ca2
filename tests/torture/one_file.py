"""An older server and this one on one SQLite file, while this one is killed again and again.

    make torture-upgrade
    python -m tests.torture.one_file COMMIT

Clients talk to both under keys, each in a conversation of its own, and come back until they are answered. Then every
message has to be there once, and the store has to be well. The exit status is 1 if it is not so.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import Process
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import aiohttp

from tests.repository import ROOT
from tests.torture.replicas.older import described, older_tree
from tests.torture.server_process import say, serving

CLIENTS, MESSAGES, KILLS = 12, 25, 6
EVERY_S = 2.0
RETRY_S = 0.2


class Pair:
    """The two servers."""

    def __init__(self, here: Path, older: Path) -> None:
        self.here = here
        self.store = f"sqlite:///{here / 'store.db'}"
        self._trees = (older, ROOT)
        self.urls = ["", ""]
        self.seen: Counter[str] = Counter()
        """What came of attempts."""

    async def start(self, number: int, servers: AsyncExitStack) -> Process:
        started = await servers.enter_async_context(
            serving(self.here, self.store, "demo", name=f"{number}", tree=self._trees[number])
        )
        self.urls[number] = started.url
        return started.process

    async def talk(self, number: int, http: aiohttp.ClientSession) -> None:
        rng = Random(number)
        for each in said_by(number):
            while True:
                if await self._is_answered(rng.choice(self.urls), number, each, http):
                    break
                await asyncio.sleep(RETRY_S * rng.random())

    async def _is_answered(
        self, url: str, number: int, text: str, http: aiohttp.ClientSession
    ) -> bool:
        try:
            status, _, _ = await say(http, f"c{number}", text, url=url, **{"Idempotency-Key": text})
            self.seen[str(status)] += 1
            return status == 200
        except (aiohttp.ClientError, TimeoutError) as error:
            self.seen[type(error).__name__] += 1
            return False

    async def heard(self, number: int, http: aiohttp.ClientSession) -> list[str]:
        """What people have said in a conversation, as this version tells it."""
        url = f"{self.urls[1]}/api/sessions/c{number}/items?limit=500"
        async with http.get(url) as answer:
            items = (await answer.json())["items"]
        return [each["content"][0]["text"] for each in items if each["type"] == "user"]


def said_by(number: int) -> list[str]:
    return [f"w{number}-{n}" for n in range(MESSAGES)]


async def run(here: Path, older: Path) -> bool:
    """Whether everything was kept, once."""
    pair = Pair(here, older)
    timeout = aiohttp.ClientTimeout(total=30)
    async with AsyncExitStack() as servers, aiohttp.ClientSession(timeout=timeout) as http:
        first = await pair.start(0, servers)
        newer = await pair.start(1, servers)
        talking = [asyncio.create_task(pair.talk(each, http)) for each in range(CLIENTS)]
        for _ in range(KILLS):
            await asyncio.sleep(EVERY_S)
            newer.kill()
            await newer.wait()
            newer = await pair.start(1, servers)
        await asyncio.gather(*talking)
        wrong = [n for n in range(CLIENTS) if await pair.heard(n, http) != said_by(n)]
        beside = first.returncode is None
    verify = ("-m", "holdfast", "db", "verify", "--store", pair.store)
    verified = await (await asyncio.create_subprocess_exec(sys.executable, *verify)).wait()
    print(f"{CLIENTS * MESSAGES} messages on one file, {KILLS} kills; attempts: {dict(pair.seen)}")
    print(f"{len(wrong)} conversations are not as they were said")
    return not wrong and not verified and beside


def main() -> int:
    commit = sys.argv[1] if len(sys.argv) > 1 else ""
    with older_tree(commit) as older, tempfile.TemporaryDirectory() as here:
        print(f"beside {described(commit)}")
        return 0 if asyncio.run(run(Path(here), older)) else 1


if __name__ == "__main__":
    sys.exit(main())
