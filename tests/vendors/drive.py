"""Drives one conversation of twenty turns past a vendor, while its operator and its user change what they can.

Before each turn one thing happens, chosen by the seed: the agent file is edited and reloaded (instruction, tools,
effort, how much history the model sees, the date), another agent answers, the server is restarted, an item is hidden
or shown, the conversation is rewound, or nothing. The window is small, so that summaries are made, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from holdfast.agents.agent import Agent, Team
from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import Visibility
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import plain_text
from holdfast.core.turns.events import Parameters, TurnRequest
from holdfast.ids import SessionId, SessionKey, Tenant, Version
from holdfast.loop.player import Player
from holdfast.models.model import Model
from holdfast.sessions.session_requests import Ask, Ending
from holdfast.sessions.sessions import Sessions
from holdfast.store.memory_store import MemoryStore
from tests.loop.stage import ANYTHING, Deed, Tools

ACME = Tenant("acme")
TRIP = SessionKey("trip")
TURNS = 20
WINDOW = 6_000


class Drive:
    """One conversation. `stuck` has a line for every turn that failed."""

    def __init__(self, seed: int, models: Mapping[str, Model], *, quiet: bool = False) -> None:
        """`models`: the agents' models by the agents' names. `quiet`: nothing happens, and the window is large."""
        self._changes = (Drive._nothing, Drive._restart) if quiet else CHANGES
        self._window = None if quiet else WINDOW
        self.stuck: list[str] = []
        self.happened: list[str] = []
        self._chance = random.Random(seed)
        self._sampling = random.Random(f"sampling {seed}")
        self._models = models
        self._store = MemoryStore()
        self._agent = next(iter(models))
        self._instruction = "Be brief."
        self._tools = ["look"]
        self._effort: str | None = None
        self._choice: str | None = None
        self._items_max: int | None = None
        self._session: SessionId | None = None

    async def run(self) -> None:
        turns = 0
        while turns < TURNS:
            async with Sessions(self._store, Player(self._find_team)) as sessions:
                while turns < TURNS:
                    change = self._chance.choice(self._changes)
                    self.happened.append(change.__name__.strip("_"))
                    if change is Drive._restart:
                        break
                    await change(self, sessions)
                    await self._turn(sessions, turns)
                    turns += 1

    async def _turn(self, sessions: Sessions, number: int) -> None:
        messages = (Incoming(role="user", content=plain_text(f"Question {number}, please.")),)
        parameters = Parameters(tool_choice=self._choice)
        ask = Ask(
            tenant=ACME, name=TRIP, agent=self._agent, messages=messages, parameters=parameters
        )
        self._choice = None
        async with await sessions.submit(ask) as watch:
            ending: Ending = await watch.ended()
        if not ending.ok:
            self.stuck.append(f"turn {number} after {self.happened}: {ending}")
        self._session = ending.session_id

    @contextmanager
    def _find_team(self, request: TurnRequest) -> Iterator[Team]:
        agents = {
            name: Agent(
                name,
                model,
                instruction=self._instruction,
                toolsets=(Tools(*map(Deed, self._tools)),),
                handoffs=tuple(other for other in self._models if other != name),
                permissions=ANYTHING,
                parameters=Parameters(
                    reasoning_effort=self._effort,
                    temperature=self._sampling.choice((None, 0.3)),
                    max_output_tokens=self._sampling.choice((None, 4000, 1_000_000)),
                ),
                context_window=self._window,
                history_items_max=self._items_max,
            )
            for name, model in self._models.items()
        }
        yield Team(agents, entry=next(iter(agents)), digest=repr(vars(self)))

    # ── changes ──

    async def _nothing(self, sessions: Sessions) -> None:
        pass

    async def _restart(self, sessions: Sessions) -> None:
        raise AssertionError("a restart is not done inside of what it ends")

    async def _instruct(self, sessions: Sessions) -> None:
        self._instruction = self._chance.choice(("Be brief.", "Be kind.", "Today is Monday."))

    async def _equip(self, sessions: Sessions) -> None:
        self._tools = self._chance.choice((["look"], ["look", "fly"], ["fly"], []))

    async def _think(self, sessions: Sessions) -> None:
        self._effort = self._chance.choice((None, "none", "low", "high", "max"))

    async def _force(self, sessions: Sessions) -> None:
        if self._tools:
            self._choice = self._chance.choice(("required", "none"))

    async def _remember(self, sessions: Sessions) -> None:
        self._items_max = self._chance.choice((None, 4, 12))

    async def _switch(self, sessions: Sessions) -> None:
        self._agent = self._chance.choice(tuple(self._models))

    async def _hide(self, sessions: Sessions) -> None:
        if self._session is None:
            return
        snapshot = await sessions.snapshot(ACME, self._session)
        items = () if snapshot is None else tuple(snapshot.items)
        known = [each.id for each in items if not isinstance(each, Unreadable)]
        if known:
            patch = Visibility(to_model=self._chance.random() < 0.3)
            item = self._chance.choice(known)
            await sessions.operations.annotate(ACME, self._session, [(item, patch)])

    async def _rewind(self, sessions: Sessions) -> None:
        if self._session is None:
            return
        snapshot = await sessions.snapshot(ACME, self._session)
        if snapshot is not None and snapshot.version > 2:
            row = await sessions.operations.rewind(ACME, TRIP, Version(snapshot.version - 1))
            self._session = row.id


Change = Callable[[Drive, Sessions], object]
CHANGES = (
    *(Drive._nothing,) * 6,
    *(Drive._restart,) * 2,
    Drive._instruct,
    Drive._equip,
    Drive._think,
    Drive._force,
    Drive._remember,
    *(Drive._switch,) * 2,
    *(Drive._hide,) * 2,
    Drive._rewind,
)
