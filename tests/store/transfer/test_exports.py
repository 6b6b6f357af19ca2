"""Exports: the same bytes from every home, nothing lost on the way, nothing taken in by half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.history.conversation import Flagged, Snapshot, Titled, TurnMark
from holdfast.core.history.log import Log
from holdfast.core.items import Blob, File, UserMessage
from holdfast.core.turns.events import MemoryAdded
from holdfast.errors import ImportConflict, InvalidExport
from holdfast.ids import MessageId, Minter, SessionId, Tenant, Version
from holdfast.store.memory_store import MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from holdfast.store.transfer import export_lines
from holdfast.store.transfer.copies import CopyProgress, NotCopied, copy
from holdfast.store.transfer.exports import Exported, LeftOut, export
from holdfast.store.transfer.import_checks import without_leases
from holdfast.store.transfer.imports import ImportedSession, OnConflict, take_in
from holdfast.store.verification.verification import Finding, verify
from holdfast.testing import Crash, CrashingStore, ManualClock
from tests.scratch import scratch_folder
from tests.store.builders import ACME, Player
from tests.store.contract.words import changes_nothing
from tests.store.furnishing import furnish
from tests.store.homes import HOMES, WAYS, Damage, Home
from tests.store.state import contents

OF_THE_FILE = pytest.mark.parametrize(
    "home",
    [
        pytest.param(each, id=each.name, marks=[] if each is HOMES[0] else [pytest.mark.thorough])
        for each in WAYS
    ],
)
"""For tests of the file alone: every home writes the same."""


@pytest.fixture
async def destination(
    request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Store]:
    """Another store, empty."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    home: Home = request.param
    opened = await home.open(folder, clock)
    yield opened
    await opened.close()


async def exported(
    store: Store, only: SessionId | None = None, *, tenant: Tenant = ACME
) -> list[bytes]:
    """The lines of an export."""
    found: list[bytes] = []
    async for each in export(store, tenant, only):
        assert not isinstance(each, LeftOut)
        found += each.lines if isinstance(each, Exported) else [each]
    return found


async def imported(
    store: Store,
    file: Sequence[bytes],
    *,
    tenant: Tenant = ACME,
    on_conflict: OnConflict = "stop",
    damaged: bool = False,
) -> list[ImportedSession]:
    found = take_in(store, tenant, file, on_conflict=on_conflict, damaged=damaged)
    return [each async for each in found]


async def is_clean(store: Store) -> bool:
    return [each async for each in verify(store) if isinstance(each, Finding)] == []


def by_type(file: Sequence[bytes], name: str) -> list[dict[str, object]]:
    decoded = (msgspec.json.decode(line, type=dict[str, object]) for line in file)
    return [each for each in decoded if each["type"] == name]


# ── there and back ───────────────────────────────────────────────────────────────────────────


async def test_an_import_gives_the_same_export_and_keeps_every_promise(
    store: Store, destination: Store, player: Player
) -> None:
    await furnish(player)
    file = await exported(store)
    taken = await imported(destination, file)
    assert {each.how for each in taken} == {"fresh"}
    assert await exported(destination) == file
    assert await is_clean(destination)
    assert len(by_type(file, "session")) == len(await store.session_ids(ACME, after=None, limit=99))


async def test_sessions_are_the_same_elsewhere(
    store: Store, destination: Store, player: Player
) -> None:
    await furnish(player)
    await imported(destination, await exported(store))
    here, there = [await contents(each) for each in (store, destination)]
    for mine, theirs in zip(here.sessions, there.sessions, strict=True):
        assert mine.dump is not None
        assert theirs.dump == without_leases(mine.dump)
        assert theirs.snapshots == tuple(map(played_elsewhere, mine.snapshots))
        ended = {row.turn_id for row in theirs.turns}
        assert theirs.turns == tuple(
            msgspec.structs.replace(row, lease_token=0)
            for row in mine.turns
            if row.turn_id in ended
        )
    assert here.listed == there.listed


def played_elsewhere(snapshot: Snapshot | None) -> Snapshot | None:
    """The same conversation, in a store that none of its turns was played in."""
    if snapshot is None:
        return None
    marks = [msgspec.structs.replace(each, is_foreign=True) for each in snapshot.marks]
    return msgspec.structs.replace(snapshot, marks=Log[TurnMark]().extended(marks))


async def test_importing_twice_changes_nothing(
    store: Store, destination: Store, player: Player
) -> None:
    await furnish(player)
    file = await exported(store)
    await imported(destination, file)
    async with changes_nothing(destination):
        assert {each.how for each in await imported(destination, file)} == {"same"}


async def test_one_session_comes_with_what_it_goes_on_from(
    store: Store, destination: Store, player: Player, mint: Minter
) -> None:
    await player.play("other", "Not this one")
    turn = await player.play("trip", "To Oslo")
    fork = (await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))).id
    await player.play(fork, "And back")
    file = await exported(store, fork)
    assert [each["id"] for each in by_type(file, "session")] == [turn.session_id, fork]
    await imported(destination, file)
    here, there = [await each.snapshot(ACME, fork) for each in (store, destination)]
    assert played_elsewhere(here) == there is not None


async def test_a_fork_comes_after_its_past_whatever_the_clocks_said(
    store: Store, destination: Store, player: Player, mint: Minter
) -> None:
    early = mint(SessionId)
    turn = await player.play("trip")
    assert early < turn.session_id
    await store.fork(ACME, turn.session_id, version=Version(1), fresh=early)
    file = await exported(store)
    assert [each["id"] for each in by_type(file, "session")] == [turn.session_id, early]
    await imported(destination, file)
    assert await exported(destination) == file


async def test_nothing_of_a_deleted_session_goes_out(store: Store, player: Player) -> None:
    turn = await player.play("trip", "Secret")
    await store.remove(ACME, turn.session_id)
    assert await exported(store) == [export_lines.HEADER, b'{"type":"last","sessions":0}\n']


async def test_what_a_fork_reads_of_a_deleted_session_goes_out_and_no_more(
    store: Store, destination: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip", "To Oslo")
    digest = await store.put_blob(ACME, turn.session_id, b"Secret ticket")
    source = Blob(media_type="text/plain", digest=digest, size_bytes=13)
    ticket = UserMessage(id=mint(MessageId), content=(File(source=source),))
    await player.play("trip", ticket, "Secret", key="k")
    await store.annotate(ACME, turn.session_id, [(None, Flagged(name="Secret"))])
    fork = (await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))).id
    await player.play(fork, "And back")
    await store.remove(ACME, turn.session_id)

    file = await exported(store)
    text = b"".join(file)
    assert b"To Oslo" in text and b"Secret" not in text and b'"blob"' not in text
    await imported(destination, file)
    here, there = [await each.snapshot(ACME, fork) for each in (store, destination)]
    assert played_elsewhere(here) == there is not None
    assert await destination.snapshot(ACME, turn.session_id) is None
    assert await exported(destination) == file
    assert await is_clean(destination)


@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        export_lines.BLOB_PIECE_BYTES,
        export_lines.BLOB_PIECE_BYTES + 1,
        3 * export_lines.BLOB_PIECE_BYTES,
    ],
)
async def test_blobs_of_any_size_go_in_short_lines(
    store: Store, destination: Store, player: Player, size: int
) -> None:
    turn = await player.play("trip")
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    digest = await store.put_blob(ACME, turn.session_id, data)
    file = await exported(store)
    assert max(map(len, file)) < export_lines.BLOB_PIECE_BYTES * 2
    await imported(destination, file)
    assert await destination.blob(ACME, turn.session_id, digest) == data
    assert await exported(destination) == file


async def test_damage_goes_out_and_comes_in_only_when_it_is_wanted(
    store: Store, destination: Store, player: Player, damage: Damage
) -> None:
    turn = await player.play("trip", "To Oslo")
    await damage.item(ACME, turn.session_id, 1, b"\xff\x00 no JSON")
    file = await exported(store)
    async with changes_nothing(destination):
        with pytest.raises(InvalidExport, match=r"damaged.*; nothing is imported"):
            await imported(destination, file)
    await imported(destination, file, damaged=True)
    assert await exported(destination) == file


# ── files that are not what went out ─────────────────────────────────────────────────────────


async def whole_sessions(store: Store, file: Sequence[bytes]) -> None:
    """Every session that is there is as in the file, and keeps every promise."""
    there = set(await exported(store))
    assert there - set(file) <= {line for line in there if b'"last"' in line}
    assert await is_clean(store)


@OF_THE_FILE
async def test_a_file_that_is_cut_off_anywhere_leaves_whole_sessions_and_can_be_imported_again(
    player: Player, store: Store, clock: ManualClock
) -> None:
    await furnish(player)
    file = await exported(store)
    for cut in range(len(file)):
        target = MemoryStore(now_ms=clock.now_ms)
        with pytest.raises(InvalidExport) as told:
            await imported(target, file[:cut])
        assert told.value.line == cut + 1
        assert "cut off" in str(told.value)
        assert told.value.sessions == sum(b'"type":"end"' in line for line in file[:cut])
        await whole_sessions(target, file)
        await imported(target, file)
        assert await exported(target) == file


async def test_a_line_that_is_cut_off_is_named(store: Store, player: Player) -> None:
    await player.play("trip")
    file = await exported(store)
    with pytest.raises(InvalidExport, match="line 3: the file is cut off in the middle"):
        await imported(MemoryStore(), [*file[:2], file[2][:-5]])


@OF_THE_FILE
async def test_no_line_can_be_left_out_twice_there_or_changed(
    store: Store, player: Player, clock: ManualClock
) -> None:
    await furnish(player)
    file = await exported(store)
    for n, line in enumerate(file):
        for spoilt in (
            [*file[:n], *file[n + 1 :]],
            [*file[: n + 1], *file[n:]],
            [*file[:n], line.replace(b"1", b"2", 1), *file[n + 1 :]],
            [*file[:n], line.replace(b'{"type"', b'{ "type"'), *file[n + 1 :]],
            [*file[:n], line.replace(b'"type"', b'"later":1,"type"', 1), *file[n + 1 :]],
        ):
            if spoilt == file:
                continue
            target = MemoryStore(now_ms=clock.now_ms)
            with pytest.raises(InvalidExport) as told:
                await imported(target, spoilt)
            assert told.value.line >= n + 1, "nothing before it is to blame"
            await whole_sessions(target, file)


@given(st.lists(st.binary(max_size=40), max_size=4), st.booleans())
def test_no_file_is_worse_than_refused(rubbish: list[bytes], begins_well: bool) -> None:
    async def play() -> None:
        target = MemoryStore()
        file = [export_lines.HEADER] * begins_well + [line + b"\n" for line in rubbish]
        with pytest.raises(InvalidExport):
            await imported(target, file)
        assert await target.tenants() == ()

    asyncio.run(play())


Change = Callable[[dict[str, object]], object]

HOSTILE: dict[str, tuple[str, Change, str]] = {
    "a tenant": ("session", lambda line: line.update(tenant="rival"), "must not name its tenant"),
    "a session": ("turn", lambda line: line.update(session_id="x"), "must not name its tenant"),
    "an id": ("session", lambda line: line.update(id="../../etc/passwd"), "session id"),
    "a key": ("key", lambda line: line.update(key="conv_x"), "session key"),
    "a number": ("session", lambda line: line.update(created_ms=1 << 63), "no store can hold"),
    "a deep number": (
        "session",
        lambda line: line.update(
            lineage=[
                {
                    "session_id": "conv_" + "0" * 26,
                    "upto_pos": 1 << 70,
                    "upto_version": 1,
                    "upto_rev": 0,
                }
            ]
        ),
        "no store can hold",
    ),
    "a type": ("item", lambda line: line.update(type="pickle"), "no line of type 'pickle'"),
    "a lease": ("session", lambda line: line.update(lease_token=9), "form|middle of a turn"),
    "a link": ("turn", lambda line: line.update(link="A" * 43 + "="), "damaged|not whole"),
    "another past": (
        "session",
        lambda line: line.update(
            lineage=[
                {
                    "session_id": "conv_" + "0" * 26,
                    "upto_pos": 1,
                    "upto_version": 1,
                    "upto_rev": 0,
                }
            ]
        ),
        "restore that first|field or a form",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_file_is_refused_although_its_checksum_is_right(
    store: Store, destination: Store, player: Player, name: str
) -> None:
    await player.play("trip", "To Oslo")
    where, change, told = HOSTILE[name]
    block = [msgspec.json.decode(line, type=dict[str, object]) for line in (await exported(store))]
    change(next(line for line in block if line["type"] == where))
    file = signed(block)
    with pytest.raises(InvalidExport, match=told):
        await imported(destination, file)
    assert await destination.tenants() == ()


async def test_lines_that_are_not_in_their_order_are_refused_although_the_checksum_is_right(
    store: Store, player: Player
) -> None:
    """Else a file and the export of what it became would differ."""
    await player.play("trip", "To Oslo")
    decoded = [msgspec.json.decode(line, type=dict[str, object]) for line in await exported(store)]
    kinds = [line["type"] for line in decoded]
    key, turn = kinds.index("key"), kinds.index("turn")
    decoded[key], decoded[turn] = decoded[turn], decoded[key]
    with pytest.raises(InvalidExport, match=f"line {turn + 1}: it is not in its place"):
        await imported(MemoryStore(), signed(decoded))


def signed(decoded: list[dict[str, object]]) -> list[bytes]:
    """One block, with a checksum that fits it."""
    header, *rows, end, last = decoded
    body = [msgspec.json.encode(row) + b"\n" for row in rows]
    end["sha256"] = sha256(b"".join(body)).hexdigest()
    encoded = [msgspec.json.encode(each) + b"\n" for each in (header, end, last)]
    return [encoded[0], *body, *encoded[1:]]


async def test_a_file_belongs_to_whoever_imports_it(
    store: Store, destination: Store, player: Player
) -> None:
    await furnish(player)
    file = await exported(store)
    assert not any(b"acme" in line for line in file)
    rival = Tenant("rival")
    await imported(destination, file, tenant=rival)
    assert await destination.tenants() == (rival,)
    assert await exported(destination, tenant=rival) == file


@pytest.mark.parametrize("bound", ["import_line_bytes_max", "import_session_bytes_max"])
async def test_lines_and_sessions_have_bounds(
    store: Store, player: Player, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    await player.play("trip", "To Oslo " * 200)
    file = await exported(store)
    monkeypatch.setattr(limits, bound, 1000)
    with pytest.raises(InvalidExport, match=r"(longer|larger) than 1000 bytes"):
        await imported(MemoryStore(), file)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (b'{"type":"holdfast","format":"sessions","version":[2,0]}\n', "its format is 2.0"),
        (b'{"type":"holdfast","format":"pictures","version":[1,0]}\n', "no export of sessions"),
        (b"\x80\x04\x95.\n", "no export of sessions"),
        (b"\n", "no export of sessions"),
    ],
)
async def test_what_begins_otherwise_is_no_export(header: bytes, told: str) -> None:
    with pytest.raises(InvalidExport, match=f"line 1: .*{told}.*; nothing is imported"):
        await imported(MemoryStore(), [header])


async def test_a_newer_file_is_read_until_something_new_comes(store: Store, player: Player) -> None:
    await player.play("trip")
    header, *rest = await exported(store)
    newer = header.replace(b"[1,0]", b"[1,7]")
    await imported(MemoryStore(), [newer, *rest])
    rest[0] = rest[0].replace(b'{"type"', b'{"mood":"good","type"')
    with pytest.raises(InvalidExport, match=r"line 2: .*format is 1\.7.* knows 1\.0: upgrade"):
        await imported(MemoryStore(), [newer, *rest])


# ── conflicts ────────────────────────────────────────────────────────────────────────────────


async def test_a_session_that_is_another_one_here_stops_the_import_or_is_skipped(
    store: Store, destination: Store, player: Player, mint: Minter
) -> None:
    first = await player.play("first")
    turn = await player.play("trip")
    fork = (await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))).id
    last = await player.play("last")
    await imported(destination, await exported(store, turn.session_id))
    await player.play("trip", "And on")
    await store.annotate(ACME, fork, [(None, Titled(title="A fork"))])
    file = await exported(store)

    with pytest.raises(ImportConflict, match=f"a different session '{turn.session_id}'"):
        await imported(destination, file)
    assert await destination.session(ACME, first.session_id) is not None
    assert await destination.session(ACME, last.session_id) is None

    taken = await imported(destination, file, on_conflict="skip")
    assert {each.session_id: each.how for each in taken} == {
        first.session_id: "same",
        turn.session_id: "skipped",
        fork: "skipped",
        last.session_id: "fresh",
    }


async def test_a_key_that_is_taken_is_a_conflict_by_name(
    store: Store, destination: Store, player: Player, mint: Minter
) -> None:
    await player.play("trip")
    other = Player(destination, mint)
    await other.renew()
    await other.play("trip")
    with pytest.raises(ImportConflict, match="the key 'trip' belongs to another session"):
        await imported(destination, await exported(store))


@OF_THE_FILE
async def test_an_import_that_dies_anywhere_can_be_made_again(
    player: Player, store: Store, clock: ManualClock
) -> None:
    await furnish(player)
    file = await exported(store)
    for moment in ("before", "after"):
        for nth in count(1):
            target = MemoryStore(now_ms=clock.now_ms)
            crashing = CrashingStore(
                target, at_write=nth, moment="after" if moment == "after" else "before"
            )
            try:
                await imported(crashing, file)
            except Crash:
                await whole_sessions(target, file)
                await imported(target, file)
                assert await exported(target) == file
            else:
                break
        assert nth > 5


# ── copies ───────────────────────────────────────────────────────────────────────────────────


async def two_tenants(player: Player) -> None:
    await furnish(player)
    likes = MemoryAdded(memory_id="m1", agent="butler", text="likes trains")
    await player.play("trip", changes=(likes,))
    rival = Player(player.store, player.mint, tenant=Tenant("rival"))
    await rival.renew()
    await rival.play("trip", "Theirs")
    gone = await player.play("gone", "Secret")
    await player.store.remove(ACME, gone.session_id)


async def test_a_copy_holds_everything_that_lasts(
    store: Store, destination: Store, player: Player
) -> None:
    await two_tenants(player)
    told = [each async for each in copy(store, destination) if isinstance(each, CopyProgress)]
    assert (told[-1].done, told[-1].fresh, told[-1].memories) == (told[-1].of, told[-1].of, 1)
    for tenant in (ACME, Tenant("rival")):
        assert await exported(destination, tenant=tenant) == await exported(store, tenant=tenant)
        ids = await store.session_ids(tenant, after=None, limit=99)
        assert await destination.session_ids(tenant, after=None, limit=99) == ids
    assert await destination.memories(ACME, "butler") == await store.memories(ACME, "butler")
    assert await is_clean(destination)
    async with changes_nothing(destination):
        again = [each async for each in copy(store, destination) if isinstance(each, CopyProgress)]
    assert (again[-1].fresh, again[-1].memories) == (0, 0)


async def test_a_copy_goes_on_past_a_session_that_is_another_one_there(
    store: Store, destination: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    fork = (await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))).id
    _ = [each async for each in copy(store, destination)]
    await player.play("trip", "And on")
    last = await player.play("last")
    told = [each async for each in copy(store, destination)]
    left_out = {each.what: each for each in told if isinstance(each, NotCopied)}
    assert set(left_out) == {turn.session_id, fork}
    why = f"a different session '{turn.session_id}' is there already"
    assert (left_out[turn.session_id].why, left_out[turn.session_id].is_damaged) == (why, False)
    assert await destination.session(ACME, last.session_id) is not None


async def test_a_copy_that_dies_anywhere_goes_on_where_it_stopped(
    player: Player, store: Store, clock: ManualClock
) -> None:
    await two_tenants(player)
    for nth in count(1):
        target = MemoryStore(now_ms=clock.now_ms)
        try:
            async for _ in copy(store, CrashingStore(target, at_write=nth)):
                pass
        except Crash:
            assert await is_clean(target)
            done = [each async for each in copy(store, target)]
            assert isinstance(done[-1], CopyProgress)
            assert await exported(target) == await exported(store)
        else:
            break
    assert nth > 5


# ── any story ────────────────────────────────────────────────────────────────────────────────

story = st.lists(
    st.tuples(
        st.sampled_from(("play", "play", "fork", "title", "remove", "discard", "blob", "prune")),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=12,
)


@given(story)
def test_from_memory_to_sqlite_and_back(told: list[tuple[str, int]]) -> None:
    async def play() -> None:
        with scratch_folder() as folder:
            clock, steps = ManualClock(), count()
            first = MemoryStore(now_ms=clock.now_ms)
            second = await SqliteStore.open(folder / "s.db", now_ms=clock.now_ms)
            third = MemoryStore(now_ms=clock.now_ms)
            mint = Minter(now_ms=clock.now_ms, random_bits=lambda bits: next(steps) % (1 << bits))
            await _tell(Player(first, mint), told)
            file = await exported(first)
            await imported(second, file)
            assert await exported(second) == file
            await imported(third, await exported(second))
            assert await exported(third) == file
            for store in (second, third):
                assert await is_clean(store)
                assert {each.how for each in await imported(store, file)} <= {"same"}
                await store.close()

    asyncio.run(play())


async def _tell(player: Player, told: list[tuple[str, int]]) -> None:
    await player.renew()
    store, ids = player.store, list[SessionId]()
    for name, n in told:
        session_id = ids[n % len(ids)] if ids else None
        if name == "play" or session_id is None:
            known = session_id if n % 2 else None
            turn = await player.play(
                known or f"key-{n}",
                f"Said {n} ü \x00",
                key=f"k-{player.mint(SessionId)}",
                replayable=n > 5,
            )
            ids += [turn.session_id] * (turn.session_id not in ids)
        elif name == "fork":
            row = await store.session(ACME, session_id)
            assert row is not None
            ids.append(player.mint(SessionId))
            await store.fork(ACME, session_id, version=Version(n % (row.head + 1)), fresh=ids[-1])
        elif name == "title":
            await store.annotate(ACME, session_id, [(None, Titled(title=f"Title {n} ☃"))])
        elif name == "remove":
            await store.remove(ACME, session_id)
            ids.remove(session_id)
        elif name == "discard":
            await player.discard(session_id, f"Said {n}")
        elif name == "blob":
            await store.put_blob(ACME, session_id, bytes([n]) * n)
        else:
            await store.prune(limit=3)
