"""`holdfast db` on PostgreSQL: the same commands, the same words."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.migration import load_migrations
from holdfast.store.postgres.store import PostgresStore
from tests.cli.conftest import Run
from tests.postgres import execute, shared_database
from tests.store.builders import Player
from tests.store.furnishing import furnish
from tests.store.postgres.conftest import random_mint

STEP = load_migrations()[-1].number


@pytest.fixture
def url() -> str:
    return shared_database()


async def _furnish(url: str) -> None:
    store = await PostgresStore.open(parse_address(f"{url}?listen=off"))
    player = Player(store, random_mint())
    await player.renew()
    await furnish(player)
    await store.close()


def test_a_database_is_made_and_then_there_is_nothing_to_do(run: Run, url: str) -> None:
    missing = run("db", "stats", "--store", url)
    assert missing.exit_code == 2
    assert "`holdfast db migrate` makes one" in missing.stderr
    first, again = run("db", "migrate", "--store", url), run("db", "migrate", "--store", url)
    assert first.output == f"{url}: made, the tables are at step {STEP}\n"
    assert again.output == f"{url}: nothing to do, the tables are at step {STEP}\n"


def test_a_store_is_checked_counted_and_pruned(run: Run, url: str) -> None:
    asyncio.run(_furnish(url))
    clean = run("db", "verify", "--store", url)
    assert clean.exit_code == 0, clean.output
    numbers = json.loads(run("db", "stats", "--json", "--store", url).output)
    assert numbers["turns_open"] == 1
    assert numbers["bytes"] > 0
    assert run("db", "prune", "--store", url).output == "nothing to remove\n"
    copy = run("db", "backup", "copy.db", "--store", url)
    assert copy.exit_code == 2
    assert "pg_dump" in copy.stderr


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("delete from session where open_turn is null and anonymous", "row_astray"),
        ("update session_key set session_id = 'conv_00000000000000000000000000'", "key_astray"),
        ("update idempotency set state = 'running' where state = 'done'", "claim_running"),
        ("delete from session_attribute", "derived_off"),
        ("delete from session_past", "derived_off"),
        ("update item set body = '{}'", "unreadable"),
        ("update session set head = head + 1", "head_off"),
        ("delete from journal where n = 0", "journal_cut"),
    ],
)
def test_damage_is_named(run: Run, url: str, damage: str, code: str) -> None:
    asyncio.run(_furnish(url))
    asyncio.run(execute(url, "set search_path to holdfast;" + damage))
    told = run("db", "verify", "--json", "--store", url)
    assert told.exit_code == 1, told.output
    assert code in {each["code"] for each in json.loads(told.output)["findings"]}
