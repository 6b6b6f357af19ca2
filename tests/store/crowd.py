"""Very many sessions, quickly: rows as turns would have left them, hash chains included, so that `verify` accepts them.

    made = crowd(sessions=100_000, turns=1_000_000)
    await fill_postgres(url, made)         # by COPY
    fill_sqlite(path, made)                # in one transaction after the other, without a sync

What people say there is drawn from a vocabulary in which some words are common and most are rare; each session also
has a word of its own (`own_word`). Search indexes are not filled: the store does that by itself, `index` by `index`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from holdfast.core.codec import encode
from holdfast.core.history import chain
from holdfast.core.items import AssistantMessage, UserMessage, plain_text
from holdfast.ids import MessageId, Minter, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.store.first_words import opening_of
from holdfast.store.operations.arrivals import restore
from holdfast.store.outcomes import Restored, SessionDump
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.compiler import stored
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.rows import ItemRow, KeyRow, SessionRow, TurnRow
from holdfast.store.sql.tables import KEYS, SESSIONS, TURNS, R, Table
from holdfast.store.sqlite.connection import ensure_log, open_writer
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.migration import load_migrations, migrate

TENANT = Tenant("local")
FIRST_MS = 1_750_000_000_000
BATCH = 1_000
VOCABULARY = 20_000

Told = Callable[[int], None]
"""How many sessions are there by now."""


def key_of(number: int) -> SessionKey:
    return SessionKey(f"crowd-{number:06}")


def own_word(number: int) -> str:
    return f"only{number:06}"


def crowd(*, sessions: int, turns: int, seed: int = 1) -> Iterator[SessionDump]:
    """So many sessions, with so many turns in all: the shortest have one, the longest twice as many as the middle."""
    dice = random.Random(seed)
    clock = FIRST_MS

    def now_ms() -> int:
        return clock

    mint = Minter(now_ms=now_ms, random_bits=dice.getrandbits)
    middle = turns / sessions
    left = turns
    for number in range(sessions):
        length = max(1, round(middle * 2 * dice.random()))
        length = min(length, left - (sessions - number - 1))
        if number == sessions - 1:
            length = left
        left -= length
        clock += 1_000
        yield _session(number, length, mint, dice, clock)


def _session(
    number: int, length: int, mint: Minter, dice: random.Random, clock: int
) -> SessionDump:
    session_id = mint(SessionId)
    link, items, turns, opening = chain.GENESIS, list[ItemRow](), list[TurnRow](), ""
    for seq in range(1, length + 1):
        turn_id = mint(TurnId)
        said = UserMessage(id=mint(MessageId), content=plain_text(_words(dice, number, seq)))
        answer = AssistantMessage(id=mint(MessageId), content=plain_text(_words(dice, number, 0)))
        opening = opening or opening_of((said,))
        bodies = encode(said), encode(answer)
        header = chain.LinkHeader(
            turn_id=turn_id, version=Version(seq), ended_by="completed", agent="butler"
        )
        link = chain.link(link, header, items=bodies, changes=())
        start = len(items)
        items += [
            ItemRow(
                tenant=TENANT,
                session_id=session_id,
                pos=start + n,
                turn_id=turn_id,
                path="",
                body=body,
            )
            for n, body in enumerate(bodies)
        ]
        turns.append(
            TurnRow(
                tenant=TENANT,
                turn_id=turn_id,
                session_id=session_id,
                base_head=Version(seq - 1),
                state="committed",
                seq=Version(seq),
                ended_by="completed",
                agent="butler",
                request_hash=bytes(32),
                start=start,
                end=len(items),
                link=link,
                acked=True,
                began_ms=clock,
                ended_ms=clock,
            )
        )
    session = SessionRow(
        tenant=TENANT,
        id=session_id,
        head=Version(length),
        length=len(items),
        link=link,
        source_key="agents/butler.yaml",
        entry_agent="butler",
        agent="butler",
        opening=opening,
        created_ms=clock,
        active_ms=clock,
    )
    return SessionDump(
        session=session,
        keys=(KeyRow(tenant=TENANT, key=key_of(number), session_id=session_id),),
        turns=tuple(turns),
        items=tuple(items),
        state=(),
        annotations=(),
    )


def _words(dice: random.Random, number: int, seq: int) -> str:
    # The third power makes the first words of the vocabulary common, and most of it rare.
    drawn = (f"word{int(VOCABULARY * dice.random() ** 3)}" for _ in range(8))
    own = own_word(number) if seq == 1 else "then"
    return " ".join((*drawn, own))


# ── into a home ──────────────────────────────────────────────────────────────────────────────


async def fill_postgres(url: str, made: Iterable[SessionDump], told: Told = lambda _: None) -> None:
    """Make the tables if there are none, copy the rows in, and let the planner look at them."""
    await (await PostgresStore.open(parse_address(url))).close()
    connection = await asyncpg.connect(url)
    try:
        count = 0
        for batch in _batches(made):
            async with connection.transaction():
                await _copy(connection, batch)
            count += len(batch)
            told(count)
        await connection.execute("vacuum analyze")
    finally:
        await connection.close()


def _bound(table: Table[R], row: R) -> dict[str, Any]:
    return {each.name: stored(each, getattr(row, each.name)) for each in table.columns}


async def _copy(connection: asyncpg.Connection[asyncpg.Record], batch: list[SessionDump]) -> None:
    sessions = [_bound(SESSIONS, each.session) for each in batch]
    keys = [_bound(KEYS, key) for each in batch for key in each.keys]
    turns = [_bound(TURNS, turn) for each in batch for turn in each.turns]
    for name, rows in (("session", sessions), ("session_key", keys), ("turn", turns)):
        await connection.copy_records_to_table(
            name,
            schema_name="holdfast",
            columns=list(rows[0]),
            records=[tuple(row.values()) for row in rows],
        )
    await connection.copy_records_to_table(
        "item",
        schema_name="holdfast",
        columns=["tenant", "session_id", "pos", "turn_id", "path", "body"],
        records=[
            (TENANT, each.session.id, item.pos, item.turn_id, "", item.body)
            for each in batch
            for item in each.items
        ],
    )


def fill_sqlite(path: Path, made: Iterable[SessionDump], told: Told = lambda _: None) -> None:
    """Make a file, and restore the sessions into it."""
    connection = open_writer(path)
    try:
        ensure_log(connection)
        migrate(connection, load_migrations())
        connection.execute("pragma synchronous = off")
        count = 0
        for batch in _batches(made):
            connection.execute("begin immediate")
            for each in batch:
                outcome = DRIVER.run(connection, restore(TENANT, each))
                assert isinstance(outcome, Restored), outcome
            connection.execute("commit")
            # Whoever opens the file next should not have to move a log of gigabytes.
            connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
            count += len(batch)
            told(count)
    finally:
        connection.close()


def _batches(made: Iterable[SessionDump]) -> Iterator[list[SessionDump]]:
    source = iter(made)
    while batch := list(islice(source, BATCH)):
        yield batch
