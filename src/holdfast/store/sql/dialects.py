"""The SQL dialects of SQLite and PostgreSQL. The files in `store/sql` are written for both, with placeholders:

@turn               the table, in our schema where there is one
{turn}, t.{turn}    its columns, in the order of the fields
:since::bigint      a value and its type, for PostgreSQL where it cannot infer it
:agent::words       text from people and models: UTF-8 in bytes for PostgreSQL, whose text cannot hold U+0000
{each ids}          the values of the list `:ids`, as `ids.value`
{in ids}            a condition: is one of these values
{rows spans session_id::text start::bigint}
                    the rows of the list `:spans`, by these columns; `spans.nth` numbers them from 1 on
{found words}       the chunks `c` of the search index that have `:words`, which are a `Needed`
{size}              the size of the database in bytes
{now}               the time when the statement is executed
{true} {false}      truth values, spelled as in the partial indexes
{bytes b.digest}    a text in bytes
{instr}(a, b)       the position of bytes `b` in bytes `a`, from 1 on
{indexed turn_x}    an index that SQLite would not choose by itself
{anything}          a word that the question replaces; see `Question.words`
{then}              a join in this order: SQLite must be told, PostgreSQL chooses by statistics

and, in migrations, which are in `store/sql/migrations` and in a folder of each home:

{name} {words} {number} {truth} {blob}
                    the types of columns
{strict} {rowless}  how SQLite keeps a table: by its types; by its key, without a number for each row
{unique}            the key of a table that SQLite numbers the rows of
sqlite|             begins a line for SQLite only; `postgres|` begins one for PostgreSQL only
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
    """The text of a question, with its `words` replaced."""
    text = QUESTIONS[question]
    for word, meaning in words.items():
        text = text.replace(f"{{{word}}}", meaning)
    return text


class WordIndex(Struct, frozen=True):
    """How a home's search index is queried."""

    quote: str
    beginning: str
    both: str
    either: str

    def asked(self, needed: Needed) -> str:
        """The query in the index's own syntax. No word contains quotes or backslashes, so quoting it is enough."""
        quote = self.quote
        words = [f"{quote}{each}{quote}{self.beginning * prefix}" for each, prefix in needed.words]
        return f"({self.both.join(words)}){self.either}{quote}{needed.anything}{quote}"


class SqlDialect(Struct, frozen=True, kw_only=True):
    """How a home spells the placeholders."""

    name: str
    schema: str
    typed: bool
    """Whether the types of values are written."""
    rows: Callable[[str, list[tuple[str, str]]], str]
    """Spells a list of rows, given its name and the names and types of its columns."""
    index: WordIndex
    spellings: dict[str, str]
    """The SQL of each placeholder; a `?` in it stands for the placeholder's argument."""

    def spelled(self, text: str) -> str:
        return _TYPE.sub(self._type, self._said(text))

    def step(self, text: str) -> str:
        """The SQL of a migration."""
        own = re.sub(rf"^{self.name}\| ?", "", text, flags=re.MULTILINE)
        return self.spelled(re.sub(r"^\w+\|.*\n?", "", own, flags=re.MULTILINE))

    def words_in(self, text: str) -> frozenset[str]:
        """The names of the values of type `words`."""
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
