"""What a durable home wrote is there when it is opened again. How it gets there is each home's own business."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.ids import Minter
from holdfast.testing import ManualClock
from tests.store.builders import Player
from tests.store.furnishing import furnish
from tests.store.homes import HOMES, Home
from tests.store.state import contents


@pytest.mark.parametrize(
    "home", [each for each in HOMES if each.durable], ids=lambda home: home.name
)
async def test_everything_is_still_there_after_closing_and_opening(
    home: Home, clock: ManualClock, mint: Minter, tmp_path: Path
) -> None:
    store = await home.open(tmp_path, clock)
    player = Player(store, mint)
    await player.renew()
    await furnish(player)
    before = await contents(store, nodes=[player.node])
    await store.close()

    reopened = await home.open(tmp_path, clock)
    after = await contents(reopened, nodes=[player.node])
    # Whoever held a turn is dead now, and a home may be able to tell.
    assert msgspec.structs.replace(after, orphans=before.orphans) == before
    await reopened.close()
