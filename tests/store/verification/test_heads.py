"""Heads that are kept outside of a store, and what they show of one that was set back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.core.history.conversation import Titled
from holdfast.errors import InvalidValue
from holdfast.ids import Minter
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from holdfast.store.verification import heads
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.furnishing import remove
from tests.store.verification.test_verification import findings


async def written(store: Store) -> list[heads.Head]:
    return list(heads.read([line async for line in heads.written(store)]))


async def codes(store: Store, kept: list[heads.Head]) -> list[str]:
    return [each.violation.code async for each in heads.compared(store, kept)]


async def test_a_store_that_goes_on_has_its_heads_still(store: Store, player: Player) -> None:
    session_id = (await player.play("trip")).session_id
    await player.play("gone")
    await store.annotate(ACME, session_id, [(None, Titled(title="Oslo"))])
    kept = await written(store)
    await player.play("trip")
    await store.annotate(ACME, session_id, [(None, Titled(title="Bergen"))])
    await player.play("new")
    await remove(player, "gone")
    assert [each.version for each in kept] == [1, 1]
    assert await codes(store, kept) == []


async def test_a_store_that_was_set_back_is_noticed(
    tmp_path: Path, clock: ManualClock, mint: Minter
) -> None:
    """By itself it is sound: an earlier state of a store is a store."""
    path, earlier = tmp_path / "store.db", tmp_path / "earlier.db"
    store = await SqliteStore.open(path, now_ms=clock.now_ms)
    player = Player(store, mint)
    await player.renew()
    for name in ("turned", "annotated", "same"):
        await player.play(name)
    await store.close()
    shutil.copy(path, earlier)
    store = await SqliteStore.open(path, now_ms=clock.now_ms)
    player = Player(store, mint)
    await player.renew()
    await player.play("turned")
    annotated = await player.id_of("annotated")
    await store.annotate(ACME, annotated, [(None, Titled(title="Oslo"))])
    await player.play("lost")
    kept = await written(store)
    await store.close()
    back = await SqliteStore.open(earlier, now_ms=clock.now_ms)
    assert await findings(back) == []
    assert await codes(back, kept) == ["set_back", "set_back", "session_lost"]
    player = Player(back, mint)
    await player.renew()
    for name in ("turned", "turned"):
        await player.play(name)
    await back.annotate(ACME, annotated, [(None, Titled(title="Bergen"))])
    assert await codes(back, kept) == ["head_replaced", "head_replaced", "session_lost"]
    await back.close()


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "no file of heads"),
        ([b"{}\n"], "no file of heads"),
        ([heads.HEADER], "cut off"),
        ([heads.HEADER, b"{}\n"], "line 2"),
        ([heads.HEADER, b'{"type":"last","sessions":1}\n'], "line 2"),
    ],
)
def test_what_is_no_file_of_heads_is_refused(lines: list[bytes], why: str) -> None:
    with pytest.raises(InvalidValue, match=why):
        list(heads.read(lines))
