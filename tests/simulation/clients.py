"""People and programs that talk to the nodes: impatient, forgetful, and in each other's way.

Every attempt is written down with the time at which it was made and the time at which its client knew more.
A client is told what a server could tell it: how its turn ended, or why there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from hashlib import sha256
from random import Random
from typing import Any

import msgspec

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot, Titled, Visibility, seen_by_people
from holdfast.core.history.reconciliation import Incoming, IncomingCall
from holdfast.core.items import (
    AssistantMessage,
    Text,
    ToolCall,
    TurnLimits,
    UserMessage,
    item_id,
    text_of,
)
from holdfast.core.policy import Choice, Policy, allowed, resolve_policy
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.errors import HoldfastError, StoreError
from holdfast.ids import IdempotencyKey, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.sessions.operations import StillRunning
from holdfast.sessions.session_requests import Ask, Ending, OnBusy
from holdfast.sessions.turns.watch import Watch
from holdfast.store.outcomes import Annotated, Attempt
from tests.simulation.faults import Odd
from tests.simulation.history import Act, Outcome, Send, Shown, Told, Watched
from tests.simulation.world import ConnectionLost, Node, World

TENANT = Tenant("acme")
DEADLINES_S = (2.0, 4.0, 8.0, 15.0, 40.0)


class Habits(Value):
    """What clients do in one simulation. Each is drawn per simulation, so that some do one thing a lot."""

    keyed: float = 0.3
    """Requests with an idempotency key."""
    mixes_up: float = 0.0
    """Requests with somebody else's key."""
    background: float = 0.1
    queues: bool = False
    """Those that nobody waits for may wait in the store."""
    counted: float = 0.3
    """Retries that say which one they are."""
    retries: float = 0.7
    attempts: int = 4
    """How often a request is sent at most."""
    asks_again: float = 0.0
    """Requests without a key that are sent again after they have failed."""
    doubts: float = 0.0
    """Requests with a key that are sent again although they were answered: the answer was lost on its way."""
    leaves: float = 0.15
    resends: float = 0.3
    if_match: float = 0.05
    on_busy: tuple[OnBusy, ...] = ("wait",)
    policies: float = 0.2
    operates: float = 0.2
    """Something else than talking."""
    operations: tuple[str, ...] = ("cancel", "watch")
    limits: float = 0.05
    deadlines_s: tuple[float, ...] = DEADLINES_S
    pause_s: float = 2.0


class Client:
    """One client with some favourite sessions."""

    def __init__(
        self, world: World, name: str, rng: Random, habits: Habits, keys: tuple[SessionKey, ...]
    ) -> None:
        self._world = world
        self._name = name
        self._rng = rng
        self._habits = habits
        self._keys = keys
        self._forks: list[SessionId] = []

    async def live(self, *, requests: int) -> None:
        for _ in range(requests):
            await asyncio.sleep(self._habits.pause_s * self._rng.random())
            if self._rng.random() < self._habits.operates:
                await self._operate()
            else:
                await self._talk()

    async def _talk(self) -> None:
        name: SessionKey | SessionId = self._rng.choice(self._keys)
        if self._forks and self._rng.random() < 0.3:
            name = self._rng.choice(self._forks)
        await Request(self._world, self._name, self._rng, self._habits, name).insist()

    # ── something else ──

    async def _operate(self) -> None:
        kind = self._rng.choice(self._habits.operations)
        key = self._rng.choice(self._keys)
        match kind:
            case "cancel":
                await self._cancel()
            case "heckle":
                await self._heckle()
            case "continue":
                await self._continue()
            case "hush":
                await self._hush()
            case "watch":
                await self._watch()
            case "reset":
                await self._bind(key, None)
            case "rewind":
                await self._rewind(key)
            case "fork":
                await self._fork(key)
            case "delete":
                await self._delete(key)
            case "annotate":
                await self._annotate(key)

    async def _attempt(self, act: Act, work: Coroutine[Any, Any, Act]) -> Act | None:
        """Do something, and write down what came of it."""
        act = msgspec.structs.replace(act, invoked_s=self._world.loop.time())
        self._world.say(f"{self._name} does {act.kind} to {act.name or act.turn_id}")
        try:
            done = await work
        except (StoreError, ConnectionLost, Odd):
            done = None
        except HoldfastError as error:
            self._world.say(f"{self._name} may not: {error}")
            return None
        finally:
            work.close()
        written = msgspec.structs.replace(
            done or act,
            invoked_s=act.invoked_s,
            done_s=self._world.loop.time(),
            failed=done is None,
        )
        self._world.acts.append(written)
        return written if done else None

    def _node(self) -> Node:
        node = self._world.any_node()
        if node is None:
            raise ConnectionLost("nobody is there")
        return node

    async def _cancel(self) -> None:
        if not self._world.seen_turns:
            return
        turn_id, session_id = self._rng.choice(await self._open_turns())
        await self._cancel_turn(turn_id, session_id)

    async def _continue(self) -> None:
        """Have a turn continued that somebody has heard of lately, whatever became of it."""
        if not self._world.seen_turns:
            return
        turn_id, session_id = self._rng.choice(self._world.seen_turns[-4:])
        act = Act(kind="continue", turn_id=turn_id, session_id=session_id)

        async def work() -> Act:
            node = self._node()
            watch = await node.run(lambda: node.sessions.continue_turn(TENANT, turn_id))
            self._world.seen_turns.append((watch.admission.turn_id, watch.admission.session_id))
            return act

        await self._attempt(act, work())

    async def _cancel_turn(self, turn_id: TurnId, session_id: SessionId) -> None:
        act = Act(kind="cancel", turn_id=turn_id, session_id=session_id)

        async def work() -> Act:
            node = self._node()
            ending = await node.run(lambda: node.sessions.operations.cancel(TENANT, turn_id))
            if isinstance(ending, StillRunning):
                return act
            return msgspec.structs.replace(act, told=told(ending))

        await self._attempt(act, work())

    async def _open_turns(self) -> list[tuple[TurnId, SessionId]]:
        """Some turns that clients have heard of lately: those that are open, if any are."""
        recent = self._world.seen_turns[-8:]
        rows = [await self._world.store.turn(TENANT, turn_id) for turn_id, _ in recent]
        is_open = [
            each
            for each, row in zip(recent, rows, strict=True)
            if row and row.state in ("open", "queued")
        ]
        return is_open or recent[-4:]

    async def _heckle(self) -> None:
        """Wait until a turn has said its last word, and speak to it then."""
        if not self._world.seen_turns:
            return
        turn_id, session_id = self._rng.choice(await self._open_turns())
        node = await self._listen(turn_id, is_last_word)
        if node is None:
            return
        steering = msgspec.structs.replace(self._habits, on_busy=("steer",), keyed=0, if_match=0)
        request = Request(self._world, self._name, self._rng, steering, session_id)
        await request.send(0, node)

    async def _hush(self) -> None:
        """Wait until a turn hears words, and stop it over that."""
        if not self._world.seen_turns:
            return
        turn_id, session_id = self._rng.choice(await self._open_turns())
        if await self._listen(turn_id, lambda event: isinstance(event, ev.Steered)) is not None:
            await self._cancel_turn(turn_id, session_id)

    async def _listen(self, turn_id: TurnId, awaited: Callable[[ev.Event], bool]) -> Node | None:
        """Watch a turn until this happens in it; on which node, if it did."""

        async def listen(node: Node) -> None:
            watch = await node.sessions.watch(TENANT, turn_id)
            async for record in watch.events():
                if awaited(record.event):
                    return

        where = [each for each in self._world.nodes if turn_id in each.sessions._owner.live]
        try:
            node = where[0] if where else self._node()
            async with asyncio.timeout(20.0):
                await node.run(lambda: listen(node))
        except (HoldfastError, ConnectionLost, TimeoutError, Odd):
            return None
        return node

    async def _watch(self) -> None:
        """Come late, and look at a turn from some number on."""
        if not self._world.seen_turns:
            return
        turn_id, _ = self._rng.choice(self._world.seen_turns[-6:])
        since = self._rng.choice((0, 0, 1, 3, 8))
        shown: list[Shown] = []

        async def work(node: Node) -> None:
            watch = await node.sessions.watch(TENANT, turn_id)
            async for record in watch.events(since):
                shown.append(Shown(n=record.n, event=record.event))  # noqa: PERF401 — it may be cut off

        whole = False
        try:
            node = self._node()
            async with asyncio.timeout(20.0 * self._rng.random()):
                await node.run(lambda: work(node))
            whole = True
        except (HoldfastError, ConnectionLost, TimeoutError, Odd):
            pass
        self._world.watched.append(
            Watched(turn_id=turn_id, since=since, shown=tuple(shown), whole=whole)
        )

    async def _bind(self, key: SessionKey, version: Version | None) -> None:
        act = Act(kind="reset" if version is None else "rewind", name=key)

        async def work() -> Act:
            node = self._node()
            operations = node.sessions.operations
            if version is None:
                row = await node.run(lambda: operations.reset(TENANT, key))
            else:
                row = await node.run(lambda: operations.rewind(TENANT, key, version))
            return msgspec.structs.replace(act, session_id=row.id)

        await self._attempt(act, work())

    async def _rewind(self, key: SessionKey) -> None:
        row = await self._world.store.resolve(TENANT, key)
        if row is None:
            return
        session = await self._world.store.session(TENANT, row.session_id)
        assert session is not None
        await self._bind(key, Version(self._rng.randrange(session.head + 1)))

    async def _fork(self, key: SessionKey) -> None:
        row = await self._world.store.resolve(TENANT, key)
        if row is None:
            return
        act = Act(kind="fork", name=row.session_id)

        async def work() -> Act:
            node = self._node()
            made = await node.run(lambda: node.sessions.operations.fork(TENANT, row.session_id))
            return msgspec.structs.replace(act, session_id=made.id)

        done = await self._attempt(act, work())
        if done is not None and done.session_id is not None:
            self._forks.append(done.session_id)

    async def _delete(self, key: SessionKey) -> None:
        row = await self._world.store.resolve(TENANT, key)
        if row is None:
            return
        act = Act(kind="delete", name=key, session_id=row.session_id)

        async def work() -> Act:
            node = self._node()
            await node.run(lambda: node.sessions.operations.delete(TENANT, row.session_id))
            return act

        await self._attempt(act, work())

    async def _annotate(self, key: SessionKey) -> None:
        row = await self._world.store.resolve(TENANT, key)
        if row is None:
            return
        session_id = row.session_id
        snapshot = await self._world.store.snapshot(TENANT, session_id)
        if snapshot is None:
            return
        ids = [found for item in snapshot.items if (found := item_id(item))]
        hidden = self._rng.choice(ids) if ids and self._rng.random() < 0.5 else None
        patch = Visibility(to_model=False) if hidden else Titled(title=self._name)
        act = Act(kind="annotate", name=session_id, session_id=session_id)

        async def work() -> Act:
            node = self._node()
            operations = node.sessions.operations
            made = await node.run(
                lambda: operations.annotate(TENANT, session_id, [(hidden, patch)])
            )
            assert isinstance(made, Annotated)
            return msgspec.structs.replace(act, rev=made.annotations[-1].rev)

        await self._attempt(act, work())


class Request:
    """Something that a client wants to say, and says again until it is heard or refused."""

    def __init__(
        self,
        world: World,
        client: str,
        rng: Random,
        habits: Habits,
        name: SessionKey | SessionId,
        *,
        probe: bool = False,
        persistent: bool = False,
    ) -> None:
        self._world = world
        self._client = client
        self._rng = rng
        self._habits = habits
        self._name = name
        self._probe = probe
        self._persistent = persistent
        self._op = world.next_op()
        self._text = f"says-{self._op}"
        keyed = rng.random() < habits.keyed
        owner = self._op
        if rng.random() < habits.mixes_up:  # a key that belongs to another request
            owner = 1 + rng.randrange(self._op)
        # What others mix up is not a key of a client that nobody else is to get in the way of.
        self._key = IdempotencyKey(f"{'own' if persistent else 'key'}-{owner}") if keyed else None
        self._background = rng.random() < habits.background
        self._queues = self._background and habits.queues
        self._counted = not keyed and rng.random() < habits.counted
        self._on_busy: OnBusy = rng.choice(habits.on_busy)
        self._layer = self._draw_policy()
        self._policy = resolve_policy(self._layer, promised_return=keyed or self._background)
        self._resends = rng.random() < habits.resends
        self._if_match = rng.random() < habits.if_match
        self._body: tuple[Incoming, ...] | None = None
        self._version: Version | None = None
        self._deadline_s = rng.choice(habits.deadlines_s)
        self._limits = TurnLimits(steps_max=1) if rng.random() < habits.limits else TurnLimits()

    def _draw_policy(self) -> Policy:
        said: dict[str, Choice] = {}
        if self._rng.random() < self._habits.policies:
            end = self._rng.choice(tuple(allowed))
            said[end] = self._rng.choice(allowed[end])
        return Policy(**said)

    def stay(self) -> None:
        """Wait for every answer from now on."""
        self._habits = msgspec.structs.replace(self._habits, leaves=0)

    async def insist(self) -> Send | None:
        """Send it, and again where that makes sense. The last attempt."""
        send = None
        for attempt in range(self._habits.attempts):
            send = await self.send(attempt, self._world.any_node())
            again = send.outcome in ("unavailable", "left") or send.error == "conversation_locked"
            if send.told is not None and self._key:
                again = not send.told.ok or self._rng.random() < self._habits.doubts
            elif send.told is not None and not send.told.ok and self._habits.asks_again:
                again = self._rng.random() < self._habits.asks_again
            if not again or not self._rng.random() < self._habits.retries:
                break
            await asyncio.sleep(2.0 * self._rng.random())
        return send

    async def send(self, attempt: int, node: Node | None) -> Send:
        """One attempt, on this node."""
        world = self._world
        send = Send(
            op=self._op,
            attempt=attempt,
            client=self._client,
            name=self._name,
            text=self._text,
            policy=self._policy,
            key=self._key,
            on_busy=self._on_busy,
            deadline_s=self._deadline_s,
            counted=self._counted,
            queues=self._queues,
            probe=self._probe,
            persistent=self._persistent,
            invoked_s=world.loop.time(),
        )
        if node is None or (node.draining and self._rng.random() < 0.5):
            send = msgspec.structs.replace(
                send, outcome="unavailable", error="nobody", done_s=world.loop.time()
            )
            world.sends.append(send)
            return send
        exchange = Exchange(world, node, send)
        patience_s = None
        if self._rng.random() < self._habits.leaves:
            patience_s = 6.0 * self._rng.random() ** 2
        try:
            async with asyncio.timeout(patience_s):
                ask = await self._ask(node, attempt)
                exchange.send = msgspec.structs.replace(exchange.send, if_match=ask.if_match)
                await node.run(lambda: exchange.serve(ask))
        except Odd:  # as a server answers it
            exchange.note("unavailable", "internal_error")
        except TimeoutError:
            exchange.note("left")
        except ConnectionLost:
            exchange.note("unavailable", "connection")
        except StoreError as error:
            exchange.note("unavailable", error.code)
        except HoldfastError as error:
            exchange.note("refused", getattr(error, "reason", error.code))
        return exchange.written()

    async def _ask(self, node: Node, attempt: int) -> Ask:
        body = await self._words()
        client_attempt = attempt if self._counted else 0
        return Ask(
            tenant=TENANT,
            name=self._name,
            messages=body,
            agent="sim",
            source_key="sim",
            policies=(self._layer,),
            on_busy=self._on_busy,
            wait_s=90.0 if self._probe else self._rng.choice((5.0, 30.0)),
            if_match=self._version,
            attempt=Attempt(
                request_hash=sha256(self._text.encode()).digest(),
                key=self._key,
                client_attempt=client_attempt,
            ),
            background=self._background,
            queues=self._queues,
            deadline_s=self._deadline_s,
            limits=self._limits,
        )

    async def _words(self) -> tuple[Incoming, ...]:
        """The body: decided once, since a retry says the same."""
        if self._body is not None:
            return self._body
        new = Incoming(role="user", content=(Text(text=self._text),))
        past: tuple[Incoming, ...] = ()
        if self._resends or self._if_match:
            snapshot = await self._look()
            if snapshot is not None and self._if_match:
                self._version = snapshot.version
            if snapshot is not None and self._resends:
                # A version that was demanded of a session that cannot be swapped is an exact one.
                exact = self._if_match and isinstance(self._name, SessionId)
                past = as_client_sees(snapshot, whole=exact)
        self._body = (*past, new)
        return self._body

    async def _look(self) -> Snapshot | None:
        store = self._world.store
        if isinstance(self._name, SessionId):
            return await store.snapshot(TENANT, self._name)
        row = await store.resolve(TENANT, self._name)
        return await store.snapshot(TENANT, row.session_id) if row else None


def as_client_sees(snapshot: Snapshot, *, whole: bool) -> tuple[Incoming, ...]:
    """The history as a chat client would send it again.

    One who does not know how old its copy is leaves out what nobody has answered: it would be new.
    """
    told: list[Incoming] = []
    for item in seen_by_people(snapshot):
        match item:
            case UserMessage(path=()):
                told.append(Incoming(role="user", content=item.content))
            case AssistantMessage(path=()) if item.state != "set_aside":
                told.append(Incoming(role="assistant", content=item.content))
            case ToolCall(waits_for="client"):
                call = IncomingCall(call_id=item.call_id, name=item.name, arguments=item.arguments)
                told.append(Incoming(role="assistant", calls=(call,)))
    if not whole:
        while told and told[-1].role == "user":
            told.pop()
    return tuple(told)


class Exchange:
    """One request on one connection, served by a node; what the client has seen of it so far."""

    def __init__(self, world: World, node: Node, send: Send) -> None:
        self._world = world
        self._node = node
        self.send = send
        self._shown: list[Shown] = []
        self._watch: Watch | None = None
        self._whole = False

    async def serve(self, ask: Ask) -> None:
        """What a server does for a request: in the node's place."""
        node = self._node
        place = self._world.next_place()
        came_s = self._world.loop.time()
        self.send = msgspec.structs.replace(self.send, node=node.name, place=place, came_s=came_s)
        watch = await node.sessions.submit(ask)
        self._watch = watch
        admission = watch.admission
        self.send = msgspec.structs.replace(
            self.send,
            turn_id=admission.turn_id,
            session_id=admission.session_id,
            base=admission.base,
            how=admission.how,
        )
        if not (self.send.hasty or self.send.persistent):  # nobody else is in such a conversation
            self._world.seen_turns.append((admission.turn_id, admission.session_id))
        self._world.say(
            f"{self.send.client} {admission.how} {admission.turn_id} of {admission.session_id} "
            f"with {self.send.text}/{self.send.attempt} on {node.name}"
        )
        async with watch:
            async for records in watch.batches(take=self._take):
                self._see(records)
            self._whole = True
            ending = await watch.ended()
            if ending.ok and admission.is_own:
                await node.store.as_store().acknowledge(ask.tenant, ending.turn_id)
            elif ending.ok:
                node.sessions.note_handed_over(ask.tenant, admission)
        self.note("ended", ending=ending)

    def _take(self, records: Sequence[Record]) -> bool:
        """Some requests take what happens the moment it does, now and then, as a server's connections do."""
        if (records[0].n + len(self.send.text)) % 3:
            return False
        self._see(records)
        return True

    def _see(self, records: Sequence[Record]) -> None:
        self._shown += (Shown(n=each.n, event=each.event) for each in records)

    def note(self, outcome: Outcome, error: str = "", *, ending: Ending | None = None) -> None:
        """What the client knows now."""
        if self.send.outcome == "ended":
            return
        self.send = msgspec.structs.replace(
            self.send,
            outcome=outcome,
            error=error,
            done_s=self._world.loop.time(),
            told=told(ending) if ending else None,
        )

    def written(self) -> Send:
        """The attempt, written down."""
        send = self.send
        self._world.say(
            f"{send.client} {send.text}/{send.attempt}: {send.outcome} {send.error} {send.told or ''}"
        )
        if self._watch is not None:
            seen = Watched(
                turn_id=self._watch.admission.turn_id,
                since=0,
                shown=tuple(self._shown),
                whole=self._whole,
            )
            self._world.watched.append(seen)
            send = msgspec.structs.replace(send, answer=answer_in(seen.shown))
        self._world.sends.append(send)
        return send


def told(ending: Ending) -> Told:
    return Told(kept=ending.kept, by=ending.by, version=ending.version)


def is_last_word(event: ev.Event) -> bool:
    """Whether an agent has answered, and asks for nothing."""
    if not isinstance(event, ev.Answered) or event.path:
        return False
    return not any(isinstance(each, ToolCall) for each in event.items)


def answer_in(shown: tuple[Shown, ...]) -> str:
    """The text that a client would render as the answer."""
    return "".join(
        text_of(item.content)
        for each in shown
        if isinstance(each.event, ev.Answered) and not each.event.path
        for item in each.event.items
        if isinstance(item, AssistantMessage)
    )
