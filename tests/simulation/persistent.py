"""A program with a conversation of its own: it sends each message again until it is answered, and none before.

It comes back with a key, with an SDK's count, or with the same request and nothing else. Once it is told the failure that
is stored, because retries may not go on with the turn any more, it asks for the turn itself. So each of its messages has
to be answered in the end, as soon as nothing fails any more.
"""

from __future__ import annotations

import asyncio
from random import Random

import msgspec

from holdfast.errors import HoldfastError
from holdfast.ids import SessionKey, TurnId
from tests.simulation.clients import TENANT, Habits, Request, told
from tests.simulation.faults import Odd
from tests.simulation.history import Act
from tests.simulation.world import ConnectionLost, World

LAST_TRIES_MAX = 20


class PersistentClient:
    """One such program."""

    def __init__(self, world: World, name: str, rng: Random, habits: Habits) -> None:
        self._world = world
        self._name = name
        self._rng = rng
        self._habits = msgspec.structs.replace(
            habits, on_busy=("wait",), mixes_up=0, limits=0, if_match=0, resends=0
        )
        self._key = SessionKey(f"own-{name}")
        self._tries = 0
        self._request: Request | None = None
        """What is not answered yet."""

    async def live(self, *, requests: int) -> None:
        """Send messages, each of them as often as others send theirs."""
        for _ in range(requests):
            await asyncio.sleep(self._habits.pause_s * self._rng.random())
            self._request, self._tries = self._new(), 0
            if not await self._insist(self._habits.attempts):
                return  # it says nothing else before that is answered

    async def finish(self) -> None:
        """Nothing fails any more, and the client does not lose patience: get the answer that is missing."""
        if self._request is not None:
            self._request.stay()
            await self._insist(LAST_TRIES_MAX)

    def _new(self) -> Request:
        rng, world, habits = self._rng, self._world, self._habits
        return Request(world, self._name, rng, habits, self._key, persistent=True)

    async def _insist(self, tries: int) -> bool:
        for _ in range(tries):
            if await self._is_answered():
                self._request = None
                return True
            await asyncio.sleep(2.0 * self._rng.random())
        return False

    async def _is_answered(self) -> bool:
        assert self._request is not None
        self._tries += 1
        sent = await self._request.send(self._tries - 1, self._world.any_node())
        if sent.acknowledged or sent.told is None:
            return sent.acknowledged
        if not sent.told.kept or sent.how != "replayed" or sent.turn_id is None:
            return False
        return await self._go_on(sent.turn_id)

    async def _go_on(self, turn_id: TurnId) -> bool:
        """Ask for the turn itself. Whether it was finished."""
        node = self._world.any_node()
        try:
            if node is None:
                return False
            watch = await node.run(lambda: node.sessions.continue_turn(TENANT, turn_id))
            ending = await node.run(watch.ended)
        except (ConnectionLost, HoldfastError, Odd):
            return False
        made, session_id = watch.admission.turn_id, watch.admission.session_id
        act = Act(kind="continue", turn_id=made, session_id=session_id, told=told(ending))
        self._world.acts.append(act)
        return ending.ok
