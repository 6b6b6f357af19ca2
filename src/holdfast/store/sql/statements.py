"""The SQL statements that looks and finders are compiled to, for SQLite and PostgreSQL alike.

`:name` is a given value, and a schema may come before a table. Constants are written into the statement, because a
partial index is used only where the statement names its constant.
"""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase
from typing import Any

from holdfast.store import steps
from holdfast.store.sql.tables import SESSIONS, Column, Table


def looking(
    look: steps.Look[Any], *, schema: str = "", now: str | None = None, stamped: bool = False
) -> str:
    """The statement of a look. It always returns one row; `now`, if given, is its first column.

    `stamped`: after the columns of a session comes its stamp.
    """
    columns = [] if now is None else [now]
    joins: list[str] = []
    for name, part in look.parts.items():
        if isinstance(part, steps.One):
            alias = _alias(look, name)
            columns.append(part.table.listed(alias))
            if stamped and part.table.name == SESSIONS.name:
                columns.append(f"{alias}.stamp")
            where = _conditions(part, look, alias=alias)
            joins.append(f"left join {schema}{part.table.name} {alias} on {where}")
        else:
            columns.append(_single(part, look, schema))
    return " ".join([f"select {', '.join(columns)} from (select 1) looked", *joins])


def _alias(look: steps.Look[Any], part: str) -> str:
    """One letter: SQLite's driver reads the whole text of a statement each time it looks it up in its cache."""
    return ascii_lowercase[list(look.parts).index(part)]


def _single(part: steps.Part, look: steps.Look[Any], schema: str) -> str:
    where = f"from {schema}{part.table.name} where {_conditions(part, look)}"
    match part:
        case steps.RowPresence():
            return f"exists (select 1 {where})"
        case steps.Field(column=column):
            return f"(select {part.table.by_name[column].quoted} {where})"
        case steps.LastNumber(column=column):
            return f"(select max({part.table.by_name[column].quoted}) {where})"
        case _:
            raise AssertionError(part)


def _conditions(part: steps.Part, look: steps.Look[Any], *, alias: str = "") -> str:
    return " and ".join(
        f"{_named(part.table, column, alias)} = {_sourced(sources, look)}"
        for column, sources in part.where.items()
    )


def _sourced(sources: tuple[steps.Source, ...], look: steps.Look[Any]) -> str:
    spelled = [_spelled(each, look) for each in sources]
    return spelled[0] if len(spelled) == 1 else f"coalesce({', '.join(spelled)})"


def _spelled(source: steps.Source, look: steps.Look[Any] | None = None) -> str:
    match source:
        case steps.GivenValue(name=name):
            return f":{name}"
        case steps.FoundColumn(part=part, column=column):
            assert look is not None
            return f"{_alias(look, part)}.{look.parts[part].table.by_name[column].quoted}"
        case None:
            return "null"
        case bool():
            return "true" if source else "false"
        case int():
            return str(source)
        case _:
            assert source.isidentifier(), "constants are words of our own"
            return f"'{source}'"


def finding(
    finder: steps.Finder[Any],
    above: bool,
    upto: bool,
    limit: bool,
    *,
    schema: str = "",
    cast: Callable[[Column], str] = lambda column: "",
    stamped: bool = False,
) -> str:
    """The statement of a finder; `above`, `upto` and `limit` say which of these bounds it has.

    `cast` gives the type of a value that may be null.
    """
    table, selected = finder.table, finder.selected
    mine, theirs = ("x", "o") if finder.of else ("", "")
    conditions = [
        f"{_named(selected, column, theirs)} {'is' if source is None else '='} {_spelled(source)}"
        for column, source in finder.where.items()
    ]
    conditions += [
        f"{_named(table, column, mine)} <> {_spelled(value)}"
        for column, value in finder.unlike.items()
    ]
    for column in map(table.by_name.__getitem__, finder.choice):
        given, own = f":{column.name}", _named(table, column.name, mine)
        conditions.append(f"({given}{cast(column)} is null or {own} = {given})")
    if finder.over is not None:
        over = _named(table, finder.over, mine)
        conditions += [f"{over} > :above"] * above + [f"{over} <= :upto"] * upto
    columns = table.listed(mine) + (", stamp" if stamped and table is SESSIONS else "")
    where = f" where {' and '.join(conditions)}" if conditions else ""
    ordered = [_ordered(_named(table, name.lstrip("-"), mine), name) for name in finder.order]
    order = f" order by {', '.join(ordered)}" if ordered else ""
    bound = " limit :limit" if limit else ""
    return f"select {columns} from {_source(finder, schema)}{where}{order}{bound}"


def _source(finder: steps.Finder[Any], schema: str) -> str:
    hint = f" indexed by {finder.index}" if finder.index and not schema else ""
    if finder.of is None:
        return f"{schema}{finder.table.name}{hint}"
    owner, columns = finder.of
    same = " and ".join(
        f"{_named(finder.table, column, 'x')} = {_named(owner, column, 'o')}" for column in columns
    )
    # SQLite begins with the table on the left of a cross join; PostgreSQL has statistics to choose by.
    join = "join" if schema else "cross join"
    return f"{schema}{owner.name} o {join} {schema}{finder.table.name} x{hint} on {same}"


def _named(table: Table[Any], column: str, alias: str) -> str:
    quoted = table.by_name[column].quoted
    return f"{alias}.{quoted}" if alias else quoted


def _ordered(quoted: str, name: str) -> str:
    return f"{quoted} desc" if name.startswith("-") else quoted
