"""Named queries, loaded from `.sql` files.

A file is a list of queries. Each is introduced by its name and at least one sentence:

    -- find_session
    -- The session with this id, or no row.
    select * from session where tenant = :tenant and id = :id;

Blank lines are between queries, and not inside of one. A comment of its own belongs to no query.
`{session}` stands for the columns of a table in the order of its fields, `s.{session}` for those of an alias:
`sql/tables.py` lists columns, and no query does.

A name given twice, a query without name or sentence, and a name without query are errors when
the file is loaded, not when the query is first used.
"""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.store.sql.tables import TABLES

_QUERY = re.compile(
    r"-- (?P<name>[a-z][a-z0-9_]*)\n(?:--.*\n)+(?P<sql>(?!--)(?:[^;]|;(?!\n))+);"
    r"|(?!-- [a-z][a-z0-9_]*\n)--.*(?:\n--.*)*"
)
"""A query, or a comment that does not look like a query without its SQL."""
_COLUMNS = re.compile(r"(?:(\w+)\.)?\{(\w+)\}")


def load_queries(*files: Path) -> dict[str, str]:
    """Read and join query files. Raises ValueError as `parse_queries` does, and for a name in two."""
    joined: dict[str, str] = {}
    for file in files:
        found = parse_queries(file.read_text(encoding="utf-8"), origin=file.name)
        for name in found.keys() & joined.keys():
            raise ValueError(f"{file.name}: the query {name!r} is in another file, too")
        joined.update(found)
    return joined


def parse_queries(text: str, *, origin: str = "queries") -> dict[str, str]:
    """The queries in `text`. Raises ValueError, with the line, for a text of another form."""
    queries: dict[str, str] = {}
    line = 1
    for block in text.split("\n\n"):
        where = f"{origin}:{line}"
        line += block.count("\n") + 2
        form = _QUERY.fullmatch(block.strip("\n"))
        if form is None:
            raise ValueError(
                f"{where}: neither a comment nor a name, a sentence, SQL and `;`: {block!r}"
            )
        if form["name"] is None:
            continue
        if form["name"] in queries:
            raise ValueError(f"{where}: the name {form['name']!r} is taken")
        queries[form["name"]] = _COLUMNS.sub(_spelled_out, form["sql"])
    return queries


def _spelled_out(found: re.Match[str]) -> str:
    alias, name = found.groups()
    table = TABLES.get(name)
    if table is None:  # a placeholder of one home
        return found[0]
    return table.listed(alias or "")
