"""Open turns that their session does not name: sweeps find and end them, and a retry of one can begin anew."""

from __future__ import annotations

from holdfast.ids import IdempotencyKey, Tenant
from holdfast.store.outcomes import Orphan, Started
from holdfast.store.sql.tables import SESSIONS
from holdfast.store.steps import Operation, change, get, write
from holdfast.store.store import Store
from tests.store.builders import ACME, Player
from tests.store.contract.words import changes_nothing
from tests.store.verification.test_verification import codes, findings

SAME = b"the same request"


async def stray(player: Player, name: str) -> Orphan:
    """A keyed turn that is open, in a session that has forgotten it, as a server with a mistake would leave it."""
    turn = await player.open(name, "Hello", key="once", request_hash=SAME, replayable=True)
    fence = turn.fence

    def forget() -> Operation[None]:
        session = yield from get(SESSIONS, fence.tenant, fence.session_id)
        assert session is not None
        gone = change(SESSIONS, session, open_turn=None, lease_node=None)
        yield from write(gone, on=(session,))

    await player.store._write(forget)
    session_id, turn_id = fence.session_id, fence.turn_id
    return Orphan(tenant=ACME, session_id=session_id, turn_id=turn_id, holder=None, is_stray=True)


async def test_a_stray_turn_is_found_and_ended_with_its_key(store: Store, player: Player) -> None:
    lost = await stray(player, "trip")
    assert await store.end_stray(Tenant("rival"), lost.turn_id) is None
    assert await codes(store) == {"open_off"}
    assert await store.orphans(node=player.node, limit=10) == (lost,)

    row = await store.end_stray(ACME, lost.turn_id)
    assert row is not None and (row.state, row.ended_by) == ("discarded", "crash")
    claim = await store.idempotency(ACME, IdempotencyKey("once"))
    assert claim is not None and claim.state == "failed"
    assert await store.orphans(node=player.node, limit=10) == ()
    assert await findings(store) == []

    again = await store.begin(await player.ask("trip", "Hello", key="once", request_hash=SAME))
    assert isinstance(again, Started)


async def test_a_stray_turn_beside_the_open_one_is_ended_alone(
    store: Store, player: Player
) -> None:
    """As two servers left them that had begun a turn in one session."""
    lost = await stray(player, "trip")
    turn = await player.open("trip", "Me first")
    assert await store.end_stray(ACME, lost.turn_id) is not None
    session = await store.session(ACME, turn.fence.session_id)
    assert session is not None and session.open_turn == turn.turn_id
    assert await findings(store) == []


async def test_a_turn_that_its_session_names_or_that_has_ended_is_left_alone(
    store: Store, player: Player
) -> None:
    turn = await player.open("trip", "Hello", key="once", request_hash=SAME)
    async with changes_nothing(store):
        assert await store.end_stray(ACME, turn.turn_id) is None
    await turn.end("model_error")
    async with changes_nothing(store):
        assert await store.end_stray(ACME, turn.turn_id) is None
