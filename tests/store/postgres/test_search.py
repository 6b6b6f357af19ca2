"""Corners of search that only PostgreSQL has; the contract suite has the rest. Plans are in test_plans.py."""

from __future__ import annotations

from holdfast.store.operations.search import ANYTHING, WORD_EXTRA_BYTES, WORDS_BYTES_MAX
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.queries import compiled
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.search.matches import parse_query
from tests.store.builders import ACME, Player

WORDS = [f"w{number:05}" for number in range(WORDS_BYTES_MAX // (WORD_EXTRA_BYTES + 16))]
"""With the tag before each of them, more than a tsvector holds."""

_CHUNKS = compiled(
    "chunks", "select tsvector_to_array(words) from holdfast.search_chunk where from_pos >= 0"
)


async def lexemes(store: PostgresStore) -> list[list[str]]:
    async def work(db: Db) -> list[list[str]]:
        return [row[0] for row in await db.fetch(_CHUNKS, {})]

    return await store.engine.run(work)


async def found(store: PostgresStore, typed: str) -> list[str]:
    results = await store.search(ACME, parse_query(typed))
    return [key for match in results.matches for key in match.info.keys]


async def test_a_chunk_with_more_words_than_a_tsvector_holds_is_found(
    postgres: PostgresStore, ada: Player
) -> None:
    await ada.play("long", " ".join(WORDS))
    await ada.play("short", "w00007 alone")
    while (await postgres.index()).more:
        pass
    (too_many,) = [each for each in await lexemes(postgres) if each[0].endswith(ANYTHING)]
    assert len(too_many) == 1
    assert await found(postgres, "w00007") == ["short", "long"]
    assert await found(postgres, WORDS[-1]) == ["long"]
    assert await found(postgres, f'"{WORDS[40]} {WORDS[41]}"') == ["long"]
    assert await found(postgres, f'"{WORDS[41]} {WORDS[40]}"') == []
    assert await found(postgres, "nobody") == []
    assert await found(postgres, ANYTHING) == []
