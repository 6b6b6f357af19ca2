"""A store with one of everything in it: what a check has to find right, and a copy has to hold.

`furnish` is quick, and for tests that need a store with something in it. `furnish_fully` goes on until every table has
rows, and every column each of the values that its kind allows: what an archive of stores is made of (`archive.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256

import msgspec

from holdfast import limits
from holdfast.core.history.conversation import (
    Flagged,
    Patch,
    SettingsChanged,
    SettingsMerged,
    Summarized,
    Titled,
    Visibility,
)
from holdfast.core.items import (
    AssistantMessage,
    Blob,
    File,
    HandOff,
    SessionSettings,
    Summary,
    UserMessage,
    plain_text,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.events import MemoryAdded, MemoryDeleted, StateSet
from holdfast.ids import (
    CallId,
    GrantId,
    IdempotencyKey,
    KeyId,
    MessageId,
    Minter,
    NoteId,
    SessionId,
    SessionKey,
    Tenant,
    Version,
)
from holdfast.store.outcomes import Attempt, Signalled, Taken
from holdfast.store.rows import ApiKeyRow, GrantRow, SealKeyRow
from holdfast.store.store import Store
from holdfast.store.transfer.exports import Exported, LeftOut, export
from holdfast.store.transfer.imports import take_in
from holdfast.testing import ManualClock
from tests.store.builders import ACME, SOURCE, TTL_MS, Player, Playing, in_use

PLAN = StateSet(name="plan", value='["pack"]')


async def furnish(player: Player) -> None:
    """Sessions with turns of every kind, state, notes and bytes; forks of them; one that is busy, and waited for."""
    await player.play("trip", "To Oslo", "When?", changes=(PLAN,))
    await player.play("trip", await _ticket(player, await player.id_of("trip")), "Thank you")
    await _annotate(player, "trip")
    await player.play("trip", "On Friday", "Good", key="friday", replayable=True)
    await player.discard("trip", "No, stop", key="stop")
    await _interrupted(player, "trip")
    await player.play(None, "Nobody named me", "So be it")
    await _fork(player)
    await _ask_the_client(player)
    await player.open("busy", "Are you there?", key="busy")
    await player.wait("busy", "When you have time", key="waiting", replayable=True)


async def _ticket(player: Player, session_id: SessionId) -> UserMessage:
    digest = await player.store.put_blob(player.tenant, session_id, b"one ticket")
    source = Blob(media_type="text/plain", digest=digest, size_bytes=10)
    return UserMessage(id=player.mint(MessageId), content=(File(source=source, name="ticket"),))


async def _annotate(player: Player, key: str) -> None:
    settings = SettingsChanged(settings=SessionSettings().with_attributes(town="Oslo"))
    patches: tuple[Patch, ...] = (Titled(title="A trip"), settings, Flagged(name="starred"))
    whole = [(None, patch) for patch in patches]
    await player.store.annotate(player.tenant, await player.id_of(key), whole)


async def _interrupted(player: Player, key: str) -> None:
    turn = await player.open(key, "Book it")
    await turn.call("book", finish=False)
    await turn.interrupt()
    await turn.commit()


async def _fork(player: Player) -> None:
    """Forks of a past version and of the head, with turns of their own and without, and one of a fork."""
    trip, store, tenant = await player.id_of("trip"), player.store, player.tenant
    early, late, later = (player.mint(SessionId) for _ in range(3))
    await store.fork(tenant, trip, version=Version(1), fresh=early)
    await player.play(early, "Rather Bergen", "As you like")
    await store.fork(tenant, trip, version=Version(4), fresh=late)
    await store.annotate(tenant, late, [(None, Titled(title="Another trip"))])
    await store.fork(tenant, late, version=Version(4), fresh=later)
    await player.play(later, "And back", "Yes", changes=(PLAN,))
    await store.bind(tenant, SessionKey("trip"), fresh=player.mint(SessionId), version=Version(2))


async def _ask_the_client(player: Player) -> None:
    """A call that waits is answered by the next turn, also if that is a fork's."""
    turn = await player.open("asking", "Where am I?")
    call = msgspec.structs.replace(turn.new_call("locate"), waits_for="client")
    await turn.answer(call)
    await turn.commit()
    fork = player.mint(SessionId)
    await player.store.fork(player.tenant, turn.session_id, version=Version(1), fresh=fork)
    await player.play(fork, turn.result(call), "In Oslo")


async def remove(player: Player, key: str) -> SessionId:
    session_id = await player.id_of(key)
    await player.store.remove(player.tenant, session_id)
    return session_id


async def prune_later(player: Player, clock: ManualClock) -> None:
    """A month passes, and everything that may go does."""
    await in_use(player.store, clock, limits.anonymous_keep_s)
    while (await player.store.prune(limit=3)).more:
        pass


# ── everything ───────────────────────────────────────────────────────────────────────────────

ZETA = Tenant("zeta")
ODD = "Grüße,\x00 東京 😀"
"""Words that a home must not trip over."""


CLAIMS = (
    *("friday", "stop", "busy", "waiting", "retried", "failed", "broken", "continued", "going-on"),
    *("steered", "heard", "deaf", "unheard", "too-late", "orphaned", "interrupted", "never"),
    "withdrawn",
)
"""The idempotency keys that `furnish_fully` uses."""


async def furnish_fully(store: Store, clock: ManualClock, mint: Minter) -> None:
    """Two tenants and three nodes, of which two are gone; turns, keys and signals in every state that they can be in.
    The same in every home, down to ids and milliseconds."""
    await store.prune(limit=0)  # it has looked at its clock
    ada = Player(store, mint)
    steps: tuple[Callable[[], Awaitable[None]], ...] = (
        lambda: _long_ago(ada, clock),
        lambda: furnish(ada),
        lambda: _say_odd_things(ada),
        lambda: _say_about(ada, "trip"),
        lambda: _remember(ada),
        lambda: _delegate(ada),
        lambda: _retry(ada),
        lambda: _break_off_and_go_on(ada),
        lambda: _steer(ada),
        lambda: _signal(ada),
        lambda: _take_over(ada, clock),
        lambda: _remove_what_others_read(ada),
        lambda: _begin_anew(ada),
        lambda: _for_another_tenant(Player(store, mint, tenant=ZETA, node=ada.node)),
        lambda: _let_in(ada, clock),
        lambda: _look_after(ada, clock),
        lambda: _be_late(ada),
    )
    for step in steps:
        clock.advance(1)
        await ada.renew()
        await step()


async def _long_ago(player: Player, clock: ManualClock) -> None:
    """A session whose bytes are gone, and a blob that was found to be needed."""
    await player.play("old", await _ticket(player, await _made(player, "old")), "Thank you")
    await player.play("gone")
    await remove(player, "gone")
    await player.store.prune()
    await in_use(player.store, clock, limits.discarded_keep_s + 1)
    while (await player.store.prune()).more:
        pass


async def _made(player: Player, key: str) -> SessionId:
    return (await player.play(key)).session_id


async def _say_odd_things(player: Player) -> None:
    change = StateSet(name="plan", value=f'["{ODD}"]'.replace("\x00", "\\u0000"))
    turn = await player.play("odd", ODD, f"{ODD} too", changes=(change,), agent="Köchin")
    await player.store.annotate(player.tenant, turn.session_id, [(None, Titled(title=ODD))])
    broken = await player.open("odd", "And then?")
    await broken.end("tool_error", detail=ODD)


async def _say_about(player: Player, key: str) -> None:
    """Every patch: about the session, and about an item. What was a summary is followed by another."""
    snapshot = await player.snapshot(key)
    first = snapshot.items[0]
    assert isinstance(first, UserMessage)
    patches: tuple[Patch, ...] = (
        Visibility(to_people=False),
        Visibility(to_people=True, to_model=True),
        Flagged(name="good", value=ODD),
    )
    store, tenant, session_id = player.store, player.tenant, snapshot.session_id
    await store.annotate(tenant, session_id, [(first.id, each) for each in patches])
    merged = SettingsMerged(attributes=(("town", "Bergen"), ("land", "Norge ✓")))
    await store.annotate(tenant, session_id, [(None, merged)])
    for text in ("A trip is planned.", "A trip is planned, and booked."):
        rev = (await player.snapshot(session_id)).notes.summary_rev
        summary = Summary(id=player.mint(NoteId), text=text, covers_to=2)
        await store.annotate(
            tenant, session_id, [(None, Summarized(summary=summary))], summary_rev=rev
        )


async def _remember(player: Player) -> None:
    """What is remembered and forgotten: in a session, and across them."""
    added = [MemoryAdded(agent="butler", memory_id=f"m{n}", text=f"{n} {ODD}") for n in range(3)]
    await player.play("mind", changes=(PLAN, *added))
    forgotten = MemoryDeleted(agent="butler", memory_id="m1")
    other = MemoryAdded(agent="cook", memory_id="m0", text="likes tea")
    await player.play("mind", changes=(StateSet(name="plan", value=""), forgotten, other))


async def _delegate(player: Player) -> None:
    """A sub-agent plays a part of a turn, and another agent speaks from then on."""
    turn = await player.open("team", "Find a hotel")
    call = turn.new_call("ask_scout")
    await turn.record(ev.StepStarted(), ev.Answered(items=(call,), finish="tool_calls"))
    path = (call.id,)
    task = UserMessage(id=player.mint(MessageId), content=plain_text("A hotel"), path=path)
    found = AssistantMessage(id=player.mint(MessageId), content=plain_text("Found"), path=path)
    await turn.record(
        ev.BranchOpened(call=call.id, agent="scout", task=task),
        ev.StepStarted(path=path),
        ev.Answered(items=(found,), path=path),
        ev.ToolFinished(result=turn.result(call)),
    )
    hand_off = HandOff(id=player.mint(NoteId), from_agent="butler", to_agent="cook")
    await turn.record(ev.HandedOff(item=hand_off))
    await turn.answer("It is booked")
    await turn.commit()


async def _retry(player: Player) -> None:
    """A turn that failed under its key, and its retry; one that a client came back for, and has."""
    await player.discard("retried", key="retried", request_hash=b"retried")
    turn = await player.play("retried", key="retried", request_hash=b"retried", client_attempt=1)
    await player.store.acknowledge(player.tenant, turn.turn_id)
    await player.discard("failed", key="failed", request_hash=b"failed")


async def _break_off_and_go_on(player: Player) -> None:
    """Turns that broke off: one that waits for its retry, one that was continued, one that a person may continue, and
    one whose continuation is open."""
    await player.break_off("broken", key="broken", request_hash=b"broken")
    await player.break_off("stopped", by="cancelled", detail="by hand")
    for name, commits in (("continued", True), ("going-on", False)):
        turn = await player.break_off(name, key=name, request_hash=name.encode())
        on = await player.open(
            name, key=name, request_hash=name.encode(), continues=turn.turn_id, links=1
        )
        if commits:
            await on.answer("Done now")
            await on.commit()


async def _steer(player: Player) -> None:
    """A turn that was told something under a key and has heard it, and one that has not."""
    turn = await player.open("steered", "Look", key="steered")
    said = await _told(turn, "heard")
    heard = UserMessage(id=player.mint(MessageId), content=())
    await turn.record(ev.Steered(items=(heard,), signals=(said.n,)), consumed=[said.n])
    await turn.answer("Found")
    await turn.commit()
    turn = await player.open("deaf", "Look", key="deaf")
    await turn.call("look")
    await _told(turn, "unheard")
    ended = await player.open("ended", "Look")
    await _told(ended, "too-late")
    await ended.end("model_error")


async def _told(turn: Playing, key: str) -> Signalled:
    attempt = Attempt(request_hash=sha256(key.encode()).digest(), key=IdempotencyKey(key))
    said = await turn.store.signal(
        turn.player.tenant, turn.turn_id, kind="steer", payload=ODD.encode(), attempt=attempt
    )
    assert isinstance(said, Signalled)
    return said


async def _signal(player: Player) -> None:
    turn = await player.open("told", "Wait")
    await player.store.signal(player.tenant, turn.turn_id, kind="interrupt", payload=b"{}")
    await player.store.signal(player.tenant, turn.turn_id, kind="cancel")


async def _take_over(player: Player, clock: ManualClock) -> None:
    """A node dies, and its turn is played on; another hands its turn over, and leaves."""
    dying, leaving = (Player(player.store, player.mint) for _ in range(2))
    await dying.renew()
    turn = await dying.open("taken", "Are you there?")
    await turn.call("look")
    await dying.open("orphaned", "Are you there?", key="orphaned")
    for _ in range(3):
        clock.advance(TTL_MS / 2000)
        await player.renew()
    taken = await player.store.takeover(
        player.tenant, turn.session_id, node=player.node, nonce="taken"
    )
    assert isinstance(taken, Taken), taken
    on = turn.taken_by(player, taken)
    await on.record(ev.Resumed(attempt=2))
    await on.answer("Here")
    await on.commit()
    await leaving.renew()
    handed = await leaving.open("handed-over", "Are you there?")
    await player.store.release(handed.fence)
    await player.store.resign(leaving.node)


async def _remove_what_others_read(player: Player) -> None:
    """Deleted sessions: one that a fork reads, and one with an open turn and one that waited for it."""
    session_id = await _made(player, "read")
    fork = player.mint(SessionId)
    await player.store.fork(player.tenant, session_id, version=Version(1), fresh=fork)
    await player.play(fork, "Go on", "Yes")
    await remove(player, "read")
    await player.open("interrupted", key="interrupted")
    await player.wait("interrupted", key="never")
    await remove(player, "interrupted")


async def _begin_anew(player: Player) -> None:
    """A key that was reset twice, lines without a name, and a turn that was queued and withdrawn."""
    await _made(player, "anew")
    for _ in range(2):
        await player.store.bind(
            player.tenant, SessionKey("anew"), fresh=player.mint(SessionId), version=None
        )
    await player.play("anew", "From the start")
    line = await player.play(None, "A line", "And its answer")
    await player.store.fork(
        player.tenant, line.session_id, version=Version(1), fresh=player.mint(SessionId)
    )
    waiting = await player.wait("busy", "Never mind", key="withdrawn")
    await player.withdraw(waiting.turn_id, settlement="failed")


async def _for_another_tenant(player: Player) -> None:
    """The same names as in the first, and a session that came from there."""
    await player.play("trip", "To Rome", "When?", key="friday", replayable=True)
    await _annotate(player, "trip")
    moved = await Player(player.store, player.mint).id_of("mind")
    file: list[bytes] = []
    async for each in export(player.store, ACME, moved):
        assert not isinstance(each, LeftOut)
        file += each.lines if isinstance(each, Exported) else [each]
    assert [each async for each in take_in(player.store, player.tenant, file)]


async def _let_in(player: Player, clock: ManualClock) -> None:
    """API keys, keys that seal, and approvals; of each, those that hold and those that do not any more."""
    store = player.store
    desk, expiring, revoked = (player.mint(KeyId) for _ in range(3))
    await store.put_api_key(_api_key(desk, ACME, "desk"))
    await store.put_api_key(_api_key(expiring, ACME, ODD, expires_ms=clock.now_ms() + 1))
    await store.put_api_key(_api_key(revoked, ZETA, "desk"))
    await store.revoke_api_key(revoked)
    for number in range(2):
        await store.put_seal_key(SealKeyRow(key_id=player.mint(KeyId), secret=bytes([number] * 32)))
    for_any, for_one = _grant(player, None, None), _grant(player, '{"to":"Grüße"}', desk)
    await store.put_grant(for_any)
    await store.put_grant(for_one)
    await store.revoke_grant(ACME, for_one.grant_id)


def _api_key(
    key_id: KeyId, tenant: Tenant, name: str, *, expires_ms: int | None = None
) -> ApiKeyRow:
    return ApiKeyRow(
        key_id=key_id,
        tenant=tenant,
        name=name,
        scopes=("chat", "admin"),
        digest=sha256(name.encode()).digest(),
        expires_ms=expires_ms,
    )


def _grant(player: Player, arguments: str | None, made_by: KeyId | None) -> GrantRow:
    return GrantRow(
        tenant=player.tenant,
        grant_id=player.mint(GrantId),
        source_key=SOURCE,
        agent="butler",
        tool="book",
        fingerprint="f1",
        arguments=arguments,
        call=player.mint(CallId),
        made_by=made_by,
    )


async def _look_after(player: Player, clock: ManualClock) -> None:
    """Everything is indexed, and the clock leaps."""
    while (await player.store.index()).more:
        pass
    clock.advance(limits.clock_leap_s + 1)
    await player.store.prune()


async def _be_late(player: Player) -> None:
    """What neither search nor retention has met yet."""
    await player.play("late", "Not in the index yet")
    await player.store.put_blob(player.tenant, await player.id_of("late"), b"of no item")
