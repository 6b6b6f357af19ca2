"""What plans are compiled to."""

from __future__ import annotations

from holdfast.store.sql.statements import finding
from holdfast.store.sql.tables import SIGNALS, TURNS
from holdfast.store.steps import Finder

OF_SESSION = Finder(
    SIGNALS,
    of=(TURNS, ("tenant", "turn_id")),
    tenant=":tenant",
    session_id=":session_id",
    order=("turn_id", "-n"),
    over="n",
    unlike={"kind": "cancel"},
    index="an_index",
)
"""What was said to the turns of a session: signals know their turns, and turns their session."""

COLUMNS = ",".join(f"x.{each}" for each in SIGNALS.names)


def test_rows_of_another_tables_rows_are_found_from_there() -> None:
    assert finding(OF_SESSION, True, True, True) == (
        f"select {COLUMNS}"
        " from turn o cross join signal x indexed by an_index on x.tenant = o.tenant and x.turn_id = o.turn_id"
        " where o.tenant = :tenant and o.session_id = :session_id and x.kind <> 'cancel'"
        " and x.n > :above and x.n <= :upto order by x.turn_id, x.n desc limit :limit"
    )


def test_postgresql_chooses_for_itself_where_to_begin() -> None:
    assert finding(OF_SESSION, False, False, False, schema="holdfast.") == (
        f"select {COLUMNS}"
        " from holdfast.turn o join holdfast.signal x on x.tenant = o.tenant and x.turn_id = o.turn_id"
        " where o.tenant = :tenant and o.session_id = :session_id and x.kind <> 'cancel'"
        " order by x.turn_id, x.n desc"
    )
