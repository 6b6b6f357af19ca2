"""How a store is, for whoever looks after it: facts, and no opinion about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from holdfast.core.codec import Value
from holdfast.ids import NodeId
from holdfast.store.rows import NodeRow


class Replication(Value):
    """How a PostgreSQL hands on what it commits."""

    commit: str
    """Its `synchronous_commit`."""
    names: str
    """Its `synchronous_standby_names`; empty if it waits for nobody."""
    standbys: int
    """How many are connected."""
    synchronous: int
    """How many of these it waits for."""
    is_standby: bool
    """It is one itself: it cannot be written."""


class Condition(Value):
    """A store as it is at one moment. Counts are 0 where there are no tables yet."""

    kind: Literal["SQLite", "PostgreSQL"]
    version: str
    step: int
    newest: int
    bytes: int = 0
    log_bytes: int = 0
    """SQLite: what is in the log and not yet in the file."""
    damage: tuple[str, ...] = ()
    """SQLite: the first things that its own quick check finds."""
    read_only: str = ""
    """SQLite: why it takes no writes until it was verified; empty if it does."""
    checksums: bool = True
    """SQLite: every page has one."""
    nodes: int = 0
    """Processes that are alive."""
    nodes_gone: int = 0
    """Processes that have ended without saying so, and are not forgotten yet."""
    open_turns: int = 0
    orphans: int = 0
    """Open turns whose process is gone."""
    clock_ms: int = 0
    """How far the store's clock is ahead of this machine's."""
    node_ahead_ms: int = 0
    """How far the clock of a living process is ahead of the store's, at the most."""
    replication: Replication | None = None

    def with_nodes(
        self,
        nodes: Sequence[NodeRow],
        holders: Sequence[NodeId | None],
        *,
        is_alive: Callable[[NodeRow], bool],
        ahead_ms: Callable[[NodeRow], int],
    ) -> Condition:
        """With what its nodes do. A home says which of them live, and how far their clocks are ahead."""
        alive = [each for each in nodes if is_alive(each)]
        living = {each.node_id for each in alive}
        return msgspec.structs.replace(
            self,
            nodes=len(alive),
            nodes_gone=len(nodes) - len(alive),
            open_turns=len(holders),
            # What waits in the background has no holder yet, and no process has left it.
            orphans=sum(node is not None and node not in living for node in holders),
            node_ahead_ms=max([0, *map(ahead_ms, alive)]),
        )
