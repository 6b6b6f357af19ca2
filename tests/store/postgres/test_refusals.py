"""A database that refuses for a moment, in ways that we do not know: all that lives on it comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from holdfast import limits
from holdfast.errors import StoreFault
from holdfast.observe.supervisor import TaskSupervisor
from holdfast.sessions.manual_turns import nobody_plays, played
from holdfast.sessions.sessions import Sessions
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore

SOON_S = 60.0

EVERYTHING = {"heart", "signals", "sweeper", "indexer", "pruner"}

REFUSALS = {
    "a privilege is taken away": (
        "revoke all on all tables in schema holdfast from clerk",
        "grant all on all tables in schema holdfast to clerk",
        EVERYTHING,
    ),
    "the tables are somewhere else": (
        "alter schema holdfast rename to elsewhere",
        "alter schema elsewhere rename to holdfast",
        EVERYTHING,
    ),
    "an internal error": (
        """
        create function holdfast.break() returns trigger language plpgsql as
        $$ begin raise 'could not open relation' using errcode = 'XX000'; end $$;
        create trigger breaks before insert or update on holdfast.node
        for each row execute function holdfast.break()
        """,
        "drop function holdfast.break() cascade",
        {"heart"},
    ),
}


@pytest.fixture
async def admin(url: str) -> AsyncIterator[asyncpg.Connection]:
    """The owner of the tables. `clerk` may use them, and is no owner, so that this can be taken away."""
    await (await PostgresStore.open(parse_address(url))).close()
    connection = await asyncpg.connect(url)
    await connection.execute(
        "do $$ begin create role clerk login; exception when duplicate_object or unique_violation then null; end $$; "
        "grant usage on schema holdfast to clerk; "
        "grant all on all tables in schema holdfast to clerk; "
        "grant all on all sequences in schema holdfast to clerk"
    )
    yield connection
    await connection.close()


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("index_s", "prune_s", "sweep_s", "sweep_count_s", "signal_poll_s"):
        monkeypatch.setattr(limits, name, 0.01)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():  # noqa: ASYNC110 — what is waited for is in threads and in the database
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_all_that_lives_on_a_database_comes_back_after_a_refusal(
    refusal: str, url: str, admin: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """A turn that runs meanwhile is not even lost: nobody has taken it for dead."""
    refuse, relent, affected = REFUSALS[refusal]
    parts = urlsplit(url)
    as_clerk = urlunsplit(parts._replace(netloc=f"clerk@{parts.hostname}:{parts.port}"))
    supervisor = TaskSupervisor()
    store = await PostgresStore.open_existing(parse_address(as_clerk))
    try:
        async with Sessions(
            store,
            nobody_plays,
            heart_in_thread=True,
            supervisor=supervisor,
            lease_ttl_s=3600.0,
            lease_renew_s=0.01,
        ) as sessions:
            async with played(sessions, "trip", "Oslo?") as turn:
                await admin.execute(refuse)
                if refusal != "an internal error":
                    with pytest.raises(StoreFault, match="42"):
                        await store.tenants()
                await until(lambda: affected <= set(supervisor.failing))
                await admin.execute(relent)
                await until(lambda: not supervisor.failing)
                await turn.say("Cold.")
            async with played(sessions, "trip", "Bergen?") as turn:
                await turn.say("Wet.")
    finally:
        await store.close()
    traced = {each.message for each in caplog.records if each.exc_info}
    assert traced == {f"{name} failed unexpectedly" for name in affected}
