"""Named queries, loaded from `.sql` files.

A file is a list of queries. Each is introduced by its name and at least one sentence:

    -- find_session
    -- The session with this id, or no row.
    select * from session where tenant = :tenant and id = :id;

Comments before the first name, up to a blank line, describe the file and belong to no query.
`{session}` stands for the columns of a table in the order of its fields, `s.{session}` for those of an alias:
`sql/tables.py` lists columns, and no query does.

A name given twice, a query without name or sentence, and a name without query are errors when
the file is loaded, not when the query is first used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.store.sql.tables import TABLES

_NAME = re.compile(r"--\s*([a-z][a-z0-9_]*)\s*$")
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
    for line, block in _blocks(text):
        if not any(row and not row.startswith("--") for row in map(str.strip, block)):
            # Only comments: a heading, unless it looks like a query that lost its SQL.
            if _NAME.match(block[0]):
                raise ValueError(f"{origin}:{line}: a name without a query: {block[0]!r}")
            continue
        name, sql = _named(block, where=f"{origin}:{line}")
        if name in queries:
            raise ValueError(f"{origin}:{line}: the name {name!r} is taken")
        queries[name] = sql
    return queries


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Cut at each name and after each `;` that ends a line; with the number of the first line."""
    block: list[str] = []
    begun = 1
    ended = False
    for number, row in enumerate(text.splitlines(), start=1):
        blank = not row.strip()
        only_comments = all(line.startswith("--") for line in block)
        # A blank line ends a heading, and nothing else: queries may be spaced as they like.
        cut = ended or (blank and only_comments)
        if block and cut:
            yield begun, block
            block = []
        if blank and not block:
            continue
        if not block:
            begun = number
        block.append(row)
        ended = row.split("--", 1)[0].rstrip().endswith(";")
    if block:
        yield begun, block


def _named(block: list[str], *, where: str) -> tuple[str, str]:
    match = _NAME.match(block[0])
    if match is None:
        raise ValueError(f"{where}: a statement without a name: {block[0]!r}")
    comments = 0
    while block[comments].startswith("--"):
        comments += 1
    sentence = " ".join(row.lstrip("- ") for row in block[1:comments]).strip()
    if not sentence:
        raise ValueError(f"{where}: the query {match[1]!r} needs a sentence that says what it does")
    for row in block[comments:]:
        if _NAME.match(row):
            raise ValueError(f"{where}: the query {match[1]!r} does not end before {row!r}: no `;`")
    sql = "\n".join(block[comments:]).strip().removesuffix(";").rstrip()
    return match[1], _COLUMNS.sub(_spelled_out, sql)


def _spelled_out(found: re.Match[str]) -> str:
    alias, name = found.groups()
    table = TABLES.get(name)
    if table is None:  # a placeholder of one home
        return found[0]
    return table.listed(alias or "")
