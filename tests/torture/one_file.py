"""An older server and this one on one SQLite file, while this one is killed again and again.

    make torture-upgrade
    python -m tests.torture.one_file COMMIT

Clients talk to both under keys, each in a conversation of its own, and come back until they are answered. Then every
message has to be there once, and the store has to be well. The exit status is 1 if it is not so.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections import Counter
from pathlib import Path
from random import Random

import aiohttp

from tests.postgres import free_port
from tests.repository import ROOT
from tests.torture.replicas.older import described, older_tree

CLIENTS, MESSAGES, KILLS = 12, 25, 6
EVERY_S = 2.0
RETRY_S = 0.2
READY_S = 60.0


class Pair:
    """The two servers."""

    def __init__(self, here: Path, older: Path) -> None:
        self.store = here / "store.db"
        self._trees = (older, ROOT)
        self._logs = [here / f"{number}.log" for number in range(2)]
        self.urls = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
        self.seen: Counter[str] = Counter()
        """What came of attempts."""

    async def start(self, number: int, http: aiohttp.ClientSession) -> Process:
        tree, url = self._trees[number], self.urls[number]
        with self._logs[number].open("ab") as log:
            started = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "holdfast", "serve", "demo"),
                *("--listen", url.removeprefix("http://"), "--store", f"sqlite:///{self.store}"),
                cwd=tree,
                env={**os.environ, "PYTHONPATH": str(tree / "src")},
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(READY_S):
            while True:
                try:
                    async with http.get(f"{url}/readyz") as answer:
                        if answer.status == 200:
                            return started
                except aiohttp.ClientError:
                    pass
                assert started.returncode is None, self._logs[number].read_text()[-2000:]
                await asyncio.sleep(0.05)

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
        body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
        headers = {"X-Conversation-Id": f"c{number}", "Idempotency-Key": text}
        try:
            async with http.post(
                f"{url}/v1/chat/completions", json=body, headers=headers
            ) as answer:
                await answer.read()
                self.seen[str(answer.status)] += 1
                return answer.status == 200
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
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http:
        first = await pair.start(0, http)
        newer = await pair.start(1, http)
        try:
            talking = [asyncio.create_task(pair.talk(each, http)) for each in range(CLIENTS)]
            for _ in range(KILLS):
                await asyncio.sleep(EVERY_S)
                newer.send_signal(signal.SIGKILL)
                await newer.wait()
                newer = await pair.start(1, http)
            await asyncio.gather(*talking)
            wrong = [n for n in range(CLIENTS) if await pair.heard(n, http) != said_by(n)]
            beside = first.returncode is None
        finally:
            for each in (first, newer):
                if each.returncode is None:
                    each.send_signal(signal.SIGTERM)
                await each.wait()
    verify = ("-m", "holdfast", "db", "verify", "--store", f"sqlite:///{pair.store}")
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
