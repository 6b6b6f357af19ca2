"""One player that does everything a player may do, at random, and goes on from wherever a turn stands.

It follows `wanted`, so a turn that was taken over is continued like any other. Whatever it does to the world
is written down under the call's stable key, at the moment it happens.
"""

from __future__ import annotations

import asyncio
from random import Random

import msgspec

from holdfast.core.codec import Value
from holdfast.core.items import (
    AssistantMessage,
    Path,
    Text,
    ToolCall,
    UserMessage,
    plain_text,
    result_for,
)
from holdfast.core.ports import OpenTurn, Play
from holdfast.core.turns import events as ev
from holdfast.core.turns.effects import (
    AskModel,
    Close,
    Effect,
    Finish,
    ReturnBranch,
    RunCall,
    StopAtLimit,
    wanted,
)
from holdfast.errors import IllegalEvent, TurnFailed
from holdfast.ids import CallId, MessageId
from holdfast.sessions.turns.live_turn import LiveTurn
from tests.simulation import history
from tests.simulation.world import Node, World


class Temper(Value):
    """How likely a step goes which way."""

    calls: float = 0.45
    """A step asks for tools."""
    fails: float = 0.04
    passes: bool = False
    """What it fails over may be over the next time."""
    hangs: float = 0.03
    steers: float = 0.9
    """It listens between two steps."""
    sulks: float = 0.0
    """It hangs after somebody has spoken to it."""
    looks: float = 0.0
    """A call only looks, whatever else it would have done."""
    pace_s: float = 0.05
    tools_s: float = 0.4


CALM = Temper(calls=0, fails=0, hangs=0, pace_s=0.01)

TOOLS = ("act", "act", "act", "look", "again", "helper", "ask_client")


def new_play(world: World, node: Node, temper: Temper) -> Play:
    async def play(turn: OpenTurn) -> None:
        await _Player(world, node, CALM if world.calm else temper, turn).play()

    return play


class _Player:
    def __init__(self, world: World, node: Node, temper: Temper, turn: OpenTurn) -> None:
        self._world = world
        self._node = node
        self._temper = temper
        self._open = turn
        request = turn.turn.request
        assert isinstance(turn, LiveTurn)
        self._rng = Random(f"{request.turn_id}/{turn.turn.attempt}/{node.name}")
        self._place = len(world.played)
        world.played.append(
            history.Played(
                turn_id=request.turn_id,
                node=node.id,
                token=turn.fence.token,
                base=turn.snapshot.version,
                base_rev=turn.snapshot.notes.rev,
                at_s=world.loop.time(),
            )
        )

    async def play(self) -> None:
        try:
            await self._play()
        except IllegalEvent as error:
            self._world.complaints.append(f"{self._open.turn.request.turn_id}: {error}")
            raise
        finally:
            played, now_s = self._world.played, self._world.loop.time()
            played[self._place] = msgspec.structs.replace(played[self._place], until_s=now_s)

    async def _play(self) -> None:
        while True:
            if self._rng.random() < self._temper.steers:
                await self._open.take_steering()
            effects = wanted(self._open.turn)
            if not effects or isinstance(effects[0], Finish | Close | StopAtLimit):
                return
            if len(effects) == 1:
                await self._carry_out(effects[0])
                continue
            try:
                async with asyncio.TaskGroup() as group:
                    for effect in effects:
                        group.create_task(self._carry_out(effect))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None

    async def _carry_out(self, effect: Effect) -> None:
        match effect:
            case AskModel(path=path):
                await self._ask(path)
            case RunCall(call=call):
                await self._run(call)
            case ReturnBranch(call=call, text=text):
                await self._finish(call, text)

    async def _ask(self, path: Path) -> None:
        rng, temper = self._rng, self._temper
        await self._open.record(ev.StepStarted(path=path, model="sim"))
        await self._think()
        message = self._open.mint(MessageId)
        words = [f"w{rng.randrange(1000)} " for _ in range(rng.randrange(4))]
        if words:
            await self._open.record(ev.ItemOpened(item=message, kind="message", path=path))
        for word in words:
            await self._open.record(ev.Grew(item=message, text=word, path=path))
            if rng.random() < 0.5:
                await self._think()
        drawn = rng.random()
        if drawn < temper.fails:
            raise self._failure()
        if drawn < temper.fails + (temper.sulks if self._is_steered else temper.hangs):
            await asyncio.sleep(100_000)
        if rng.random() < 0.03:  # the provider broke off, and is asked again
            branch = self._open.turn.branch(path)
            assert branch is not None and branch.draft is not None
            left = branch.draft.broken(agent="sim", path=path, state="set_aside")
            await self._open.record(ev.StepBroken(items=left, path=path, why="sim"))
            return
        await self._answer(path, message, "".join(words))

    @property
    def _is_steered(self) -> bool:
        turn = self._open.turn
        said = sum(isinstance(each, UserMessage) and not each.path for each in turn.items)
        return said > len(turn.request.input)

    async def _answer(self, path: Path, message: MessageId, text: str) -> None:
        rng = self._rng
        turn = self._open.turn
        branch = turn.branch(path)
        assert branch is not None
        items: list[ev.Answer] = []
        if text:
            items.append(
                AssistantMessage(id=message, content=plain_text(text), agent="sim", path=path)
            )
        if branch.steps <= 3 and rng.random() < self._temper.calls:
            items += self._calls(path)
        if not items:
            items.append(
                AssistantMessage(id=message, content=plain_text("Hm"), agent="sim", path=path)
            )
        finish: ev.Finish = "tool_calls" if isinstance(items[-1], ToolCall) else "stop"
        if not path and finish == "stop" and rng.random() < 0.02:
            finish = "length"
        await self._open.record(ev.Answered(items=tuple(items), path=path, finish=finish))
        if rng.random() < 0.3:
            await self._think()  # so that what was said is written before it ends

    def _calls(self, path: Path) -> list[ToolCall]:
        count = self._rng.choice((1, 1, 2, 3))
        looks = self._rng.random() < self._temper.looks
        names = ["look" if looks else self._rng.choice(TOOLS) for _ in range(count)]
        calls = []
        for name in names:
            if path and name in ("helper", "ask_client"):
                name = "act"
            made = self._open.mint(CallId)
            waits = "client" if name == "ask_client" and self._rng.random() < 0.4 else None
            if name == "ask_client" and waits is None:
                name = "look"
            calls.append(
                ToolCall(
                    id=made,
                    call_id=f"call_{made.body}",
                    name=name,
                    arguments="{}",
                    agent="sim",
                    path=path,
                    waits_for="client" if waits else None,
                )
            )
        return calls

    async def _run(self, call: ToolCall) -> None:
        if call.name == "helper":
            task = UserMessage(
                id=self._open.mint(MessageId),
                content=(Text(text="help"),),
                path=(*call.path, call.id),
            )
            await self._open.record(ev.BranchOpened(call=call.id, agent="helper", task=task))
            return
        pending = self._open.turn.find_pending(call.id)
        assert pending is not None
        if not pending.tried and self._rng.random() < 0.05:  # not allowed
            refused = result_for(call, "refused", plain_text("no"), self._open.mint)
            await self._open.record(ev.ToolFinished(result=refused))
            return
        intent = ev.ToolStarted(
            call=call.id, read_only=call.name == "look", idempotent=call.name == "again"
        )
        await self._open.record(intent)
        await asyncio.sleep(self._temper.tools_s * self._rng.random() ** 3)
        self._do(call)
        await asyncio.sleep(self._temper.tools_s * self._rng.random() ** 3)
        if self._rng.random() < 0.02:
            raise TurnFailed("tool_error", "the tool broke", reason="broken_tool")
        await self._finish(call, "done")

    def _do(self, call: ToolCall) -> None:
        world = self._world
        turn_id = self._open.turn.request.turn_id
        world.say(f"{self._node.name} does {call.name} for {call.id} of {turn_id}")
        world.effects.append(
            history.Effect(
                key=call.id,
                turn_id=turn_id,
                kind={"act": "act", "look": "read", "again": "idempotent"}[call.name],  # type: ignore[arg-type]
                at_s=world.loop.time(),
                node=self._node.name,
            )
        )

    async def _finish(self, call: ToolCall, text: str) -> None:
        changes: tuple[ev.Change, ...] = ()
        if self._rng.random() < 0.2:
            changes = (ev.StateSet(name="todo", value=f'"{call.id}"'),)
        result = result_for(call, "ok", plain_text(text), self._open.mint)
        await self._open.record(ev.ToolFinished(result=result, changes=changes))

    async def _think(self) -> None:
        await asyncio.sleep(self._temper.pace_s * self._rng.random())

    def _failure(self) -> Exception:
        if self._rng.random() < 0.5:
            reason = "upstream_error" if self._temper.passes else "overloaded"
            return TurnFailed("model_error", "overloaded", reason=reason)
        return RuntimeError("the player is broken")
