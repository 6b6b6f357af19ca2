"""What plans are compiled to, and that rows in dictionaries are found as those statements would find them."""

from __future__ import annotations

from holdfast.ids import SessionId, Tenant, TurnId, Version
from holdfast.store.memory.driver import Driver
from holdfast.store.rows import SignalKind, SignalRow, TurnRow
from holdfast.store.statements import finding
from holdfast.store.steps import Finder, find, insert, write
from holdfast.store.tables import SIGNALS, TURNS

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

COLUMNS = ", ".join(f"x.{each}" for each in SIGNALS.names)


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


def test_in_dictionaries_the_same_rows_are_found() -> None:
    acme, other = Tenant("acme"), Tenant("other")
    trip, talk = SessionId(f"conv_{1:026}"), SessionId(f"conv_{2:026}")
    kinds: tuple[SignalKind, ...] = ("steer", "cancel", "interrupt", "steer", "steer")
    driver = Driver(lambda: 0)

    def turn(tenant: Tenant, session_id: SessionId, number: int) -> TurnRow:
        return TurnRow(
            tenant=tenant,
            turn_id=TurnId(f"turn_{number:026}"),
            session_id=session_id,
            base_head=Version(0),
            state="open",
        )

    mine = [turn(acme, trip, 2), turn(acme, trip, 1)]
    theirs = [turn(acme, talk, 3), turn(other, trip, 1)]
    said = [
        SignalRow(tenant=each.tenant, turn_id=each.turn_id, n=n, kind=kind)
        for each in (*mine, *theirs)
        for n, kind in enumerate(kinds)
    ]
    driver.run(write(insert(TURNS, *mine, *theirs), insert(SIGNALS, *said)))

    found = driver.run(find(OF_SESSION, tenant=acme, session_id=trip, above=0, upto=3, limit=3))
    assert [(each.tenant, each.turn_id, each.n) for each in found] == [
        (acme, mine[1].turn_id, 3),
        (acme, mine[1].turn_id, 2),
        (acme, mine[0].turn_id, 3),
    ]
