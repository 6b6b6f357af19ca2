"""A small table, and functions on it, as the store would hand them to the engine."""

from __future__ import annotations

from collections.abc import Callable

from apsw import Connection


def make_table(connection: Connection) -> None:
    connection.execute(
        "create table if not exists note (id integer primary key, text text not null unique)"
    )


def add(text: str) -> Callable[[Connection], int]:
    """Adds a note and returns its id; a text that is there already is a ConstraintError."""

    def work(connection: Connection) -> int:
        connection.execute("insert into note (text) values (?)", (text,))
        return connection.last_insert_rowid()

    return work


def texts(connection: Connection) -> list[str]:
    return [str(text) for (text,) in connection.execute("select text from note order by id")]


def count(connection: Connection) -> int:
    number = connection.execute("select count(*) from note").get
    assert isinstance(number, int)
    return number
