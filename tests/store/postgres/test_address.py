"""How a URL says where a database is, and how little of it is ever shown."""

from __future__ import annotations

import pytest

from holdfast.errors import StoreUnusable
from holdfast.store.postgres.address import POOL_SIZE, parse_address, without_password


def test_our_options_are_taken_out_and_the_drivers_are_left() -> None:
    found = parse_address(
        "postgres://ada:pw@db:6432/talk?sslmode=require&pgbouncer=true&pool_size=3&timeout=2.5"
    )
    assert found.dsn == "postgresql://ada:pw@db:6432/talk?sslmode=require"
    assert (found.pgbouncer, found.pool_size, found.timeout_s) == (True, 3, 2.5)


def test_a_url_without_options_has_our_defaults() -> None:
    found = parse_address("postgresql://db/talk")
    assert (found.dsn, found.pgbouncer) == ("postgresql://db/talk", False)
    assert found.pool_size == POOL_SIZE


@pytest.mark.parametrize(
    ("said", "listens"),
    [
        ("", "postgresql://ada@db/talk"),
        ("?listen=off", None),
        ("?pgbouncer=true", None),
        (
            "?pgbouncer=true&listen=postgresql%3A%2F%2Fada%40direct%2Ftalk",
            "postgresql://ada@direct/talk",
        ),
    ],
)
def test_hints_are_listened_for_where_they_can_be_heard(said: str, listens: str | None) -> None:
    """A pooler in transaction mode passes on no notification."""
    assert parse_address(f"postgresql://ada@db/talk{said}").listen == listens


@pytest.mark.parametrize(
    "options",
    [
        "pgbouncer=maybe",
        "pool_size=0",
        "pool_size=many",
        "pool_size=nan",
        "timeout=0",
        "listen=secret",
        "timeout=-1",
    ],
)
def test_an_option_that_says_nothing_is_refused_without_the_password(options: str) -> None:
    with pytest.raises(StoreUnusable) as refused:
        parse_address(f"postgresql://ada:secret@db/talk?{options}")
    assert options.partition("=")[0] in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("place", ["db:port", "db:5432,other:port", "db:99999"])
def test_a_url_that_is_none_is_refused_without_the_password(place: str) -> None:
    with pytest.raises(StoreUnusable) as refused:
        parse_address(f"postgresql://ada:secret@{place}/talk")
    assert "secret" not in str(refused.value)


def test_a_database_may_be_on_one_of_several_servers() -> None:
    """After a fail-over the other one takes the writes."""
    url = "postgresql://ada:pw@one:5432,two:5433,three/talk?target_session_attrs=read-write"
    assert parse_address(url).dsn == parse_address(url).listen == url
    assert parse_address(url).shown == url.replace("pw", "***")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/talk", "postgresql://db/talk"),
        ("postgresql://ada@db/talk", "postgresql://ada@db/talk"),
        ("postgresql://ada:secret@db:5432/talk", "postgresql://ada:***@db:5432/talk"),
        ("postgresql://ada:se@cret@db/talk", "postgresql://ada:***@db/talk"),
        ("postgresql://ada:se/cret@db/talk", "postgresql://ada:***@db/talk"),
        ("postgresql://ada:se:cret@db/talk", "postgresql://ada:***@db/talk"),
        ("postgresql://:secret@db/talk", "postgresql://:***@db/talk"),
        (
            "postgresql:///talk?host=/run&password=secret",
            "postgresql:///talk?host=/run&password=***",
        ),
        ("postgresql:///talk?Pass%77ord=secret", "postgresql:///talk?Pass%77ord=***"),
        (
            "postgresql://db/t?listen=postgresql%3A%2F%2Fa%3Asecret%40b",
            "postgresql://db/t?listen=***",
        ),
        ("sqlite:///holdfast.db", "sqlite:///holdfast.db"),
        ("127.0.0.1:8484", "127.0.0.1:8484"),
        ("memory:", "memory:"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert "secret" not in without_password(url)
