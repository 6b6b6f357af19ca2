"""What `verify` finds between PostgreSQL's tables; `tests/store/verification/test_verification.py` has the rest."""

from __future__ import annotations

import pytest

from holdfast.core.history.conversation import Titled
from holdfast.ids import SessionId, Version
from holdfast.store.verification.findings import Finding
from tests.postgres import execute
from tests.store.builders import ACME, Player

NONE = "'conv_00000000000000000000000000'"
NO_TURN = "'turn_00000000000000000000000000'"

STRAY = {
    f"update holdfast.session_key set session_id = {NONE}": {"key_astray"},
    f"update holdfast.idempotency set turn_id = {NO_TURN}, state = 'running'": {"claim_running"},
    "update holdfast.session set bytes_gone = true": {"derived_off"},
    "insert into holdfast.session_attribute select tenant, id, 'x', 'y' from holdfast.session": {
        "derived_off"
    },
    "delete from holdfast.session_past": {"derived_off"},
    **{
        f"update holdfast.{table} set session_id = {NONE}": {"row_astray"}
        for table in ("turn", "item", "annotation")
    },
    f"update holdfast.search_chunk set session_id = {NONE} where from_pos >= 0": {"row_astray"},
    **{
        f"update holdfast.{table} set turn_id = {NO_TURN}": {"row_astray"}
        for table in ("journal", "signal")
    },
}


async def codes(player: Player) -> set[str]:
    reports = [each async for each in player.store.inspect()]
    return {each.violation.code for each in reports if isinstance(each, Finding)}


@pytest.mark.parametrize("sql", STRAY)
async def test_verify_finds_what_lies_between_the_tables(url: str, ada: Player, sql: str) -> None:
    session_id = (await ada.play("trip", key="once")).session_id
    await ada.store.annotate(ACME, session_id, [(None, Titled(title="Oslo"))])
    await ada.store.fork(ACME, session_id, version=Version(1), fresh=ada.mint(SessionId))
    turn = await ada.open("trip", "And then?")
    await ada.store.signal(ACME, turn.turn_id, kind="steer")
    await ada.store.index()
    assert await codes(ada) == set()
    await execute(url, sql)
    assert await codes(ada) >= STRAY[sql]
