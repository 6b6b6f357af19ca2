"""A server in miniature: it plays turns on a store, dies at any moment, and cleans up after the dead.

What a turn shall do is written in its request, as a `Plan`. So whoever takes a turn over from the journal
plays on exactly what was asked for, and knows nothing that it has not read from the store.

    server = Server(store, mint)
    await server.enrol()
    await server.ask("trip", Plan(name="t1", tools=2))

`World` is what tools change, outside of any store: it shows whether something was done twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Literal, Protocol, assert_never

from holdfast.core.codec import Decoder, Unreadable, Value, encode
from holdfast.core.history.conversation import Snapshot, commit_of
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    StoredItem,
    ToolCall,
    ToolResult,
    UserMessage,
    plain_text,
    text_of,
)
from holdfast.core.turns import effects as wish
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import advanced, closing, resuming
from holdfast.core.turns.effects import wanted
from holdfast.core.turns.journal import decode_records, encode_records, fold, numbered
from holdfast.core.turns.turn import Turn, begin
from holdfast.core.turns.unfinished_turns import links_after
from holdfast.ids import (
    CallId,
    IdempotencyKey,
    MessageId,
    Minter,
    NodeId,
    ResultId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)
from holdfast.store.outcomes import (
    Attempt,
    Begin,
    Busy,
    ByKey,
    Committed,
    Fence,
    Finished,
    Joined,
    Moved,
    NotLive,
    Replay,
    Started,
    Taken,
    TakeoverOutcome,
    Unfinished,
)
from holdfast.store.store import Store

ACME = Tenant("acme")
TTL_MS = 15_000
LONG_MS = 3_600_000
"""For campaigns that outlast a lease and are not about leases: there, the dead are told by their lock."""

# ── what is asked for ────────────────────────────────────────────────────────────────────────

End = Literal["complete", "stop", "fail"]
"""`stop`: interrupted and kept. `fail`: discarded."""


class Plan(Value):
    """What a turn shall do. `name` is found again in the history, and nowhere else."""

    name: str
    tools: int = 0
    end: End = "complete"
    resumes: bool = False
    """After a crash somebody plays on; otherwise the turn is kept if it acted, and else discarded."""
    padding: str = ""

    @property
    def lands(self) -> bool:
        """Whether the history shows it, if nothing comes in between."""
        return self.end != "fail"


_plans: Decoder[Plan] = Decoder(Plan)


def plan_in(items: Iterable[StoredItem]) -> Plan | None:
    """The plan that these items of a turn were asked to follow."""
    for each in items:
        if isinstance(each, UserMessage):
            plan = _plans.lenient(text_of(each.content).encode())
            return None if isinstance(plan, Unreadable) else plan
    return None


class World:
    """What tools have done, by call."""

    def __init__(self) -> None:
        self.done: Counter[CallId] = Counter()

    def act(self, call_id: CallId) -> None:
        self.done[call_id] += 1


class Answer(Value):
    """What became of a request. No version: it was discarded."""

    turn_id: TurnId
    session_id: SessionId
    version: Version | None


# ── the server ───────────────────────────────────────────────────────────────────────────────


class Waiting(Protocol):
    """How a server waits for a session that somebody else holds."""

    async def wait(self, session_id: SessionId) -> None: ...

    def ended(self, session_id: SessionId) -> None:
        """A turn of ours in this session has ended."""


class Poll:
    """Look again soon: the holder may be another process, which cannot tell us."""

    def __init__(self, every_s: float = 0.001) -> None:
        self._every_s = every_s

    async def wait(self, session_id: SessionId) -> None:
        await asyncio.sleep(self._every_s)

    def ended(self, session_id: SessionId) -> None:
        pass


class Bell:
    """For servers that share an event loop: those who wait are woken when a turn has ended."""

    def __init__(self) -> None:
        self._waiting: dict[SessionId, asyncio.Event] = {}

    async def wait(self, session_id: SessionId) -> None:
        # A turn that ends before this is missed; so nobody relies on being woken.
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await self._waiting.setdefault(session_id, asyncio.Event()).wait()

    def ended(self, session_id: SessionId) -> None:
        if event := self._waiting.pop(session_id, None):
            event.set()


class Server:
    """One boot of a process that plays turns."""

    def __init__(
        self,
        store: Store,
        mint: Minter,
        *,
        world: World | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        self.store = store
        self.mint = mint
        self.world = world or World()
        self.node = mint(NodeId)
        self.recovered = 0
        self.ttl_ms = TTL_MS
        self.playing: set[TurnId] = set()
        self.waiting: Waiting = waiting or Poll()
        self._heads: dict[SessionId, Snapshot] = {}

    async def enrol(self, *, ttl_ms: int = TTL_MS) -> None:
        self.ttl_ms = ttl_ms
        await self.store.renew(self.node, ttl_ms=ttl_ms)

    async def ask(self, key: str, plan: Plan, *, idempotent: bool = False) -> Answer:
        """Bring a request to its end, whatever stands in the way: retries, joins, goes on, cleans up."""
        found: Unfinished | None = None
        while True:
            request = await self.request(key, plan, idempotent=idempotent, on=found)
            found = None
            outcome = await self.store.begin(request)
            match outcome:
                case Started():
                    return await self.held(request, outcome).play()
                case Busy() | Joined():
                    if not await self._freed(outcome):
                        await self.waiting.wait(outcome.session_id)  # somebody lives, and plays it
                case Replay():
                    return await self.replayed(outcome)
                case Unfinished():
                    found = outcome
                case Moved() | Finished():
                    pass
                case NotLive():
                    await self.enrol(ttl_ms=self.ttl_ms)
                case _:
                    raise AssertionError(f"a plan cannot get {outcome}")

    async def request(
        self, key: str, plan: Plan, *, idempotent: bool = False, on: Unfinished | None = None
    ) -> Begin:
        """A request as it stands to the session now; it goes `on` with a turn that broke off."""
        base = await self._head(SessionKey(key))
        turn_id = self.mint(TurnId)
        goes_on = on is not None and base is not None and base.version == on.version
        message = UserMessage(id=self.mint(MessageId), content=plain_text(encode(plan).decode()))
        return Begin(
            tenant=ACME,
            node=self.node,
            nonce=f"nonce of {turn_id}",
            target=ByKey(key=SessionKey(key), fresh=self.mint(SessionId)),
            expected=base.session_id if base else None,
            request=ev.TurnRequest(
                turn_id=turn_id,
                base=base.version if base else Version(0),
                base_rev=base.notes.rev if base else 0,
                base_length=len(base.items) if base else 0,
                source_key="agents/butler.yaml",
                agent="butler",
                input=() if goes_on else (message,),
                instructions=(encode(plan).decode(),),
                replayable=plan.resumes,
                continues=base.marks[-1].turn_id if base and goes_on else None,
                links=links_after(on.retries_left) or 0 if on and goes_on else 0,
            ),
            attempt=Attempt(
                request_hash=encode(plan),
                key=IdempotencyKey(f"key-of-{plan.name}") if idempotent else None,
            ),
        )

    async def _head(self, key: SessionKey) -> Snapshot | None:
        """The session that a key means, from what is known of it and what came since."""
        row = await self.store.resolve(ACME, key)
        return None if row is None else await self.head(row.session_id)

    async def head(self, session_id: SessionId) -> Snapshot:
        known = self._heads.get(session_id)
        found = await self.store.snapshot(ACME, session_id, known=known)
        assert found is not None
        self._heads[session_id] = found
        return found

    def held(self, asked: Begin, started: Started) -> Held:
        return Held(self, started.fence, begin(ev.Began(request=asked.request)), n=1)

    async def replayed(self, replay: Replay) -> Answer:
        row = await self.store.turn(ACME, replay.turn_id)
        assert row is not None
        version = row.seq or (row.base_head if row.continues else None)
        return Answer(turn_id=row.turn_id, session_id=row.session_id, version=version)

    async def _freed(self, found: Busy | Joined) -> bool:
        """Whether the turn in the way was a dead one's, and is settled now."""
        # Our own turns are ours to take over, too: after a restart, but not while we play them.
        if found.turn_id in self.playing:
            return False
        return isinstance(await self.recover(found.session_id), Taken)

    async def recover(self, session_id: SessionId) -> TakeoverOutcome:
        """Take the session's open turn over, if its holder is dead, and bring it to an end."""
        nonce = f"nonce of {self.node}"
        taken = await self.store.takeover(ACME, session_id, node=self.node, nonce=nonce)
        if isinstance(taken, Taken):
            self.recovered += 1
            await self._settle(taken)
        return taken

    async def recover_all(self) -> int:
        """Clean up after everybody who is dead now; how many turns were open."""
        orphans = await self.store.orphans(node=self.node, limit=1000)
        for each in orphans:
            await self.recover(each.session_id)
        return len(orphans)

    async def _settle(self, taken: Taken) -> None:
        rows = await self.store.journal(ACME, taken.turn.turn_id)
        folded = fold(record for row in rows for record in decode_records(row.records))
        assert folded.damage is None, folded.damage
        assert folded.turn is not None
        held = Held(self, taken.fence, folded.turn, n=folded.next_n)
        if held.turn.interrupted is not None:
            await held.play()
        elif held.turn.request.replayable:
            await held.record(*resuming(held.turn, self.mint, after="crash"))
            await held.play()
        elif folded.may_have_acted:
            await held.record(ev.Interrupted(by="crash"))
            await held.play()
        else:
            await held.discard("crash")


class Held:
    """An open turn in the hands of a server."""

    def __init__(self, server: Server, fence: Fence, turn: Turn, *, n: int) -> None:
        self.server = server
        self.store = server.store
        self.fence = fence
        self.turn = turn
        self.n = n
        self.plan = _plans.strict(turn.request.instructions[0])

    async def play(self) -> Answer:
        """Do what the turn wants until it has ended. If that fails, it is anybody's to take up."""
        self.server.playing.add(self.fence.turn_id)
        try:
            return await self._play()
        finally:
            self.server.playing.discard(self.fence.turn_id)
            self.server.waiting.ended(self.fence.session_id)

    async def _play(self) -> Answer:
        while True:
            for effect in wanted(self.turn)[:1]:
                match effect:
                    case wish.AskModel():
                        if await self.speak() == "fail":
                            return await self.discard("model_error")
                    case wish.RunCall():
                        await self._run(effect)
                    case wish.Finish():
                        return await self._commit()
                    case wish.Close():
                        return await self._commit(*closing(self.turn, self.server.mint))
                    case wish.ReturnBranch() | wish.StopAtLimit():
                        raise AssertionError(f"a plan cannot want {effect}")
                    case _:
                        assert_never(effect)

    async def record(self, *happened: ev.Event) -> None:
        n, records = self._records(*happened)
        await self.store.append(self.fence, n=n, records=records)

    async def discard(self, by: EndedBy) -> Answer:
        n, records = self._records(ev.Ended(by=by, kept=False))
        await self.store.end(
            self.fence, ended_by=by, detail="", n=n, records=records, settlement="failed"
        )
        # What it went on with stays, and its words with it.
        request = self.turn.request
        return self._answer(request.base if request.continues else None)

    async def speak(self) -> End | None:
        """The model calls tools first, and then ends as planned. Returns an end that it brought."""
        is_done = self.turn.request.continues is not None  # its tools have had their turn
        if self.turn.calls < self.plan.tools and not is_done:
            made = self.server.mint(CallId)
            look = ToolCall(id=made, call_id=f"call_{made.body}", name="look", arguments="{}")
            await self.record(ev.StepStarted(), ev.Answered(items=(look,), finish="tool_calls"))
            return None
        if self.plan.end == "complete":
            words = plain_text(f"Done: {self.plan.name}")
            answer = AssistantMessage(id=self.server.mint(MessageId), content=words)
            await self.record(ev.StepStarted(), ev.Answered(items=(answer,)))
            return None
        if self.plan.end == "stop":
            await self.record(ev.Interrupted(by="cancelled"))
        return self.plan.end

    async def _run(self, effect: wish.RunCall) -> None:
        """The intent is durable before the world changes, the result after it."""
        made = effect.call.id
        await self.record(ev.ToolStarted(call=made))
        self.server.world.act(made)
        result = ToolResult(id=self.server.mint(ResultId), call=made, outcome="ok")
        changed = ev.StateSet(name="last", value=made)
        await self.record(ev.ToolFinished(result=result, changes=(changed,)))

    async def _commit(self, *happened: ev.Event) -> Answer:
        by: EndedBy = self.turn.interrupted.by if self.turn.interrupted else "completed"
        n, records = self._records(*happened, ev.Ended(by=by, kept=True))
        base = await self.server.head(self.fence.session_id)
        commit = commit_of(self.turn, previous=base.link)
        outcome = await self.store.commit(self.fence, commit, n=n, records=records)
        assert isinstance(outcome, Committed)
        return self._answer(outcome.version)

    def _records(self, *happened: ev.Event) -> tuple[int, bytes]:
        """Let these happen; what an append would say of them."""
        n = self.n
        self.turn = advanced(self.turn, happened)
        self.n += len(happened)
        return n, encode_records(numbered(happened, first=n, at_ms=0))

    def _answer(self, version: Version | None) -> Answer:
        fence = self.fence
        return Answer(turn_id=fence.turn_id, session_id=fence.session_id, version=version)


# ── reading ──────────────────────────────────────────────────────────────────────────────────


async def plans_in(store: Store, key: str) -> list[str]:
    """The names of the plans that a session's history shows."""
    return [name for name in await plans_by_version(store, key) if name != CONTINUED]


async def plans_by_version(store: Store, key: str) -> list[str]:
    """The same, one per version: a plan that was continued stands where it was finished."""
    row = await store.resolve(ACME, SessionKey(key))
    snapshot = await store.snapshot(ACME, row.session_id) if row else None
    return [] if snapshot is None else plans_of(snapshot)


def plans_of(snapshot: Snapshot) -> list[str]:
    """The names of the plans in a history, one per version."""
    names: list[str] = []
    for mark in snapshot.marks:
        if mark.continues is None:
            plan = plan_in(snapshot.items[mark.start : mark.end])
            names.append("?" if plan is None else plan.name)
        else:
            names[-1:] = [CONTINUED, names[-1]]
    return names


CONTINUED = ""
"""Stands for a version whose plan was continued by the next one."""
