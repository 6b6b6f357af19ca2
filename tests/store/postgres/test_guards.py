"""What an operation has decided on changes before it writes: nothing is written, and it is run again.

Also what no operation needs of the statements that writes are compiled to, and what is known of a session is not used for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import asyncpg
import msgspec
import pytest

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.conversation import Titled
from holdfast.core.turns import events as ev
from holdfast.ids import KeyId, SessionId, SessionKey, Version
from holdfast.store.expiry import Horizon
from holdfast.store.operations import (
    access,
    arrivals,
    nodes,
    queue,
    retention,
    search,
    sessions,
    signals,
    turns,
)
from holdfast.store.outcomes import Busy, ById, ByKey, Joined, Pruned, RestoreRefused, Started
from holdfast.store.postgres import groups
from holdfast.store.postgres.driver import Run, Steps
from holdfast.store.postgres.engine import Db, PostgresEngine
from holdfast.store.postgres.faults import StaleRead
from holdfast.store.postgres.queries import compiled
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.rows import ApiKeyRow
from holdfast.store.sql.tables import SESSIONS
from holdfast.store.steps import (
    FindStep,
    LookStep,
    Operation,
    Start,
    Step,
    WriteStep,
    change,
    get,
    write,
)
from holdfast.store.store import Store
from tests.postgres import execute
from tests.store.builders import ACME, Player, Playing
from tests.store.contract.test_grants import granted
from tests.store.postgres.conftest import Open
from tests.store.postgres.test_cache import Asked, asked

__all__ = ["asked"]

Happens: TypeAlias = Callable[[], Awaitable[object]]


class Interrupted(Steps):
    """Takes the steps of operations. Something happens before each write."""

    def __init__(self, happens: Happens) -> None:
        super().__init__()
        self._happens = happens
        self.writes = 0

    async def _write(self, db: Db, step: WriteStep, run: Run) -> int:
        self.writes += 1
        await self._happens()
        return await super()._write(db, step, run)


async def is_written(player: Player, start: Start[Any], *, though: Happens) -> bool:
    """Whether an operation writes though something happens between its decision and its write."""
    assert isinstance(player.store, PostgresStore)

    steps = Interrupted(though)

    async def work(db: Db) -> bool:
        try:
            await steps.take(db, start())
        except StaleRead:
            return False
        return True

    done = await player.store.engine.run(work)
    assert steps.writes == 1, "it did not come to its write"
    return done


# ── sessions as they were read ───────────────────────────────────────────────────────────────


async def beginning(turn: Playing) -> Start[Any]:
    await turn.commit()
    return partial(turns.begin, await turn.player.ask("trip", "And then?"))


async def appending(turn: Playing) -> Start[Any]:
    _, n, records = turn.kept()
    return partial(turns.append, turn.fence, n=n, records=records, consumed=())


async def committing(turn: Playing) -> Start[Any]:
    made, n, records = turn.kept()
    return partial(turns.commit, turn.fence, made, n=n, records=records, settlement="done")


async def ending(turn: Playing) -> Start[Any]:
    _, n, records = turn.kept()
    return partial(
        turns.end,
        turn.fence,
        ended_by="cancelled",
        detail="",
        n=n,
        records=records,
        settlement="done",
    )


async def releasing(turn: Playing) -> Start[Any]:
    return partial(nodes.release, turn.fence)


async def taking_over(turn: Playing) -> Start[Any]:
    return partial(
        nodes.takeover,
        ACME,
        turn.session_id,
        node=turn.player.node,
        nonce="again",
        turn_id=None,
        ignored_cancel=False,
    )


async def signalling(turn: Playing) -> Start[Any]:
    return partial(
        signals.signal, ACME, turn.turn_id, kind="steer", payload=b"", attempt=None, after=None
    )


async def queueing(turn: Playing) -> Start[Any]:
    return partial(queue.enqueue, await turn.player.ask("trip", "Later"), behind=False)


async def opening(turn: Playing) -> Start[Any]:
    queued = await turn.player.wait("trip", "Later")
    await turn.commit()
    return partial(queue.open_queued, await turn.player.opening(queued.turn_id))


async def withdrawing(turn: Playing) -> Start[Any]:
    queued = await turn.player.wait("trip", "Later")
    return partial(
        queue.withdraw,
        ACME,
        queued.turn_id,
        ended_by="cancelled",
        detail="",
        records=b"",
        settlement="done",
    )


async def annotating(turn: Playing) -> Start[Any]:
    patches = [(None, Titled(title="Bergen"))]
    return partial(sessions.annotate, ACME, turn.session_id, patches, summary_rev=None)


async def removing(turn: Playing) -> Start[Any]:
    return partial(sessions.remove, ACME, turn.session_id)


async def resetting(turn: Playing) -> Start[Any]:
    fresh = turn.player.mint(SessionId)
    return partial(sessions.bind, ACME, SessionKey("trip"), fresh=fresh, version=None)


async def forking(turn: Playing) -> Start[Any]:
    await turn.commit()
    fresh = turn.player.mint(SessionId)
    return partial(sessions.fork, ACME, turn.session_id, version=Version(1), fresh=fresh)


@pytest.mark.parametrize(
    "prepare",
    [
        beginning,
        appending,
        committing,
        ending,
        releasing,
        taking_over,
        signalling,
        queueing,
        opening,
        withdrawing,
        annotating,
        removing,
        resetting,
        forking,
    ],
)
async def test_nothing_is_written_to_a_session_that_has_changed(
    ada: Player, ben: Player, prepare: Callable[[Playing], Awaitable[Start[Any]]]
) -> None:
    turn = await ada.open("trip")
    await turn.answer()
    start = await prepare(turn)

    async def annotated() -> None:
        await ben.store.annotate(ACME, turn.session_id, [(None, Titled(title="Oslo"))])

    assert not await is_written(ada, start, though=annotated)


class InterruptedReads(Steps):
    """Takes the steps of operations. Something happens after the first read."""

    def __init__(self, happens: Happens) -> None:
        super().__init__()
        self._happens = happens
        self.reads = 0

    async def _take_step(self, db: Db, step: Step, run: Run) -> object:
        self.reads += not isinstance(step, WriteStep)
        if self.reads == 2:
            self.reads += 1
            await self._happens()
        return await super()._take_step(db, step, run)


async def test_a_session_that_changes_between_two_reads_is_not_written(
    ada: Player, ben: Player
) -> None:
    """A retry under a key that is there reads the session a second time, by the turn that the key leads to."""
    same = b"the same request"
    await ada.play("trip")
    turn = await ada.open("trip", "Hello", key="once", request_hash=same)
    await turn.end("model_error")
    ask = await ada.ask("trip", "Hello", key="once", request_hash=same)

    async def begun() -> None:
        await ben.open("trip", "Me first")

    steps = InterruptedReads(begun)

    async def work(db: Db) -> None:
        with pytest.raises(StaleRead):
            await steps.take(db, turns.begin(ask))

    assert isinstance(ada.store, PostgresStore)
    await ada.store.engine.run(work)
    assert steps.reads > 2, "it read once"


def titled(*names: SessionId) -> Operation[None]:
    """Writes several sessions, which no operation of the store does."""
    rows = []
    for each in names:
        found = yield from get(SESSIONS, ACME, each)
        assert found is not None
        rows.append(found)
    yield from write(*(change(SESSIONS, row, title="Both") for row in rows), on=tuple(rows))


@pytest.mark.parametrize("which", [0, 1])
async def test_of_several_sessions_each_is_as_it_was_read(
    ada: Player, ben: Player, which: int
) -> None:
    places = [(await ada.play(name)).session_id for name in ("one", "two")]

    async def annotated() -> None:
        await ben.store.annotate(ACME, places[which], [(None, Titled(title="Oslo"))])

    assert not await is_written(ada, partial(titled, *places), though=annotated)
    rows = [await ada.store.session(ACME, each) for each in places]
    assert "Both" not in [row.title for row in rows if row]


async def test_sessions_are_locked_in_the_order_of_their_names(
    url: str, ada: Player, open_store: Open
) -> None:
    """However they lie, and however they are joined: two statements would wait for each other."""
    first, second = sorted([(await ada.play(name)).session_id for name in ("one", "two")])
    await execute(url, f"update holdfast.session set title = '' where id = '{first}'")
    lock = "select from holdfast.session where id = $1 for update"
    start = partial(titled, first, second)
    await locked_in_order(url, open_store, start, lock=lock, names=(first, second))


async def test_rows_that_go_are_locked_in_the_order_of_their_names(
    url: str, ada: Player, open_store: Open
) -> None:
    """Several nodes may remove the same ones."""
    first, second = sorted([(await ada.discard(name)).turn_id for name in ("one", "two")])
    for ended_ms, turn_id in ((1, second), (2, first)):
        ended = f"update holdfast.turn set ended_ms = {ended_ms} where turn_id = '{turn_id}'"
        await execute(url, ended)
    lock = "select from holdfast.turn where turn_id = $1 for update"
    start = partial(retention.discarded_turns, LATER, limit=2)
    await locked_in_order(url, open_store, start, lock=lock, names=(first, second))


async def test_turns_of_a_deleted_session_are_locked_in_the_order_of_their_names(
    url: str, ada: Player, open_store: Open
) -> None:
    """Discarded ones may go by themselves at the same time."""
    turns_played = [await ada.play("trip"), await ada.play("trip", "And then?")]
    first, second = sorted([each.turn_id for each in turns_played])
    session_id = turns_played[0].session_id
    await ada.store.remove(ACME, session_id)
    for turn_id in (second, first):
        await execute(url, f"update holdfast.turn set acked = true where turn_id = '{turn_id}'")
    lock = "select from holdfast.turn where turn_id = $1 for update"
    place = retention.SessionPlace(tenant=ACME, session_id=session_id)
    start = partial(retention.clear_session, place, LATER, limit=99)
    await locked_in_order(url, open_store, start, lock=lock, names=(first, second))


async def test_what_was_said_to_a_turn_is_locked_after_the_turn(
    url: str, ada: Player, open_store: Open
) -> None:
    """As where a deleted session goes with its turns and what was said to them."""
    turn = await ada.open("trip")
    await ada.store.signal(ACME, turn.turn_id, kind="cancel")
    await turn.answer()
    await turn.commit()
    database = url.rpartition("/")[2]
    held = await asyncpg.connect(url)
    try:
        async with held.transaction():
            await held.execute("select from holdfast.turn for no key update")
            store = await open_store()
            start = partial(retention.signals, LATER, limit=9)
            writing = asyncio.create_task(store.driver.run(start))
            while not (writing.done() or await held.fetch(WAITS, database)):  # noqa: ASYNC110 — as below
                await asyncio.sleep(0.01)
            assert not writing.done()
            await held.execute("delete from holdfast.signal")
        assert await writing == 0
    finally:
        await held.close()


WAITS = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = $1"


async def locked_in_order(
    url: str, open_store: Open, start: Start[Any], *, lock: str, names: tuple[str, str]
) -> None:
    """An operation that waits for the first row has not locked the second."""
    first, second = names
    database = url.rpartition("/")[2]
    planner = ("enable_nestloop", "enable_mergejoin", "enable_indexscan", "enable_bitmapscan")
    await execute(url, *(f'alter database "{database}" set {each} = off' for each in planner))
    held = await asyncpg.connect(url)
    try:
        async with held.transaction():
            await held.execute(lock, first)
            store = await open_store()
            writing = asyncio.create_task(store.driver.run(start))
            while not await held.fetch(WAITS, database):  # noqa: ASYNC110 — it is in the database
                await asyncio.sleep(0.01)
            await held.execute(f"{lock} nowait", second)
        await writing
    finally:
        await held.close()
        await execute(url, f'alter database "{database}" reset all')


class Between(Steps):
    """Takes the steps of operations. Something happens before the second one."""

    def __init__(self, happens: Happens) -> None:
        super().__init__()
        self._happens = happens
        self._taken = 0

    async def _look(self, db: Db, step: LookStep, run: Run) -> Value:
        await self._count()
        return await super()._look(db, step, run)

    async def _find(self, db: Db, step: FindStep, run: Run) -> tuple[Value, ...]:
        await self._count()
        return await super()._find(db, step, run)

    async def _count(self) -> None:
        self._taken += 1
        if self._taken == 2:
            await self._happens()


async def test_an_end_that_lands_while_it_is_repeated_is_the_same_end(
    postgres: PostgresStore, ada: Player
) -> None:
    turn = await ada.open("trip")
    await turn.answer()
    start = await ending(turn)
    row = await postgres.engine.run(lambda db: Between(turn.end).take(db, start()))
    assert row == await turn.row()


async def test_a_turn_that_is_opened_while_it_is_looked_for_is_open(
    postgres: PostgresStore, ada: Player, ben: Player
) -> None:
    turn = await ada.open("trip")
    await turn.answer()
    start = await opening(turn)
    waiting = await postgres.queued(limit=1)
    theirs = partial(ben.open_queued, waiting[0].turn_id)
    outcome = await postgres.engine.run(lambda db: Between(theirs).take(db, start()))
    assert isinstance(outcome, Busy)


# ── rows as they were read ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("prepare", [beginning, opening])
async def test_a_node_whose_time_is_up_when_it_writes_begins_nothing(
    ada: Player, ben: Player, prepare: Callable[[Playing], Awaitable[Start[Any]]]
) -> None:
    turn = await ada.open("trip")
    await turn.answer()
    start = await prepare(turn)
    late = partial(ben.store.renew, ada.node, ttl_ms=0)
    assert not await is_written(ada, start, though=late)


async def test_a_known_session_does_not_make_a_node_live(ada: Player, ben: Player) -> None:
    await ada.play("trip")
    await ben.store.renew(ada.node, ttl_ms=0)
    assert not isinstance(await ada.begin("trip", "And then?"), Started)


async def test_a_failed_key_that_another_has_taken_up_is_not_taken_up(
    ada: Player, ben: Player
) -> None:
    turn = await ada.open("first", "Hello", key="once", request_hash=b"same")
    await turn.end("model_error")
    ask = await ada.ask("mine", "Hello", key="once", request_hash=b"same")
    theirs = partial(ben.begin, "theirs", "Hello", key="once", request_hash=b"same")
    assert not await is_written(ada, partial(turns.begin, ask), though=theirs)
    assert isinstance(await ada.store.begin(ask), Joined)


async def test_a_key_that_leads_elsewhere_since_is_not_moved_to_a_continuation(
    url: str, ada: Player
) -> None:
    """Such as one whose time was up: it was removed, and somebody has sent it again."""
    turn = await ada.break_off("trip", key="once", request_hash=b"same")
    ask = await ada.ask("trip", continues=turn.turn_id)
    taken = "update holdfast.idempotency set state = 'running', turn_id = 'turn_of_others'"
    elsewhere = partial(execute, url, taken)
    assert not await is_written(ada, partial(turns.begin, ask), though=elsewhere)


async def test_a_holder_that_has_come_back_keeps_its_turn(
    url: str, ada: Player, ben: Player
) -> None:
    turn = await ada.open("trip")
    await ada.renew(ttl_ms=0)
    await execute(url, f"update holdfast.node set since_ms = 0 where node_id = '{ben.node}'")
    start = partial(
        nodes.takeover,
        ACME,
        turn.session_id,
        node=ben.node,
        nonce="theirs",
        turn_id=None,
        ignored_cancel=False,
    )
    assert not await is_written(ben, start, though=ada.renew)


async def test_a_node_is_renewed_from_what_it_was_last(ada: Player, ben: Player) -> None:
    start = partial(nodes.renew, ada.node, ttl_ms=1_000)
    assert not await is_written(ada, start, though=partial(ben.store.renew, ada.node, ttl_ms=0))


async def test_what_is_revoked_already_is_not_revoked_again(ada: Player, ben: Player) -> None:
    grant = granted(ada.mint)
    key = ApiKeyRow(
        key_id=ada.mint(KeyId), tenant=ACME, name="laptop", scopes=("read",), digest=b"secret"
    )
    await ada.store.put_grant(grant)
    await ada.store.put_api_key(key)
    start = partial(access.revoke_grant, ACME, grant.grant_id)
    theirs = partial(ben.store.revoke_grant, ACME, grant.grant_id)
    assert not await is_written(ada, start, though=theirs)
    again = partial(access.revoke_api_key, key.key_id)
    assert not await is_written(ada, again, though=partial(ben.store.revoke_api_key, key.key_id))


async def test_nothing_is_forked_from_a_session_that_is_gone(ada: Player, ben: Player) -> None:
    turn = await ada.play("trip")
    fresh = ada.mint(SessionId)
    start = partial(sessions.fork, ACME, turn.session_id, version=Version(1), fresh=fresh)
    gone = partial(ben.store.remove, ACME, turn.session_id)
    assert not await is_written(ada, start, though=gone)


async def test_no_blob_is_put_into_a_session_that_is_gone(ada: Player, ben: Player) -> None:
    turn = await ada.play("trip")
    start = partial(sessions.put_blob, ACME, turn.session_id, b"picture")
    assert not await is_written(ada, start, though=partial(ben.store.remove, ACME, turn.session_id))


@pytest.mark.parametrize("what", ["another was first", "it is gone"])
async def test_a_step_of_the_index_is_written_to_a_session_that_stands_where_it_stood(
    ada: Player, ben: Player, what: str
) -> None:
    turn = await ada.play("trip")
    assert isinstance(ada.store, PostgresStore)
    plan = await ada.store._read(partial(search.plan, bytes_max=1000))

    async def happens() -> None:
        if what == "it is gone":
            await ben.store.remove(ACME, turn.session_id)
        else:
            await ben.store.index()

    assert not await is_written(ada, partial(search.take, plan), though=happens)
    assert await chunks(ada.store) == (0 if what == "it is gone" else 2)


async def test_a_turn_does_not_begin_anew_because_its_session_was_indexed(
    ada: Player, ben: Player
) -> None:
    """The index is about what was committed before, and moves no stamp."""
    await ada.play("trip")
    ask = partial(turns.begin, await ada.ask("trip", "And then?"))
    assert await is_written(ada, ask, though=ben.store.index)
    assert await chunks(ada.store) == 2


async def chunks(store: Store) -> int:
    """How many chunks the index has: of each session its name, and its items."""
    assert isinstance(store, PostgresStore)
    counted = compiled("chunks", "select count(*) from holdfast.search_chunk")
    ((count,),) = await store.engine.run(lambda db: db.fetch(counted, {}))
    return int(count)


# ── what was to go ───────────────────────────────────────────────────────────────────────────

LATER = Horizon(seen_ms=2 * 10**14)
"""By which everything is old."""


async def test_a_key_that_was_taken_up_again_does_not_go(url: str, ada: Player) -> None:
    await ada.play("trip", key="once")
    taken = partial(execute, url, "update holdfast.idempotency set state = 'running'")
    assert not await is_written(ada, partial(retention.claims, LATER, limit=9), though=taken)


async def test_a_node_that_has_come_back_does_not_go(ada: Player) -> None:
    start = partial(retention.nodes, LATER, limit=9)
    assert not await is_written(ada, start, though=ada.renew)


@pytest.mark.parametrize("step", [retention.stray_blobs, retention.unnamed_blobs])
async def test_bytes_that_are_put_again_do_not_go(
    url: str, ada: Player, ben: Player, step: Callable[..., Operation[int]]
) -> None:
    is_stray = step is retention.stray_blobs
    session_id = ada.mint(SessionId) if is_stray else (await ada.play("trip")).session_id
    await ada.store.put_blob(ACME, session_id, b"picture")
    await execute(url, "update holdfast.blob set noticed_ms = 1")
    again = partial(ben.store.put_blob, ACME, session_id, b"picture")
    assert not await is_written(ada, partial(step, LATER, limit=9), though=again)


async def test_what_another_node_has_removed_is_not_removed_again(ada: Player, ben: Player) -> None:
    for name in ("one", "two"):
        await ada.discard(name)

    async def theirs() -> None:
        assert isinstance(ben.store, PostgresStore)
        await ben.store.driver.run(partial(retention.discarded_turns, LATER, limit=1))

    start = partial(retention.discarded_turns, LATER, limit=9)
    assert not await is_written(ada, start, though=theirs)
    assert (await ada.store.stats()).turns_discarded == 1


async def test_a_deleted_session_does_not_go_while_a_session_is_restored_that_reads_it(
    ada: Player, ben: Player, url: str
) -> None:
    parent, fork = (await ada.play("trip")).session_id, ada.mint(SessionId)
    await ada.store.fork(ACME, parent, version=Version(1), fresh=fork)
    dump = await ada.store.dump(ACME, fork)
    assert dump is not None
    await ada.store.remove(ACME, parent)
    forget = (
        f"delete from holdfast.session where id = '{fork}'",
        f"delete from holdfast.session_past where session_id = '{fork}'",
    )
    await execute(url, *forget)
    place = retention.SessionPlace(tenant=ACME, session_id=parent)
    start = partial(retention.clear_session, place, LATER, limit=99)
    assert not await is_written(ada, start, though=partial(ben.store.restore, ACME, dump))
    assert isinstance(ada.store, PostgresStore)
    assert await ada.store.driver.run(start) == 0, "it is read"
    assert len((await ada.snapshot(fork)).items) == 2

    # And the other way round: what is restored reads nothing that has begun to go.
    await execute(url, *forget)
    assert not await is_written(
        ada, partial(arrivals.restore, ACME, dump), though=partial(ben.store.prune, limit=1)
    )
    assert isinstance(await ada.store.restore(ACME, dump), RestoreRefused)


async def test_a_line_in_which_a_turn_has_begun_does_not_go(ada: Player, ben: Player) -> None:
    session_id = (await ada.play(None)).session_id
    place = retention.SessionPlace(tenant=ACME, session_id=session_id)
    start = partial(retention.remove_line, place, LATER, limit=9)
    assert not await is_written(ada, start, though=partial(ben.open, session_id))
    assert isinstance(ada.store, PostgresStore)
    await ada.store.driver.run(start)
    row = await ada.store.session(ACME, session_id)
    assert row is not None and row.state == "live"

    # Nor one in which a turn was played and has ended.
    played = (await ada.play(None)).session_id
    row = await ada.store.session(ACME, played)
    assert row is not None
    month_ms = int(limits.anonymous_keep_s * 1000)
    before = Horizon(seen_ms=row.active_ms + month_ms - 1)
    place = retention.SessionPlace(tenant=ACME, session_id=played)
    await ada.store.driver.run(partial(retention.remove_line, place, before, limit=9))
    row = await ada.store.session(ACME, played)
    assert row is not None and row.state == "live"


async def test_a_clock_is_looked_at_from_what_was_seen_last(ada: Player, ben: Player) -> None:
    await ada.store.prune()
    start = partial(retention.look_at_clock, trust_clock=False)
    assert not await is_written(ada, start, though=ben.store.prune)


async def test_rows_that_are_damaged_do_not_delay_what_goes(url: str, ada: Player) -> None:
    for name in ("one", "two"):
        await ada.discard(name)
        session_id = (await ada.play(f"trip-{name}", key=name)).session_id
        await ada.store.put_blob(ACME, session_id, b"picture")
        await ada.store.remove(ACME, session_id)
    await execute(
        url,
        "update holdfast.session set settings = '{', lineage = '{' where state = 'deleted'",
        "update holdfast.turn set turn_id = 'none' || turn_id, agent = '\\xff' where state = 'discarded'",
        "update holdfast.idempotency set turn_id = 'none'",
        "update holdfast.node set node_id = 'none'",
    )
    assert isinstance(ada.store, PostgresStore)
    for step in retention.STEPS:
        await ada.store.driver.run(partial(step, LATER, limit=9))
    while (await ada.store.prune(limit=3)).more:
        pass
    stats = await ada.store.stats()
    assert (stats.turns_discarded, stats.items, await ada.store.nodes()) == (0, 0, ())


async def test_nodes_that_prune_at_once_remove_everything_once(
    open_store: Open, ada: Player
) -> None:
    for n in range(12):
        await ada.discard(f"talk-{n}")
        await ada.store.remove(ACME, (await ada.play(f"trip-{n}", key=f"k{n}")).session_id)
    stores = [await open_store() for _ in range(4)]
    counts = await asyncio.gather(
        *(
            each.driver.run(partial(step, LATER, limit=3))
            for each in stores * 4
            for step in (retention.discarded_turns, retention.claims)
        )
    )
    assert sum(counts) == 24
    while sum(
        [each.rows for each in await asyncio.gather(*(each.prune(limit=7) for each in stores))]
    ):
        pass
    assert await ada.store.prune() == Pruned(rows=0, more=False)
    stats = await ada.store.stats()
    assert (stats.turns_discarded, stats.turns_committed, stats.items) == (0, 0, 0)


# ── what is known, and what it is not used for ───────────────────────────────────────────────


async def test_a_key_leads_elsewhere_though_what_it_meant_is_known_again(ada: Player) -> None:
    old = (await ada.play("trip")).session_id
    fresh = ada.mint(SessionId)
    await ada.store.bind(ACME, SessionKey("trip"), fresh=fresh)
    await ada.play(old, "Nobody calls this by its name any more")
    ask = await ada.ask(old, "And then?")
    named = msgspec.structs.replace(ask, target=ByKey(key=SessionKey("trip")))
    assert isinstance(ask.target, ById)
    assert not isinstance(await ada.store.begin(named), Started)
    assert isinstance(await ada.store.begin(ask), Started)


async def test_a_key_that_is_known_breaks_no_statement(ada: Player, asked: Asked) -> None:
    await ada.play("trip")
    await ada.play("work", key="once", request_hash=b"same")
    again = await ada.ask("trip", "And then?", key="once", request_hash=b"same")
    asked.clear()
    await ada.store.begin(again)
    assert "write" not in asked.names


async def test_what_is_known_is_known_for_once(postgres: PostgresStore, ada: Player) -> None:
    turn = await ada.open("trip")
    assert [each.session.id for each in postgres.driver.cache] == [turn.session_id]
    assert isinstance(await ada.begin("trip", "Me too"), Busy)
    assert [*postgres.driver.cache] == []


async def test_no_refusal_comes_of_what_was_known(ada: Player, ben: Player) -> None:
    """A turn that began elsewhere is gone on with here, where its session was known to be free."""
    await ada.play("trip")
    turn = await ben.open("trip", "And then?")
    n, records = turn.records(ev.StepStarted())
    await ada.store.append(turn.fence, n=n, records=records)
    assert len(await ada.store.journal(ACME, turn.turn_id)) == 2


async def test_no_two_writes_of_one_session_go_in_one_statement() -> None:
    sent: list[list[str]] = []
    go_on = asyncio.Event()

    class AtOnce:
        timeout_s = 10.0

        async def run(self, work: Callable[[Db], Awaitable[Any]], *, timeout_s: float) -> Any:
            await go_on.wait()
            return await work(cast("Db", SimpleNamespace(was_lost=False)))

    async def note(db: Db, group: Sequence[str]) -> list[bool | None]:
        sent.append(list(group))
        return [True] * len(group)

    calls = groups.StatementGroup[str, bool](
        cast("PostgresEngine", AtOnce()), write=note, key=str, size=len, at_once=1
    )
    names = ("first", "same", "other", "same")
    tasks = [asyncio.create_task(calls.ask(each)) for each in names]
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(10):
        assert all(await asyncio.gather(*tasks))
    assert sent == [["first"], ["same", "other"], ["same"]]
