"""A server as a process of its own, for campaigns: with limits of its own, and a log that can be read meanwhile."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.repository import ROOT

HOLDFAST = ("-m", "holdfast")
READY_S = 120.0
STOP_S = 90.0
PAUSE_S = 0.05


class Served:
    """A server that runs. Obtained by `serving`."""

    def __init__(self, process: Process, log: Path) -> None:
        self.process = process
        self._log = log
        self.url = ""

    def said(self, event: str) -> list[dict[str, Any]]:
        """What it has logged under this name, so far."""
        lines = self._log.read_bytes().splitlines()
        read = [msgspec.json.decode(each) for each in lines if each.startswith(b"{")]
        return [each for each in read if each.get("event") == event]

    def log_end(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    def rss_mb(self) -> float:
        """What it has in memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def files(self) -> int:
        """How many files it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    async def wait_ready(self) -> None:
        until = time.monotonic() + READY_S
        while not (ready := self.said("server.ready")):
            assert self.is_running and time.monotonic() < until, self.log_end()
            await asyncio.sleep(PAUSE_S)
        self.url = ready[0]["url"]


@asynccontextmanager
async def serving(
    folder: Path,
    store: str,
    *sources: str,
    name: str = "server",
    ceilings: Mapping[int, int] | None = None,
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = HOLDFAST,
    tree: Path = ROOT,
) -> AsyncIterator[Served]:
    """A server over this store, in this folder; `ceilings` are its limits, by their numbers in `resource`.

    `tree` is where its source lies: another version may be served.
    """

    def limit() -> None:
        for which, most in (ceilings or {}).items():
            resource.setrlimit(which, (most, most))

    log = folder / f"{name}.log"
    with log.open("wb") as to:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *program, "serve", *sources, "--store", store),
            *("--listen", "127.0.0.1:0", "--log-format", "json"),
            cwd=tree,
            env={**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}", **(environment or {})},
            stdout=to,
            stderr=to,
            preexec_fn=limit,
        )
    served = Served(process, log)
    try:
        await served.wait_ready()
        yield served
    finally:
        if served.is_running:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def say(
    http: aiohttp.ClientSession,
    to: str,
    text: str,
    *,
    model: str = "demo",
    url: str = "",
    **headers: str,
) -> tuple[int, Mapping[str, str], bytes]:
    """Say something in a conversation: the status, the headers and the body of the answer."""
    asked = {"model": model, "messages": [{"role": "user", "content": text}]}
    named = {"X-Conversation-Id": to, **headers}
    async with http.post(f"{url}/v1/chat/completions", json=asked, headers=named) as response:
        return response.status, response.headers, await response.read()
