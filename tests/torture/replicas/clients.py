"""Clients over HTTP: one attempt after the other until a wish is heard or refused, and everything written down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from random import Random
from typing import Any

import aiohttp
import msgspec
from msgspec.structs import replace

from holdfast.core.turns.journal import Record, decode_records
from holdfast.ids import SessionId, TurnId, Version
from tests.simulation.history import Act, Outcome, Send, Shown, Told, Watched
from tests.torture.replicas.traffic import Ledger, Wired, Wish

PATIENCE_S = 12.0
"""How long a client waits for the next byte."""
POLL_S = 0.3
RETRY_S = 0.3
ATTEMPTS_MAX = 100
CANCELLED = frozenset({"turn_cancelled", "cancelled"})
FAILING_MAX = 3
"""How often something is asked for that the model always fails at."""

REFUSED = frozenset({400, 401, 404, 410, 412, 413, 415, 422, 429})
"""Nothing has begun, and the same request will not begin anything later."""


class Clients:
    """How clients reach the replicas, and where they write down what comes of it."""

    def __init__(
        self, http: aiohttp.ClientSession, urls: list[str], ledger: Ledger, now_s: Clock
    ) -> None:
        self.http = http
        self.urls = urls
        self.ledger = ledger
        self.now_s = now_s

    async def fulfil(self, wish: Wish, rng: Random, *, probe: bool = False) -> Send:
        """Ask for it: with a key again and again, at any replica, until there is an end; without one once, since
        whoever asks again may be heard twice."""
        before: Wired | None = None
        attempt = 0
        while True:
            wired = await self.attempt(wish, attempt, rng.randrange(len(self.urls)), probe=probe)
            self.ledger.write(wired)
            attempt += 1
            most = FAILING_MAX if wish.fails else ATTEMPTS_MAX
            if wish.key is None or attempt == most or not _may_try_again(wired, before):
                return wired.send
            before = wired
            await asyncio.sleep(RETRY_S * (0.5 + rng.random()))

    async def attempt(self, wish: Wish, attempt: int, at: int, *, probe: bool = False) -> Wired:
        """One request to one replica, and what came of it."""
        sent = Send(
            op=wish.number,
            attempt=attempt,
            client="aiohttp",
            name=wish.name,
            text=wish.text,
            policy=wish.policy,
            key=wish.key,
            on_busy=wish.on_busy,
            node=str(at),
            probe=probe,
            # What came of it in fact is not on the wire.
            how="steered" if wish.on_busy == "steer" else "began",
            invoked_s=self.now_s(),
        )
        heard = Heard(Wired(send=sent, api=wish.api))
        try:
            async with self.http.post(
                self.urls[at] + path_of(wish), data=body_of(wish), headers=headers_of(wish)
            ) as response:
                heard.answered(response.status, response.headers)
                if heard.turn_id:
                    self.ledger.heard_of(heard.turn_id, replayable=wish.policy.crash == "resume")
                await self._hear(wish, heard, response, at)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            heard.lost(type(error).__name__)
        return heard.written(self.now_s())

    async def _hear(
        self, wish: Wish, heard: Heard, response: aiohttp.ClientResponse, at: int
    ) -> None:
        if response.content_type != "text/event-stream":
            heard.whole(await response.read())
            if wish.api == "background" and heard.status == 200:
                await self._poll(heard, at)
            return
        pieces = 0
        async for data in events_of(response):
            heard.event(data)
            pieces += 1
            if pieces == wish.leaves_after:
                response.close()
                return

    async def _poll(self, heard: Heard, at: int) -> None:
        """Ask every replica in turn what became of a response that nobody waits for."""
        until_s = self.now_s() + 10 * PATIENCE_S
        while not heard.over and self.now_s() < until_s:
            await asyncio.sleep(POLL_S)
            at = (at + 1) % len(self.urls)
            with suppress(aiohttp.ClientError, TimeoutError, OSError):
                url = f"{self.urls[at]}/v1/responses/{heard.response_id}"
                async with self.http.get(url) as response:
                    if response.status == 200:
                        heard.whole(await response.read())

    # ── others ──

    async def cancel(self, turn_id: str, at: int) -> None:
        act = Act(kind="cancel", turn_id=TurnId(turn_id), invoked_s=self.now_s(), failed=True)
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            url = f"{self.urls[at]}/api/turns/{turn_id}/cancel"
            async with self.http.post(url) as response:
                body = await response.json()
                if response.status == 200:
                    act = replace(act, told=told_of(body), failed=False)
        self.ledger.acts.append(replace(act, done_s=self.now_s()))

    async def watch(self, turn_id: str, at: int, *, since: int = 0) -> None:
        """Look at a turn from some number on, at any replica, until its end."""
        shown: list[Shown] = []
        whole = False
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            url = f"{self.urls[at]}/api/turns/{turn_id}/events?starting_after={since - 1}"
            async with self.http.get(url) as response:
                if response.status != 200:
                    return
                async for data in events_of(response):
                    whole = data.startswith(b'{"turn"')
                    shown += (
                        Shown(n=each.n, event=each.event)
                        for each in decode_records(data)
                        if isinstance(each, Record)
                    )
        self.ledger.watched.append(
            Watched(turn_id=TurnId(turn_id), since=since, shown=tuple(shown), whole=whole)
        )


class Clock:
    """Seconds since the run began."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()

    def __call__(self) -> float:
        return self._loop.time() - self._began_s


class Heard:
    """What a client has heard so far about one attempt."""

    def __init__(self, wired: Wired) -> None:
        self._wired = wired
        self._outcome: Outcome = "left"
        self._error = ""
        self._said: list[str] = []
        self._told: Told | None = None
        self.status = 0
        self.turn_id = ""
        self.response_id = ""
        self.over = False

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.turn_id = headers.get("x-turn-id", "")
        session_id, base = headers.get("x-session-id"), headers.get("x-conversation-base")
        should_retry = headers.get("x-should-retry")
        self._wired = replace(
            self._wired,
            status=status,
            retry_after="retry-after" in headers,
            should_retry=None if should_retry is None else should_retry == "true",
            send=replace(
                self._wired.send,
                turn_id=TurnId(self.turn_id) if self.turn_id else None,
                session_id=SessionId(session_id) if session_id else None,
                base=Version(int(base)) if base else None,
            ),
        )

    def lost(self, why: str) -> None:
        """The connection broke, or nothing came for a while."""
        if not self.over:
            self._outcome, self._error = "unavailable", why

    def whole(self, body: bytes) -> None:
        """A JSON body."""
        if self.status != 200:
            self._failed(msgspec.json.decode(body)["error"])
            return
        answer = msgspec.json.decode(body)
        if "choices" in answer:
            self._said = [answer["choices"][0]["message"]["content"] or ""]
            self._completed(answer["holdfast"])
        else:
            self._response(answer)

    def event(self, data: bytes) -> None:
        """One event of a stream, of either API."""
        if data == b"[DONE]":
            self.over = True
            return
        event = msgspec.json.decode(data)
        if event.get("error"):
            self._failed(event["error"])
        elif event.get("type") == "response.output_text.delta":
            self._said.append(event["delta"])
        elif str(event.get("type")).startswith("response."):
            if event["type"] in ("response.completed", "response.failed", "response.incomplete"):
                self._response(event["response"])
        for choice in event.get("choices", ()):
            self._said.append(choice["delta"].get("content") or "")
            if choice["finish_reason"]:
                self._completed(event["holdfast"])

    def _response(self, response: dict[str, Any]) -> None:
        self.response_id = response["id"]
        match response["status"]:
            case "completed":
                texts = [
                    part["text"]
                    for item in response["output"]
                    if item["type"] == "message" and item["status"] == "completed"
                    for part in item["content"]
                ]
                self._said = ["".join(texts)]
                self._completed(response["holdfast"])
            case "failed" | "cancelled" | "incomplete":
                self._failed(response["error"] or {"code": response["status"]})

    def _completed(self, about: dict[str, Any]) -> None:
        self._outcome, self.over = "ended", True
        self._told = Told(kept=True, by="completed", version=Version(about["version"]))

    def _failed(self, error: dict[str, Any]) -> None:
        self._error, self.over = str(error.get("code")), True
        refused = self.status in REFUSED or self._error == "conversation_locked"
        away = self.status == 503 and not self.turn_id
        self._outcome = "refused" if refused else "unavailable" if away else "ended"

    def written(self, now_s: float) -> Wired:
        done = self._told is not None and self.over
        send = replace(
            self._wired.send,
            outcome=self._outcome if self.over or self._error else "left",
            error=self._error,
            told=self._told if done else None,
            answer="".join(self._said) if done else "",
            done_s=now_s,
        )
        return replace(self._wired, send=send)


def _may_try_again(wired: Wired, before: Wired | None) -> bool:
    """A turn that has ended twice in the same way has ended."""
    send = wired.send
    if send.acknowledged or wired.should_retry is False or send.error in CANCELLED:
        return False
    if before is not None and send.outcome == "ended":
        if (send.turn_id, send.error) == (before.send.turn_id, before.send.error):
            return False
    return send.outcome != "refused" or send.error == "conversation_locked"


def told_of(turn: dict[str, Any]) -> Told | None:
    """What `/api` says about how a turn ended."""
    if turn["ended_by"] is None:
        return None
    version = turn["version"]
    return Told(
        kept=turn["state"] == "committed",
        by=turn["ended_by"],
        version=None if version is None else Version(version),
    )


def path_of(wish: Wish) -> str:
    return "/v1/chat/completions" if wish.api in ("chat", "sdk") else "/v1/responses"


def headers_of(wish: Wish) -> dict[str, str]:
    key = {"Idempotency-Key": str(wish.key)} if wish.key else {}
    return {"X-Conversation-Id": str(wish.name), "X-On-Busy": wish.on_busy, **key}


def body_of(wish: Wish) -> bytes:
    if wish.api in ("chat", "sdk"):
        said = {"messages": [{"role": "user", "content": wish.text}]}
        return msgspec.json.encode({"model": "root", "stream": wish.stream, **said})
    background = wish.api == "background"
    about = {"stream": wish.stream, "background": background}
    return msgspec.json.encode({"model": "root", "input": wish.text, **about})


async def events_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of each event of a stream."""
    async for line in response.content:
        if line.startswith(b"data: "):
            yield line[6:].rstrip(b"\n")
