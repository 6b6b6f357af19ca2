"""One SQL for two databases: how each of them wants it."""

from __future__ import annotations

import pytest

from holdfast.store.search.words import Needed
from holdfast.store.sql.dialects import POSTGRES, SQLITE, SqlDialect
from tests.store.plans import questions

SAID = {
    "select 1 from @turn {indexed turn_queued}": (
        "select 1 from turn indexed by turn_queued",
        "select 1 from holdfast.turn ",
    ),
    ":since::bigint, :agent::words, :names::words[]": (
        ":since, :agent, :names",
        ":since::bigint, :agent::bytea, :names::bytea[]",
    ),
    "x {in ids} from {each ids}": (
        "x in (select value from json_each(:ids)) from json_each(:ids) ids",
        "x = any (:ids::text[]) from unnest(:ids::text[]) as ids (value)",
    ),
    "{rows pairs name::words n::bigint}": (
        "(select key + 1 as nth, value ->> 0 as name, value ->> 1 as n from json_each(:pairs)) pairs",
        "unnest(:pairs_0::bytea[], :pairs_1::bigint[]) with ordinality as pairs (name, n, nth)",
    ),
}


@pytest.mark.parametrize("text", SAID)
def test_what_is_written_once_is_spelled_for_each(text: str) -> None:
    assert (SQLITE.spelled(text), POSTGRES.spelled(text)) == SAID[text]


def test_what_people_say_is_known_by_the_names_of_its_values() -> None:
    text = ":agent::words, :since::bigint, {rows pairs name::words n::bigint}"
    assert POSTGRES.words_in(text) == {"agent", "pairs_0"}


def test_an_index_of_words_is_asked_for_all_of_them_or_for_what_stands_for_any() -> None:
    needed = Needed(words=(("oslo", False), ("ber", True)), anything="~")
    assert SQLITE.index.asked(needed) == '("oslo" AND "ber" *) OR "~"'
    assert POSTGRES.index.asked(needed) == "('oslo' & 'ber':*) | '~'"


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
def test_nothing_of_a_question_is_left_unspelled(dialect: SqlDialect) -> None:
    for text in questions(dialect).values():
        assert not {*"{}@"} & {*text.replace("@@", "")}, text
