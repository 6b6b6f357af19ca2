"""The wire is cut at every question of every operation, before the server hears it and after it has answered.

Work that is safe to repeat is done, once, and says so: the caller does not even notice. What would be done twice by
repeating it says that its outcome is not known, and is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import TypeAlias
from urllib.parse import urlsplit, urlunsplit

import pytest

from holdfast.core.history.conversation import Patch, SettingsChanged, Titled
from holdfast.core.items import SessionSettings
from holdfast.core.turns.events import MemoryAdded, MemoryDeleted
from holdfast.errors import InDoubt, StoreUnavailable
from holdfast.ids import Minter, NodeId, SessionId, SessionKey, Version
from holdfast.store.outcomes import Begin, SessionDump
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.postgres import connected, wipe
from tests.postgres_wire import Moment, Wire
from tests.store.builders import ACME, Player, Playing
from tests.store.state import StoreState, contents

MOMENTS: tuple[Moment, ...] = ("before", "after")
CLAIMS = ("first", "other")


class Stage:
    """A store with a session of two versions, a turn that is open in it, and a player on a wire that may be cut."""

    def __init__(self, player: Player, turn: Playing, clock: ManualClock) -> None:
        self.player = player
        self.store = player.store
        self.turn = turn
        self.clock = clock
        self.asked: Begin | None = None
        self.dumped: SessionDump | None = None

    async def contents(self) -> StoreState:
        return await contents(self.store, claims=CLAIMS, nodes=[self.player.node])


Operation: TypeAlias = Callable[[Stage], Awaitable[object]]


async def begin(stage: Stage) -> object:
    assert stage.asked is not None
    return await stage.store.begin(stage.asked)


async def begin_known(stage: Stage) -> object:
    """A turn of a session that this store was the last to write: it begins without a look."""
    return await begin(stage)


async def append(stage: Stage) -> None:
    await stage.turn.answer("Yes")


async def append_heard(stage: Stage) -> None:
    n, records = stage.turn.records()
    await stage.store.append(stage.turn.fence, n=n, records=records, consumed=[1])


async def commit(stage: Stage) -> object:
    return await stage.turn.try_commit()


async def end(stage: Stage) -> object:
    return await stage.turn.end("cancelled", detail="enough")


async def release(stage: Stage) -> None:
    await stage.store.release(stage.turn.fence)


async def takeover(stage: Stage) -> object:
    found = await stage.store.takeover(
        ACME, stage.turn.session_id, node=stage.player.node, nonce="theirs"
    )
    return type(found)


async def fork(stage: Stage) -> object:
    return await stage.store.fork(
        ACME, stage.turn.session_id, version=Version(1), fresh=SessionId("conv_" + "1" * 26)
    )


async def rewind(stage: Stage) -> object:
    return await stage.store.bind(
        ACME, SessionKey("trip"), fresh=SessionId("conv_" + "1" * 26), version=Version(1)
    )


async def reset(stage: Stage) -> object:
    return await stage.store.bind(ACME, SessionKey("trip"), fresh=SessionId("conv_" + "1" * 26))


async def remove(stage: Stage) -> object:
    return await stage.store.remove(ACME, stage.turn.session_id)


async def restore(stage: Stage) -> None:
    assert stage.dumped is not None
    await stage.store.restore(ACME, stage.dumped)  # `fresh`, or not if it is found to be done


async def put_blob(stage: Stage) -> object:
    return await stage.store.put_blob(ACME, stage.turn.session_id, b"bytes")


async def acknowledge(stage: Stage) -> None:
    await stage.store.acknowledge(ACME, stage.turn.turn_id)


async def resign(stage: Stage) -> None:
    await stage.store.resign(stage.player.node)


async def renew(stage: Stage) -> object:
    return await stage.store.renew(NodeId("node_" + "1" * 26), ttl_ms=1000)


async def prune(stage: Stage) -> None:
    await stage.store.prune()


async def snapshot(stage: Stage) -> object:
    return await stage.store.snapshot(ACME, stage.turn.session_id)


async def listing(stage: Stage) -> object:
    return await stage.store.sessions(ACME)


async def signal(stage: Stage) -> object:
    return await stage.store.signal(ACME, stage.turn.turn_id, kind="steer", payload=b"left")


async def annotate(stage: Stage) -> object:
    settings = SettingsChanged(settings=SessionSettings().with_attributes(town="Oslo"))
    patches: tuple[Patch, ...] = (Titled(title="A trip"), settings)
    whole = [(None, patch) for patch in patches]
    return await stage.store.annotate(ACME, stage.turn.session_id, whole)


REPEATABLE: tuple[Operation, ...] = (
    begin,
    append,
    append_heard,
    commit,
    end,
    release,
    takeover,
    fork,
    rewind,
    reset,
    remove,
    restore,
    put_blob,
    acknowledge,
    resign,
    renew,
    prune,
    snapshot,
    listing,
)
ONCE: tuple[Operation, ...] = (signal, annotate)

TELLING = (begin, append, commit, fork, remove, put_blob, snapshot)
"""Of each form one: of one statement and of several, with what is known and without, and one that only reads. How an
answer is lost, and asked for again, is told apart by no more than that; `make torture-claims` tries all of them."""


@asynccontextmanager
async def staged(url: str, operation: Operation) -> AsyncIterator[tuple[Wire, Stage]]:
    """The same stage each time, down to every id and every millisecond."""
    await wipe(url)
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    async with Wire.before(parts.hostname, parts.port) as wire:
        there = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{wire.port}"))
        clock, steps = ManualClock(), count()
        mint = Minter(now_ms=clock.now_ms, random_bits=lambda bits: next(steps) % (1 << bits))
        address = parse_address(f"{there}?sslmode=disable&listen=off")
        store = await PostgresStore.open(address, clock=clock.now_ms)
        try:
            player = Player(store, mint)
            await player.renew()
            memory = MemoryAdded(agent="butler", memory_id="m1", text="likes\x00trains")
            await player.play(
                "trip", "One", "First", changes=(memory,), key="first", replayable=True
            )
            await player.play("trip", "Two", "Second")
            stage = Stage(player, await player.open("trip", "Three", key="other"), clock)
            await _prepare(stage, operation)
            yield wire, stage
        finally:
            await store.close()


async def _prepare(stage: Stage, operation: Operation) -> None:
    """What an operation needs to be there, and what would be different each time it is asked for."""
    player, turn = stage.player, stage.turn
    if operation is begin:
        stage.asked = await player.ask("another", "Hello", key="new")
    if operation is begin_known:
        await player.play("another")
        stage.asked = await player.ask("another", "And then?")
    if operation is append_heard:
        await stage.store.signal(ACME, turn.turn_id, kind="steer")
    if operation is commit:
        forgotten = MemoryDeleted(agent="butler", memory_id="m1")
        await turn.answer("Third", changes=(forgotten,))
    if operation is restore:
        session_id = (await player.play("moved", "Away", "Gone")).session_id
        stage.dumped = await stage.store.dump(ACME, session_id)
        await _forget(stage.store, session_id)
    if operation is prune:
        await player.discard("trip2")
        await stage.store.remove(ACME, await player.id_of("trip2"))
        stage.clock.advance(8 * 24 * 3600)


async def _forget(store: Store, session_id: SessionId) -> None:
    """As if a session had never been here."""
    assert isinstance(store, PostgresStore)
    tables = ("session_key", "turn", "item", "state")
    for statement in (
        *(f"delete from holdfast.{table} where session_id = '{session_id}'" for table in tables),
        f"delete from holdfast.session where id = '{session_id}'",
    ):
        await store.engine.run(partial(Db.script, sql=statement))


async def undisturbed(url: str, operation: Operation) -> tuple[object, StoreState, StoreState]:
    async with staged(url, operation) as (_, stage):
        before = await stage.contents()
        answer = await operation(stage)
        return answer, before, await stage.contents()


@pytest.mark.slow
@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(each, marks=[] if each in TELLING else [pytest.mark.thorough])
        for each in REPEATABLE
    ],
    ids=lambda each: each.__name__,
)
async def test_nobody_notices_that_an_answer_was_lost(url: str, operation: Operation) -> None:
    answer, _, after = await undisturbed(url, operation)
    was_cut = True
    for nth in count(1):
        # A prune asks for dozens of things, each in a transaction of its own: cut by turns before and after.
        for moment in MOMENTS if operation is not prune else (MOMENTS[nth % 2],):
            async with staged(url, operation) as (wire, stage):
                wire.cut_at(nth, moment)
                assert await operation(stage) == answer
                was_cut = wire.was_cut
                wire.cut_at(0, moment)
                found = await stage.contents()
                assert found == after or operation is takeover
        if not was_cut:
            break
    assert nth > 1, "nothing was asked"


@pytest.mark.slow
@pytest.mark.parametrize("operation", [begin, begin_known], ids=lambda each: each.__name__)
@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_turn_that_may_have_begun_is_told_as_such(
    url: str, operation: Operation, is_cut: bool
) -> None:
    """The wire dies at every message of a begin, and stays dead: whatever has happened was not denied. Also if the first
    answer was lost before, and the second try finds that it has to look first."""
    told: list[tuple[bool, bool]] = []
    for nth in count(1):
        async with staged(url, operation) as (wire, stage):
            assert isinstance(stage.store, PostgresStore) and stage.asked is not None
            stage.store.engine.timeout_s = 0.2 if is_cut else 0.05
            wire.cut_at(int(is_cut), "after")
            wire.die_at(nth, "after")
            try:
                await operation(stage)
            except StoreUnavailable as error:
                in_doubt = error.in_doubt
            else:
                break
        async with connected(url) as direct:
            found = await direct.fetchval(
                "select count(*) from holdfast.turn where turn_id = $1", stage.asked.request.turn_id
            )
        told.append((bool(found), in_doubt))
    assert (True, False) not in told
    assert (True, True) in told


@pytest.mark.slow
@pytest.mark.parametrize("operation", ONCE, ids=lambda each: each.__name__)
async def test_what_must_not_be_done_twice_is_done_once_or_not_at_all(
    url: str, operation: Operation
) -> None:
    answer, before, after = await undisturbed(url, operation)
    in_doubt = 0
    was_cut = True
    for nth in count(1):
        for moment in MOMENTS:
            async with staged(url, operation) as (wire, stage):
                wire.cut_at(nth, moment)
                try:
                    assert await operation(stage) == answer
                except InDoubt:
                    in_doubt += 1
                    possible = [before, after]
                else:
                    possible = [after]
                was_cut = wire.was_cut
                wire.cut_at(0, moment)
                assert await stage.contents() in possible
        if not was_cut:
            break
    assert in_doubt == 2, "the statement that writes, before and after"
