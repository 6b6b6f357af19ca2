"""Words that many parts of the contract use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from holdfast.ids import NodeId
from holdfast.store.store import Store
from tests.store.builders import Player
from tests.store.state import contents

OtherPlayer: TypeAlias = Callable[[], Player]
"""Makes another node of the same tenant."""


@asynccontextmanager
async def changes_nothing(
    store: Store, *, claims: Sequence[str] = (), nodes: Sequence[NodeId] = ()
) -> AsyncIterator[None]:
    """Nobody who asks the store afterwards can tell that anything happened in here."""
    before = await contents(store, claims=claims, nodes=nodes)
    yield
    assert await contents(store, claims=claims, nodes=nodes) == before
