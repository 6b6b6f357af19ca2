"""Corners of search that only PostgreSQL has; the contract suite has the rest. Plans are in test_plans.py."""

from __future__ import annotations

import pytest

from holdfast.store.postgres import reading, search
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.search import ANYTHING, VECTOR_BYTES_MAX, WORD_EXTRA_BYTES
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.tables import compiled
from holdfast.store.searching import parse_query
from tests.store.builders import ACME, Player

WORDS = [f"w{number:05}" for number in range(VECTOR_BYTES_MAX // (WORD_EXTRA_BYTES + 16))]
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


async def test_what_lies_further_back_than_is_read_ahead_is_found(
    postgres: PostgresStore, ada: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends of some spans are read together, and the rest of each as it is needed."""
    monkeypatch.setattr(search, "MESSAGES_AHEAD", 3)
    monkeypatch.setattr(search, "SPANS_AT_ONCE", 2)
    monkeypatch.setattr(search, "PAGE", 4)
    monkeypatch.setattr(reading, "NAMED_AT_ONCE", 3)
    for number in range(5):
        await ada.play(f"trip-{number}", "oslo in june", f"bergen {number}")
        for _ in range(number):
            await ada.play(f"trip-{number}", "and then", "home")
            await postgres.index()
    everything = [f"trip-{number}" for number in (4, 3, 2, 1, 0)]
    assert await found(postgres, "june oslo") == everything
    assert await found(postgres, "bergen 3") == ["trip-3"]
    assert await found(postgres, "oslo bergen") == []
    while (await postgres.index()).more:
        pass
    assert await found(postgres, "june oslo") == everything
    assert await found(postgres, "bergen 2") == ["trip-2"]
