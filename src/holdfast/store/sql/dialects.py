"""The two ways in which databases want the same SQL. The files in `store/sql` are written for both:

@turn               the table, in our schema where there is one
{turn}, t.{turn}    its columns, in the order of the fields
:since::bigint      a value and its type, which PostgreSQL has to be told where it cannot know it
:agent::words       what people and models say: UTF-8 in bytes for PostgreSQL, whose text cannot hold U+0000
{each ids}          the values of the list `:ids`, as `ids.value`
{in ids}            is one of these values
{rows spans session_id::text start::bigint}
                    the rows of the list `:spans`, by these columns; `spans.nth` numbers them from 1 on
{found words}       the chunks `c` of the search index that have `:words`, which are a `Needed`
{size}              how many bytes the database has
{now}               the time when this is reached
{true} {false}      as indexes were made for them
{bytes b.digest}    a text in bytes
{instr}(a, b)       where bytes are found in others, from 1 on
{indexed turn_x}    an index that SQLite would not choose by itself
{anything}          what the question says that it stands for; see `Question.words`
{then}              joins what is found after what stands before it, which SQLite is told and PostgreSQL knows

and, in the steps of the tables' history, which are `store/sql/migrations` and what a home has in a folder of its own:

{name} {words} {number} {truth} {blob}
                    the types of columns
{strict} {rowless}  how SQLite keeps a table: by its types; by its key, without a number for each row
{unique}            the key of a table that SQLite numbers the rows of
sqlite|             begins a line that is SQLite's alone, as `postgres|` does one of PostgreSQL
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from holdfast.store.search.words import Needed
from holdfast.store.sql.queries import load_queries

QUESTIONS = load_queries(*sorted(Path(__file__).parent.glob("*.sql")))

_TABLE = re.compile(r"@(\w+)")
_TYPE = re.compile(r"::(\w+)(\[\])?")
_SAID = re.compile(r"\{(\w+)(?: ([\w.]+))?\}")
_ROWS = re.compile(r"\{rows (\w+)((?: \w+::\w+)+)\}")
_COLUMN = re.compile(r"(\w+)::(\w+)")
_WORDS = re.compile(r":(\w+)::words\b")


def text_of(question: str, words: Mapping[str, str]) -> str:
    """A question, with what stands for others in it."""
    text = QUESTIONS[question]
    for word, meaning in words.items():
        text = text.replace(f"{{{word}}}", meaning)
    return text


class WordIndex(Struct, frozen=True):
    """How an index of words is asked."""

    quote: str
    beginning: str
    both: str
    either: str

    def asked(self, needed: Needed) -> str:
        """No word has quotes or backslashes in it, so inside quotes it is nothing but a word."""
        quote = self.quote
        words = [f"{quote}{each}{quote}{self.beginning * prefix}" for each, prefix in needed.words]
        return f"({self.both.join(words)}){self.either}{quote}{needed.anything}{quote}"


class SqlDialect(Struct, frozen=True, kw_only=True):
    """How a home spells what is written for all of them."""

    name: str
    schema: str
    typed: bool
    """Whether values have types."""
    rows: Callable[[str, list[tuple[str, str]]], str]
    """A list of rows, by its name and the names and types of its columns."""
    index: WordIndex
    spellings: dict[str, str]
    """By word; a `?` in it is what the word is said of."""

    def spelled(self, text: str) -> str:
        return _TYPE.sub(self._type, self._said(text))

    def step(self, text: str) -> str:
        """A step of the tables' history."""
        own = re.sub(rf"^{self.name}\| ?", "", text, flags=re.MULTILINE)
        return self.spelled(re.sub(r"^\w+\|.*\n?", "", own, flags=re.MULTILINE))

    def words_in(self, text: str) -> frozenset[str]:
        """The names of the values that people and models say."""
        return frozenset(_WORDS.findall(self._said(text)))

    def _said(self, text: str) -> str:
        text = _TABLE.sub(rf"{self.schema}\1", text)
        text = _ROWS.sub(lambda found: self.rows(found[1], _COLUMN.findall(found[2])), text)
        return _SAID.sub(lambda found: self.spellings[found[1]].replace("?", found[2] or ""), text)

    def _type(self, found: re.Match[str]) -> str:
        name = "bytea" if found[1] == "words" else found[1]
        return f"::{name}{found[2] or ''}" if self.typed else ""


def _of_json(name: str, columns: list[tuple[str, str]]) -> str:
    listed = ", ".join(f"value ->> {n} as {column}" for n, (column, _) in enumerate(columns))
    return f"(select key + 1 as nth, {listed} from json_each(:{name})) {name}"


def _of_arrays(name: str, columns: list[tuple[str, str]]) -> str:
    arrays = ", ".join(f":{name}_{n}::{kind}[]" for n, (_, kind) in enumerate(columns))
    listed = ", ".join(column for column, _ in columns)
    return f"unnest({arrays}) with ordinality as {name} ({listed}, nth)"


SQLITE = SqlDialect(
    name="sqlite",
    schema="",
    typed=False,
    rows=_of_json,
    index=WordIndex(quote='"', beginning=" *", both=" AND ", either=" OR "),
    spellings={
        "each": "json_each(:?) ?",
        "in": "in (select value from json_each(:?))",
        "found": "search_word cross join search_chunk c on c.id = search_word.rowid where search_word match :?",
        "size": "(select p.page_count * s.page_size from pragma_page_count p, pragma_page_size s)",
        "now": ":now_ms",
        "true": "1",
        "false": "0",
        "bytes": "cast(? as blob)",
        "instr": "instr",
        "indexed": "indexed by ?",
        "then": "cross join",
        "name": "text",
        "words": "text",
        "number": "integer",
        "truth": "integer",
        "blob": "blob",
        "strict": " strict",
        "rowless": " strict, without rowid",
        "unique": "unique",
    },
)

POSTGRES = SqlDialect(
    name="postgres",
    schema="holdfast.",
    typed=True,
    rows=_of_arrays,
    index=WordIndex(quote="'", beginning=":*", both=" & ", either=" | "),
    spellings={
        "each": "unnest(:?::text[]) as ? (value)",
        "in": "= any (:?::text[])",
        "found": "holdfast.search_chunk c where c.words @@ :?::tsquery",
        "size": (
            "(select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'holdfast' and c.relkind = 'r')"
        ),
        "now": "coalesce(:now_ms::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)",
        "true": "true",
        "false": "false",
        "bytes": "convert_to(?, 'UTF8')",
        "instr": 'pg_catalog."position"',
        "indexed": "",
        "then": "join",
        "name": 'text collate "C"',
        "words": "bytea",
        "number": "bigint",
        "truth": "boolean",
        "blob": "bytea",
        "strict": "",
        "rowless": "",
        "unique": "primary key",
    },
)
