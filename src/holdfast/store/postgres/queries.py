"""Statements as PostgreSQL takes them.

What people and models say is UTF-8 in bytea because PostgreSQL's text cannot hold U+0000.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from holdfast.core.codec import Value
from holdfast.store.sql.dialects import POSTGRES

Column: TypeAlias = str | int | bytes | bool | None
Bound: TypeAlias = Column | Sequence[Column]
Bindings: TypeAlias = Mapping[str, Bound]
Row: TypeAlias = Sequence[Any]
"""As asyncpg gives it: the columns in their order."""


def utf8(text: str) -> bytes:
    """Text from people and models, as a column."""
    return text.encode()


NOW = POSTGRES.spellings["now"]
"""The time when this is reached, not when the transaction began: a statement may have waited before."""

_NAME = re.compile(r"(?<![:\w]):([a-z_]\w*)")


class PostgresQuery(Value):
    """A statement with numbered parameters, and their names in that order."""

    name: str
    sql: str
    names: tuple[str, ...]

    def arguments(self, bindings: Bindings) -> tuple[Bound, ...]:
        return tuple([bindings[name] for name in self.names])


def compiled(name: str, text: str) -> PostgresQuery:
    """A named query as PostgreSQL takes it: the time spelled out, `:names` as `$1`, `$2` and so on."""
    names: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    sql = _NAME.sub(numbered, text.replace("{now}", NOW))
    return PostgresQuery(name=name, sql=sql, names=tuple(names))
