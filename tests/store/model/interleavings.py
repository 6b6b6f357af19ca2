"""Steer and cancel against commit, in thousands of orders. `run(count, seed)` says how it went.

Methods of a store are atomic, so what several processes can do to each other is an order of calls. Each
actor here is one process, written as a generator: it yields what it asks for and is sent the answer. A seeded
scheduler decides who is next; sometimes it lets several ask at once, which SQLite takes as one batch.

    owner     begins the turn, listens now and then, commits; heeds a cancel if it sees one
    speakers  each say one thing to the turn; if it was not heard, they begin the next turn with it
    stopper   cancels the turn
    sweeper   sees the owner resign, takes the turn over and plays it on; the owner knows nothing of it

Afterwards the journals tell what became of everything that was said:

1. Each word was heard by its turn once, or began a turn once; never both, never neither.
2. It is in the history once, unless the turn that took it was discarded.
3. A turn that was told to have ended has ended so for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from random import Random
from typing import Any, TypeAlias

from msgspec import Struct

from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import Commit, Snapshot
from holdfast.core.items import (
    EndedBy,
    Item,
    UserMessage,
    text_of,
)
from holdfast.core.turns.events import Began, Event, Steered, StepStarted, TurnRequest
from holdfast.core.turns.journal import decode_records, encode_records, numbered
from holdfast.errors import Superseded
from holdfast.ids import Minter, NodeId, SessionId, Tenant, TurnId, Version
from holdfast.store.outcomes import (
    Anonymous,
    Attempt,
    Begin,
    ById,
    Fence,
    Signalled,
    Started,
    Taken,
    Target,
    TooLate,
    Unconsumed,
)
from holdfast.store.rows import JournalRow, SignalRow, TurnRow
from holdfast.store.store import Store
from tests.store.model.content import Words, commit_of
from tests.store.model.homes import SQLITE, Homes, open_homes

Question: TypeAlias = Callable[[], Awaitable[Any]]
Actor: TypeAlias = Generator[Question, Any, None]

TENANT = Tenant("acme")
CALLS_MAX = 400
"""Nobody needs a tenth of it; more means that somebody waits for what never comes."""
FRESH_EVERY = 100


class Figures(Struct, kw_only=True):
    """How it went. `violations` is empty, or names the seeds that break a promise."""

    interleavings: int = 0
    calls: int = 0
    batches: int = 0
    """Times that several asked at once."""
    words: int = 0
    heard: int = 0
    begun: int = 0
    refused_commits: int = 0
    cancelled: int = 0
    taken_over: int = 0
    superseded: int = 0
    violations: list[str] = []


def run(count: int, seed: int, other: str = SQLITE) -> Figures:
    """Play this many interleavings, each in memory and in another home."""
    figures = Figures()
    with open_homes(other) as homes:
        for index in range(count):
            if index % FRESH_EVERY == 0:
                homes.renew()
            _play(homes, figures, f"{seed}/{index}")
            figures.interleavings += 1
    return figures


def _play(homes: Homes, figures: Figures, seed: str) -> None:
    for home, store in homes.stores.items():
        stage = Stage(store, homes.clock.now_ms, Random(seed), figures)
        homes.run(stage.play())
        figures.violations += (f"{home} {seed}: {each}" for each in stage.violations)


class Stage:
    """One interleaving on one store."""

    def __init__(
        self, store: Store, now_ms: Callable[[], int], dice: Random, figures: Figures
    ) -> None:
        self.store = store
        self.dice = dice
        self.figures = figures
        self.mint = Minter(now_ms=now_ms, random_bits=dice.getrandbits)
        self.say = Words(self.mint)
        self.nodes = [self.mint(NodeId) for _ in range(3)]
        """The owner's, the sweeper's, and that of everybody else."""
        self.turn_id = self.mint(TurnId)
        self.session_id = self.mint(SessionId)
        self.words = [f"word {each}" for each in range(dice.randint(1, 3))]
        self.turns: list[TurnId] = []
        self.ended: dict[TurnId, TurnRow] = {}
        self.violations: list[str] = []

    # the scheduler

    async def play(self) -> None:
        for node in self.nodes:
            await self.store.renew(node, ttl_ms=15_000)
        ask = self.asked(
            Anonymous(fresh=self.session_id), self.turn_id, "the beginning", Version(0)
        )
        first = await self.store.begin(ask)
        assert isinstance(first, Started)
        actors = [self.owner(first.fence, [], node=self.nodes[0]), *map(self.speaker, self.words)]
        if self.dice.random() < 0.5:
            actors.append(self.stopper())
        if self.dice.random() < 0.4:
            actors.append(self.sweeper())
        await self.schedule({actor: next(actor) for actor in actors})
        await self.judge()

    async def schedule(self, waiting: dict[Actor, Question]) -> None:
        for _ in range(CALLS_MAX):
            if not waiting:
                return
            together = 1 if self.dice.random() < 0.7 else self.dice.randint(1, len(waiting))
            chosen = self.dice.sample(list(waiting), together)
            self.figures.calls += together
            self.figures.batches += together > 1
            answers = await asyncio.gather(
                *(waiting.pop(actor)() for actor in chosen), return_exceptions=True
            )
            for actor, answer in zip(chosen, answers, strict=True):
                self.go_on(actor, answer, waiting)
        self.violations.append("somebody waits for ever")

    def go_on(self, actor: Actor, answer: object, waiting: dict[Actor, Question]) -> None:
        try:
            waiting[actor] = (
                actor.throw(answer) if isinstance(answer, BaseException) else actor.send(answer)
            )
        except StopIteration:
            pass  # it has done what it came for
        except Superseded:
            self.figures.superseded += 1
        except Exception as error:  # nothing else is expected of a store
            self.violations.append(repr(error))

    # the actors

    def owner(self, fence: Fence, said: list[Item], *, node: NodeId, n: int = 1) -> Actor:
        """Plays the turn from record `n` on; `said` is what it knows from the journal."""
        for _ in range(self.dice.randint(0, 2)):
            signals: tuple[SignalRow, ...] = yield lambda: self.store.signals(node)
            mine = [each for each in signals if each.turn_id == fence.turn_id]
            if any(each.kind == "cancel" for each in mine):
                self.figures.cancelled += 1
                yield from self.stop(fence, said, n)
                return
            n = yield from self.listen(
                fence, said, n, [each for each in mine if each.kind == "steer"]
            )
        while True:
            commit = self.made(fence, said, Snapshot(session_id=fence.session_id), "completed")
            outcome = yield self.committing(fence, commit, n)
            if not isinstance(outcome, Unconsumed):
                return
            self.figures.refused_commits += 1
            n = yield from self.listen(fence, said, n, outcome.signals)

    def listen(
        self, fence: Fence, said: list[Item], n: int, steers: Iterable[SignalRow]
    ) -> Generator[Question, Any, int]:
        """One more step, with what people have said since the last one."""
        steers = tuple(steers)
        heard = tuple(self.say.user(each.payload.decode()) for each in steers)
        event: Event = StepStarted()
        if steers:
            event = Steered(items=heard, signals=tuple(each.n for each in steers))
        consumed = tuple(each.n for each in steers)
        yield lambda: self.store.append(
            fence, n=n, records=self.records(event, n), consumed=consumed
        )
        said += heard
        return n + 1

    def stop(self, fence: Fence, said: list[Item], n: int) -> Actor:
        """The turn was cancelled: it is kept as it stands, or discarded."""
        if self.dice.random() < 0.5:
            commit = self.made(fence, said, Snapshot(session_id=fence.session_id), "cancelled")
            yield self.committing(fence, commit, n)
        else:
            yield lambda: self.store.end(
                fence, ended_by="cancelled", detail="", n=n, records=b"", settlement="failed"
            )

    def speaker(self, word: str) -> Actor:
        self.figures.words += 1
        outcome = yield lambda: self.store.signal(
            TENANT, self.turn_id, kind="steer", payload=word.encode()
        )
        if isinstance(outcome, Signalled):
            turn = yield from self.wait_for_end()
            self.saw(turn)
            rows: tuple[JournalRow, ...] = yield lambda: self.store.journal(TENANT, self.turn_id)
            if outcome.n in heard_in(rows):
                return
        else:
            assert isinstance(outcome, TooLate), "nobody here has a key"
            self.saw(outcome.turn)
        yield from self.begin_with(word)

    def wait_for_end(self) -> Generator[Question, Any, TurnRow]:
        while True:
            turn: TurnRow = yield lambda: self.store.turn(TENANT, self.turn_id)
            if turn.state != "open":
                return turn

    def begin_with(self, word: str) -> Actor:
        """The next turn, as soon as there is room for it."""
        turn_id = self.mint(TurnId)
        while True:
            at: Snapshot = yield lambda: self.store.snapshot(TENANT, self.session_id)
            ask = self.asked(ById(session_id=self.session_id), turn_id, word, at.version)
            outcome = yield partial(self.store.begin, ask)
            if isinstance(outcome, Started):
                break
        self.turns.append(turn_id)
        commit = self.made(outcome.fence, [self.say.user(word)], at, "completed")
        yield self.committing(outcome.fence, commit, 1)

    def stopper(self) -> Actor:
        outcome = yield lambda: self.store.signal(TENANT, self.turn_id, kind="cancel")
        if isinstance(outcome, TooLate):
            self.saw(outcome.turn)

    def sweeper(self) -> Actor:
        yield lambda: self.store.resign(self.nodes[0])
        outcome = yield lambda: self.store.takeover(
            TENANT, self.session_id, node=self.nodes[1], nonce="the sweeper's"
        )
        if isinstance(outcome, Taken) and outcome.turn.turn_id == self.turn_id:
            self.figures.taken_over += 1
            rows: tuple[JournalRow, ...] = yield lambda: self.store.journal(TENANT, self.turn_id)
            said: list[Item] = []
            for event in events(rows):
                said += event.items if isinstance(event, Steered) else ()
            n = rows[-1].n + 1
            yield from self.owner(outcome.fence, said, node=self.nodes[1], n=n)

    # what they say

    def asked(self, target: Target, turn_id: TurnId, word: str, at: Version) -> Begin:
        return Begin(
            tenant=TENANT,
            node=self.nodes[0] if turn_id == self.turn_id else self.nodes[2],
            nonce=f"nonce of {turn_id}",
            target=target,
            expected=None if isinstance(target, Anonymous) else self.session_id,
            request=TurnRequest(
                turn_id=turn_id,
                base=at,
                input=(self.say.user(word),),
                agent="butler",
                replayable=True,
            ),
            attempt=Attempt(request_hash=turn_id.encode()),
        )

    def made(self, fence: Fence, said: list[Item], at: Snapshot, by: EndedBy) -> Commit:
        last = self.say.answer() if by == "completed" else self.say.note(by)
        items = (*said, last)
        return commit_of(fence.turn_id, items, version=at.version.next, after=at.link, by=by)

    def committing(self, fence: Fence, commit: Commit, n: int) -> Question:
        return lambda: self.store.commit(fence, commit, n=n, records=b"")

    def records(self, event: Event, n: int) -> bytes:
        return encode_records(numbered((event,), first=n, at_ms=0))

    # what has to be true

    def saw(self, turn: TurnRow) -> None:
        """Somebody was told how a turn has ended. Everybody has to be told the same."""
        known = self.ended.setdefault(turn.turn_id, turn)
        if known != turn or turn.state == "open":
            self.violations.append(f"{turn.turn_id} ended as {known.state}, then as {turn.state}")

    async def judge(self) -> None:
        turn = await self.store.turn(TENANT, self.turn_id)
        assert turn is not None
        self.saw(turn)
        listened = events(await self.store.journal(TENANT, self.turn_id))
        history = await self.store.snapshot(TENANT, self.session_id)
        assert history is not None
        for word in self.words:
            heard = sum(says(each, word) for each in listened if isinstance(each, Steered))
            begun = 0
            for turn_id in self.turns:
                rows = events(await self.store.journal(TENANT, turn_id))
                begun += sum(says(each, word) for each in rows if isinstance(each, Began))
            self.figures.heard += heard
            self.figures.begun += begun
            if heard + begun != 1:
                self.violations.append(f"{word!r} was heard {heard} times and began {begun} turns")
            kept = turn.state == "committed" or begun
            found = sum(
                word == text_of(item.content)
                for item in history.items
                if isinstance(item, UserMessage)
            )
            if found != (1 if kept else 0):
                self.violations.append(f"{word!r} is in the history {found} times")


def events(rows: Iterable[JournalRow]) -> list[Event]:
    records = (record for row in rows for record in decode_records(row.records))
    return [each.event for each in records if not isinstance(each, Unreadable)]


def heard_in(rows: Iterable[JournalRow]) -> set[int]:
    return {n for each in events(rows) if isinstance(each, Steered) for n in each.signals}


def says(event: Steered | Began, word: str) -> int:
    items = event.items if isinstance(event, Steered) else event.request.input
    return sum(word == text_of(item.content) for item in items if isinstance(item, UserMessage))
