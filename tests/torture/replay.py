"""The replay's torture: whatever watchers saw of a response live is what its log tells afterwards, number for number.

    make torture-replay
    python -m tests.torture.replay --turns 1000 --seed 7

Turns of every kind are played by a server process: words, thoughts, tools of the agent and of the client, models that
fail in the middle, cancels. While they run the server is killed, or told to stop, and started again, and watchers come
late, leave early and take up where they were cut off. In the end each response is fetched once more from its first
event, and every event that anybody saw has to be in it, byte for byte, under its number.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec

from holdfast.models.model import ModelFailed
from holdfast.testing import Reply, Script, refuses, says
from holdfast.testing.upstream import UpstreamRequest
from holdfast.wire.sse import SseParser
from tests.e2e.world import World
from tests.e2e.world import world as new_world

SIDE_BY_SIDE = 8
WORDS = "all work and no play makes a dull day for everybody who has to wait 😀 é".split()
ENDS = {"response.completed", "response.incomplete", "response.failed"}
FUNCTION = {"type": "function", "name": "ask_user", "parameters": {"type": "object"}}


# ── the upstream ─────────────────────────────────────────────────────────────────────────────


def respond(request: UpstreamRequest) -> Reply | Script:
    """What a model says to this: anything, and the same each time."""
    messages = request.json["messages"]
    prompt = next(str(m["content"]) for m in reversed(messages) if m["role"] == "user")
    steps = sum(m["role"] == "tool" for m in messages)
    rng = Random(f"{prompt} {steps}")
    said = says(
        *(f"{word} " for word in rng.choices(WORDS, k=rng.randint(0, 12))),
        thinks=rng.choices(WORDS, k=rng.choice((0, 0, 3))),
        calls=_calls(prompt, steps, rng),
    )
    if not said.steps:
        said = says("Well.")
    kind = rng.random()
    if kind < 0.06:
        return refuses(500, message="out of order")
    if kind < 0.16:
        said = said.failing(ModelFailed("out of order"), at=rng.randrange(len(said.steps)))
    return Reply(script=said, pace_s=rng.choice((0.0, 0.0, 0.002, 0.02)))


def _calls(prompt: str, steps: int, rng: Random) -> list[tuple[str, str]]:
    if steps >= 2 or rng.random() < 0.6:
        return []
    if "asks" in prompt and rng.random() < 0.3:
        return [("ask_user", '{"what": "?"}')]
    return [("look", "{}")] * rng.randint(1, 2)


# ── one response ─────────────────────────────────────────────────────────────────────────────


class Cut(Exception):
    """The connection ended before the answer did."""


class Told:
    """What one watcher was told."""

    def __init__(self, after: int = -1) -> None:
        self.after = after
        self.events: list[tuple[int, bytes]] = []
        self.response_id = ""
        self.ended = False

    @property
    def last(self) -> int:
        return self.events[-1][0] if self.events else self.after

    def hear(self, data: bytes) -> None:
        event = msgspec.json.decode(data)
        if event["type"] == "error":  # the stream ends here, and its response does not
            raise Cut
        self.events.append((event["sequence_number"], data))
        self.response_id = self.response_id or event.get("response", {}).get("id", "")
        self.ended = event["type"] in ENDS


class OneResponse:
    """A response from its request to its log."""

    def __init__(self, campaign: Campaign, n: int) -> None:
        self._campaign = campaign
        self._world = campaign.world
        self._rng = rng = Random(f"{campaign.seed} {n}")
        self._key = f"{campaign.seed}-{n}"
        self._background = rng.random() < 0.6
        self._streamed = not self._background or rng.random() < 0.5
        self._cancels_at = rng.randint(0, 12) if self._background and rng.random() < 0.2 else None
        self._body: dict[str, Any] = {
            "model": "root",
            "input": f"{'asks' if rng.random() < 0.3 else 'says'} {rng.random()}",
            "background": self._background,
            "stream": self._streamed,
            "include": rng.choice(([], ["holdfast.tool_calls"])),
            "reasoning": rng.choice((None, {"summary": "auto"})),
            "tools": [FUNCTION],
        }
        self.id = ""
        self.known = asyncio.Event()
        self.told: list[Told] = []

    async def live(self) -> None:
        """Ask for it, watch it in several ways, and see it to its end."""
        first = asyncio.create_task(self._ask())
        await asyncio.wait(
            {first, asyncio.create_task(self.known.wait())}, return_when="FIRST_COMPLETED"
        )
        if not self.id:
            await first  # it was refused before it had a name
            return
        watchers = [self._watch() for _ in range(self._rng.choice((0, 1, 2)))]
        await asyncio.gather(first, *watchers, self._maybe_cancel())

    async def _ask(self) -> None:
        """The request itself, with its key, until there is an answer to it; a stream is taken up by number."""
        while True:
            try:
                return await self._ask_once()
            except (Cut, aiohttp.ClientError, ConnectionError):
                await self._campaign.wait_up()
                if self.id:
                    return await self._watch()

    async def _ask_once(self) -> None:
        headers = {"Idempotency-Key": self._key}
        post = self._world.http.post(
            f"{self._world.url}/v1/responses", json=self._body, headers=headers
        )
        async with post as answer:
            if answer.status == 503:
                raise Cut
            self._name(answer.headers.get("x-turn-id", "").replace("turn_", "resp_"))
            if answer.content_type == "text/event-stream":
                await self._follow(answer, self._new_watcher(-1))
            else:
                await answer.read()
                self._campaign.kinds["status"] += answer.status != 200

    async def _watch(self) -> None:
        """Follow it from somewhere on, and take up again where one was cut off."""
        seen = max((each.last for each in self.told), default=-1)
        after = self._rng.choice((-1, -1, self._rng.randint(-1, max(seen, 0))))
        while True:
            told = self._new_watcher(after)
            url = f"{self._world.url}/v1/responses/{self.id}?stream=true&starting_after={after}"
            try:
                async with self._world.http.get(url) as answer:
                    if answer.status == 503:
                        raise Cut
                    assert answer.status == 200, await answer.text()
                    await self._follow(answer, told)
                    return
            except (Cut, aiohttp.ClientError, ConnectionError):
                self._campaign.kinds["taken up"] += 1
                after = told.last
                await self._campaign.wait_up()

    async def _maybe_cancel(self) -> None:
        if self._cancels_at is None:
            return
        try:
            while not any(each.last >= self._cancels_at or each.ended for each in self.told):
                if not self.told:
                    return
                await asyncio.sleep(0.002)  # until somebody has seen that much; nobody tells us
            url = f"{self._world.url}/v1/responses/{self.id}/cancel"
            async with self._world.http.post(url) as answer:
                await answer.read()
                self._campaign.kinds["cancel"] += 1
        except (aiohttp.ClientError, ConnectionError):
            pass

    async def _follow(self, answer: aiohttp.ClientResponse, told: Told) -> None:
        async for data in _events(answer):
            if data == b"[DONE]":
                told.ended = True  # also for one who had seen everything, and is told nothing
                return
            told.hear(data)
            self._name(told.response_id)
        raise Cut

    def _new_watcher(self, after: int) -> Told:
        self.told.append(Told(after))
        return self.told[-1]

    def _name(self, response_id: str) -> None:
        if response_id:
            self.id = response_id
            self.known.set()

    # ── the judgement ──

    async def judge(self) -> None:
        """Everything that was told is in the log."""
        log = Told()
        url = f"{self._world.url}/v1/responses/{self.id}?stream=true"
        async with self._world.http.get(url) as answer:
            assert answer.status == 200
            async for data in _events(answer):
                if data != b"[DONE]":
                    log.hear(data)
        by_number = dict(log.events)
        assert list(by_number) == list(range(len(log.events))), f"{self.id}: gaps"
        assert log.ended, f"{self.id}: no end"
        for told in self.told:
            numbers = [n for n, _ in told.events]
            upto = told.after + 1 + len(numbers)
            assert numbers == list(range(told.after + 1, upto)), f"{self.id}: {numbers}"
            for n, data in told.events:
                assert by_number.get(n) == data, (
                    f"{self.id}: event {n} was {data!r} and is {by_number.get(n)!r}"
                )
            assert not told.ended or told.last == len(log.events) - 1, f"{self.id}: goes on"
        self._campaign.count(log, self.told)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    parser = SseParser(event_bytes_max=1 << 22)
    async for piece in answer.content.iter_any():
        for data, _ in parser.feed(piece):
            yield data


# ── all of them ──────────────────────────────────────────────────────────────────────────────


class Campaign:
    """Many responses over one server that does not stay up."""

    def __init__(self, world: World, *, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.kinds: Counter[str] = Counter()
        self._up = asyncio.Event()

    async def wait_up(self) -> None:
        await self._up.wait()

    async def run(self, turns: int, *, tell: bool = False) -> None:
        """Play so many, some at a time; between two batches of them, and in every third one, the server goes."""
        self.world.let_tools_go()
        self._up.set()
        began, rng = time.monotonic(), Random(self.seed)
        for first in range(0, turns, SIDE_BY_SIDE):
            batch = [OneResponse(self, n) for n in range(first, min(first + SIDE_BY_SIDE, turns))]
            playing = asyncio.gather(*(each.live() for each in batch))
            if rng.random() < 0.34:
                await self._restart(rng, batch)
            async with asyncio.timeout(240):
                await playing
            for each in batch:
                if each.id:
                    await each.judge()
                self.kinds["responses" if each.id else "refused"] += 1
            if tell:
                done = self.kinds["responses"]
                print(f"  {done} responses, {time.monotonic() - began:.0f} s", file=sys.stderr)
        await self.world.verify()

    async def _restart(self, rng: Random, batch: list[OneResponse]) -> None:
        """When some of them have begun."""
        some = [asyncio.create_task(each.known.wait()) for each in batch]
        await asyncio.wait(
            some, return_when=rng.choice(("FIRST_COMPLETED", "ALL_COMPLETED")), timeout=5
        )
        for each in some:
            each.cancel()
        how = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
        self._up.clear()
        self.world.signal(how)
        if how == signal.SIGTERM:
            self.world.signal(how)  # at once: nobody is waited for
        await self.world.stop(how)
        await self.world.start()
        self.kinds[how.name] += 1
        self._up.set()

    def count(self, log: Told, told: list[Told]) -> None:
        last = msgspec.json.decode(log.events[-1][1])
        self.kinds[last["response"]["status"]] += 1
        self.kinds["events"] += len(log.events)
        self.kinds["watchers"] += len(told)
        self.kinds["seen live"] += sum(len(each.events) for each in told)
        self.kinds["tools"] += b'"mcp_call"' in log.events[-1][1]
        self.kinds["thoughts"] += b'"summary_text"' in log.events[-1][1]


async def torture(here: Path, *, turns: int, seed: int, tell: bool = False) -> Counter[str]:
    """Play a campaign in this folder, and say what it has seen."""
    async with new_world(here, respond=respond) as world:
        await world.start()
        campaign = Campaign(world, seed=seed)
        await campaign.run(turns, tell=tell)
        return campaign.kinds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kinds = asyncio.run(
            torture(Path(folder), turns=arguments.turns, seed=arguments.seed, tell=True)
        )
    for kind, count in kinds.most_common():
        print(f"{count:8}  {kind}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
