"""Random operations from several nodes and tenants, on every home and on the model at once.

Each rule asks the model and all homes the same thing, and they have to agree: on the answer, and on what
can be seen afterwards. Time is moved by a rule, so nothing happens by itself; whatever interleaving of
atomic methods several processes could produce, a sequence of rules can, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.core.history.conversation import (
    Commit,
    Flagged,
    Patch,
    SettingsChanged,
    Snapshot,
    Summarized,
    Titled,
    Visibility,
)
from holdfast.core.items import (
    EndedBy,
    Item,
    SessionSettings,
    Summary,
)
from holdfast.core.turns.events import Change, MemoryAdded, MemoryDeleted, StateSet, TurnRequest
from holdfast.errors import HoldfastError
from holdfast.ids import (
    IdempotencyKey,
    ItemId,
    MessageId,
    Minter,
    NodeId,
    NoteId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
    mint,
)
from holdfast.store import outcomes
from holdfast.store.outcomes import (
    Anonymous,
    Attempt,
    Begin,
    ById,
    ByKey,
    Fence,
    SessionDump,
    SessionFilter,
    Started,
    Taken,
    Target,
)
from tests.store.model import checks
from tests.store.model.content import Words, commit_of
from tests.store.model.homes import Homes
from tests.store.model.model import Model
from tests.store.model.things import Session, Turn

T = TypeVar("T")

ACME, ZENITH = Tenant("acme"), Tenant("zenith")
TENANTS = (ACME, ZENITH)
KEYS = tuple(map(SessionKey, ("trip", "trip-2")))
RETRY_KEYS = tuple(map(IdempotencyKey, ("k1", "k2")))
HASHES = (b"a" * 32, b"b" * 32)
TTL_MS = 15_000
NODES = 3

MOMENTS_S = (0.001, 1, 5, 10, 16, 61, 590)
AGES_S = (3600, 25 * 3600, 8 * 24 * 3600, 31 * 24 * 3600)
FRESH_MAX = 12
"""Sessions of one example: enough to be confused, few enough to meet again."""

RECENT = 4
"""Turns that somebody still thinks of."""

NOBODY = mint(SessionId, at_ms=0, entropy=0)

Touched: TypeAlias = tuple[Tenant, SessionId | None, TurnId | None]

data = st.data()
Data = st.DataObject


class StoreMachine(RuleBasedStateMachine):
    """What may happen to a store. `homes` are emptied for each example."""

    def __init__(self, homes: Homes) -> None:
        super().__init__()
        homes.renew()
        self.homes = homes
        self.clock = homes.clock
        self.model = Model(self.clock.now_ms())
        self.mint = Minter(now_ms=self.clock.now_ms, random_bits=lambda bits: 0)
        self.words = Words(self.mint)
        self.nodes = [self.mint(NodeId) for _ in range(NODES)]
        self.fences: list[tuple[Fence, TurnRequest]] = []
        """Every fence that was ever handed out; most of them are old."""
        self.asked: list[tuple[Touched, str, tuple[object, ...], dict[str, object]]] = []
        """The last writes, to be repeated: whoever lost an answer asks again."""
        self.killed: set[NodeId] = set()
        self.tokens: dict[tuple[Tenant, SessionId], int] = {}
        self.before: dict[TurnId, dict[str, SessionDump | None]] = {}
        """What a session looked like when its open turn began."""
        self.touched: Touched | None = None
        for node in self.nodes:
            self.do("renew", node, ttl_ms=TTL_MS)

    # how everything is asked

    def do(self, method: str, *args: object, **named: object) -> object:
        """Ask the model and every home. They agree, and this is what they say."""
        promised = _tried(lambda: getattr(self.model, method)(*args, **named))
        answers = self.homes.tried(lambda store: getattr(store, method)(*args, **named))
        for home, found in answers.items():
            said = checks.comparable(found)
            assert said == promised, f"{home}: {method} answers {checks.apart(said, promised)}"
        if isinstance(promised, Started | Taken):
            self.note_fence(promised.fence)
        return promised

    def write(
        self,
        tenant: Tenant,
        method: str,
        *args: object,
        session: SessionId | None = None,
        turn: TurnId | None = None,
        **named: object,
    ) -> object:
        """`do`, for what may be repeated; afterwards this session and turn are looked at."""
        self.touched = tenant, session, turn
        self.asked = [*self.asked[-7:], (self.touched, method, args, named)]
        return self.do(method, *args, **named)

    def note_fence(self, fence: Fence) -> None:
        known = [each for each, _ in self.fences]
        if fence not in known:
            session = fence.tenant, fence.session_id
            assert fence.token > self.tokens.get(session, 0), "fences grow"
            self.tokens[session] = fence.token
            request = self.model.of[fence.tenant].turns[fence.turn_id].request
            self.fences.append((fence, request))

    @invariant()
    def looks_as_promised(self) -> None:
        if self.touched is None:
            return
        tenant, session_id, turn_id = self.touched
        self.touched = None
        turn = self.model.of[tenant].turns.get(turn_id) if turn_id else None
        if turn_id is not None:
            checks.check_turn(self.homes, self.model, tenant, turn_id)
        if session_id is None and turn is not None:
            session_id = turn.session.id
        if session_id is not None:
            checks.check_session(self.homes, self.model, tenant, session_id)

    def teardown(self) -> None:
        if sys.exc_info()[0] is None:  # a second failure would hide the first
            checks.check_everything(self.homes, self.model, TENANTS)

    # what there is to choose from

    def sessions(self, *, live: bool = False) -> list[Session]:
        known = (each for rows in self.model.of.values() for each in rows.sessions.values())
        return [each for each in known if not (live and each.deleted)]

    def turns(self) -> list[Turn]:
        return [each for rows in self.model.of.values() for each in rows.turns.values()]

    def a_session(self, data: Data) -> tuple[Tenant, Session]:
        """A session, and who asks for it: rarely somebody else than its tenant."""
        session = pick(data, self.sessions())
        tenant = a_tenant(data) if rarely(data) else session.tenant
        return tenant, session

    def holding(self) -> list[tuple[Fence, TurnRequest]]:
        return [each for each in self.fences if self.is_held(each[0])]

    def wrong_fence(self, data: Data) -> tuple[Fence, TurnRequest]:
        """An old one, or one that is forged in a single field."""
        fences = self.holding() if data.draw(st.booleans()) else self.fences
        fence, request = pick(data, fences or self.fences)
        changes: dict[str, object] = data.draw(
            st.sampled_from(
                (
                    {},
                    {"nonce": "somebody else's"},
                    {"token": fence.token + 1},
                    {"tenant": ZENITH if fence.tenant == ACME else ACME},
                )
            )
        )
        return msgspec.structs.replace(fence, **changes), request

    def a_node(self, data: Data) -> NodeId:
        live = [each for each in self.nodes if self.model.is_live(each)]
        return pick(data, live if live and not rarely(data) else self.nodes)

    def is_held(self, fence: Fence) -> bool:
        session = self.model.of[fence.tenant].sessions[fence.session_id]
        return session.open is not None and session.open.fence == fence

    def next_n(self, fence: Fence) -> int:
        turn = self.model.of[fence.tenant].turns.get(fence.turn_id)
        return turn.journal[-1].n + 1 if turn and turn.journal else 1

    # ── turns ────────────────────────────────────────────────────────────────────────────────

    @rule(data=data)
    def begin(self, data: Data) -> None:
        tenant = a_tenant(data)
        self.ask(data, tenant, self.a_target(data, tenant))

    def a_target(self, data: Data, tenant: Tenant) -> Target:
        kinds = ["key", "key", "id"] if self.sessions() else ["key"]
        if len(self.sessions()) < FRESH_MAX:
            kinds.append("anonymous")
        match data.draw(st.sampled_from(kinds)):
            case "key":
                key = data.draw(st.sampled_from(KEYS))
                return self.by_key(data, tenant, key, create=not rarely(data))
            case "id":
                return ById(session_id=pick(data, self.sessions()).id)
            case _:
                return Anonymous(fresh=self.mint(SessionId))

    def by_key(self, data: Data, tenant: Tenant, key: SessionKey, *, create: bool = True) -> ByKey:
        """Somebody who remembers what a key means expects that, and brings no id for a new session."""
        target = ByKey(key=key, fresh=self.mint(SessionId), create=create)
        meant = self.model.meant(tenant, target)
        remembers = meant is not None and not meant.deleted and data.draw(st.booleans())
        return ByKey(key=key, create=create) if remembers else target

    def ask(
        self, data: Data, tenant: Tenant, target: Target, attempt: Attempt | None = None
    ) -> object:
        ask = self.new_ask(data, tenant, target, attempt)
        turn_id = ask.request.turn_id
        meant = self.model.meant(tenant, target)
        before = self.homes.each(lambda store: store.dump(tenant, meant.id)) if meant else {}
        outcome = self.write(
            tenant, "begin", ask, turn=turn_id, session=meant.id if meant else None
        )
        # A continuation takes keys along, which are no part of what it leaves as it was.
        if isinstance(outcome, Started) and not outcome.created and not ask.request.continues:
            self.before[turn_id] = {home: checks.kept(dump) for home, dump in before.items()}
        return outcome

    def new_ask(
        self, data: Data, tenant: Tenant, target: Target, attempt: Attempt | None = None
    ) -> Begin:
        turn_id = self.mint(TurnId)
        expected, at, rev = self.reconciled(data, tenant, target)
        return Begin(
            tenant=tenant,
            node=self.a_node(data),
            nonce=f"nonce of {turn_id}",
            target=target,
            expected=expected,
            request=TurnRequest(
                turn_id=turn_id,
                base=at,
                base_rev=rev,
                source_key="agents.yaml",
                source_digest="d1",
                agent=data.draw(st.sampled_from(("butler", "clerk"))),
                input=(self.words.user(),),
                replayable=data.draw(st.booleans()),
            ),
            attempt=attempt or self.an_attempt(data),
            expire_after_ms=data.draw(st.sampled_from((None, None, None, 60_000))),
        )

    def reconciled(
        self, data: Data, tenant: Tenant, target: Target
    ) -> tuple[SessionId | None, Version, int]:
        """The session, version and revision that a request is for: what is there, but rarely stale."""
        meant = self.model.meant(tenant, target)
        if meant is not None and meant.deleted:
            meant = None
        session_id, head = (meant.id, meant.head) if meant else (None, Snapshot(session_id=NOBODY))
        version, rev = head.version, head.notes.rev
        if self.sessions() and rarely(data):
            session_id = pick(data, self.sessions()).id
        if session_id is not None and rarely(data):
            version = Version(data.draw(st.integers(0, 3)))
        if session_id is not None and rarely(data):
            rev = data.draw(st.integers(0, 2))
        return session_id, version, rev

    def an_attempt(self, data: Data) -> Attempt:
        """Half of the requests can be recognised: by a key, or by their SDK's count."""
        how = data.draw(st.sampled_from(("plain", "key", "key", "count")))
        if how == "plain":
            return Attempt(request_hash=self.mint(MessageId).encode())
        request_hash = data.draw(st.sampled_from(HASHES))
        if how == "key":
            return Attempt(request_hash=request_hash, key=data.draw(st.sampled_from(RETRY_KEYS)))
        return Attempt(request_hash=request_hash, client_attempt=data.draw(st.integers(0, 2)))

    @rule(data=data, turns=st.integers(1, 3))
    def play_some_turns(self, data: Data, turns: int) -> None:
        """So that there is something to fork, list and forget."""
        tenant, key = a_tenant(data), data.draw(st.sampled_from(KEYS))
        for _ in range(turns):
            outcome = self.ask(data, tenant, self.by_key(data, tenant, key))
            if isinstance(outcome, Started):
                fence, request = self.fences[-1]
                self.commit_as(data, fence, self.made(data, fence, request))

    @precondition(lambda self: self.turns())
    @rule(data=data)
    def retry(self, data: Data) -> None:
        """The same request as a new one: with its key, or with a higher count, as an SDK does by itself."""
        self.retry_of(data, pick(data, self.turns()[-RECENT:]))

    def retry_of(self, data: Data, turn: Turn) -> None:
        attempt = turn.ask.attempt
        if attempt.key is None:
            count = attempt.client_attempt + data.draw(st.sampled_from((1, 0)))
            attempt = msgspec.structs.replace(attempt, client_attempt=count)
        self.ask(data, turn.session.tenant, ById(session_id=turn.session.id), attempt)

    @precondition(lambda self: self.broken_off())
    @rule(data=data, by_hand=st.booleans())
    def go_on(self, data: Data, by_hand: bool) -> None:
        """Continue what a session's head has left open: because a person asks, or as a retry of its request."""
        session = pick(data, self.broken_off())
        tenant = session.tenant
        last = next(self.model.committed(session))
        attempt = self.an_attempt(data) if by_hand else self.again(data, last)
        ask = self.new_ask(data, tenant, ById(session_id=session.id), attempt)
        links = 0 if by_hand else 4 - (session.retries_left or 0)
        request = msgspec.structs.replace(
            ask.request,
            input=(),
            continues=last.id,
            links=links + (1 if rarely(data) else 0),
        )
        ask = msgspec.structs.replace(ask, request=request)
        self.write(tenant, "begin", ask, turn=request.turn_id, session=session.id)
        self.do("turn_unfinished", tenant, last.known.request_hash)

    def broken_off(self) -> list[Session]:
        return [each for each in self.sessions(live=True) if each.unfinished is not None]

    def again(self, data: Data, turn: Turn) -> Attempt:
        keys = [
            claim
            for claim in self.model.of[turn.session.tenant].claims.values()
            if claim.turn is turn
        ]
        by_key = data.draw(st.booleans())
        if keys and by_key:
            return Attempt(request_hash=keys[0].request_hash, key=keys[0].key)
        return turn.known

    @precondition(lambda self: self.fences)
    @rule(data=data)
    def write_under_a_wrong_fence(self, data: Data) -> None:
        """Zombies, and worse. Some of their fences may hold, and what they repeat may be known."""
        fence, request = self.wrong_fence(data)
        match data.draw(st.sampled_from(("append", "commit", "end", "release"))):
            case "append":
                self.append_as(data, fence)
            case "commit":
                self.commit_as(data, fence, self.made(data, fence, request))
            case "end":
                self.end_as(data, fence, "failed")
            case _:
                self.write(fence.tenant, "release", fence, turn=fence.turn_id)

    @precondition(lambda self: self.holding())
    @rule(data=data)
    def append(self, data: Data) -> None:
        fence, _ = pick(data, self.holding())
        self.append_as(data, fence)

    def append_as(self, data: Data, fence: Fence) -> None:
        n = self.next_n(fence) - (1 if rarely(data) else 0)
        records = f"record {n} under {fence.token}".encode()
        turn = self.model.of[fence.tenant].turns.get(fence.turn_id)
        waiting = [each.n for each in turn.steers] if turn else []
        heard = data.draw(st.integers(0, len(waiting)))
        self.write(
            fence.tenant,
            "append",
            fence,
            n=n,
            records=b"" if rarely(data) else records,
            consumed=tuple(waiting[:heard]),
            turn=fence.turn_id,
        )

    @precondition(lambda self: self.holding())
    @rule(data=data)
    def commit(self, data: Data) -> None:
        fence, request = pick(data, self.holding())
        self.commit_as(data, fence, self.made(data, fence, request))

    def commit_as(self, data: Data, fence: Fence, commit: Commit) -> None:
        n = self.next_n(fence) - (1 if rarely(data) else 0)
        self.write(
            fence.tenant,
            "commit",
            fence,
            commit,
            n=n,
            records=f"record {n}: the end".encode(),
            turn=fence.turn_id,
            session=fence.session_id,
        )

    @precondition(lambda self: self.holding())
    @rule(data=data, settlement=st.sampled_from(("done", "failed")))
    def end(self, data: Data, settlement: outcomes.Settlement) -> None:
        fence, _ = pick(data, self.holding())
        self.end_as(data, fence, settlement)

    def end_as(self, data: Data, fence: Fence, settlement: outcomes.Settlement) -> None:
        n = self.next_n(fence)
        held = self.is_known(fence) and self.is_held(fence)
        self.write(
            fence.tenant,
            "end",
            fence,
            ended_by=data.draw(st.sampled_from(("cancelled", "crash"))),
            detail="for a reason",
            n=n,
            records=f"record {n}: the end".encode(),
            settlement=settlement,
            turn=fence.turn_id,
            session=fence.session_id,
        )
        if held:
            self.check_untouched(fence)

    def is_known(self, fence: Fence) -> bool:
        return any(fence == each for each, _ in self.fences)

    def check_untouched(self, fence: Fence) -> None:
        """The discarded turn has left its session in the very bytes that it found."""
        before = self.before.pop(fence.turn_id, None)
        if before is not None:
            dumps = self.homes.each(lambda store: store.dump(fence.tenant, fence.session_id))
            after = {home: checks.kept(dump) for home, dump in dumps.items()}
            assert after == before, "a discarded turn has left a trace"

    @precondition(lambda self: self.holding())
    @rule(data=data)
    def release(self, data: Data) -> None:
        fence, _ = pick(data, self.holding())
        self.write(fence.tenant, "release", fence, turn=fence.turn_id)

    @precondition(lambda self: self.model.open_turns())
    @rule(data=data, ignored_cancel=st.booleans())
    def take_over(self, data: Data, ignored_cancel: bool) -> None:
        session = pick(data, [each.session for each in self.model.open_turns()])
        tenant = session.tenant
        if rarely(data):
            tenant, session = self.a_session(data)
        self.take_over_as(data, tenant, session, ignored_cancel=ignored_cancel)

    def take_over_as(
        self, data: Data, tenant: Tenant, session: Session, *, ignored_cancel: bool
    ) -> None:
        self.write(
            tenant,
            "takeover",
            tenant,
            session.id,
            node=self.a_node(data),
            nonce=f"nonce {len(self.fences)}",
            ignored_cancel=ignored_cancel,
            session=session.id,
        )

    @precondition(lambda self: self.asked)
    @rule(data=data)
    def ask_again(self, data: Data) -> None:
        """An answer was lost on its way. Whatever was asked is asked again, by whom it may concern."""
        back = data.draw(st.sampled_from((0, 0, 0, 1, 1, 2, 3, 5, 7)))
        touched, method, args, named = self.asked[-1 - min(back, len(self.asked) - 1)]
        busy = self.model.open_turns()
        begin_again = data.draw(st.booleans())
        if busy and begin_again:
            turn = pick(data, busy)
            touched, method = (turn.session.tenant, turn.session.id, turn.id), "begin"
            args, named = (turn.ask,), {}
        asking = args[0].node if isinstance(args[0], Begin) else named.get("node")
        if asking not in self.killed:
            self.touched = touched
            self.do(method, *args, **named)
            self.before.clear()

    @precondition(lambda self: self.turns())
    @rule(data=data)
    def acknowledge(self, data: Data) -> None:
        """The answer has arrived. A retry that comes after it all the same is a new request."""
        turn = pick(data, self.turns()[-RECENT:])
        tenant = a_tenant(data) if rarely(data) else turn.session.tenant
        self.write(tenant, "acknowledge", tenant, turn.id, turn=turn.id)
        self.before.clear()  # the head may be what was acknowledged
        if data.draw(st.booleans()):
            self.retry_of(data, turn)

    @precondition(lambda self: self.model.open_turns())
    @rule(data=data, kind=st.sampled_from(("steer", "steer", "cancel", "interrupt")))
    def signal(self, data: Data, kind: str) -> None:
        among = self.turns() if rarely(data) else self.model.open_turns()
        turn = pick(data, among)
        tenant = a_tenant(data) if rarely(data) else turn.session.tenant
        attempt = self.an_attempt(data) if kind == "steer" else None
        self.write(
            tenant,
            "signal",
            tenant,
            turn.id,
            turn=turn.id,
            kind=kind,
            payload=b"psst",
            attempt=attempt,
        )
        if turn.state == "open" and data.draw(st.booleans()):
            self.commit_as(data, turn.fence, self.made(data, turn.fence, turn.request))

    # ── nodes and time ───────────────────────────────────────────────────────────────────────

    @rule(data=data, seconds=st.sampled_from(MOMENTS_S), renewing=st.integers(0, (1 << NODES) - 1))
    def time_passes(self, data: Data, seconds: float, renewing: int) -> None:
        """Some nodes renew their row afterwards, the others may be late."""
        self.pass_time(seconds)
        for bit, node in enumerate(self.nodes):
            if renewing >> bit & 1:
                self.do("renew", node, ttl_ms=TTL_MS)

    @rule(seconds=st.sampled_from(AGES_S), leap=st.booleans())
    def ages_pass(self, seconds: float, leap: bool) -> None:
        """The clock leaps, or the store is in use for the last day of it."""
        used_h = 0 if leap else min(24, int(seconds // 3600))
        self.pass_time(seconds - used_h * 3600)
        for _ in range(used_h):
            self.look()
            self.pass_time(3600)
        self.look()
        for node in self.nodes:
            self.do("renew", node, ttl_ms=TTL_MS)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.now_ms = self.clock.now_ms()

    def look(self) -> None:
        """Every home looks at the clock, and removes nothing."""
        self.model.look()
        self.homes.each(lambda store: store.prune(limit=0))

    @rule(data=data)
    def leave(self, data: Data) -> None:
        """A process says goodbye, or is killed; then another one is started in its place."""
        self.lose(data, data.draw(st.sampled_from(self.nodes)))

    def lose(self, data: Data, node: NodeId) -> None:
        how = data.draw(st.sampled_from(("resigned", "killed", "late", "all late")))
        if how == "resigned":
            self.do("resign", node)
        elif how == "killed":
            self.killed.add(node)
            self.homes.kill(node)
            self.model.resign(node)
            index = self.nodes.index(node)
            self.nodes[index] = self.mint(NodeId)
            self.do("renew", self.nodes[index], ttl_ms=TTL_MS)
        else:
            steps = 4 if how == "late" else 1
            for _ in range(steps):
                self.pass_time(20 / steps)
                for each in self.nodes:
                    if each != node:
                        self.do("renew", each, ttl_ms=TTL_MS)

    @precondition(lambda self: self.played())
    @rule(data=data)
    def lose_a_holder(self, data: Data) -> None:
        """Somebody is gone in the middle of a turn, and somebody else takes it over."""
        turn = pick(data, self.played())
        assert turn.node is not None
        self.lose(data, turn.node)
        self.take_over_as(data, turn.session.tenant, turn.session, ignored_cancel=False)

    def played(self) -> list[Turn]:
        """Open turns that a node of ours holds."""
        return [each for each in self.model.open_turns() if each.node in self.nodes]

    # ── sessions as a whole ──────────────────────────────────────────────────────────────────

    @precondition(lambda self: self.sessions())
    @rule(data=data)
    def annotate(self, data: Data) -> None:
        tenant, session = self.a_session(data)
        patches = data.draw(st.lists(self.patches(session), min_size=1, max_size=2))
        summaries = any(isinstance(patch, Summarized) for _, patch in patches)
        rev = session.head.notes.summary_rev + data.draw(st.sampled_from((0, 0, 1)))
        self.write(
            tenant,
            "annotate",
            tenant,
            session.id,
            patches,
            summary_rev=rev if summaries else None,
            session=session.id,
        )
        self.before.clear()

    def patches(self, session: Session) -> st.SearchStrategy[tuple[ItemId | None, Patch]]:
        head = session.head
        whole: list[Patch] = [
            Titled(title="A journey"),
            Titled(title=""),
            Flagged(name="liked", value="yes"),
            SettingsChanged(settings=SessionSettings(attributes=(("team", "red"),))),
            SettingsChanged(settings=SessionSettings(attributes=(("team", "blue"),))),
            Summarized(
                summary=Summary(id=self.mint(NoteId), text="So far", covers_to=len(head.items))
            ),
        ]
        about: list[tuple[ItemId | None, Patch]] = [(None, patch) for patch in (*whole, whole[-1])]
        about += ((item.id, Visibility(to_model=False)) for item in head.items[-1:])  # type: ignore[union-attr]
        return st.sampled_from(about)

    @precondition(lambda self: self.sessions())
    @rule(data=data)
    def fork(self, data: Data) -> None:
        tenant, session = self.a_session(data)
        head = session.head.version
        version = max(0, head + data.draw(st.sampled_from((-1, -1, 0, -2, -3, 1))))
        fresh = self.fresh(data)
        self.write(
            tenant, "fork", tenant, session.id, version=Version(version), fresh=fresh, session=fresh
        )

    @rule(data=data)
    def bind(self, data: Data) -> None:
        """Reset, or rewind."""
        tenant, key = a_tenant(data), data.draw(st.sampled_from(KEYS))
        meant = self.model.meant(tenant, ByKey(key=key, fresh=self.mint(SessionId)))
        head = meant.head.version if meant else 0
        version = None
        if (meant is not None or rarely(data)) and data.draw(st.booleans()):
            version = Version(data.draw(st.integers(0, head + 1)))
        fresh = self.fresh(data)
        self.write(tenant, "bind", tenant, key, fresh=fresh, version=version, session=fresh)
        self.before.clear()

    def fresh(self, data: Data) -> SessionId:
        """A new id; once there are many sessions, one that is taken already."""
        if len(self.sessions()) < FRESH_MAX:
            return self.mint(SessionId)
        return pick(data, self.sessions()).id

    @precondition(lambda self: self.sessions())
    @rule(data=data)
    def remove(self, data: Data) -> None:
        tenant, session = self.a_session(data)
        self.write(tenant, "remove", tenant, session.id, session=session.id)
        if data.draw(st.booleans()):
            self.prune(limit=5)

    # ── reading and upkeep ───────────────────────────────────────────────────────────────────

    @rule(data=data)
    def look_around(self, data: Data) -> None:
        """What can be asked for at any time, and changes nothing."""
        match data.draw(st.sampled_from(("work", "attempt", "list", "past"))):
            case "work":
                node = data.draw(st.sampled_from(self.nodes))
                self.do("orphans", node=node, limit=2)
                self.do("signals", node)
            case "attempt":
                self.find_attempt(data)
            case "list":
                where, limit = data.draw(FILTERS), data.draw(st.integers(1, 3))
                checks.check_list(self.homes, self.model, a_tenant(data), where, limit=limit)
            case _:
                self.look_back(data)

    def find_attempt(self, data: Data) -> None:
        tenant = a_tenant(data)
        target = self.a_target(data, tenant) if data.draw(st.booleans()) else None
        attempt = self.an_attempt(data)
        self.do("find_attempt", tenant, attempt, target)
        if attempt.key is not None:
            self.do("idempotency", tenant, attempt.key)

    def look_back(self, data: Data) -> None:
        live = self.sessions(live=True)
        if live:
            session = pick(data, live)
            version = data.draw(st.integers(0, session.head.version + 1))
            known = data.draw(st.integers(0, version))
            checks.check_version(self.homes, self.model, session, version, known=known)

    @rule(limit=st.integers(1, 5))
    def prune(self, limit: int) -> None:
        """Small steps, until a home has nothing left to remove."""
        self.model.prune()
        for home, store in self.homes.stores.items():
            for _ in range(500):
                if self.homes.run(store.prune(limit=limit)).rows == 0:
                    break
            else:
                raise AssertionError(f"{home}: pruning does not come to an end")
        self.before.clear()
        checks.check_everything(self.homes, self.model, TENANTS)

    # What matters most is tried more often; hypothesis gives every rule the same chance.
    begin_once_more = begin
    append_once_more = append
    commit_once_more = commit
    take_over_once_more = take_over
    fork_once_more = fork
    lose_one_more = lose_a_holder
    retry_once_more = retry
    go_on_once_more = go_on
    signal_once_more = signal
    play_some_more_turns = play_some_turns
    ask_once_again = ask_again
    some_time_passes = time_passes

    # ── what a turn commits ──────────────────────────────────────────────────────────────────

    def made(self, data: Data, fence: Fence, request: TurnRequest) -> Commit:
        """What this turn might add, on top of its base; rarely on top of something else."""
        at = self.model.snapshot(fence.tenant, fence.session_id, version=request.base)
        under, words = at or Snapshot(session_id=fence.session_id), self.words
        by: EndedBy = data.draw(st.sampled_from(ENDS))
        items: list[Item] = [words.result(call, "not_answered") for call in under.waiting]
        if request.continues is None:
            items.append(words.user())
        changes: tuple[Change, ...] = ()
        if data.draw(st.booleans()):
            call = words.call()
            items += (call, words.result(call))
            changes = data.draw(st.sampled_from(CHANGES))
        if by != "completed":
            items.append(words.note(by))
        else:
            items.append(words.call(waits_for="client") if rarely(data) else words.answer())
        return commit_of(
            request.turn_id,
            items,
            version=request.base.next.next if rarely(data) else request.base.next,
            after=under.link,
            by=by,
            agent=request.agent,
            changes=changes,
            continues=request.continues,
            links=request.links,
        )


ENDS: Sequence[EndedBy] = (
    "completed",
    "completed",
    "completed",
    "completed",
    "model_error",
    "model_error",
    "cancelled",
)

FILTERS = st.builds(
    SessionFilter,
    busy=st.sampled_from((None, True, False)),
    anonymous=st.booleans(),
    key_prefix=st.sampled_from((None, "tr", "trip-")),
    agent=st.sampled_from((None, "butler")),
    attributes=st.sampled_from(((), (("team", "red"),))),
)

CHANGES: Sequence[tuple[Change, ...]] = (
    (),
    (StateSet(name="todo", value="[1]"),),
    (StateSet(name="todo", value="[1]"), StateSet(name="todo", value="[2]")),
    (StateSet(name="todo", value=""), StateSet(name="mood", value='"good"')),
    (MemoryAdded(memory_id="m1", agent="butler", text="likes tea"),),
    (MemoryDeleted(memory_id="m1", agent="butler"),),
)


def pick(data: Data, options: Sequence[T]) -> T:
    """One of these, by its number: a counterexample with whole sessions in it would be unreadable."""
    return options[data.draw(st.integers(0, len(options) - 1))]


def a_tenant(data: Data) -> Tenant:
    """Mostly the same one: things happen where somebody is."""
    return data.draw(st.sampled_from((ACME, ACME, ACME, ZENITH)))


def rarely(data: Data) -> bool:
    """Once in ten times; never, in the simplest example."""
    return data.draw(st.integers(0, 9)) == 9


def _tried(ask: object) -> object:
    assert callable(ask)
    try:
        return ask()
    except HoldfastError as error:
        return type(error)
