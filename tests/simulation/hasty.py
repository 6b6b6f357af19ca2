"""A chat page and its user: every message brings all that was said before, and does not wait for the answer to the last.

Its conversation is its own. It never sends a message again by itself: one that failed is told with the next one, as part
of what was said. So each of its messages has to be in the conversation once, in the order of sending, as soon as one
more message was answered.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from random import Random

import msgspec

from holdfast.core.history.log import Log
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import Text
from holdfast.core.policy import resolve_policy
from holdfast.errors import HoldfastError, StoreError
from holdfast.ids import SessionKey
from holdfast.sessions.session_requests import Ask, OnBusy
from holdfast.store.outcomes import Attempt
from tests.simulation.clients import TENANT, Exchange, as_client_sees
from tests.simulation.history import Act, Send
from tests.simulation.world import ConnectionLost, Node, World

WAYS: tuple[OnBusy, ...] = ("wait", "wait", "steer", "interrupt")
LAST_TRIES_MAX = 20


class HastyClient:
    """One chat page. `queued`: it asks in the background."""

    def __init__(
        self, world: World, name: str, rng: Random, *, pause_s: float, goes_on: bool
    ) -> None:
        self._world = world
        self._name = name
        self._rng = rng
        self._pause_s = pause_s
        self._queued = rng.random() < 0.3
        self._deadline_s = rng.choice((8.0, 15.0, 40.0))
        self._goes_on = goes_on
        self._key = SessionKey(f"page-{name}")
        self._said: list[str] = []
        self._heard: dict[str, tuple[Incoming, ...]] = {}
        """The answer to each message whose answer has come."""
        self._node: Node | None = None

    async def live(self, *, requests: int) -> None:
        """Send messages, most of them too early."""
        sends = []
        for _ in range(requests):
            await asyncio.sleep(self._pause_s * self._rng.random())
            sends.append(asyncio.create_task(self._send(), name=f"send-{self._name}"))
        await asyncio.gather(*sends)

    async def say_last(self) -> None:
        """Send messages until one is answered. Players that fail most of the time have to stop that at some point."""
        for tried in range(LAST_TRIES_MAX):
            self._world.calm = tried >= LAST_TRIES_MAX // 2
            send = await self._send()
            if send.acknowledged:
                return
            await asyncio.sleep(1.0)

    async def _send(self) -> Send:
        world = self._world
        op = world.next_op()
        send = Send(
            op=op,
            attempt=0,
            client=self._name,
            name=self._key,
            text=f"says-{op}",
            policy=resolve_policy(promised_return=self._queued),
            on_busy=self._rng.choice(WAYS),
            deadline_s=self._deadline_s,
            queues=self._queued,
            hasty=True,
            invoked_s=world.loop.time(),
        )
        ask = self._ask(send)
        self._said.append(send.text)
        node = self._reach()
        if node is None:
            send = msgspec.structs.replace(
                send, outcome="unavailable", error="nobody", done_s=world.loop.time()
            )
            world.sends.append(send)
            return send
        exchange = Exchange(world, node, send)
        try:
            await node.run(lambda: exchange.serve(ask))
        except ConnectionLost:
            exchange.note("unavailable", "connection")
        except StoreError as error:
            exchange.note("unavailable", error.code)
        except HoldfastError as error:
            exchange.note("refused", getattr(error, "reason", error.code))
        send = exchange.written()
        if send.acknowledged and self._rng.random() < 0.7:
            await self._hear(send)
        elif send.told is not None and send.told.kept and self._goes_on:
            await self._go_on(send, node)
        return send

    async def _go_on(self, send: Send, node: Node) -> None:
        """The answer broke off. Half of them are shown as far as they came, and half are finished by hand."""
        turn_id = send.turn_id
        assert turn_id is not None
        if self._rng.random() < 0.5:
            await self._hear(send)
        if self._rng.random() < 0.5:
            return
        act = Act(kind="continue", turn_id=turn_id, session_id=send.session_id)
        self._world.acts.append(act)
        try:
            await node.run(lambda: node.sessions.continue_turn(TENANT, turn_id))
        except (ConnectionLost, HoldfastError):
            pass  # its next message is something new

    def _reach(self) -> Node | None:
        """The node that it talks to, as long as that one is there: a process takes its requests in their order."""
        if self._node not in self._world.nodes:
            self._node = self._world.any_node()
        return self._node

    async def _hear(self, send: Send) -> None:
        """The answer is shown after the message, all of it: also to a message that was steered in."""
        assert send.session_id is not None and send.told is not None
        version = send.told.version
        snapshot = await self._world.store.snapshot(TENANT, send.session_id, version=version)
        assert snapshot is not None
        mark = snapshot.marks[-1]
        turn = msgspec.structs.replace(snapshot, items=Log(snapshot.items[mark.start : mark.end]))
        told = as_client_sees(turn, whole=True)
        self._heard[send.text] = tuple(each for each in told if each.role == "assistant")

    def _ask(self, send: Send) -> Ask:
        past: list[Incoming] = []
        for text in self._said:
            past.append(Incoming(role="user", content=(Text(text=text),)))
            past += self._heard.get(text, ())
        return Ask(
            tenant=TENANT,
            name=self._key,
            messages=(*past, Incoming(role="user", content=(Text(text=send.text),))),
            agent="sim",
            source_key="sim",
            on_busy=send.on_busy,  # type: ignore[arg-type]
            wait_s=self._rng.choice((5.0, 30.0)),
            attempt=Attempt(request_hash=sha256(send.text.encode()).digest()),
            background=self._queued,
            queues=self._queued,
            deadline_s=self._deadline_s,
        )
