"""Turns that were kept unfinished, and the turns that go on with them. Promises 2 and 6."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast import limits
from holdfast.core.items import EndedBy
from holdfast.ids import IdempotencyKey, Minter, SessionId, SessionKey, TurnId, Version
from holdfast.store.outcomes import (
    Attempt,
    BeginOutcome,
    Busy,
    ById,
    ByKey,
    Finished,
    Joined,
    Moved,
    Replay,
    Signalled,
    Started,
    Unfinished,
)
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player, Playing
from tests.store.contract.words import changes_nothing

KEY = IdempotencyKey("k")
SAME = Attempt(request_hash=b"same", key=KEY)
LEFT = limits.continuations_max


async def broken(player: Player, **asking: object) -> Playing:
    return await player.break_off("trip", key="k", request_hash=b"same", **asking)  # type: ignore[arg-type]


async def go_on(player: Player, turn: Playing, *, links: int = 1, **asking: object) -> Playing:
    return await player.open(
        "trip",
        continues=turn.turn_id,
        links=links,
        **{"key": "k", "request_hash": b"same", **asking},  # type: ignore[arg-type]
    )


async def found(store: Store) -> object:
    return await store.find_attempt(ACME, SAME, ByKey(key=SessionKey("trip")))


# ── what is unfinished ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("by", "detail", "left"),
    [
        ("model_error", "", LEFT),
        ("tool_error", "", LEFT),
        ("deadline", "", LEFT),
        ("disconnected", "", LEFT),
        ("crash", "", LEFT),
        ("shutdown", "", LEFT),
        ("cancelled", "", None),
        ("limit", "", None),
    ],
)
async def test_a_session_says_what_can_be_continued(
    store: Store, player: Player, by: EndedBy, detail: str, left: int | None
) -> None:
    turn = await player.break_off("trip", by=by, detail=detail)
    session = await store.session(ACME, turn.session_id)

    assert session is not None
    assert (session.unfinished, session.retries_left) == (Version(1), left)
    row = await turn.row()
    assert (row.continues, row.links, row.replayable) == (None, None, True)
    assert await store.journal(ACME, turn.turn_id), "whoever goes on has to know what was asked"

    await player.play("trip")
    session = await store.session(ACME, turn.session_id)
    assert session is not None
    assert (session.unfinished, session.retries_left) == (None, None)


async def test_a_key_of_an_unfinished_turn_says_that_it_may_go_on(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await broken(player)
    unfinished = Unfinished(session_id=turn.session_id, version=Version(1), retries_left=LEFT)
    replay = Replay(turn_id=turn.turn_id, session_id=turn.session_id)

    async with changes_nothing(store, claims=["k"]):
        assert await found(store) == unfinished
        assert await player.begin("trip", key="k", request_hash=b"same") == unfinished
    await player.play("trip")
    assert await found(store) == replay, "the head has moved"


async def test_a_key_whose_name_means_another_session_by_now_is_replayed(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await broken(player)
    await store.bind(ACME, SessionKey("trip"), fresh=mint(SessionId))
    replay = Replay(turn_id=turn.turn_id, session_id=turn.session_id)

    assert await found(store) == replay
    assert await player.begin("trip", key="k", request_hash=b"same") == replay


@pytest.mark.parametrize("by", ["cancelled", "limit"])
async def test_what_only_a_person_continues_is_replayed_by_its_key(
    store: Store, player: Player, by: EndedBy
) -> None:
    turn = await broken(player, by=by)
    assert await found(store) == Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await player.begin("trip", request_hash=b"same") == await begun_anew(store, player)


async def begun_anew(store: Store, player: Player) -> BeginOutcome:
    session = await store.session(ACME, await player.id_of("trip"))
    assert session is not None and session.open_turn is not None
    row = await store.turn(ACME, session.open_turn)
    assert row is not None and row.continues is None
    ask = await player.ask("trip", turn_id=row.turn_id)
    outcome = await store.begin(msgspec.structs.replace(ask, nonce=session.lease_nonce))
    assert isinstance(outcome, Started)
    return outcome


# ── the same request without a key ───────────────────────────────────────────────────────────


async def again(player: Player, **asking: object) -> BeginOutcome:
    """What a session answers to a request that was here before; `find_attempt` has to agree."""
    ask = await player.ask("trip", request_hash=b"same", **asking)  # type: ignore[arg-type]
    known = await player.store.find_attempt(ACME, ask.attempt, ask.target)
    outcome = await player.store.begin(ask)
    assert known == (None if isinstance(outcome, Started) else outcome)
    return outcome


@pytest.mark.parametrize("count", [0, 1])
async def test_the_same_request_is_known_again_for_ten_minutes(
    store: Store, player: Player, clock: ManualClock, count: int
) -> None:
    turn = await player.break_off("trip", request_hash=b"same")
    unfinished = Unfinished(session_id=turn.session_id, version=Version(1), retries_left=LEFT)
    clock.advance(limits.unfinished_retry_s)
    await player.renew()
    assert await again(player, client_attempt=count) == unfinished

    clock.advance(0.001)
    assert isinstance(await again(player, client_attempt=count), Started)


async def test_it_is_not_if_its_answer_has_arrived_or_another_key_comes_with_it(
    store: Store, player: Player
) -> None:
    turn = await player.break_off("trip", request_hash=b"same")
    fresh = await player.begin("trip", request_hash=b"same", key="fresh")
    assert isinstance(fresh, Started)
    other = await player.playing(await player.ask("trip"), fresh)
    await other.end()
    await store.acknowledge(ACME, turn.turn_id)
    assert isinstance(await again(player), Started)


async def test_a_fork_is_not_what_it_was_forked_from(
    store: Store, player: Player, mint: Minter
) -> None:
    turn = await player.break_off("trip", request_hash=b"same")
    fork = await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))
    assert (fork.unfinished, fork.retries_left) == (None, None)
    assert isinstance(await player.begin(fork.id, request_hash=b"same"), Started)


async def test_an_unfinished_turn_is_found_by_what_its_request_is_known_by(
    store: Store, player: Player
) -> None:
    assert await store.turn_unfinished(ACME, b"same") is None
    await player.play("other", request_hash=b"same")
    assert await store.turn_unfinished(ACME, b"same") is None
    for name in ("trip", None):
        turn = await player.break_off(name, request_hash=b"same")
        assert await store.turn_unfinished(ACME, b"same") == await turn.row()


# ── going on ─────────────────────────────────────────────────────────────────────────────────


async def test_a_continuation_takes_the_keys_along_and_brings_them_to_its_end(
    store: Store, player: Player, clock: ManualClock
) -> None:
    turn = await player.open("trip", key="k", request_hash=b"same")
    steer = Attempt(request_hash=b"said", key=IdempotencyKey("s"))
    deaf = Attempt(request_hash=b"unheard", key=IdempotencyKey("d"))
    for attempt in (steer, deaf):
        sent = await store.signal(ACME, turn.turn_id, kind="steer", payload=b"x", attempt=attempt)
        assert isinstance(sent, Signalled)
    await store.append(turn.fence, n=turn.n, records=b"", consumed=[1])
    await turn.call("act")
    await turn.interrupt("model_error")
    await turn.commit()

    on = await go_on(player, turn)
    row = await on.row()
    assert (row.continues, row.links, row.request_hash) == (turn.turn_id, None, b"same")
    joined = Joined(turn_id=on.turn_id, session_id=on.session_id)
    assert await found(store) == joined
    assert await store.find_attempt(ACME, steer) == joined, "what it has heard is part of it"
    assert await store.find_attempt(ACME, deaf) is None, "and what it has not is still to be said"

    clock.advance(3600)
    await player.renew()
    await on.answer()
    await on.commit()
    replay = Replay(turn_id=on.turn_id, session_id=on.session_id)
    assert await found(store) == await store.find_attempt(ACME, steer) == replay
    claim = await store.idempotency(ACME, KEY)
    assert claim is not None
    assert claim.expires_ms == clock.now_ms() + int(limits.idempotency_keep_s * 1000)
    row = await on.row()
    assert (row.continues, row.links) == (turn.turn_id, 1)
    head = await player.snapshot("trip")
    assert head.marks[-1].continues == turn.turn_id and head.broken_off


async def test_of_many_that_want_to_go_on_one_does_and_the_rest_join(
    store: Store, player: Player
) -> None:
    turn = await player.break_off("trip", request_hash=b"same")
    asks = [
        await player.ask(
            "trip",
            request_hash=b"same" if links else b"by hand",
            continues=turn.turn_id,
            links=links,
        )
        for links in (1, 1, 0, 0)
    ]
    outcomes = await asyncio.gather(*map(store.begin, asks))

    [started] = [each for each in outcomes if isinstance(each, Started)]
    joined = Joined(turn_id=started.fence.turn_id, session_id=started.fence.session_id)
    assert [each for each in outcomes if each is not started] == [joined] * 3
    assert await again(player) == joined, "nor does the same request begin anything else"


async def test_a_continuation_that_is_discarded_leaves_everything_to_the_turn_before(
    store: Store, player: Player
) -> None:
    """The message is there already: no retry ever brings it again."""
    turn = await broken(player)
    for left in range(LEFT, 0, -1):
        unfinished = Unfinished(session_id=turn.session_id, version=Version(1), retries_left=left)
        assert await found(store) == await again(player) == unfinished
        on = await go_on(player, turn, links=LEFT + 1 - left)
        await on.end("model_error")
    replay = Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    assert await found(store) == await again(player) == replay
    by_hand = await go_on(player, turn, links=0, key="mine", request_hash=b"continue")
    await by_hand.answer()
    await by_hand.commit()
    assert await found(store) == Replay(turn_id=by_hand.turn_id, session_id=turn.session_id)


async def test_what_was_said_to_a_continuation_that_is_discarded_is_said_again(
    store: Store, player: Player
) -> None:
    turn = await broken(player)
    on = await go_on(player, turn)
    steer = Attempt(request_hash=b"said", key=IdempotencyKey("s"))
    await store.signal(ACME, on.turn_id, kind="steer", payload=b"x", attempt=steer)
    await store.append(on.fence, n=on.n, records=b"", consumed=[1])
    await on.end("model_error")
    assert await store.find_attempt(ACME, steer) is None


async def test_continuations_that_break_off_are_counted(store: Store, player: Player) -> None:
    turn = await broken(player)
    for links in range(1, LEFT + 1):
        on = await go_on(player, turn, links=links)
        await on.call("act")
        await on.interrupt("model_error")
        await on.commit()
        session = await store.session(ACME, turn.session_id)
        assert session is not None
        assert (session.unfinished, session.retries_left) == (session.head, LEFT - links)
        turn = on
    assert await found(store) == Replay(turn_id=turn.turn_id, session_id=turn.session_id)


async def test_only_the_head_is_continued_and_only_in_the_way_in_which_it_may_be(
    store: Store, player: Player, mint: Minter
) -> None:
    async def tried(**asking: object) -> BeginOutcome:
        return await player.begin("trip", **asking)  # type: ignore[arg-type]

    whole = await player.play("trip")
    assert await tried(continues=whole.turn_id) == Finished()
    turn = await player.break_off("trip", by="cancelled")
    assert await tried(continues=whole.turn_id) == Finished()
    assert await tried(continues=mint(TurnId)) == Finished()
    assert await tried(continues=turn.turn_id, links=1) == Finished(), "only a person does"
    ask = await player.ask("trip", continues=turn.turn_id)
    await player.play("trip")
    assert await store.begin(ask) == Moved(session_id=turn.session_id, head=Version(3))
    fork = await store.fork(ACME, turn.session_id, version=Version(2), fresh=mint(SessionId))
    assert await player.begin(fork.id, continues=turn.turn_id) == Finished()
    other = await player.open("trip")
    busy = Busy(session_id=turn.session_id, turn_id=other.turn_id, holder_alive=True)
    assert await tried(continues=turn.turn_id) == busy


async def test_a_begin_that_is_repeated_takes_nothing_twice(store: Store, player: Player) -> None:
    turn = await broken(player)
    ask = await player.ask("trip", continues=turn.turn_id, links=1, key="k", request_hash=b"same")
    assert await store.begin(ask) == await store.begin(ask)
    session = await store.session(ACME, turn.session_id)
    assert session is not None and session.retries_left == LEFT - 1


async def test_a_dump_holds_it_as_plain_history(store: Store, player: Player) -> None:
    turn = await broken(player)
    on = await go_on(player, turn)
    await on.answer()
    await on.commit()
    last = await player.break_off("trip")
    dump = await store.dump(ACME, turn.session_id)
    assert dump is not None
    assert (dump.session.unfinished, dump.session.retries_left) == (None, None)
    by_id = {each.turn_id: each for each in dump.turns}
    assert (by_id[on.turn_id].continues, by_id[on.turn_id].links) == (turn.turn_id, 1)
    assert (
        await store.find_attempt(
            ACME, Attempt(request_hash=b"none"), ById(session_id=last.session_id)
        )
        is None
    )
