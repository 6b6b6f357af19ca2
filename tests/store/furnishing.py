"""A store with one of everything in it: what a check has to find right, and a copy has to hold."""

from __future__ import annotations

import msgspec

from holdfast import limits
from holdfast.core.conversation import Flagged, Patch, SettingsChanged, Titled
from holdfast.core.events import StateSet
from holdfast.core.items import Blob, File, SessionSettings, UserMessage
from holdfast.ids import MessageId, SessionId, SessionKey, Version
from holdfast.testing import ManualClock
from tests.store.builders import Player, in_use

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
