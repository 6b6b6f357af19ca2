"""The two ways in which databases want the same SQL. The files in `store/sql` are written for both:

@turn               the table, in our schema where there is one
{turn}, t.{turn}    its columns, in the order of the fields
:since::bigint      a value and its type, which PostgreSQL has to be told where it cannot know it
:agent::words       what people and models say: UTF-8 in bytes for PostgreSQL, whose text cannot hold U+0000
{each ids}          the values of the list `:ids`, as `ids.value`
{now}               the time when this is reached
{true} {false}      as indexes were made for them
{bytes b.digest}    a text in bytes
{instr}(a, b)       where bytes are found in others, from 1 on
{indexed turn_x}    an index that SQLite would not choose by itself
{anything}          what the question says that it stands for; see `Question.words`
{then}              joins what is found after what stands before it, which SQLite is told and PostgreSQL knows
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from holdfast.store.queries import load_queries

QUESTIONS = load_queries(*sorted((Path(__file__).parent / "sql").glob("*.sql")))

NO_WORDS: Mapping[str, str] = MappingProxyType({})

_TABLE = re.compile(r"@(\w+)")
_TYPE = re.compile(r"::(\w+)(\[\])?")
_SAID = re.compile(r"\{(\w+)(?: ([\w.]+))?\}")


class Dialect(Struct, frozen=True, kw_only=True):
    """How a home spells what is written for all of them."""

    schema: str
    typed: bool
    """Whether values have types."""
    spellings: dict[str, str]
    """By word; a `?` in it is what the word is said of."""

    def spelled(self, text: str, words: Mapping[str, str] = NO_WORDS) -> str:
        for word, meaning in words.items():
            text = text.replace(f"{{{word}}}", meaning)
        text = _SAID.sub(self._said, _TABLE.sub(rf"{self.schema}\1", text))
        return _TYPE.sub(self._type, text)

    def _said(self, found: re.Match[str]) -> str:
        return self.spellings[found[1]].replace("?", found[2] or "")

    def _type(self, found: re.Match[str]) -> str:
        name = "bytea" if found[1] == "words" else found[1]
        return f"::{name}{found[2] or ''}" if self.typed else ""


SQLITE = Dialect(
    schema="",
    typed=False,
    spellings={
        "each": "json_each(:?) ?",
        "now": ":now_ms",
        "true": "1",
        "false": "0",
        "bytes": "cast(? as blob)",
        "instr": "instr",
        "indexed": "indexed by ?",
        "then": "cross join",
    },
)

POSTGRES = Dialect(
    schema="holdfast.",
    typed=True,
    spellings={
        "each": "unnest(:?::text[]) as ? (value)",
        "now": "coalesce(:now_ms::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)",
        "true": "true",
        "false": "false",
        "bytes": "convert_to(?, 'UTF8')",
        "instr": 'pg_catalog."position"',
        "indexed": "",
        "then": "join",
    },
)
