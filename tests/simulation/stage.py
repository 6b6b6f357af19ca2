"""A world in a test's hands: virtual time, any number of nodes, calm weather, and players that do as they are told.

    @on_stage
    async def test_something(stage: Stage) -> None:
        node = await stage.boot()
        sent = stage.send(node, "Hello")        # a task of some client's
        assert (await sent).ok

A player answers "re: …" at once, unless the test has said what it does when it hears some words. `on_stage` runs
a test once for each store, in no time at all.
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, TypeAlias, TypedDict, Unpack, get_args

import pytest

from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import (
    AssistantMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    plain_text,
    result_for,
    text_of,
)
from holdfast.core.policy import Policy
from holdfast.core.ports import OpenTurn, Play
from holdfast.core.turns import events as ev
from holdfast.core.turns.effects import AskModel, RunCall, wanted
from holdfast.ids import CallId, IdempotencyKey, MessageId, SessionId, SessionKey, Version
from holdfast.sessions.session_requests import Ask, ClientHistory, Ending, OnBusy
from holdfast.sessions.turns.live_turn import LiveTurn
from holdfast.sessions.turns.watch import Watch
from holdfast.store.outcomes import Attempt
from holdfast.store.rows import TurnRow
from tests.simulation.clients import TENANT
from tests.simulation.faults import CALM
from tests.simulation.loop import SimulatedLoop, run
from tests.simulation.simulation import Home, opener, scratch
from tests.simulation.world import Node, World

Part: TypeAlias = Callable[["Hand"], Awaitable[None]]
"""What a player does with a turn."""

KEY = SessionKey("trip-to-oslo")


class Asking(TypedDict, total=False):
    """What a test may want to say about a request besides its words."""

    name: SessionKey | SessionId
    past: tuple[Incoming, ...]
    key: str
    body: str
    attempt: int
    on_busy: OnBusy
    if_match: int
    policy: Policy
    wait_s: float
    deadline_s: float
    queues: bool
    follows: bool


class Hand:
    """A turn in the hands of a player: short words for what players do."""

    def __init__(self, stage: Stage, node: Node, turn: OpenTurn) -> None:
        self.stage = stage
        self.node = node
        self.open = turn

    async def say(self, text: str) -> None:
        """Answer in one step."""
        message = AssistantMessage(id=self.open.mint(MessageId), content=plain_text(text))
        await self.open.record(ev.StepStarted(), ev.Answered(items=(message,)))

    async def call(self, *names: str) -> tuple[ToolCall, ...]:
        """Ask for tools, in one step."""
        ids = [self.open.mint(CallId) for _ in names]
        calls = tuple(
            ToolCall(id=each, call_id=f"call_{each.body}", name=name, arguments="{}")
            for each, name in zip(ids, names, strict=True)
        )
        await self.open.record(ev.StepStarted(), ev.Answered(items=calls, finish="tool_calls"))
        return calls

    async def start(self, call: ToolCall, *, read_only: bool = False) -> None:
        await self.open.record(ev.ToolStarted(call=call.id, read_only=read_only))
        self.stage.done.append(call.name)

    async def finish(self, call: ToolCall) -> None:
        result = result_for(call, "ok", plain_text("done"), self.open.mint)
        await self.open.record(ev.ToolFinished(result=result))

    async def wait_steer(self) -> LiveTurn:
        """Wait until the turn has been sent a message that it has not read yet."""
        live = next(iter(self.node.sessions._owner.live.values()))
        await self.stage.until(lambda: bool(live._steers))
        return live

    async def go_on(self) -> None:
        """Do whatever is wanted, quickly, to the end."""
        while True:
            await self.open.take_steering()
            effects = wanted(self.open.turn)
            match effects[0] if effects else None:
                case AskModel():
                    await self.say(f"re: {said_last(self.open)}")
                case RunCall(call=call):
                    await self.start(call)
                    await self.finish(call)
                case _:
                    return


def said_last(turn: OpenTurn) -> str:
    """The newest words of the people in this turn."""
    before = turn.snapshot.items if turn.turn.request.continues else ()
    items = (*before, *turn.turn.items)
    said = [text_of(each.content) for each in items if isinstance(each, UserMessage)]
    return said[-1] if said else ""


class Gate:
    """A player that answers when it is let, and fails then if it is told to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.open = asyncio.Event()
        self._fails = fails

    async def __call__(self, hand: Hand) -> None:
        await self.open.wait()
        if self._fails:
            raise RuntimeError("it has fallen over")
        await hand.go_on()


def said(*texts: str) -> tuple[Incoming, ...]:
    """Messages that a client tells again."""
    return tuple(Incoming(role="user", content=plain_text(each)) for each in texts)


def heard(text: str) -> Incoming:
    """An answer that a client tells again."""
    return Incoming(role="assistant", content=plain_text(text))


class Stage:
    """Nodes, clients and a store."""

    def __init__(self, loop: SimulatedLoop, world: World) -> None:
        self.loop = loop
        self.world = world
        self.store = world.store
        self.parts: dict[str, Part] = {}
        """By the words that a turn begins with: what its player does."""
        self.done: list[str] = []
        """The tools that have been started, by name."""
        self.played: list[str] = []
        """The words of every turn that was handed to a player."""

    def play(self, world: World, node: Node) -> Play:
        async def play(turn: OpenTurn) -> None:
            request = turn.turn.request
            # A continuation brings no words of its own: it goes on with the last ones.
            said = turn.snapshot.items if request.continues else request.input
            opening = next(
                text_of(each.content) for each in reversed(said) if isinstance(each, UserMessage)
            )
            self.played.append(opening)
            hand = Hand(self, node, turn)
            part = self.parts.get(opening) if turn.turn.attempt == 1 else None
            await (part(hand) if part else hand.go_on())

        return play

    async def boot(self, *, ahead_s: float | None = None) -> Node:
        return await self.world.boot(ahead_s=ahead_s)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until this is so."""
        async with asyncio.timeout(600):
            while not condition():  # noqa: ASYNC110 — time is virtual, and the condition anybody's
                await asyncio.sleep(0.01)

    # ── clients ──

    def ask(self, text: str, **asking: Unpack[Asking]) -> Ask:
        key = asking.get("key")
        if_match = asking.get("if_match")
        policy = asking.get("policy")
        return Ask(
            tenant=TENANT,
            name=asking.get("name", KEY),
            messages=(*asking.get("past", ()), Incoming(role="user", content=plain_text(text))),
            agent="butler",
            on_busy=asking.get("on_busy", "wait"),
            wait_s=asking.get("wait_s", 60.0),
            deadline_s=asking.get("deadline_s", 540.0),
            background=asking.get("queues", False),
            queues=asking.get("queues", False),
            if_match=None if if_match is None else Version(if_match),
            policies=(policy,) if policy else (),
            history=ClientHistory() if asking.get("follows") else None,
            attempt=Attempt(
                request_hash=sha256(asking.get("body", text).encode()).digest(),
                key=IdempotencyKey(key) if key else None,
                client_attempt=asking.get("attempt", 0),
            ),
        )

    def send(self, node: Node, text: str, **asking: Unpack[Asking]) -> asyncio.Task[Ending]:
        """Say something, and wait for the end of the answer. Cancelling it is hanging up."""
        ask = self.ask(text, **asking)

        async def serve() -> Ending:
            watch = await node.sessions.submit(ask)
            async with watch:
                ending = await watch.ended()
                if ending.ok and watch.admission.is_own:
                    await node.sessions.store.acknowledge(TENANT, ending.turn_id)
                elif ending.ok:
                    node.sessions.note_handed_over(TENANT, watch.admission)
            return ending

        sent = self.loop.create_task(node.run(serve), name=f"send-{text}")
        sent.add_done_callback(
            lambda task: task.cancelled() or task.exception()
        )  # a test may not care
        return sent

    async def playing(
        self, node: Node, text: str, part: Part, **asking: Unpack[Asking]
    ) -> asyncio.Task[Ending]:
        """A message whose turn is played by this part, as soon as it is played."""
        self.parts[text] = part
        played = len(self.played)
        sent = self.send(node, text, **asking)
        await self.until(lambda: text in self.played[played:])
        return sent

    async def answering(
        self, node: Node, text: str = "Wait", *, fails: bool = False
    ) -> tuple[Gate, asyncio.Task[Ending]]:
        """A message that is being answered until it is let go."""
        gate = Gate(fails=fails)
        return gate, await self.playing(node, text, gate)

    async def steer_two(self, node: Node, gate: Gate, first: str) -> tuple[Ending, Ending]:
        """Say "two" and "three" to the turn that is asked `first`, the later message being at the store before the other
        one. Then let the turn answer."""
        told = self.delay(node, "signal")
        two = self.send(node, "two", past=said(first), on_busy="steer")
        await self.sleep(1)
        three = self.send(node, "three", past=said(first, "two"), on_busy="steer")
        await self.sleep(1)
        told.set()
        await self.sleep(1)
        gate.open.set()
        return await two, await three

    def delay(self, node: Node, name: str) -> asyncio.Event:
        """Have the node's next call of this kind reach the store only when the event is set."""
        call, let_go = getattr(node.store.as_store(), name), asyncio.Event()

        async def late(*args: object, **kwargs: object) -> object:
            node.store.override(name, call)
            await let_go.wait()
            return await call(*args, **kwargs)

        node.store.override(name, late)
        return let_go

    async def submit(self, node: Node, text: str, **asking: Unpack[Asking]) -> Watch:
        """Say something, and get hold of what a server would watch."""
        ask = self.ask(text, **asking)
        return await node.run(lambda: node.sessions.submit(ask))

    # ── looking ──

    async def id_of(self, key: SessionKey = KEY) -> SessionId:
        row = await self.store.resolve(TENANT, key)
        assert row is not None
        return row.session_id

    async def snapshot(self, name: SessionKey | SessionId = KEY) -> Snapshot:
        session_id = name if isinstance(name, SessionId) else await self.id_of(name)
        found = await self.store.snapshot(TENANT, session_id)
        assert found is not None
        return found

    async def said(self, name: SessionKey | SessionId = KEY) -> list[str]:
        """The words of a history, in order."""
        return words((await self.snapshot(name)).items)

    async def turns(self, name: SessionKey | SessionId = KEY) -> tuple[TurnRow, ...]:
        """All turns of a session, oldest first."""
        session_id = name if isinstance(name, SessionId) else await self.id_of(name)
        return (await self.store.turns(TENANT, session_id))[::-1]


def words(items: Any) -> list[str]:
    return [
        text_of(each.content) for each in items if isinstance(each, UserMessage | AssistantMessage)
    ]


def outcomes(items: Any) -> list[tuple[str, str]]:
    """Every call with what became of it: name and outcome."""
    names = {each.id: each.name for each in items if isinstance(each, ToolCall)}
    return [(names[each.call], each.outcome) for each in items if isinstance(each, ToolResult)]


Scenario: TypeAlias = Callable[[Stage], Coroutine[Any, Any, None]]


def on_stage(scenario: Scenario) -> Callable[[Home], None]:
    """Make a test of a scenario: run on every store, in virtual time."""

    @pytest.mark.parametrize("home", get_args(Home))
    def test(home: Home) -> None:
        act_out(scenario, home)

    functools.update_wrapper(test, scenario)
    del test.__wrapped__  # type: ignore[attr-defined]
    return test


def act_out(
    scenario: Scenario, home: Home, *, cache_bytes: int = 1 << 20, background_max: int = 64
) -> None:
    """Run a scenario on a stage of its own."""
    loop = SimulatedLoop(Random(scenario.__name__))
    with tempfile.TemporaryDirectory(dir=scratch()) as directory:

        async def main() -> None:
            connect = opener(loop, home, Path(directory), Random(2), pace_s=(0.0, 0.001))
            store = await connect()
            stage: Stage
            world = World(
                loop,
                store,
                Random(1),
                nodes=0,
                weather=CALM,
                play=lambda world, node: stage.play(world, node),
                instant=home == "memory",
                cache_bytes=cache_bytes,
                background_max=background_max,
                connect=connect if home == "unlocked" else None,
            )
            stage = Stage(loop, world)
            await scenario(stage)
            await asyncio.sleep(1)  # an answer of the store may still be on its way to its node
            for node in world.nodes:
                assert node.leftovers() == []
            assert loop.unheeded() == []
            for node in (*world.nodes, *world.graves):
                node.store.dead = True
            await store.close()

        run(loop, main())
