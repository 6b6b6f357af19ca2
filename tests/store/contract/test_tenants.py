"""Yours only: another tenant's rows answer exactly like rows that do not exist. Promise 11."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import msgspec
import pytest

from holdfast.core.exchanges import Followed
from holdfast.core.history.conversation import Titled
from holdfast.core.turns import events as ev
from holdfast.errors import SessionMissing, Superseded
from holdfast.ids import IdempotencyKey, Minter, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.store.outcomes import (
    Attempt,
    ById,
    ByKey,
    Fence,
    ListPage,
    Missing,
    NothingOpen,
    Started,
)
from holdfast.store.search.matches import parse_query
from holdfast.store.store import Store
from holdfast.store.transfer.import_checks import digest_of
from tests.store.builders import ACME, Player, Playing
from tests.store.contract.test_grants import granted
from tests.store.state import contents

RIVAL = Tenant("rival")


class Names(msgspec.Struct, frozen=True):
    """Everything that somebody could know about a session and its turns."""

    key: SessionKey
    session_id: SessionId
    kept: TurnId
    running: Fence
    idempotency: IdempotencyKey
    digest: str
    n: int


@pytest.fixture
async def ours(store: Store, player: Player) -> Playing:
    """A session of `acme` with everything, and a turn that is open."""
    changes = (
        ev.StateSet(name="todo", value="[]"),
        ev.MemoryAdded(memory_id="m1", agent="butler", text="likes trains"),
    )
    followed = Followed(name="trip")
    turn = await player.play(
        "trip", key="k", request_hash=b"same", changes=changes, followed=followed
    )
    await store.put_blob(ACME, turn.session_id, b"picture")
    await store.annotate(ACME, turn.session_id, [(None, Titled(title="Oslo"))])
    fresh = player.mint(SessionId)
    await store.fork(ACME, turn.session_id, version=Version(1), fresh=fresh)
    await player.break_off("other", request_hash=b"broken")
    running = await player.open("trip", request_hash=b"running")
    await store.signal(ACME, running.turn_id, kind="cancel")
    await running.answer()
    await store.put_grant(granted(player.mint, ACME))
    return running


@pytest.fixture
def names(ours: Playing) -> Names:
    kept = ours.base.marks[-1].turn_id
    return Names(
        key=SessionKey("trip"),
        session_id=ours.session_id,
        kept=kept,
        running=ours.fence,
        idempotency=IdempotencyKey("k"),
        digest=digest_of(b"picture"),
        n=1,
    )


@pytest.fixture
def unknown(mint: Minter) -> Names:
    """Names that nobody ever used."""
    session_id, turn_id = mint(SessionId), mint(TurnId)
    return Names(
        key=SessionKey("never"),
        session_id=session_id,
        kept=mint(TurnId),
        running=Fence(tenant=RIVAL, session_id=session_id, turn_id=turn_id, token=2, nonce="x"),
        idempotency=IdempotencyKey("never"),
        digest="sha256:" + "0" * 64,
        n=1,
    )


Call: TypeAlias = tuple[str, Callable[[], Awaitable[object]]]
"""A method, by name, with all that it needs."""


def reads(store: Store, tenant: Tenant, names: Names) -> list[Call]:
    """Every method that reads by name, called with these names."""
    session_id, turn_id = names.session_id, names.running.turn_id
    target = ById(session_id=session_id)
    keyed = Attempt(request_hash=b"same", key=names.idempotency)
    retried = Attempt(request_hash=b"running", client_attempt=1)
    first = Version(1)
    return [
        ("find_attempt", lambda: store.find_attempt(tenant, keyed)),
        ("find_attempt", lambda: store.find_attempt(tenant, retried, target)),
        ("resolve", lambda: store.resolve(tenant, names.key)),
        ("session", lambda: store.session(tenant, session_id)),
        ("info", lambda: store.info(tenant, session_id)),
        ("snapshot", lambda: store.snapshot(tenant, session_id)),
        ("snapshot", lambda: store.snapshot(tenant, session_id, version=first)),
        ("turn", lambda: store.turn(tenant, names.kept)),
        ("turns", lambda: store.turns(tenant, session_id)),
        ("recent_turns", lambda: store.recent_turns(tenant)),
        ("turn_unfinished", lambda: store.turn_unfinished(tenant, b"broken")),
        ("journal", lambda: store.journal(tenant, turn_id)),
        ("find_signal", lambda: store.find_signal(tenant, turn_id, names.n)),
        ("idempotency", lambda: store.idempotency(tenant, names.idempotency)),
        ("memories", lambda: store.memories(tenant, "butler")),
        ("blob", lambda: store.blob(tenant, session_id, names.digest)),
        ("sessions", lambda: store.sessions(tenant)),
        ("grants", lambda: store.grants(tenant, limit=10)),
        ("all_memories", lambda: store.all_memories(tenant, after=None, limit=10)),
        ("search", lambda: store.search(tenant, parse_query("h*"))),
        ("dump", lambda: store.dump(tenant, session_id)),
        ("chain_end", lambda: store.chain_end(tenant, session_id)),
        ("forks", lambda: store.forks(tenant, session_id, limit=10)),
        ("family_lines", lambda: store.family_lines(tenant, session_id, limit=10)),
        (
            "family_turns",
            lambda: store.family_turns(
                tenant, session_id, digests=[b"d"], request_hash=b"same", limit=10
            ),
        ),
        ("session_ids", lambda: store.session_ids(tenant, after=None, limit=10)),
        ("playing", lambda: store.playing(tenant, limit=10)),
        ("unfinished", lambda: store.unfinished(tenant, since_ms=0, limit=10)),
        ("failures", lambda: store.failures(tenant, since_ms=0, limit=10)),
    ]


async def test_a_rival_reads_nothing(store: Store, names: Names, unknown: Names) -> None:
    theirs, nobodys = reads(store, RIVAL, names), reads(store, RIVAL, unknown)
    for (name, read), (_, absent) in zip(theirs, nobodys, strict=True):
        assert await read() == await absent(), name


async def test_the_same_questions_have_answers_for_their_owner(store: Store, names: Names) -> None:
    for name, read in reads(store, ACME, names):
        assert await read() not in (None, (), ListPage(sessions=(), cursor=None)), name


def refused_writes(store: Store, ours: Playing, tenant: Tenant) -> list[Call]:
    """Every method that writes to something that has to be there."""
    session_id, fence = ours.session_id, msgspec.structs.replace(ours.fence, tenant=tenant)
    commit, n, records = ours.kept()
    patches = [(None, Titled(title="theirs"))]
    fresh, first = ours.player.mint(SessionId), Version(1)
    trip = SessionKey("trip")
    return [
        ("append", lambda: store.append(fence, n=n, records=b"more")),
        ("commit", lambda: store.commit(fence, commit, n=n, records=records)),
        (
            "end",
            lambda: store.end(
                fence, ended_by="crash", detail="", n=n, records=b"", settlement="failed"
            ),
        ),
        ("release", lambda: store.release(fence)),
        ("signal", lambda: store.signal(tenant, fence.turn_id, kind="cancel")),
        ("annotate", lambda: store.annotate(tenant, session_id, patches)),
        ("fork", lambda: store.fork(tenant, session_id, version=first, fresh=fresh)),
        ("bind", lambda: store.bind(tenant, trip, fresh=fresh, version=first)),
        ("name", lambda: store.name(tenant, session_id, SessionKey("theirs"))),
        ("rebind", lambda: store.rebind(tenant, session_id, source_key="theirs.yaml")),
        ("remove", lambda: store.remove(tenant, session_id)),
        (
            "withdraw",
            lambda: store.withdraw(
                tenant,
                fence.turn_id,
                ended_by="cancelled",
                detail="",
                records=b"",
                settlement="done",
            ),
        ),
    ]


async def test_a_rival_writes_nothing(store: Store, player: Player, ours: Playing) -> None:
    async with nothing_of_ours_changes(store, player):
        for name, write in refused_writes(store, ours, RIVAL):
            assert await refuses(write), name
        taken = await store.takeover(RIVAL, ours.session_id, node=player.node, nonce="theirs")
        assert taken == NothingOpen()
        await store.acknowledge(RIVAL, ours.base.marks[-1].turn_id)


async def test_every_method_that_knows_tenants_is_asked_above(
    store: Store, ours: Playing, names: Names
) -> None:
    """A method that is new in the protocol needs its place here."""
    asked = [*reads(store, RIVAL, names), *refused_writes(store, ours, RIVAL)]
    elsewhere = {
        *("enqueue", "open_queued"),  # in test_queue.py
        *("begin", "takeover", "acknowledge", "put_blob", "restore", "restore_memories"),
        *("revoke_grant", "api_keys"),  # in test_grants.py and test_api_keys.py
        "end_stray",  # in test_stray_turns.py
        "asking",  # no call of ours waits for a person: in test_turn_lists.py
        "troubled",  # likewise
        "index_flaw",  # says nothing where nothing is wrong: in test_columns.py
    }
    knows = {
        name
        for name, method in vars(Store).items()
        if inspect.isfunction(method)
        and not name.startswith("_")
        and {"tenant", "fence", "ask"} & inspect.signature(method).parameters.keys()
    }
    assert {name for name, _ in asked} | elsewhere == knows


async def test_a_rival_begins_nothing_in_a_session_of_ours(
    store: Store, player: Player, ours: Playing, names: Names, mint: Minter
) -> None:
    rival = Player(store, mint, tenant=RIVAL, node=player.node)
    async with nothing_of_ours_changes(store, player):
        assert await rival.begin(names.session_id) == Missing()
        again = await rival.ask(names.session_id, request_hash=b"running", client_attempt=1)
        assert await store.begin(again) == Missing()


async def test_a_rival_may_use_the_same_names_for_its_own(
    store: Store, player: Player, ours: Playing, names: Names, mint: Minter
) -> None:
    """Keys, idempotency keys and even ids are each tenant's own."""
    rival = Player(store, mint, tenant=RIVAL, node=player.node)
    async with nothing_of_ours_changes(store, player):
        ask = await rival.ask(
            "trip",
            key="k",
            request_hash=b"other",
            fresh=names.session_id,
            turn_id=names.running.turn_id,
        )
        assert isinstance(ask.target, ByKey)
        started = await store.begin(ask)
        assert isinstance(started, Started) and started.created
        turn = await rival.playing(ask, started)
        forgets = ev.MemoryDeleted(memory_id="m1", agent="butler")
        await turn.answer("Hi", changes=(forgets,))
        await turn.commit()
        await store.put_blob(RIVAL, names.session_id, b"their picture")
        await store.annotate(RIVAL, names.session_id, [(None, Titled(title="theirs"))])
        await store.bind(RIVAL, names.key, fresh=mint(SessionId))
        await store.remove(RIVAL, names.session_id)
        while (await store.prune()).more:
            pass


async def test_signals_come_with_the_tenant_that_they_belong_to(
    store: Store, player: Player, ours: Playing, mint: Minter
) -> None:
    """A node plays for all tenants; it has to know whose words it hears."""
    rival = Player(store, mint, tenant=RIVAL, node=player.node)
    theirs = await rival.open("trip")
    await store.signal(RIVAL, theirs.turn_id, kind="steer")
    found = {(row.tenant, row.turn_id) for row in await store.signals(player.node)}
    assert found == {(ACME, ours.turn_id), (RIVAL, theirs.turn_id)}


# ── words ────────────────────────────────────────────────────────────────────────────────────


async def refuses(write: Callable[[], Awaitable[object]]) -> bool:
    try:
        await write()
    except (Superseded, SessionMissing):
        return True
    return False


@asynccontextmanager
async def nothing_of_ours_changes(store: Store, player: Player) -> AsyncIterator[None]:
    before = await _ours(store, player)
    yield
    assert await _ours(store, player) == before


async def _ours(store: Store, player: Player) -> object:
    state = await contents(store, claims=["k"])
    return (
        [each for each in state.sessions if each.session.tenant == ACME],
        [each for each in state.memories if each.tenant == ACME],
        [each for each in state.claims if each and each.tenant == ACME],
        [each for each in await store.signals(player.node) if each.tenant == ACME],
        [info.session.id for info in (await store.sessions(ACME)).sessions],
    )
