"""Queries have names and sentences, and mistakes show when they are loaded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from holdfast.store.sql import tables
from holdfast.store.sql.queries import load_queries, parse_queries
from holdfast.store.sql.tables import TABLES

STORE = Path(tables.__file__).parents[1]
SQL = tuple(STORE.rglob("sql/*.sql"))

GOOD = """\
-- Queries about sessions.
-- They are short.

-- find_session
-- The session with this id, or no row.
select *
  from session  -- one of many; really
 where id = :id;

-- drop_session
-- Forget a session;
-- its turns go with it.
delete from session where id = :id;
"""


def test_each_query_has_its_name_and_its_sql_alone() -> None:
    queries = parse_queries(GOOD)
    assert list(queries) == ["find_session", "drop_session"]
    assert queries["drop_session"] == "delete from session where id = :id"
    assert queries["find_session"].startswith("select *\n  from session")
    assert queries["find_session"].endswith("where id = :id")


def test_columns_are_spelled_out() -> None:
    text = "-- one\n-- It is.\nselect {seal_key}, k.{session_key}, {now} from x;"
    assert parse_queries(text)["one"] == (
        'select key_id,secret, k.tenant,k."key",k.session_id,k.generation,k.standing, {now} from x'
    )


@pytest.mark.parametrize("file", sorted(SQL), ids=lambda file: f"{file.parts[-3]}/{file.name}")
def test_no_query_lists_the_columns_of_a_row(file: Path) -> None:
    """A new column is one line in `rows.py`."""
    text = re.sub(r'[\s"]', "", file.read_text())
    for before in ("", ":", *set(re.findall(r"\b\w+\.", text))):
        for table in TABLES.values():
            listed = ",".join(before + name for name in table.names)
            assert len(table.names) == 2 or listed not in text, f"write {{{table.name}}}"


def test_no_two_operations_list_the_same_columns() -> None:
    """The columns of a change are listed once, where its values are made. A row's own constructor lists all of them."""
    places: dict[tuple[str, frozenset[str]], list[str]] = {}
    for file in sorted(STORE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            named = frozenset(_names_in(node))
            for table in TABLES.values():
                columns = named - {*table.key}
                if len(columns) >= 3 and named <= {*table.names}:
                    where = f"{file.relative_to(STORE)}:{getattr(node, 'lineno', 0)}"
                    places.setdefault((table.name, columns), []).append(where)
    assert [each for each in places.items() if len(each[1]) > 1] == []


def _names_in(node: ast.AST) -> Iterator[str]:
    """What may be names of columns: the words in a tuple, the keys of a dictionary, the words and keywords of a call."""
    match node:
        case ast.Dict(keys=words) | ast.Tuple(elts=words) | ast.List(elts=words):
            yield from _words(words)
        case ast.Call(func=called, args=words, keywords=given):
            name = ast.unparse(called).rpartition(".")[2]
            if name.islower() and name != "over":  # a proof covers columns; it does not write them
                yield from _words(words)
                yield from (each.arg for each in given if each.arg)


def _words(nodes: Iterable[ast.AST | None]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("select 1;", "queries:1: neither"),
        ("-- A sentence only.\nselect 1;", "queries:1: neither"),
        ("-- one\nselect 1;", "queries:1: neither"),
        ("-- one\n-- It is.\nselect 1;\n\n-- one\n-- Again.\nselect 2;", "queries:5: .* is taken"),
        ("-- one\n-- It is.\nselect 1;\nselect 2;", "queries:1: neither"),
        ("-- one\n-- It is.\n\n-- two\n-- It is.\nselect 2;", "queries:1: neither"),
        ("-- one\n-- It is.\nselect 1\n\n-- two\n-- It is.\nselect 2;", "queries:1: neither"),
        ("-- one\n-- It is.\nselect 1;\n\nwhere true;", "queries:5: neither"),
    ],
)
def test_a_mistake_is_an_error_at_load(text: str, because: str) -> None:
    with pytest.raises(ValueError, match=because):
        parse_queries(text)


def test_files_are_joined_and_share_no_name(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sql", tmp_path / "two.sql"
    one.write_text("-- one\n-- The first.\nselect 1;\n")
    two.write_text("-- two\n-- The second.\nselect 2;\n")
    assert dict(load_queries(one, two)) == {"one": "select 1", "two": "select 2"}

    two.write_text("-- one\n-- Again.\nselect 2;\n")
    with pytest.raises(ValueError, match=r"two\.sql: the query 'one' is in another file"):
        load_queries(one, two)
