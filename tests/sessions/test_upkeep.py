"""A node looks after its store by itself: in small steps, and for as long as it lives."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import limits
from holdfast.errors import StoreUnavailable
from holdfast.observe.supervisor import Backoff, TaskSupervisor
from holdfast.sessions.upkeep import Upkeep
from holdfast.store.memory_store import MemoryStore
from holdfast.store.outcomes import Indexed, Pruned


class Worked(MemoryStore):
    """A store with some steps to do, which is away in the middle of them."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[str, int] = {"index": 0, "prune": 0}
        self.enough = asyncio.Event()

    def _step(self, name: str) -> bool:
        self.steps[name] += 1
        if self.steps[name] == 2:
            raise StoreUnavailable("away")
        if min(self.steps.values()) >= 5:
            self.enough.set()
        return self.steps[name] % 3 != 0

    async def index(self, *, bytes_max: int = limits.index_step_bytes_max) -> Indexed:
        return Indexed(sessions=1, more=self._step("index"))

    async def prune(
        self, *, limit: int = limits.prune_batch_max, trust_clock: bool = False
    ) -> Pruned:
        return Pruned(rows=1, more=self._step("prune"))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("index_s", "prune_s", "upkeep_pause_s"):
        monkeypatch.setattr(limits, name, 0.0)


async def test_upkeep_goes_on_also_after_the_store_was_away() -> None:
    store = Worked()
    upkeep = Upkeep(store)
    supervisor, quick = TaskSupervisor(), Backoff(first_s=0.0)
    tasks = [
        supervisor.keep("indexer", upkeep.index, quick),
        supervisor.keep("pruner", upkeep.prune, quick),
    ]
    await store.enough.wait()
    await supervisor.stop(*tasks)
    assert supervisor.tally.task_failures == {"indexer": 1, "pruner": 1}
