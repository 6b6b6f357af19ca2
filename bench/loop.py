"""What a streamed token costs between the upstream's bytes and a watcher, and what a turn costs on a long past.

*A token.* Fifty answers stream side by side in one event loop, without sockets: chunks are read, heard as
deltas, become events, are folded into their turns and published to their feeds, by the same code that plays
real turns. Below it, what its parts cost by themselves, and the floor: fifty tasks that do nothing but take
turns. What counts is CPU time, so that neighbours on the machine matter less.

*A turn.* The same short turn on a conversation of 10 messages and on one of 5,000. Everything but the bytes that
have to be sent upstream should cost the same; putting those together is measured by itself.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import nullcontext
from itertools import count
from statistics import median
from time import perf_counter_ns, process_time_ns

from rich.console import Console
from rich.table import Table

from holdfast.agents.agent import Agent, Team
from holdfast.core.grants import Grant
from holdfast.core.history.conversation import Snapshot, commit_of
from holdfast.core.items import AssistantMessage, Blob, Text, UserMessage
from holdfast.core.turns import events as ev
from holdfast.core.turns.deltas import Accumulator, Delta
from holdfast.core.turns.journal import numbered
from holdfast.core.turns.turn import Turn, advance, advance_all, begin
from holdfast.ids import MessageId, Minter, SessionId, Tenant, TurnId
from holdfast.loop.context import prompt_for, view_for
from holdfast.loop.encoded_histories import EncodedHistories
from holdfast.loop.player import Player
from holdfast.models.model import Dialect, Prompt
from holdfast.models.providers.chat_body import Style, request_body
from holdfast.sessions.turns.feed import Feed
from holdfast.wire.openai.chat.chunks import ChunkWriter
from holdfast.wire.openai.chat.messages import ChatDialect
from holdfast.wire.openai.chat.stream_parser import ChatStreamParser
from holdfast.wire.sse import DONE

STREAMS, TOKENS, ROUNDS = 50, 200, 7
SHORT, LONG, TURNS = 10, 5_000, 300
GOAL_TOKEN_US, GOAL_GROWTH = 12.0, 1.3

_ticks = count(1_750_000_000_000)
mint = Minter(now_ms=lambda: next(_ticks), random_bits=lambda bits: 0)

# ── what takes part ──────────────────────────────────────────────────────────────────────────


def frames(tokens: int) -> list[bytes]:
    """A stream as an upstream sends it, one write per chunk."""
    writer = ChunkWriter(
        completion_id="chatcmpl-0123456789", created_s=1_750_000_000, model="gpt-5-2025-08-07"
    )
    words = [writer.content(f" token{n % 10}") for n in range(tokens)]
    return [writer.opening(), *words, writer.chunk(finish="stop"), DONE]


class Upstream:
    """A model whose bytes are there already; every chunk is waited for, as if it came from a socket."""

    name = "bench/model"
    knows: frozenset[str] = frozenset()

    def __init__(self, chunks: list[bytes], *, waits: bool) -> None:
        self.dialect: Dialect = ChatDialect()
        self._chunks = chunks
        self._waits = waits

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        hearing = ChatStreamParser(event_bytes_max=1 << 20)
        for chunk in self._chunks:
            if self._waits:
                await asyncio.sleep(0)
            if deltas := hearing.feed(chunk):
                yield deltas

    async def close(self) -> None:
        pass


class Open:
    """A turn that is owned by nobody: it folds and publishes as a recorder does, and writes nothing."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.tenant = Tenant("bench")
        self.mint = mint
        self.snapshot = snapshot
        self.deadline_s = None
        asked = UserMessage(id=mint(MessageId), content=(Text(text="And the weather?"),))
        request = ev.TurnRequest(
            turn_id=mint(TurnId),
            base=snapshot.version,
            base_length=len(snapshot.items),
            agent="butler",
            input=(asked,),
        )
        self.turn: Turn = begin(ev.Began(request=request))
        self.feed = Feed(events_max=50_000)

    async def record(self, *events: ev.Event) -> None:
        self.turn = advance_all(self.turn, events)
        self.feed.publish(*numbered(events, first=self.feed.next_n, at_ms=0))

    async def keep_blob(self, data: bytes, media_type: str) -> Blob:
        raise NotImplementedError

    async def blob(self, digest: str) -> bytes | None:
        return None

    async def memories(self, agent: str) -> dict[str, str]:
        return {}

    async def grants(self, agent: str) -> tuple[Grant, ...]:
        return ()

    async def take_steering(self) -> tuple[UserMessage, ...]:
        return ()


def team_on(model: Upstream) -> Team:
    agent = Agent("butler", model, instruction="You are a butler.")
    return Team({"butler": agent}, entry="butler", digest="1")


def player_on(model: Upstream, histories: EncodedHistories) -> Player:
    team = team_on(model)
    return Player(lambda _: nullcontext(team), histories=histories)


# ── a token ──────────────────────────────────────────────────────────────────────────────────


def play_all(chunks: list[bytes]) -> None:
    """Fifty whole turns, side by side."""
    player = player_on(Upstream(chunks, waits=True), EncodedHistories(bytes_max=1 << 20))

    async def run() -> None:
        turns = [Open(Snapshot(session_id=mint(SessionId))) for _ in range(STREAMS)]
        await asyncio.gather(*map(player, turns))
        assert all(turn.turn.complete for turn in turns)

    asyncio.run(run())


def take_turns(chunks: list[bytes]) -> None:
    """The floor: as many tasks, waiting as often, doing nothing."""

    async def idle() -> None:
        for _ in chunks:
            await asyncio.sleep(0)

    async def run() -> None:
        await asyncio.gather(*(idle() for _ in range(STREAMS)))

    asyncio.run(run())


def hear_all(chunks: list[bytes]) -> None:
    """Bytes to deltas, and nothing else."""
    for _ in range(STREAMS):
        hearing = ChatStreamParser(event_bytes_max=1 << 20)
        for chunk in chunks:
            hearing.feed(chunk)


def fold_all(deltas: list[Delta]) -> None:
    """Deltas to events, and events into the turn."""
    for _ in range(STREAMS):
        turn = advance(Open(Snapshot(session_id=mint(SessionId))).turn, ev.StepStarted())
        answer = Accumulator(mint, agent="butler")
        for delta in deltas:
            for event in answer.events(delta):
                turn = advance(turn, event)


def cpu_us(deed: Callable[[], None]) -> float:
    began = process_time_ns()
    deed()
    return (process_time_ns() - began) / 1000 / (STREAMS * TOKENS)


def tokens_table() -> Table:
    chunks = frames(TOKENS)
    hearing = ChatStreamParser(event_bytes_max=1 << 20)
    deltas = [delta for chunk in chunks for delta in hearing.feed(chunk)]
    deeds: dict[str, Callable[[], None]] = {
        "a token, from bytes to watchers": lambda: play_all(chunks),
        "  of that: bytes → deltas": lambda: hear_all(chunks),
        "  of that: deltas → events → turn": lambda: fold_all(deltas),
        "floor: 50 tasks that take turns": lambda: take_turns(chunks),
    }
    spent: dict[str, list[float]] = {name: [] for name in deeds}
    for _ in range(ROUNDS):
        for name, deed in deeds.items():
            spent[name].append(cpu_us(deed))
    floor = median(spent["floor: 50 tasks that take turns"])
    table = Table(f"{STREAMS} streams, CPU", "median", "best", "goal", "to the floor")
    for n, (name, times_us) in enumerate(spent.items()):
        goal = f"≤ {GOAL_TOKEN_US:g} µs" if n == 0 else ""
        table.add_row(
            name,
            f"{median(times_us):.2f} µs",
            f"{min(times_us):.2f} µs",
            goal,
            f"{median(times_us) / floor:.1f}×",
        )
    return table


# ── a turn ───────────────────────────────────────────────────────────────────────────────────


def conversation(length: int) -> Snapshot:
    session = Snapshot(session_id=mint(SessionId))
    while len(session.items) < length:
        said = AssistantMessage(id=mint(MessageId), content=(Text(text="Cold, and bright. " * 10),))
        turn = Open(session).turn
        for event in (
            ev.StepStarted(),
            ev.Answered(items=(said,)),
            ev.Ended(by="completed", kept=True),
        ):
            turn = advance(turn, event)
        session = session.with_commit(commit_of(turn, previous=session.link))
    return session


class Talk:
    """A conversation that goes on, turn by turn, and starts over when it has grown by half."""

    def __init__(self, length: int, histories: EncodedHistories) -> None:
        self._first = conversation(length)
        self._most = max(length + 10, round(length * 1.5))
        self._histories = histories
        self._player = player_on(Upstream(frames(20), waits=False), histories)
        self._agent = Agent("butler", Upstream([], waits=False), instruction="You are a butler.")
        self.session = self._first

    async def play(self) -> None:
        """A whole turn: prompt, twenty tokens, commit."""
        turn = Open(self.session)
        await self._player(turn)
        done = advance(turn.turn, ev.Ended(by="completed", kept=True))
        self.session = self.session.with_commit(commit_of(done, previous=self.session.link))

    async def prompt(self) -> Prompt:
        turn = Open(self.session)
        view = view_for(self._agent, (), turn, self._histories)
        return await prompt_for(self._agent, (), turn, view)

    async def start_over(self) -> None:
        """Where it is due; the first turn then encodes the past anew, and is not measured."""
        if len(self.session.items) > self._most:
            self.session = self._first
            await self.play()


async def side_by_side() -> dict[str, tuple[list[float], list[float]]]:
    histories = EncodedHistories(bytes_max=64 << 20)
    talks = Talk(SHORT, histories), Talk(LONG, histories)
    style = Style(model="gpt-5")
    names = ("a turn of 20 tokens", "its prompt", "its bytes, put together to be sent")
    spent: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
    for talk in talks:
        await talk.play()  # the past is encoded once, when it is first needed
    for _ in range(TURNS):
        for n, talk in enumerate(talks):
            began = perf_counter_ns()
            await talk.play()
            played = perf_counter_ns()
            prompt = await talk.prompt()
            asked = perf_counter_ns()
            request_body(prompt, style)
            sent = perf_counter_ns()
            for name, ns in zip(names, (played - began, asked - played, sent - asked), strict=True):
                spent[name][n].append(ns / 1000)
            await talk.start_over()
    return spent


def turns_table() -> Table:
    spent = asyncio.run(side_by_side())
    table = Table(
        "a turn", f"{SHORT} messages", f"{LONG:,} messages", "99th percentile", "goal", "growth"
    )
    for n, (name, (short_us, long_us)) in enumerate(spent.items()):
        edge = sorted(long_us)[int(len(long_us) * 0.99)]
        table.add_row(
            name,
            f"{median(short_us):,.0f} µs",
            f"{median(long_us):,.0f} µs",
            f"{edge:,.0f} µs",
            f"≤ {GOAL_GROWTH:g}×" if n < 1 else "",
            f"{median(long_us) / median(short_us):.2f}×",
        )
    return table


def main() -> None:
    gc.disable()  # a collection looks at everything alive, and would be charged to whoever runs then
    console = Console()
    console.print(tokens_table())
    console.print(turns_table())


if __name__ == "__main__":
    main()
