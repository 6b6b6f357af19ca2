"""Reads take several steps: a home may let others write between them, and each is a round trip."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast import limits
from holdfast.errors import SessionDamaged
from holdfast.ids import Minter, SessionId
from holdfast.store.memory_store import MemoryStore
from holdfast.store.operations.reads import BODIES_OF, snapshot
from holdfast.store.operations.search import search
from holdfast.store.operations.sessions import remove
from holdfast.store.outcomes import EVERYTHING, Results
from holdfast.store.pages import start
from holdfast.store.search.effort import Effort
from holdfast.store.search.matches import parse_query
from holdfast.store.search.span_reader import MESSAGES
from holdfast.store.snapshots import Later
from holdfast.store.sql.tables import ITEMS
from holdfast.store.steps import AskStep, Delete, FindStep, Operation, write
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(now_ms=clock.now_ms)


@pytest.fixture
async def session_id(store: MemoryStore, mint: Minter) -> SessionId:
    player = Player(store, mint)
    await player.renew()
    await player.play("trip")
    return await player.id_of("trip")


def read(store: MemoryStore, session_id: SessionId, meanwhile: Callable[[], None]) -> Later | None:
    """What a snapshot is made of, if something happens right before its items are read."""

    def steps() -> Operation[Later | None]:
        operation = snapshot(ACME, session_id, version=None, known=None)
        came: object = None
        try:
            while True:
                step = operation.send(came)
                if isinstance(step, FindStep) and step.finder is BODIES_OF:
                    meanwhile()
                came = yield step
        except StopIteration as end:
            found: Later | None = end.value
            return found

    return store.run(steps())


def test_a_session_that_goes_while_it_is_read_is_gone(
    store: MemoryStore, session_id: SessionId
) -> None:
    def clear() -> None:
        store.run(remove(ACME, session_id))
        store.run(write(Delete(ITEMS, (ACME, session_id))))

    assert read(store, session_id, clear) is None


def test_one_that_is_deleted_with_its_rows_still_there_is_read(
    store: MemoryStore, session_id: SessionId
) -> None:
    def delete() -> None:
        store.run(remove(ACME, session_id))

    found = read(store, session_id, delete)
    assert found is not None and len(found.items) == found.session.length


def test_one_that_has_lost_a_row_is_not_read_as_if_it_were_whole(
    store: MemoryStore, session_id: SessionId
) -> None:
    def damage() -> None:
        store.run(write(Delete(ITEMS, (ACME, session_id, 0))))

    with pytest.raises(SessionDamaged, match="rows of its history are missing"):
        read(store, session_id, damage)


async def test_the_ends_of_many_sessions_are_read_together(
    store: MemoryStore, mint: Minter, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = Player(store, mint)
    await player.renew()
    for number in range(5):
        await player.play(f"trip-{number}", "Hello", "Oslo")
    monkeypatch.setattr(limits, "search_hits_max", 0)  # every session is looked through
    asked: list[AskStep] = []

    def steps() -> Operation[Results]:
        operation = search(
            ACME,
            parse_query("bergen"),
            where=EVERYTHING,
            before=start(None),
            within=None,
            limit=9,
            effort=Effort(),
        )
        came: object = None
        try:
            while True:
                step = operation.send(came)
                if isinstance(step, AskStep) and step.question is MESSAGES:
                    asked.append(step)
                came = yield step
        except StopIteration as end:
            found: Results = end.value
            return found

    assert store.run(steps()).matches == ()
    assert len(asked) == 1
