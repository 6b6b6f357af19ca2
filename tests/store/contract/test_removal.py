"""Removal: a session is gone at once, says so for ever, and its bytes go later."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.exchanges import Followed
from holdfast.core.history.conversation import SettingsChanged, Titled
from holdfast.core.items import SessionSettings
from holdfast.core.turns import events as ev
from holdfast.errors import SessionGone, SessionMissing, Superseded
from holdfast.ids import IdempotencyKey, Minter, SessionId, SessionKey, Version
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.contract.words import changes_nothing


async def test_a_tombstone_is_left_and_nothing_personal_in_it(store: Store, player: Player) -> None:
    turn = await player.play("trip", "My name is Anna")
    settings = SessionSettings(attributes=(("name", "Anna"),))
    await store.annotate(
        ACME,
        turn.session_id,
        [(None, Titled(title="Anna's trip")), (None, SettingsChanged(settings=settings))],
    )
    before = await store.session(ACME, turn.session_id)
    row = await store.remove(ACME, turn.session_id)

    assert before is not None
    assert row == msgspec.structs.replace(
        before,
        state="deleted",
        lease_token=before.lease_token + 1,
        lease_nonce="",
        title="",
        opening="",
        settings=SessionSettings(),
    )
    assert await store.session(ACME, turn.session_id) == row


async def test_deleting_again_returns_the_same_row(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.play("trip")
    row = await store.remove(ACME, turn.session_id)
    clock.advance(1)
    async with changes_nothing(store):
        assert await store.remove(ACME, turn.session_id) == row


async def test_what_never_was_cannot_be_deleted(store: Store, player: Player, mint: Minter) -> None:
    with pytest.raises(SessionMissing):
        await store.remove(ACME, mint(SessionId))


async def test_what_was_deleted_cannot_be_read(store: Store, player: Player) -> None:
    turn = await player.play("trip")
    digest = await store.put_blob(ACME, turn.session_id, b"picture")
    known = await player.snapshot("trip")
    await store.remove(ACME, turn.session_id)

    for version in (None, Version(0), Version(1)):
        assert await store.snapshot(ACME, turn.session_id, version=version) is None
    assert await store.snapshot(ACME, turn.session_id, known=known) is None
    assert await store.blob(ACME, turn.session_id, digest) is None
    assert (await store.sessions(ACME)).sessions == ()


async def test_its_key_is_free_for_somebody_else(store: Store, player: Player) -> None:
    first = await player.play("trip")
    await store.remove(ACME, first.session_id)
    assert await store.resolve(ACME, SessionKey("trip")) is None

    second = await player.play("trip")
    assert second.started.created and second.session_id != first.session_id


async def test_a_key_that_means_another_session_by_now_stays_with_it(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip")
    fresh = await store.bind(ACME, SessionKey("trip"), fresh=mint(SessionId))
    await store.remove(ACME, turn.session_id)
    assert await player.id_of("trip") == fresh.id


async def test_its_open_turn_is_ended(store: Store, player: Player, clock: ManualClock) -> None:
    turn = await player.open("trip", key="k")
    now = clock.advance(1)
    row = await store.remove(ACME, turn.session_id)

    assert (row.open_turn, row.lease_node) == (None, None)
    ended = await turn.row()
    assert (ended.state, ended.ended_by, ended.ended_ms) == ("discarded", "deleted", now)
    claim = await store.idempotency(ACME, IdempotencyKey("k"))
    assert claim is not None and claim.state != "running"


async def test_whoever_played_it_writes_no_more(store: Store, player: Player) -> None:
    turn = await player.open("trip")
    await store.remove(ACME, turn.session_id)
    async with changes_nothing(store):
        with pytest.raises(Superseded):
            await turn.answer()
    turn = await player.open("holiday")
    await turn.answer()
    await store.remove(ACME, turn.session_id)
    async with changes_nothing(store):
        with pytest.raises(Superseded):
            await turn.commit()
        with pytest.raises(Superseded):
            await store.release(turn.fence)
        assert await turn.end("cancelled") == await turn.row()
    assert (await turn.row()).ended_by == "deleted"


async def test_a_turn_that_was_committed_before_says_so_still(store: Store, player: Player) -> None:
    """Its commit was durable; that its answer was lost does not undo it."""
    turn = await player.play("trip")
    await store.remove(ACME, turn.session_id)
    assert (await turn.commit()).version == 1


async def test_nothing_can_be_put_into_it(store: Store, player: Player) -> None:
    turn = await player.play("trip")
    await store.remove(ACME, turn.session_id)
    async with changes_nothing(store):
        with pytest.raises(SessionGone):
            await store.put_blob(ACME, turn.session_id, b"picture")
        with pytest.raises(SessionGone):
            await store.annotate(ACME, turn.session_id, [(None, Titled(title="x"))])


async def test_what_its_agent_remembers_stays(store: Store, player: Player) -> None:
    added = ev.MemoryAdded(memory_id="m1", agent="butler", text="likes trains")
    turn = await player.play("trip", changes=(added,))
    await store.remove(ACME, turn.session_id)
    assert len(await store.memories(ACME, "butler")) == 1


async def test_operators_still_see_that_it_was_there(store: Store, player: Player) -> None:
    turn = await player.play("trip")
    await store.remove(ACME, turn.session_id)
    assert await store.session_ids(ACME, after=None, limit=10) == (turn.session_id,)
    assert (await store.stats()).sessions == 0


async def test_a_chat_goes_with_all_of_its_lines(store: Store, player: Player) -> None:
    one = await player.play("chat", "One", followed=Followed(name="chat"))
    await player.play("chat", "Two")
    made = [
        one.session_id,
        (await player.play_line("chat", "Two", after=one.session_id)).session_id,
    ]
    made.append((await player.play_line("chat", "Uno")).session_id)
    await store.remove(ACME, await player.id_of("chat"))
    for each in made:
        row = await store.session(ACME, each)
        assert row is not None and row.state == "deleted"


async def test_a_chat_that_was_rewound_to_its_beginning_goes_as_a_whole(
    store: Store, player: Player, mint: Minter
) -> None:
    """The line that stands for it has no version, and other lines are listed by names of their own."""
    made = [(await player.play("chat", "One", followed=Followed(name="chat"))).session_id]
    for words, name in (("Two", "by-sea"), ("Three", "by-train")):
        made.append((await player.play_line("chat", words)).session_id)
        await store.name(ACME, made[-1], SessionKey(name))
    row = await store.bind(ACME, SessionKey("chat"), fresh=mint(SessionId), version=Version(0))
    assert (row.head, row.family) == (0, made[0])
    await store.remove(ACME, row.id)
    for each in made:
        line = await store.session(ACME, each)
        assert line is not None and line.state == "deleted"


@pytest.mark.parametrize("gone_on_with", [(), ("own",), ("chat", "own")])
async def test_a_line_with_a_name_of_its_own_goes_alone(
    store: Store, player: Player, gone_on_with: tuple[str, ...]
) -> None:
    """Also in a chat whose name no turn has confirmed, or if a program goes on with that line under its own name."""
    chat = (await player.play("chat", "One")).session_id
    line = (await player.play_line("chat", "Two")).session_id
    hidden = (await player.play_line("chat", "Three")).session_id
    await store.name(ACME, line, SessionKey("own"))
    for name in gone_on_with:
        await player.play(name, "More", followed=Followed(name=name))
    await store.remove(ACME, line)
    states = {each: await store.session(ACME, each) for each in (chat, line, hidden)}
    assert {each: row.state for each, row in states.items() if row} == {
        chat: "live",
        line: "deleted",
        hidden: "live",
    }
    await store.remove(ACME, chat)
    row = await store.session(ACME, hidden)
    assert row is not None and row.state == "deleted", "it lives as long as its chat"
