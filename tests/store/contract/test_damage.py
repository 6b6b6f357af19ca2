"""A conversation whose rows cannot be read: it is told by its id, and everything else goes on."""

from __future__ import annotations

import pytest

from holdfast.errors import SessionDamaged
from holdfast.ids import SessionId
from holdfast.store.memory_store import MemoryStore
from holdfast.store.search.matches import parse_query
from holdfast.store.store import Store
from holdfast.store.transfer.copies import CopyProgress, NotCopied, copy
from holdfast.store.transfer.exports import Exported, LeftOut, export
from holdfast.store.verification.findings import Finding
from holdfast.store.verification.verification import verify
from tests.store.builders import ACME, Player
from tests.store.homes import Damage


@pytest.fixture
async def sessions(player: Player) -> list[SessionId]:
    return [(await player.play(f"talk-{n}", f"Oslo {n}")).session_id for n in range(4)]


@pytest.fixture
async def damaged(sessions: list[SessionId], damage: Damage) -> SessionId:
    await damage.settings(ACME, sessions[1], b"{")
    return sessions[1]


async def test_it_is_told_by_its_id_when_it_is_read_and_when_it_goes_on(
    store: Store, player: Player, damaged: SessionId
) -> None:
    with pytest.raises(SessionDamaged, match=damaged) as told:
        await store.snapshot(ACME, damaged)
    assert told.value.code == "conversation_damaged"
    assert "holdfast db verify --help" in str(told.value)
    with pytest.raises(SessionDamaged, match="talk-1|" + damaged):
        await player.play("talk-1", "And then?")
    assert store.read_only is None


async def test_lists_and_searches_leave_it_out_and_name_it(
    store: Store, sessions: list[SessionId], damaged: SessionId
) -> None:
    others = [each for each in reversed(sessions) if each != damaged]
    page = await store.sessions(ACME, limit=10)
    assert [each.session.id for each in page.sessions] == others
    assert page.damaged == (damaged,)
    for indexed in (False, True):
        found = await store.search(ACME, parse_query("oslo"), limit=10)
        assert [each.info.session.id for each in found.matches] == others
        assert found.damaged == (damaged,)
        while not indexed and (await store.index()).more:
            pass


async def test_pages_of_a_list_go_on_behind_it(
    store: Store, sessions: list[SessionId], damaged: SessionId
) -> None:
    seen: list[SessionId] = []
    cursor = None
    while True:
        page = await store.sessions(ACME, limit=1, cursor=cursor)
        seen += [each.session.id for each in page.sessions]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == [each for each in reversed(sessions) if each != damaged]


async def test_an_export_and_a_copy_leave_it_out_and_name_it(
    store: Store, sessions: list[SessionId], damaged: SessionId
) -> None:
    others = {each for each in sessions if each != damaged}
    out = [each async for each in export(store, ACME)]
    assert {each.session_id for each in out if isinstance(each, Exported)} == others
    assert [each.session_id for each in out if isinstance(each, LeftOut)] == [damaged]
    assert isinstance(out[-1], bytes) and f'"left_out":["{damaged}"]'.encode() in out[-1]
    with pytest.raises(SessionDamaged, match=damaged):
        [each async for each in export(store, ACME, damaged)]

    target = MemoryStore()
    reports = [each async for each in copy(store, target)]
    assert [each.what for each in reports if isinstance(each, NotCopied)] == [damaged]
    assert isinstance(reports[-1], CopyProgress)
    assert set(await target.session_ids(ACME, after=None, limit=10)) == others
    assert [each async for each in verify(target) if isinstance(each, Finding)] == []
    await target.close()


async def test_verify_names_it_and_goes_on(
    store: Store, sessions: list[SessionId], damaged: SessionId, damage: Damage
) -> None:
    await damage.settings(ACME, sessions[3], b"]")
    found = [each async for each in verify(store) if isinstance(each, Finding)]
    named = {each.session_id for each in found if each.violation.code == "unreadable"}
    assert {damaged, sessions[3]} <= named
    assert not named & {sessions[0], sessions[2]}


async def test_a_fork_of_it_does_not_go_out_without_it(
    store: Store, player: Player, sessions: list[SessionId], damage: Damage
) -> None:
    fresh = player.mint(SessionId)
    snapshot = await store.snapshot(ACME, sessions[0])
    assert snapshot is not None
    await store.fork(ACME, sessions[0], version=snapshot.version, fresh=fresh)
    await damage.settings(ACME, sessions[0], b"{")
    out = [each async for each in export(store, ACME)]
    left_out = {each.session_id: each.why for each in out if isinstance(each, LeftOut)}
    assert left_out.keys() == {sessions[0], fresh}
    assert left_out[fresh] == f"it goes on from {sessions[0]}, which is damaged"
