"""Dumping sessions and restoring them, here or elsewhere; and the blobs that lie beside their items."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from holdfast.core.history.conversation import Flagged, SettingsChanged, Titled
from holdfast.core.items import SessionSettings
from holdfast.core.turns import events as ev
from holdfast.ids import (
    IdempotencyKey,
    Minter,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)
from holdfast.store.outcomes import (
    Attempt,
    Gone,
    Replay,
    Restored,
    RestoreRefused,
    SessionDump,
    SessionFilter,
)
from holdfast.store.rows import IdempotencyRow, JournalRow, MemoryRow
from holdfast.store.store import Store
from holdfast.store.transfer.copies import copy
from holdfast.store.verification.verification import Finding, verify
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.contract.test_grants import granted
from tests.store.contract.test_signals import hear
from tests.store.contract.words import changes_nothing
from tests.store.homes import Damage, Home
from tests.store.state import session_state


@pytest.fixture
async def elsewhere(home: Home, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Another store of the same kind, empty."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    opened = await home.open(folder, clock)
    yield opened
    await opened.close()


async def a_session(player: Player, name: str = "trip") -> SessionId:
    """A session with some of everything."""
    store = player.store
    await player.play(name, "Question 0", changes=(ev.StateSet(name="todo", value="[0]"),))
    turn = await player.play(name, "Question 1", changes=(ev.StateSet(name="todo", value="[1]"),))
    settings = SessionSettings(attributes=(("mood", "good"),))
    await store.annotate(
        ACME,
        turn.session_id,
        [
            (None, Titled(title="Oslo")),
            (None, SettingsChanged(settings=settings)),
            (player.said("x").id, Flagged(name="good", value="yes")),
        ],
    )
    await store.put_blob(ACME, turn.session_id, b"picture")
    await player.discard(name)
    await player.play(name, "Question 2")
    return turn.session_id


async def dumped(store: Store, session_id: SessionId) -> SessionDump:
    found = await store.dump(ACME, session_id)
    assert found is not None
    return found


# ── there and back ───────────────────────────────────────────────────────────────────────────


async def test_a_session_is_the_same_elsewhere(
    store: Store, elsewhere: Store, player: Player
) -> None:
    session_id = await a_session(player)
    dump = await dumped(store, session_id)
    assert await elsewhere.restore(ACME, dump) == Restored(fresh=True)

    here, there = [await session_state(each, ACME, session_id) for each in (store, elsewhere)]
    assert there.snapshots == here.snapshots
    assert (there.dump, there.turns, there.keys) == (here.dump, here.turns, here.keys)
    assert await elsewhere.blob(ACME, session_id, dump.blobs[0][0]) == b"picture"
    listed = await elsewhere.sessions(
        ACME, where=SessionFilter(attributes=(("mood", "good"),), key_prefix="tr")
    )
    assert [info.session.id for info in listed.sessions] == [session_id]


async def test_a_restored_session_goes_on(elsewhere: Store, player: Player, mint: Minter) -> None:
    session_id = await a_session(player)
    await elsewhere.restore(ACME, await dumped(player.store, session_id))
    other = Player(elsewhere, mint)
    await other.renew()
    await other.play("trip")
    await other.play(session_id)
    assert (await other.snapshot("trip")).version == 5


async def test_restoring_the_same_again_is_fine(
    store: Store, elsewhere: Store, player: Player
) -> None:
    dump = await dumped(store, await a_session(player))
    await elsewhere.restore(ACME, dump)
    async with changes_nothing(elsewhere):
        assert await elsewhere.restore(ACME, dump) == Restored(fresh=False)
    async with changes_nothing(store):
        assert await store.restore(ACME, dump) == Restored(fresh=False)


async def test_a_dump_of_a_busy_session_leaves_the_open_turn_out(
    store: Store, elsewhere: Store, player: Player
) -> None:
    session_id = await a_session(player)
    before = await dumped(store, session_id)
    await player.open("trip")
    during = await dumped(store, session_id)

    assert during == before
    assert await elsewhere.restore(ACME, during) == Restored(fresh=True)
    found = await elsewhere.session(ACME, session_id)
    assert found is not None and (found.open_turn, found.lease_node) == (None, None)


async def test_what_a_turn_has_set_is_dumped_by_name(store: Store, player: Player) -> None:
    said = (ev.StateSet(name="todo", value="1"), ev.StateSet(name="mood", value="2"))
    turn = await player.play("trip", changes=said)
    dump = await store.dump(ACME, turn.session_id)
    assert dump is not None
    assert [row.name for row in dump.state] == ["mood", "todo"]


async def test_there_is_no_dump_of_what_never_was(
    store: Store, player: Player, mint: Minter
) -> None:
    assert await store.dump(ACME, mint(SessionId)) is None


async def test_a_session_without_a_turn_can_be_moved(
    store: Store, elsewhere: Store, player: Player
) -> None:
    turn = await player.open("trip")
    await turn.end()
    dump = await dumped(store, turn.session_id)
    assert await elsewhere.restore(ACME, dump) == Restored(fresh=True)
    assert await elsewhere.resolve(ACME, SessionKey("trip")) is not None


async def test_damage_moves_along(
    store: Store, elsewhere: Store, player: Player, damage: Damage
) -> None:
    """The chain shows it, here as there; the rest of the session is worth moving."""
    session_id = await a_session(player)
    await damage.item(ACME, session_id, 1, b"\x00 not JSON")
    assert await elsewhere.restore(ACME, await dumped(store, session_id)) == Restored(fresh=True)
    here, there = [await each.snapshot(ACME, session_id) for each in (store, elsewhere)]
    assert here == there


async def test_turns_that_were_named_by_clocks_that_differ_are_moved_in_their_order(
    store: Store, elsewhere: Store, player: Player, mint: Minter
) -> None:
    """Ids come from the nodes, versions from the store."""
    early, late = mint(TurnId), mint(TurnId)
    await player.play("trip", turn_id=late)
    turn = await player.play("trip", turn_id=early)
    dump = await dumped(store, turn.session_id)
    assert await elsewhere.restore(ACME, dump) == Restored(fresh=True)
    here, there = [await each.snapshot(ACME, turn.session_id) for each in (store, elsewhere)]
    assert here == there
    assert here is not None and [mark.turn_id for mark in here.marks] == [late, early]


async def test_a_key_that_was_steered_into_a_turn_goes_with_it(
    store: Store, elsewhere: Store, player: Player
) -> None:
    turn = await player.open("trip", key="own", request_hash=b"own")
    same = Attempt(request_hash=b"steered", key=IdempotencyKey("s"))
    await store.signal(ACME, turn.turn_id, kind="steer", attempt=same)
    await hear(turn, *await store.signals(player.node))
    await turn.answer()
    await turn.commit()
    await elsewhere.restore(ACME, await dumped(store, turn.session_id))

    assert await elsewhere.idempotency(ACME, IdempotencyKey("s")) == await store.idempotency(
        ACME, IdempotencyKey("s")
    )
    replay = Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await elsewhere.find_attempt(ACME, same) == replay


async def test_a_retry_is_known_where_its_session_has_gone(
    store: Store, elsewhere: Store, player: Player, mint: Minter
) -> None:
    """An idempotency key moves with its turn, and with the events that the answer is made of."""
    turn = await player.play("trip", key="k1", request_hash=b"same", replayable=True)
    failed = await player.discard("trip", key="k2")
    dump = await dumped(store, turn.session_id)
    assert {claim.key for claim in dump.claims} == {"k1", "k2"}
    assert {row.turn_id for row in dump.journals} == {turn.turn_id, failed.turn_id}
    assert await elsewhere.restore(ACME, dump) == Restored(fresh=True)

    other = Player(elsewhere, mint)
    await other.renew()
    again = await other.begin("trip", key="k1", request_hash=b"same")
    assert again == Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    for each in (turn, failed):
        journal = await store.journal(ACME, each.turn_id)
        assert await elsewhere.journal(ACME, each.turn_id) == journal != ()


async def test_an_idempotency_key_that_waits_for_its_turn_stays_with_it(
    store: Store, elsewhere: Store, player: Player
) -> None:
    turn = await player.play("trip")
    await player.open("trip", key="running")
    dump = await dumped(store, turn.session_id)
    assert dump.claims == ()
    assert await elsewhere.restore(ACME, dump) == Restored(fresh=True)


async def test_restoring_again_is_fine_after_what_goes_with_time_has_gone(
    store: Store, elsewhere: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.play("trip", key="k1", replayable=True)
    await player.discard("trip", key="k2")
    dump = await dumped(store, turn.session_id)
    await elsewhere.restore(ACME, dump)
    await elsewhere.acknowledge(ACME, turn.turn_id)
    clock.advance(8 * 24 * 3600)
    while (await elsewhere.prune()).more:
        pass
    assert (await dumped(elsewhere, turn.session_id)) != dump
    async with changes_nothing(elsewhere):
        assert await elsewhere.restore(ACME, dump) == Restored(fresh=False)


async def test_memories_are_moved_by_themselves(
    store: Store, elsewhere: Store, player: Player
) -> None:
    for n in range(5):
        added = ev.MemoryAdded(memory_id=f"m{n}", agent=f"agent{n % 2}", text=f"likes {n}")
        await player.play("trip", changes=(added,))
    first = await store.all_memories(ACME, after=None, limit=3)
    rest = await store.all_memories(ACME, after=first[-1], limit=3)
    assert [(row.agent, row.memory_id) for row in (*first, *rest)] == [
        ("agent0", "m0"),
        ("agent0", "m2"),
        ("agent0", "m4"),
        ("agent1", "m1"),
        ("agent1", "m3"),
    ]
    assert await elsewhere.restore_memories(ACME, first) == 3
    changed = [msgspec.structs.replace(row, text="other") for row in (*first, *rest)]
    assert await elsewhere.restore_memories(ACME, changed) == 2
    texts = [row.text for row in await elsewhere.all_memories(ACME, after=None, limit=10)]
    assert texts == [row.text for row in first] + ["other"] * 2
    assert await store.all_memories(Tenant("rival"), after=None, limit=10) == ()


# ── forks and what they come from ────────────────────────────────────────────────────────────


async def test_a_fork_is_dumped_without_its_past(
    store: Store, player: Player, mint: Minter
) -> None:
    fork = await a_fork(player, await a_session(player))
    dump = await dumped(store, fork)
    assert [turn.seq for turn in dump.turns] == [3]
    assert [row.pos for row in dump.items] == list(range(dump.turns[0].start, dump.turns[0].end))


async def test_a_fork_comes_after_its_past(store: Store, elsewhere: Store, player: Player) -> None:
    parent = await a_session(player)
    fork = await a_fork(player, parent)
    dump = await dumped(store, fork)
    async with changes_nothing(elsewhere):
        outcome = await elsewhere.restore(ACME, dump)
    assert isinstance(outcome, RestoreRefused) and str(parent) in outcome.why

    await elsewhere.restore(ACME, await dumped(store, parent))
    assert await elsewhere.restore(ACME, dump) == Restored(fresh=True)
    here, there = [await session_state(each, ACME, fork) for each in (store, elsewhere)]
    assert there.snapshots == here.snapshots


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("with_turn", [True, False])
async def test_a_fork_of_any_version_can_be_moved(
    store: Store, elsewhere: Store, player: Player, version: int, with_turn: bool
) -> None:
    parent = await a_session(player)
    fork = await a_fork(player, parent, version=version, with_turn=with_turn)
    for session_id in (parent, fork):
        outcome = await elsewhere.restore(ACME, await dumped(store, session_id))
        assert outcome == Restored(fresh=True)
    here, there = [await session_state(each, ACME, fork) for each in (store, elsewhere)]
    assert there.snapshots == here.snapshots


@pytest.mark.parametrize("with_turn", [True, False])
async def test_a_fork_of_something_else_is_refused(
    store: Store, elsewhere: Store, player: Player, mint: Minter, with_turn: bool
) -> None:
    """The session has gone another way here; put on top of it, the fork would be somebody else's."""
    turn = await player.play("trip")
    await elsewhere.restore(ACME, await dumped(store, turn.session_id))
    other = Player(elsewhere, mint)
    await other.renew()
    for each in (player, other):
        await each.play("trip", "What now?")
    fork = await a_fork(player, turn.session_id, with_turn=with_turn)

    async with changes_nothing(elsewhere):
        assert isinstance(await elsewhere.restore(ACME, await dumped(store, fork)), RestoreRefused)


async def test_a_damaged_fork_is_moved_too(
    store: Store, elsewhere: Store, player: Player, damage: Damage
) -> None:
    parent = await a_session(player)
    fork = await a_fork(player, parent)
    await damage.item(ACME, fork, (await dumped(store, fork)).items[0].pos, b"\x00")
    for session_id in (parent, fork):
        outcome = await elsewhere.restore(ACME, await dumped(store, session_id))
        assert outcome == Restored(fresh=True)


async def test_a_fork_of_something_longer_is_refused(
    store: Store, elsewhere: Store, player: Player
) -> None:
    turn = await player.play("trip")
    await elsewhere.restore(ACME, await dumped(store, turn.session_id))
    await player.play("trip")
    fork = await a_fork(player, turn.session_id)
    assert isinstance(await elsewhere.restore(ACME, await dumped(store, fork)), RestoreRefused)


async def test_a_deleted_session_is_moved_as_far_as_its_forks_need_it(
    store: Store, elsewhere: Store, player: Player
) -> None:
    """Tombstones move too: elsewhere as here, what was deleted says so."""
    parent = await a_session(player)
    fork = await a_fork(player, parent)
    await store.remove(ACME, parent)
    while (await store.prune()).more:
        pass

    for session_id in (parent, fork):
        assert await elsewhere.restore(ACME, await dumped(store, session_id)) == Restored(
            fresh=True
        )
    here, there = [await session_state(each, ACME, fork) for each in (store, elsewhere)]
    assert there.snapshots == here.snapshots
    tombstone = await elsewhere.session(ACME, parent)
    assert tombstone is not None and tombstone.state == "deleted"


async def test_a_fork_whose_past_is_only_a_tombstone_is_refused(
    store: Store, elsewhere: Store, player: Player
) -> None:
    parent = await a_session(player)
    fork = await dumped(store, await a_fork(player, parent))
    await elsewhere.restore(ACME, await dumped(store, parent))
    await elsewhere.remove(ACME, parent)
    while (await elsewhere.prune()).more:
        pass
    async with changes_nothing(elsewhere):
        assert isinstance(await elsewhere.restore(ACME, fork), RestoreRefused)


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_fork_whose_past_is_going_is_refused(
    store: Store, elsewhere: Store, player: Player, keyed: bool
) -> None:
    """Its turns go last, and while an idempotency key leads to them they stay; what they said is gone before."""
    parent = await a_session(player)
    if keyed:
        await player.play("trip", "Question 3", key="k")
    fork = await dumped(store, await a_fork(player, parent, version=4 if keyed else 2))
    await elsewhere.restore(ACME, await dumped(store, parent))
    await elsewhere.remove(ACME, parent)
    await elsewhere.prune(limit=500 if keyed else 1)
    async with changes_nothing(elsewhere):
        assert isinstance(await elsewhere.restore(ACME, fork), RestoreRefused)


async def a_fork(
    player: Player, parent: SessionId, *, version: int = 2, with_turn: bool = True
) -> SessionId:
    fresh = player.mint(SessionId)
    await player.store.fork(ACME, parent, version=Version(version), fresh=fresh)
    if with_turn:
        await player.play(fresh)
    return fresh


# ── what is refused ──────────────────────────────────────────────────────────────────────────


async def test_a_different_session_with_the_same_id_is_refused(
    store: Store, player: Player
) -> None:
    session_id = await a_session(player)
    dump = await dumped(store, session_id)
    await player.play("trip")
    async with changes_nothing(store):
        assert isinstance(await store.restore(ACME, dump), RestoreRefused)
    await store.remove(ACME, session_id)
    async with changes_nothing(store):
        assert isinstance(await store.restore(ACME, dump), RestoreRefused), "deleted is deleted"


async def test_a_key_that_is_taken_is_refused(
    store: Store, elsewhere: Store, player: Player, mint: Minter
) -> None:
    dump = await dumped(store, await a_session(player))
    other = Player(elsewhere, mint)
    await other.renew()
    await other.play("trip")
    async with changes_nothing(elsewhere):
        outcome = await elsewhere.restore(ACME, dump)
    assert isinstance(outcome, RestoreRefused) and outcome.conflict and "trip" in outcome.why


async def test_an_idempotency_key_that_is_taken_is_refused(
    store: Store, elsewhere: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip", key="k")
    dump = await dumped(store, turn.session_id)
    other = Player(elsewhere, mint)
    await other.renew()
    await other.play("holiday", key="k")
    async with changes_nothing(elsewhere, claims=["k"]):
        outcome = await elsewhere.restore(ACME, dump)
    assert isinstance(outcome, RestoreRefused) and outcome.conflict and "'k'" in outcome.why


async def test_a_turn_that_is_in_another_session_is_refused(
    store: Store, elsewhere: Store, player: Player, mint: Minter
) -> None:
    dump = await dumped(store, await a_session(player))
    other = Player(elsewhere, mint)
    await other.renew()
    await other.play("holiday", turn_id=dump.turns[0].turn_id)
    async with changes_nothing(elsewhere):
        assert isinstance(await elsewhere.restore(ACME, dump), RestoreRefused)


async def test_another_tenants_dump_is_refused(
    store: Store, elsewhere: Store, player: Player
) -> None:
    dump = await dumped(store, await a_session(player))
    assert isinstance(await elsewhere.restore(Tenant("rival"), dump), RestoreRefused)
    assert await elsewhere.tenants() == ()


Spoil = Callable[[SessionDump], SessionDump]


def _turn(dump: SessionDump, n: int, **fields: object) -> SessionDump:
    turns = list(dump.turns)
    turns[n] = msgspec.structs.replace(turns[n], **fields)
    return msgspec.structs.replace(dump, turns=tuple(turns))


def _claim(dump: SessionDump, **fields: object) -> SessionDump:
    claim = IdempotencyRow(
        tenant=ACME,
        key=IdempotencyKey("k"),
        request_hash=b"h",
        turn_id=dump.turns[0].turn_id,
        state="done",
    )
    return msgspec.structs.replace(dump, claims=(msgspec.structs.replace(claim, **fields),))


def _session(dump: SessionDump, **fields: object) -> SessionDump:
    return msgspec.structs.replace(dump, session=msgspec.structs.replace(dump.session, **fields))


SPOILT: dict[str, Spoil] = {
    "a journal is another session's": lambda dump: msgspec.structs.replace(
        dump,
        journals=(
            JournalRow(
                tenant=dump.session.tenant,
                turn_id=TurnId("turn_" + "0" * 26),
                n=0,
                token=1,
                records=b"",
            ),
        ),
    ),
    "an idempotency key is another session's": lambda dump: _claim(
        dump, turn_id=TurnId("turn_" + "0" * 26)
    ),
    "an idempotency key is another tenant's": lambda dump: _claim(dump, tenant=Tenant("rival")),
    "an idempotency key waits": lambda dump: _claim(dump, state="running"),
    "a turn is missing": lambda dump: msgspec.structs.replace(dump, turns=dump.turns[1:]),
    "the last turn is missing": lambda dump: msgspec.structs.replace(dump, turns=dump.turns[:-1]),
    "an item is missing": lambda dump: msgspec.structs.replace(dump, items=dump.items[1:]),
    "an item is there twice": lambda dump: msgspec.structs.replace(
        dump, items=(*dump.items, dump.items[-1])
    ),
    "items are out of order": lambda dump: msgspec.structs.replace(dump, items=dump.items[::-1]),
    "an annotation is missing": lambda dump: msgspec.structs.replace(
        dump, annotations=dump.annotations[1:]
    ),
    "a blob is another one": lambda dump: msgspec.structs.replace(
        dump, blobs=((dump.blobs[0][0], b"another picture"),)
    ),
    "turns overlap": lambda dump: _turn(dump, 1, start=0),
    "a turn is open": lambda dump: _turn(dump, 2, state="open"),
    "a turn is another session's": lambda dump: _turn(
        dump, 0, session_id=SessionId("conv_" + "0" * 26)
    ),
    "a row is another tenant's": lambda dump: _turn(dump, 0, tenant=Tenant("rival")),
    "the row is ahead of its turns": lambda dump: _session(dump, head=Version(9)),
    "the row is longer than its items": lambda dump: _session(dump, length=99),
    "the row has another link": lambda dump: _session(dump, link=b"x" * 32),
    "the row holds a lease": lambda dump: _session(dump, lease_token=7),
    "state is from the future": lambda dump: msgspec.structs.replace(
        dump, state=(*dump.state, msgspec.structs.replace(dump.state[0], seq=Version(9)))
    ),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
async def test_half_a_session_is_refused_whole(
    store: Store, elsewhere: Store, player: Player, spoil: Spoil
) -> None:
    dump = spoil(await dumped(store, await a_session(player)))
    assert isinstance(await elsewhere.restore(ACME, dump), RestoreRefused)
    assert await elsewhere.tenants() == ()


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


async def test_a_blob_is_found_under_its_digest(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    digest = await store.put_blob(ACME, turn.session_id, b"picture")
    assert digest == f"sha256:{sha256(b'picture').hexdigest()}"
    assert await store.blob(ACME, turn.session_id, digest) == b"picture"
    assert await store.blob(ACME, turn.session_id, "sha256:" + "0" * 64) is None


async def test_the_same_bytes_again_are_the_same_blob(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    first = await store.put_blob(ACME, turn.session_id, b"picture")
    async with changes_nothing(store):
        assert await store.put_blob(ACME, turn.session_id, b"picture") == first


async def test_an_empty_blob_is_a_blob(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    digest = await store.put_blob(ACME, turn.session_id, b"")
    assert await store.blob(ACME, turn.session_id, digest) == b""


async def test_a_blob_may_come_before_its_session(
    store: Store, player: Player, mint: Minter
) -> None:
    """The request that names it becomes record 0 of the turn that makes the session."""
    fresh = mint(SessionId)
    digest = await store.put_blob(ACME, fresh, b"picture")
    turn = await player.open("trip", fresh=fresh)
    assert turn.session_id == fresh
    assert await store.blob(ACME, fresh, digest) == b"picture"


async def test_a_fork_finds_the_blobs_of_its_past(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    digest = await store.put_blob(ACME, turn.session_id, b"picture")
    first, second = mint(SessionId), mint(SessionId)
    await store.fork(ACME, turn.session_id, version=Version(1), fresh=first)
    await store.fork(ACME, first, version=Version(1), fresh=second)
    own = await store.put_blob(ACME, first, b"own")

    assert await store.blob(ACME, second, digest) == b"picture"
    assert await store.blob(ACME, second, own) == b"own"
    assert await store.blob(ACME, turn.session_id, own) is None


# ── a whole store ────────────────────────────────────────────────────────────────────────────


async def test_a_key_of_a_deleted_session_says_gone_in_a_copy_too(
    store: Store, elsewhere: Store, player: Player, mint: Minter
) -> None:
    """A retry that began anew there would run its tools a second time."""
    attempt = Attempt(request_hash=b"same", key=IdempotencyKey("k"))
    turn = await player.play("trip", key="k", request_hash=b"same")
    await player.play("trip", "And then?", key="later")
    fork = mint(SessionId)
    await store.fork(ACME, turn.session_id, version=Version(1), fresh=fork)
    await store.remove(ACME, turn.session_id)
    async for _ in copy(store, elsewhere):
        pass
    gone = Gone(session_id=turn.session_id, why="deleted")
    assert await store.find_attempt(ACME, attempt) == gone
    assert await elsewhere.find_attempt(ACME, attempt) == gone
    assert await elsewhere.idempotency(ACME, IdempotencyKey("later")) is not None
    assert [each async for each in verify(elsewhere) if isinstance(each, Finding)] == []
    other = Player(elsewhere, mint)
    await other.renew()
    await other.play(fork)


async def test_what_a_tenant_without_sessions_has_is_copied(
    store: Store, elsewhere: Store, mint: Minter
) -> None:
    grants, remembers = Tenant("grants"), Tenant("remembers")
    grant = granted(mint, grants)
    await store.put_grant(grant)
    memory = MemoryRow(
        tenant=remembers,
        agent="butler",
        memory_id="m",
        text="likes tea",
        turn_id=mint(TurnId),
        at_ms=1,
    )
    await store.restore_memories(remembers, [memory])
    assert await store.tenants() == (grants, remembers)
    assert [each async for each in copy(store, elsewhere)] == []
    assert await elsewhere.grants(grants, limit=9) == (grant,)
    assert await elsewhere.memories(remembers, "butler") == (memory,)
