"""The real `openai` SDK among the clients, with retries of its own."""

from __future__ import annotations

from itertools import count
from random import Random

import httpx2
from msgspec.structs import replace
from openai import APIError, APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient

from tests.simulation.history import Send
from tests.torture.replicas.clients import PATIENCE_S, Clients, Heard, headers_of
from tests.torture.replicas.traffic import Wired, Wish

RETRIES = 4


class SdkClient:
    """One SDK behind the balancer. Each request of it is a connection of its own, to whichever replica takes it."""

    def __init__(self, clients: Clients, url: str) -> None:
        self._clients = clients
        self._requests = count()
        self._sdk = AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key="any",
            max_retries=RETRIES,
            timeout=PATIENCE_S,
            http_client=DefaultAsyncHttpxClient(
                limits=httpx2.Limits(max_keepalive_connections=0),
                event_hooks={"request": [self._counted]},
            ),
        )

    async def _counted(self, request: httpx2.Request) -> None:
        next(self._requests)

    async def close(self) -> None:
        await self._sdk.close()

    async def fulfil(self, wish: Wish, rng: Random) -> None:
        """Ask once, and let the SDK ask again as it likes."""
        self._requests = count()
        sent = Send(
            op=wish.number,
            attempt=0,
            client="openai",
            name=wish.name,
            text=wish.text,
            policy=wish.policy,
            key=wish.key,
            on_busy=wish.on_busy,
            counted=True,
            how="steered" if wish.on_busy == "steer" else "began",
            invoked_s=self._clients.now_s(),
        )
        heard = Heard(Wired(send=sent, api="sdk"))
        try:
            await (self._stream if wish.stream else self._whole)(wish, heard)
        except APIStatusError as error:
            heard.answered(error.response.status_code, error.response.headers)
            heard.whole(error.response.content)
        except (APIError, httpx2.HTTPError) as error:
            heard.lost(type(error).__name__)
        wired = heard.written(self._clients.now_s())
        # Nobody sees what came of the requests before the last one, but each of them may have been heard.
        before = max(0, next(self._requests) - 1)
        for earlier in range(before):
            unseen = replace(
                sent, attempt=earlier, outcome="unavailable", error="retried by the SDK"
            )
            self._clients.ledger.write(
                Wired(send=replace(unseen, done_s=wired.send.done_s), api="sdk")
            )
        self._clients.ledger.write(replace(wired, send=replace(wired.send, attempt=before)))

    async def _whole(self, wish: Wish, heard: Heard) -> None:
        answer = await self._sdk.chat.completions.with_raw_response.create(
            model="root",
            messages=[{"role": "user", "content": wish.text}],
            extra_headers=headers_of(wish),
        )
        heard.answered(answer.status_code, answer.headers)
        heard.whole(answer.content)

    async def _stream(self, wish: Wish, heard: Heard) -> None:
        answer = await self._sdk.chat.completions.with_raw_response.create(
            model="root",
            messages=[{"role": "user", "content": wish.text}],
            extra_headers=headers_of(wish),
            stream=True,
        )
        heard.answered(answer.status_code, answer.headers)
        async for chunk in answer.parse():
            heard.event(chunk.model_dump_json().encode())
        heard.event(b"[DONE]")
