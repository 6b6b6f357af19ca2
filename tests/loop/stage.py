"""What a turn is played on in tests of the loop: an open turn in memory, models that check what they are asked,
tools that tell what they did, and agents made of them.

    stage = Stage(agent("butler", says("Let me see.", calls=[("look", "{}")]), says("Cold."), tools=[look]))
    turn = await stage.play("How is the weather?")

Every prompt that any model of a stage is asked is checked for being a history that providers take.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from hashlib import sha256

import msgspec

from holdfast.agents.agent import Agent, Team
from holdfast.core.grants import Grant
from holdfast.core.history.checks import check_turn
from holdfast.core.history.conversation import Snapshot
from holdfast.core.items import (
    Blob,
    Item,
    Permissions,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    text_of,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import advanced, closing
from holdfast.core.turns.deltas import Delta
from holdfast.core.turns.effects import Finish, wanted
from holdfast.core.turns.journal import Record, numbered
from holdfast.core.turns.turn import Turn
from holdfast.ids import MessageId, Tenant
from holdfast.loop.encoded_histories import EncodedHistories
from holdfast.loop.player import Player
from holdfast.models.model import Prompt
from holdfast.testing import Gate, Script, ScriptedModel
from holdfast.tools.tool import Tool, ToolOutput, ToolRun, ToolSpec
from holdfast.wire.openai.chat.messages import ChatMessage
from tests.core.builders import frozen, mint, user
from tests.core.histories import ending, new_session, turn_on

ANYTHING = Permissions(allow=("*",))
ANY_OBJECT = '{"type":"object"}'

# ── what providers take ──────────────────────────────────────────────────────────────────────


def messages_of(prompt: Prompt) -> list[ChatMessage]:
    raw = b"[" + b",".join(prompt.messages) + b"]"
    return msgspec.json.decode(raw, type=list[ChatMessage])


def malformed(messages: Sequence[ChatMessage]) -> list[str]:
    """What a Chat Completions server would refuse: every call is answered exactly once, directly after the
    message that made it, and nothing else is answered."""
    wrong: list[str] = []
    open_calls: list[str] = []
    for n, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id in open_calls:
                open_calls.remove(message.tool_call_id)
            else:
                wrong.append(f"{n}: {message.tool_call_id} answers nothing")
            continue
        wrong += (f"{n}: {call} is not answered before" for call in open_calls)
        open_calls = [call.id for call in (message.tool_calls or ())]
        if len(set(open_calls)) < len(open_calls):
            wrong.append(f"{n}: two calls have one id")
    return wrong + [f"the end: {call} is not answered" for call in open_calls]


def words(message: ChatMessage) -> str:
    """What a message says, as one string."""
    return (
        message.content
        if isinstance(message.content, str)
        else msgspec.json.encode(message).decode()
    )


# ── models and agents ────────────────────────────────────────────────────────────────────────


class Model(ScriptedModel):
    """A scripted model that refuses what a provider would, and lets others run between two deltas."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        messages = messages_of(prompt)
        assert malformed(messages) == []
        assert messages, "nobody can answer nothing"
        async with aclosing(super().stream(prompt)) as answer:
            async for deltas in answer:
                await asyncio.sleep(0)
                yield deltas


def by_place(*scripts: Callable[[], Script]) -> Model:
    """A model whose answer depends on what it is asked only: the n-th script if it has spoken n times."""

    def choose(prompt: Prompt) -> Script:
        spoken = sum(message.role == "assistant" for message in messages_of(prompt))
        return scripts[spoken]()

    return Model(otherwise=choose)


class Tools:
    """A toolset of these."""

    def __init__(self, *tools: Tool) -> None:
        self._tools = tools

    async def tools(self) -> tuple[Tool, ...]:
        await asyncio.sleep(0)
        return self._tools

    async def close(self) -> None:
        pass


def agent(
    name: str,
    *scripts: Script | str,
    model: ScriptedModel | None = None,
    tools: Sequence[Tool] = (),
    permissions: Permissions = ANYTHING,
    sub_agents: tuple[str, ...] = (),
    handoffs: tuple[str, ...] = (),
    instruction: str = "",
    parameters: ev.Parameters = ev.Parameters(),  # noqa: B008
) -> Agent:
    return Agent(
        name,
        model or Model(*scripts),
        description=f"the {name}",
        instruction=instruction,
        toolsets=(Tools(*tools),),
        sub_agents=sub_agents,
        handoffs=handoffs,
        parameters=parameters,
        permissions=permissions,
    )


def scripted(of: Agent) -> ScriptedModel:
    assert isinstance(of.model, ScriptedModel)
    return of.model


# ── tools ────────────────────────────────────────────────────────────────────────────────────

Do = Callable[[ToolRun], Awaitable[ToolOutput]]


class Deed:
    """A tool that remembers its runs. It checks that its start was durable before it ran."""

    def __init__(
        self,
        name: str,
        *,
        read_only: bool = False,
        idempotent: bool = False,
        parameters: str = ANY_OBJECT,
        gate: Gate | None = None,
        do: Do | None = None,
    ) -> None:
        self.spec = ToolSpec(
            name=name,
            description=f"to {name}",
            parameters=parameters,
            read_only=read_only,
            idempotent=idempotent,
        )
        self.runs: list[ToolRun] = []
        self.at_work = 0
        self.at_work_most = 0
        self.turn: OpenInMemory | None = None
        self._gate = gate
        self._do = do

    async def run(self, run: ToolRun) -> ToolOutput:
        if self.turn is not None:
            assert run.call_key in self.turn.durably_started, "its start was not durable"
        self.runs.append(run)
        self.at_work += 1
        self.at_work_most = max(self.at_work_most, self.at_work)
        try:
            await asyncio.sleep(0)
            if self._gate is not None:
                await self._gate.wait()
            await asyncio.sleep(0)
            if self._do is not None:
                return await self._do(run)
            return ToolOutput(content=(Text(text=f"{self.spec.name} done"),))
        finally:
            self.at_work -= 1

    @property
    def keys(self) -> list[str]:
        return [each.call_key for each in self.runs]


def task(to: str, what: str = "Look around", **more: str) -> tuple[str, str]:
    return ("transfer_task", msgspec.json.encode({"agent": to, "task": what, **more}).decode())


def handoff(to: str) -> tuple[str, str]:
    return ("handoff", msgspec.json.encode({"agent": to}).decode())


# ── an open turn ─────────────────────────────────────────────────────────────────────────────


class OpenInMemory:
    """An open turn that nobody stores. Appends take a while, as a store's do; every one is a place to stop."""

    def __init__(self, turn: Turn, snapshot: Snapshot, *, first_n: int = 1) -> None:
        self.tenant = Tenant("acme")
        self.mint = mint
        self.snapshot = snapshot
        self.turn = turn
        self.deadline_s: float | None = None
        self.blobs: dict[str, bytes] = {}
        self.remembered: dict[str, str] = {}
        self.granted: list[Grant] = []
        """What people have allowed for good."""
        self.steering: list[str] = []
        """What people say next, one at a time."""
        self.records: list[Record] = []
        self.durably_started: set[str] = set()
        self._next_n = first_n

    @property
    def events(self) -> list[ev.Event]:
        return [each.event for each in self.records]

    async def record(self, *events: ev.Event) -> None:
        self.turn = advanced(self.turn, events)
        self.records += numbered(events, first=self._next_n, at_ms=0)
        self._next_n += len(events)
        await asyncio.sleep(0)
        started = [each for each in events if isinstance(each, ev.ToolStarted)]
        if started:
            await asyncio.sleep(0)
            self.durably_started.update(each.call for each in started)

    async def keep_blob(self, data: bytes, media_type: str) -> Blob:
        digest = f"sha256:{sha256(data).hexdigest()}"
        await asyncio.sleep(0)
        self.blobs[digest] = data
        return Blob(media_type=media_type, digest=digest, size_bytes=len(data))

    async def blob(self, digest: str) -> bytes | None:
        await asyncio.sleep(0)
        return self.blobs.get(digest)

    async def memories(self, agent: str) -> Mapping[str, str]:
        await asyncio.sleep(0)
        return self.remembered

    async def grants(self, agent: str) -> tuple[Grant, ...]:
        await asyncio.sleep(0)
        return tuple(self.granted)

    async def take_steering(self) -> tuple[UserMessage, ...]:
        if not self.steering or not self.turn.root.idle or self.turn.interrupted:
            return ()
        message = UserMessage(id=mint(MessageId), content=(Text(text=self.steering.pop(0)),))
        await self.record(ev.Steered(items=(message,)))
        return (message,)


class Stage:
    """A team, a session, and a player. The first agent is who is asked."""

    def __init__(
        self,
        *agents: Agent,
        snapshot: Snapshot | None = None,
        histories: EncodedHistories | None = None,
    ) -> None:
        self.team = Team({each.name: each for each in agents}, entry=agents[0].name, digest="d1")
        self.snapshot = snapshot or new_session()
        self.player = Player(lambda _: nullcontext(self.team), histories=histories)

    def open(self, *said: str | Item, **fields: object) -> OpenInMemory:
        """A turn that begins with these words."""
        items = [user(each) if isinstance(each, str) else each for each in said]
        fields.setdefault("agent", self.snapshot.agent or self.team.entry)
        turn = OpenInMemory(turn_on(self.snapshot, *items, **fields), self.snapshot)
        self._let_tools_check(turn)
        return turn

    def _let_tools_check(self, turn: OpenInMemory) -> None:
        for each in self.team.agents.values():
            for toolset in each.toolsets:
                assert isinstance(toolset, Tools)
                for tool in toolset._tools:
                    if isinstance(tool, Deed):
                        tool.turn = turn

    async def play(self, *said: str | Item, **fields: object) -> OpenInMemory:
        """Play a turn, as far as it goes; nothing may be left running, and it may be kept as it is."""
        turn = self.open(*said, **fields)
        await self.go_on(turn)
        return turn

    async def go_on(self, turn: OpenInMemory) -> None:
        self._let_tools_check(turn)
        await self.player(turn)
        assert_nobody_works(self.team)
        self.kept(turn)

    def kept(self, turn: OpenInMemory) -> Snapshot:
        """The session with this turn, which has completed or broken off. It is well formed, or else."""
        ended = turn.turn
        if not ended.interrupted:
            assert wanted(ended) == (Finish(),)
        closed = advanced(ended, closing(ended, mint)) if ended.interrupted else ended
        assert check_turn(closed.items, carried=ended.request.carried) == ()
        return ending(self.snapshot, ended)

    async def next(self, *said: str | Item, **fields: object) -> OpenInMemory:
        """Play a turn, keep it, and make its session the one to go on with."""
        turn = await self.play(*said, **fields)
        self.snapshot = self.kept(turn)
        return turn


def assert_nobody_works(team: Team) -> None:
    assert asyncio.all_tasks() == {asyncio.current_task()}
    for each in team.agents.values():
        assert scripted(each).speaking == 0
        for toolset in each.toolsets:
            assert isinstance(toolset, Tools)
            assert [t.spec.name for t in toolset._tools if isinstance(t, Deed) and t.at_work] == []


# ── looking at a turn ────────────────────────────────────────────────────────────────────────


def calls_of(turn: OpenInMemory) -> list[ToolCall]:
    return [each for each in turn.turn.items if isinstance(each, ToolCall)]


def results_of(turn: OpenInMemory) -> list[ToolResult]:
    return [each for each in turn.turn.items if isinstance(each, ToolResult)]


def outcomes(turn: OpenInMemory) -> dict[str, str]:
    """What became of the calls, by the names of their tools."""
    names = {each.id: each.name for each in (*calls_of(turn), *turn.turn.request.carried)}
    return {names[each.call]: each.outcome for each in results_of(turn)}


def told(turn: OpenInMemory, name: str) -> str:
    """What the model was told about the one call of this tool."""
    (call,) = [c for c in (*calls_of(turn), *turn.turn.request.carried) if c.name == name]
    (result,) = [each for each in results_of(turn) if each.call == call.id]
    return text_of(result.content)


def bytes_of_turn(turn: OpenInMemory) -> bytes:
    return frozen(turn.turn)
