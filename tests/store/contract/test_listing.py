"""Lists: what is in them, in which order, and how one leafs through them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast import limits
from holdfast.core.history.conversation import SettingsChanged
from holdfast.core.items import SessionSettings
from holdfast.errors import InvalidCursor
from holdfast.ids import Minter, SessionId, SessionKey, Tenant, Version
from holdfast.store.operations import lists
from holdfast.store.outcomes import EVERYTHING, SessionFilter, SessionInfo
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player


async def listed(
    store: Store, where: SessionFilter = EVERYTHING, *, limit: int = 3
) -> list[SessionId]:
    """A whole list, leafed through."""
    return [info.session.id for info in await leafed(store, where, limit=limit)]


async def leafed(store: Store, where: SessionFilter, *, limit: int) -> Sequence[SessionInfo]:
    found: list[SessionInfo] = []
    cursor: str | None = None
    while True:
        page = await store.sessions(ACME, where=where, cursor=cursor, limit=limit)
        assert len(page.sessions) <= limit
        found += page.sessions
        if page.cursor is None:
            return found
        assert page.sessions, "an empty page leads nowhere"
        cursor = page.cursor


async def test_sessions_are_listed_by_their_last_turn(
    store: Store, player: Player, clock: ManualClock
) -> None:
    ids = []
    for n in range(4):
        ids.append((await player.play(f"s{n}")).session_id)
        clock.advance(1)
    assert await listed(store) == ids[::-1]

    await player.play("s1")
    assert await listed(store) == [ids[1], ids[3], ids[2], ids[0]]


async def test_at_the_same_time_the_later_id_comes_first(store: Store, player: Player) -> None:
    ids = [(await player.play(f"s{n}")).session_id for n in range(5)]
    assert await listed(store, limit=2) == sorted(ids, reverse=True)


@pytest.mark.parametrize("keyed_max", [limits.listed_by_key_max, 1], ids=["few", "many"])
async def test_sessions_whose_keys_begin_alike_are_leafed_through(
    store: Store, player: Player, monkeypatch: pytest.MonkeyPatch, keyed_max: int
) -> None:
    """At the same time, too, and however many are read at once."""
    monkeypatch.setattr(lists, "NAMED_AT_ONCE", 2)
    monkeypatch.setattr(limits, "listed_by_key_max", keyed_max)
    ids = [(await player.play(f"a{n}")).session_id for n in range(7)]
    await player.play("b")
    where = SessionFilter(key_prefix="a")
    assert await listed(store, where, limit=3) == sorted(ids, reverse=True)


async def test_a_session_is_listed_with_its_row_and_its_keys(store: Store, player: Player) -> None:
    turn = await player.play("trip")
    [info] = (await store.sessions(ACME)).sessions
    assert info == await store.info(ACME, turn.session_id)
    assert info.keys == (SessionKey("trip"),)


async def test_a_session_without_a_committed_turn_is_not_listed(
    store: Store, player: Player, mint: Minter
) -> None:
    await player.discard("discarded")
    await player.open("open")
    await store.bind(ACME, SessionKey("reset"), fresh=mint(SessionId))
    assert await listed(store) == []


async def test_a_fork_is_listed_at_once(store: Store, player: Player, mint: Minter) -> None:
    turn = await player.play("trip")
    fork = await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))
    assert set(await listed(store)) == {turn.session_id, fork.id}


@pytest.mark.parametrize("count", [0, 1, 3, 4])
async def test_the_last_page_has_no_cursor(store: Store, player: Player, count: int) -> None:
    for n in range(count):
        await player.play(f"s{n}")
    page = await store.sessions(ACME, limit=3)
    assert len(page.sessions) == min(count, 3)
    assert (page.cursor is None) == (count <= 3)


async def test_nobody_is_shown_twice_or_left_out_while_others_become_active(
    store: Store, player: Player, clock: ManualClock
) -> None:
    ids = []
    for n in range(6):
        ids.append((await player.play(f"s{n}")).session_id)
        clock.advance(0.5 if n % 2 else 0)
    first = await store.sessions(ACME, limit=2)
    await player.play("s0")  # to the front, from a page to come
    await player.play("new")
    second = await store.sessions(ACME, cursor=first.cursor, limit=2)
    await store.remove(ACME, second.sessions[-1].session.id)  # the cursor's own session goes
    third = await store.sessions(ACME, cursor=second.cursor, limit=2)

    seen = [info.session.id for page in (first, second, third) for info in page.sessions]
    assert seen == ids[:0:-1]
    assert third.cursor is None


@pytest.mark.parametrize("cursor", ["", "x", "ж", "AAAA", "a" * 300, "eyJhIjoxfQ", "=", "-_"])
async def test_a_cursor_of_somebody_elses_is_refused(
    store: Store, player: Player, cursor: str
) -> None:
    with pytest.raises(InvalidCursor):
        await store.sessions(ACME, cursor=cursor)


async def test_an_altered_cursor_is_refused(store: Store, player: Player) -> None:
    for n in range(2):
        await player.play(f"s{n}")
    cursor = (await store.sessions(ACME, limit=1)).cursor
    assert cursor is not None
    for place in range(0, len(cursor), 7):
        other = "A" if cursor[place] != "A" else "B"
        with pytest.raises(InvalidCursor):
            await store.sessions(ACME, cursor=cursor[:place] + other + cursor[place + 1 :])


# ── filters ──────────────────────────────────────────────────────────────────────────────────


async def test_each_filter_shows_what_fits(
    store: Store, player: Player, clock: ManualClock
) -> None:
    start = clock.now_ms()
    a = (await player.play("trip-a", agent="butler")).session_id
    clock.advance(1)
    b = (await player.play("trip-b", agent="cook")).session_id
    clock.advance(1)
    c = (await player.play("holiday", agent="butler")).session_id
    await player.open("trip-b")
    mood = SettingsChanged(settings=SessionSettings(attributes=(("day", "1"), ("mood", "good"))))
    await store.annotate(ACME, a, [(None, mood)])

    cases: list[tuple[SessionFilter, list[SessionId]]] = [
        (SessionFilter(), [c, b, a]),
        (SessionFilter(agent="butler"), [c, a]),
        (SessionFilter(agent="cook"), [b]),
        (SessionFilter(agent="nobody"), []),
        (SessionFilter(key_prefix="trip-"), [b, a]),
        (SessionFilter(key_prefix="trip-a"), [a]),
        (SessionFilter(key_prefix="trip-ab"), []),
        (SessionFilter(key_prefix="Trip"), []),
        (SessionFilter(key_prefix=""), [c, b, a]),
        (SessionFilter(attributes=(("mood", "good"),)), [a]),
        (SessionFilter(attributes=(("mood", "good"), ("day", "1"))), [a]),
        (SessionFilter(attributes=(("mood", "good"), ("day", "2"))), []),
        (SessionFilter(attributes=(("mood", ""),)), []),
        (SessionFilter(active_from_ms=start + 1000), [c, b]),
        (SessionFilter(active_before_ms=start + 1000), [a]),
        (SessionFilter(active_from_ms=start + 1, active_before_ms=start + 2000), [b]),
        (SessionFilter(busy=True), [b]),
        (SessionFilter(busy=False), [c, a]),
        (SessionFilter(anonymous=True), []),
        (SessionFilter(agent="butler", key_prefix="trip", busy=False), [a]),
    ]
    for where, expected in cases:
        for limit in (1, 10):
            assert await listed(store, where, limit=limit) == expected, where


async def test_an_attribute_that_has_changed_or_is_gone_is_not_found_as_it_was(
    store: Store, player: Player
) -> None:
    trip = (await player.play("trip")).session_id
    for attributes in ((("day", "1"), ("mood", "good")), (("mood", "bad"),)):
        settings = SessionSettings(attributes=attributes)
        await store.annotate(ACME, trip, [(None, SettingsChanged(settings=settings))])
    for was in (("day", "1"), ("mood", "good")):
        assert await listed(store, SessionFilter(attributes=(was,)), limit=10) == []
    assert await listed(store, SessionFilter(attributes=(("mood", "bad"),)), limit=10) == [trip]


async def test_what_like_and_glob_would_take_for_more_is_taken_as_it_is(
    store: Store, player: Player
) -> None:
    odd = (await player.play("100%_a*?[b]~")).session_id
    await player.play("100xya")
    assert await listed(store, SessionFilter(key_prefix="100%_a*?[b]")) == [odd]
    assert await listed(store, SessionFilter(key_prefix="100%_a*?[b]~")) == [odd]
    assert await listed(store, SessionFilter(key_prefix="100%x")) == []


async def test_the_agent_of_a_list_is_the_one_who_speaks_now(store: Store, player: Player) -> None:
    turn = await player.play("trip", agent="butler")
    await player.play("trip", agent="cook")
    assert await listed(store, SessionFilter(agent="butler")) == []
    assert await listed(store, SessionFilter(agent="cook")) == [turn.session_id]


async def test_lines_that_nobody_named_are_listed_on_request_only(
    store: Store, player: Player
) -> None:
    named, nameless = await player.play("trip"), await player.play(None)
    assert await listed(store) == [named.session_id]
    assert await listed(store, SessionFilter(anonymous=True)) == [nameless.session_id]


# ── for operators ────────────────────────────────────────────────────────────────────────────


async def test_operators_see_every_session_by_id(store: Store, player: Player) -> None:
    ids = [(await player.play(f"s{n}")).session_id for n in range(3)]
    ids.append((await player.discard("discarded")).session_id)
    ids.append((await player.play(None)).session_id)
    await store.remove(ACME, ids[1])

    found = await store.session_ids(ACME, after=None, limit=3)
    assert list(found) == sorted(ids)[:3]
    rest = await store.session_ids(ACME, after=found[-1], limit=3)
    assert [*found, *rest] == sorted(ids)
    assert await store.session_ids(ACME, after=rest[-1], limit=3) == ()


async def test_operators_see_every_tenant(store: Store, player: Player, mint: Minter) -> None:
    assert await store.tenants() == ()
    for name in ("zoo", "acme", "rival"):
        other = Player(store, mint, tenant=Tenant(name))
        await other.renew()
        await other.play("trip")
    assert await store.tenants() == (Tenant("acme"), Tenant("rival"), Tenant("zoo"))


async def test_operators_see_what_is_there_in_numbers(store: Store, player: Player) -> None:
    await player.play("trip")
    await player.play("trip")
    await player.discard("trip")
    await player.open("holiday")
    gone = await player.play("gone")
    await store.remove(ACME, gone.session_id)

    stats = await store.stats()
    assert (stats.sessions, stats.items) == (2, 6)
    assert (stats.turns_open, stats.turns_committed, stats.turns_discarded) == (1, 3, 1)
    assert stats.bytes > 0


@pytest.mark.parametrize("few", [0, 2, 1000], ids=["walked", "some", "looked up"])
async def test_a_beginning_of_keys_finds_the_same_however_many_there_are(
    store: Store, player: Player, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(limits, "listed_by_key_max", few)
    for key in ("a-1", "b-1", "a-2", "b-2", "a-3", "ab", "a-4"):
        clock.advance(1)
        await player.play(key)
    found: list[str] = []
    cursor: str | None = None
    for _ in range(4):
        page = await store.sessions(
            ACME, where=SessionFilter(key_prefix="a-"), cursor=cursor, limit=2
        )
        found += [key for each in page.sessions for key in each.keys]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == ["a-4", "a-3", "a-2", "a-1"]
    nobody = await store.sessions(ACME, where=SessionFilter(key_prefix="a-", agent="nobody"))
    assert nobody.sessions == ()
    assert (await store.sessions(ACME, where=SessionFilter(key_prefix="z"))).sessions == ()
