"""Several processes on one database, all at once. What they promise must hold whoever comes first."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import asyncpg
import pytest

from holdfast.core.history.conversation import Titled
from holdfast.core.turns import events as ev
from holdfast.errors import SessionGone, Superseded
from holdfast.ids import SessionId, SessionKey, Version
from holdfast.store.outcomes import (
    BeginOutcome,
    Busy,
    Committed,
    Joined,
    Moved,
    Signalled,
    Started,
    Taken,
    TooLate,
    Unconsumed,
)
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.queries import compiled
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.store import Store
from holdfast.store.verification.verification import Finding, verify
from tests.postgres import execute
from tests.store.builders import ACME, Player, Playing
from tests.store.postgres.conftest import LONG_MS, Open, random_mint

ROUNDS = 12
JOINS = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")


async def crowd(open_store: Open, size: int) -> list[Player]:
    """Live nodes, each with a store of its own."""
    players = [Player(await open_store(pool_size="2"), random_mint()) for _ in range(size)]
    await asyncio.gather(*(each.renew(ttl_ms=LONG_MS) for each in players))
    return players


async def is_sound(store: Store) -> None:
    assert [each async for each in verify(store) if isinstance(each, Finding)] == []


def kinds(outcomes: list[BeginOutcome]) -> Counter[type]:
    return Counter(map(type, outcomes))


async def test_first_requests_with_one_key_make_one_session(open_store: Open) -> None:
    players = await crowd(open_store, 6)
    for turn in range(ROUNDS):
        asks = [await each.ask(f"key-{turn}", "Hello") for each in players]
        outcomes = await asyncio.gather(
            *(each.store.begin(ask) for each, ask in zip(players, asks, strict=True))
        )
        found = kinds(outcomes)
        assert found[Started] == 1
        # The others were reconciled against nothing, and now there is something.
        assert found[Moved] == len(players) - 1, found
    assert len(await players[0].store.session_ids(ACME, after=None, limit=1000)) == ROUNDS
    await is_sound(players[0].store)


async def test_one_idempotency_key_is_one_turn_whatever_the_sessions(open_store: Open) -> None:
    players = await crowd(open_store, 6)
    for turn in range(ROUNDS):
        same = b"the same request"
        asks = [
            await each.ask(f"mine-{turn}-{n}", "Hello", key=f"once-{turn}", request_hash=same)
            for n, each in enumerate(players)
        ]
        outcomes = await asyncio.gather(
            *(each.store.begin(ask) for each, ask in zip(players, asks, strict=True))
        )
        assert kinds(outcomes) == {Started: 1, Joined: len(players) - 1}
    await is_sound(players[0].store)


async def test_a_failed_claim_is_taken_up_by_one(open_store: Open, ada: Player) -> None:
    players = await crowd(open_store, 6)
    same = b"the same request"
    turn = await ada.open("first", "Hello", key="once", request_hash=same)
    await turn.end("model_error")
    asks = [
        await each.ask(f"retry-{n}", "Hello", key="once", request_hash=same)
        for n, each in enumerate(players)
    ]
    outcomes = await asyncio.gather(
        *(each.store.begin(ask) for each, ask in zip(players, asks, strict=True))
    )
    assert kinds(outcomes) == {Started: 1, Joined: len(players) - 1}
    (started,) = [each for each in outcomes if isinstance(each, Started)]
    assert started.retry_of == turn.turn_id
    await is_sound(ada.store)


async def test_a_session_has_one_open_turn(open_store: Open, ada: Player) -> None:
    await ada.play("trip")
    players = await crowd(open_store, 6)
    for _ in range(ROUNDS):
        asks = [await each.ask("trip", "Me first") for each in players]
        outcomes = await asyncio.gather(
            *(each.store.begin(ask) for each, ask in zip(players, asks, strict=True))
        )
        assert kinds(outcomes) == {Started: 1, Busy: len(players) - 1}
        for player, ask, outcome in zip(players, asks, outcomes, strict=True):
            if isinstance(outcome, Started):
                turn = await player.playing(ask, outcome)
                await turn.answer()
                await turn.commit()
    assert (await ada.snapshot("trip")).version == ROUNDS + 1
    await is_sound(ada.store)


async def test_a_turn_hears_what_was_said_to_it_or_its_speaker_is_told(
    ada: Player, ben: Player
) -> None:
    """A steer that was taken in is never lost to a commit that ran beside it."""
    heard = told = 0
    for n in range(ROUNDS * 2):
        turn = await ada.open(f"talk-{n}", "Hello")
        await turn.answer()
        said, committed = await asyncio.gather(
            ben.store.signal(ACME, turn.turn_id, kind="steer", payload=b"wait"), turn.try_commit()
        )
        if isinstance(said, Signalled):
            assert isinstance(committed, Unconsumed), "it was said to a turn that has not heard it"
            heard += 1
        else:
            assert isinstance(said, TooLate)
            assert isinstance(committed, Committed)
            told += 1
    assert heard + told == ROUNDS * 2


async def test_nothing_is_written_under_a_fence_that_was_taken_over(
    ada: Player, ben: Player
) -> None:
    """What the new holder reads when it takes over is all that there will ever be of the old one."""
    for n in range(ROUNDS):
        turn = await ada.open(f"talk-{n}", "Hello")
        await ada.store.release(turn.fence)

        _, seen = await asyncio.gather(_answered(turn), _taken_over(turn, ben))
        assert len(await ben.store.journal(ACME, turn.turn_id)) == seen


async def _answered(turn: Playing) -> None:
    with suppress(Superseded):
        await turn.answer()


async def _taken_over(turn: Playing, player: Player) -> int:
    """Take a turn over, and count what its journal has then."""
    taken = await player.store.takeover(ACME, turn.session_id, node=player.node, nonce="theirs")
    assert isinstance(taken, Taken)
    return len(await player.store.journal(ACME, turn.turn_id))


async def test_a_turn_is_taken_over_by_one(open_store: Open, ada: Player) -> None:
    players = await crowd(open_store, 5)
    turn = await ada.open("trip", "Hello")
    await ada.store.release(turn.fence)
    outcomes = await asyncio.gather(
        *(
            each.store.takeover(ACME, turn.session_id, node=each.node, nonce=each.node)
            for each in players
        )
    )
    taken = [each for each in outcomes if isinstance(each, Taken)]
    assert len(taken) == 1
    assert taken[0].turn.attempt == 1, "a hand-over is no crash"


async def test_annotations_of_many_are_numbered_without_a_gap(
    open_store: Open, ada: Player
) -> None:
    session_id = (await ada.play("trip")).session_id
    players = await crowd(open_store, 6)
    await asyncio.gather(
        *(
            each.store.annotate(ACME, session_id, [(None, Titled(title=f"{n}"))])
            for n, each in enumerate(players * 4)
        )
    )
    found = await ada.store.session(ACME, session_id)
    assert found is not None
    assert found.meta_rev == 24
    await is_sound(ada.store)


async def test_a_key_that_is_reset_while_a_turn_begins_means_one_thing(
    ada: Player, ben: Player
) -> None:
    """Either the turn came first, on the old session, or it is told that the key has moved."""
    for n in range(ROUNDS):
        await ada.play(f"trip-{n}")
        ask = await ada.ask(f"trip-{n}", "Again")
        fresh = ben.mint(SessionId)
        outcome, _ = await asyncio.gather(
            ada.store.begin(ask), ben.store.bind(ACME, SessionKey(f"trip-{n}"), fresh=fresh)
        )
        assert isinstance(outcome, Started | Moved)
        if isinstance(outcome, Moved):
            assert outcome.session_id == fresh
    await is_sound(ada.store)


async def test_every_reset_of_a_key_counts(open_store: Open, ada: Player) -> None:
    await ada.play("trip")
    players = await crowd(open_store, 5)
    for _ in range(3):
        await asyncio.gather(
            *(
                each.store.bind(ACME, SessionKey("trip"), fresh=each.mint(SessionId))
                for each in players
            )
        )
    found = await ada.store.resolve(ACME, SessionKey("trip"))
    assert found is not None
    assert found.generation == 1 + 3 * len(players)


async def test_a_fork_of_a_session_that_is_deleted_meanwhile_is_whole_or_refused(
    ada: Player, ben: Player
) -> None:
    for n in range(ROUNDS):
        session_id = (await ada.play(f"trip-{n}")).session_id
        fresh = ben.mint(SessionId)

        async def clear(session_id: SessionId = session_id) -> None:
            await ada.store.remove(ACME, session_id)
            await ada.store.prune()

        forked, _ = await asyncio.gather(
            ben.store.fork(ACME, session_id, version=Version(1), fresh=fresh),
            clear(),
            return_exceptions=True,
        )
        if isinstance(forked, SessionGone):
            assert await ben.store.session(ACME, fresh) is None
        else:
            assert (await ben.snapshot(fresh)).version == 1
    await is_sound(ada.store)


async def test_a_database_is_migrated_by_one_of_those_who_start_together(
    url: str, open_store: Open, postgres: PostgresStore
) -> None:
    await postgres.engine.run(lambda db: db.script("drop schema holdfast cascade"))
    stores = await asyncio.gather(*(open_store() for _ in range(5)))
    made = [each.migrated for each in stores if each.migrated and each.migrated.before == 0]
    assert len(made) == 1
    assert (await stores[0].stats()).sessions == 0


@pytest.mark.parametrize("together", [2, 40])
async def test_appends_of_many_turns_share_statements(ada: Player, together: int) -> None:
    assert isinstance(ada.store, PostgresStore)
    turns = [await ada.open(f"talk-{n}", "Hello", replayable=True) for n in range(together)]
    before = ada.store.driver.statements
    await asyncio.gather(*(each.answer() for each in turns))
    assert ada.store.driver.statements - before <= 3
    for each in turns:
        assert len(await ada.store.journal(ACME, each.turn_id)) == 2


async def test_one_append_that_may_not_be_does_not_keep_the_others_from_being(
    ada: Player, ben: Player
) -> None:
    turns = [await ada.open(f"talk-{n}", "Hello", replayable=True) for n in range(8)]
    lost = turns[3]
    await ada.store.release(lost.fence)
    await ben.store.takeover(ACME, lost.session_id, node=ben.node, nonce="theirs")
    done = await asyncio.gather(*(each.answer() for each in turns), return_exceptions=True)
    assert isinstance(done.pop(3), Superseded)
    assert done == [None] * 7
    # The same again changes nothing, in a group as alone.
    for each in turns:
        each.n = 1
    again = [each for each in turns if each is not lost]
    rows = [await ada.store.journal(ACME, each.turn_id) for each in again]
    await asyncio.gather(
        *(
            ada.store.append(each.fence, n=row[1].n, records=row[1].records)
            for each, row in zip(again, rows, strict=True)
        )
    )
    assert [await ada.store.journal(ACME, each.turn_id) for each in again] == rows


async def test_batches_of_appends_in_any_order_do_not_lock_each_other_out(
    open_store: Open, ada: Player, url: str
) -> None:
    """Three processes write to the same journals at once, as a holder does and those who do not know yet that it was
    replaced; each has its own order. A deadlock would be tried again, and so is not seen: the server counts them."""
    database = url.rpartition("/")[2]
    # As the planner joins once there are many sessions: one after the other, in the order that they are asked in.
    await execute(url, *(f'alter database "{database}" set {each} = off' for each in JOINS))
    assert isinstance(ada.store, PostgresStore)
    stores = [ada.store, *[await open_store(pool_size="2") for _ in range(2)]]
    turns = [await ada.open(f"batch-{n}", "Hello") for n in range(96)]
    dice = random.Random(1)

    async def send(store: PostgresStore, appends: list[tuple[Playing, int, bytes]]) -> None:
        dice.shuffle(appends)
        await asyncio.gather(
            *(store.append(turn.fence, n=n, records=records) for turn, n, records in appends)
        )

    before = await deadlocks(ada.store)
    for _ in range(20):
        appends = [(turn, *turn.records(*a_step(turn))) for turn in turns]
        await asyncio.gather(*(send(store, list(appends)) for store in stores))
    for turn in turns:
        rows = await ada.store.journal(ACME, turn.turn_id)
        assert [row.n for row in rows] == [0, *range(1, 1 + 4 * 20, 4)]
    await execute(url, f'alter database "{database}" reset all')
    await asyncio.gather(*(store.close() for store in stores))  # a server counts when it is left
    await wait_until_left(url)
    after = await open_store()
    assert await deadlocks(after) == before
    await is_sound(after)


def a_step(turn: Playing) -> tuple[ev.Event, ...]:
    """The model calls a tool, and gets its result."""
    call = turn.new_call("look")
    return (
        ev.StepStarted(),
        ev.Answered(items=(call,), finish="tool_calls"),
        ev.ToolStarted(call=call.id),
        ev.ToolFinished(result=turn.result(call)),
    )


async def wait_until_left(url: str) -> None:
    """Until nobody but one is connected, and us."""
    connection = await asyncpg.connect(url)
    try:
        while True:
            others = await connection.fetchval(
                "select count(*) from pg_stat_activity where datname = current_database() "
                "and backend_type = 'client backend' and pid <> pg_backend_pid()"
            )
            if others <= 1:
                return
            await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def deadlocks(store: Store) -> int:
    assert isinstance(store, PostgresStore)

    async def work(db: Db) -> int:
        return int((await db.fetch(_DEADLOCKS, {}))[0][1])

    return await store.engine.run(work)


_DEADLOCKS = compiled(
    "deadlocks",
    "select pg_stat_clear_snapshot(), deadlocks from pg_stat_database where datname = current_database()",
)
