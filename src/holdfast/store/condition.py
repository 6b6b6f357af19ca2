"""The condition of a store, as facts for operators; judging them is left to `holdfast doctor`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from holdfast.core.codec import Value
from holdfast.ids import NodeId
from holdfast.store.rows import NodeRow


class Replication(Value):
    """How a PostgreSQL server replicates its commits."""

    commit: str
    """Its `synchronous_commit`."""
    names: str
    """Its `synchronous_standby_names`; empty if it waits for no standby."""
    standbys: int
    """How many standbys are connected."""
    synchronous: int
    """How many of these a commit waits for."""
    is_standby: bool
    """The server is a standby itself: it accepts no writes."""


class Condition(Value):
    """The condition of a store at one moment. Counts are 0 if there are no tables yet."""

    kind: Literal["SQLite", "PostgreSQL"]
    version: str
    step: int
    newest: int
    bytes: int = 0
    log_bytes: int = 0
    """SQLite: bytes that are in the log and not yet in the file."""
    damage: tuple[str, ...] = ()
    """SQLite: the first findings of its own quick check."""
    read_only: str = ""
    """SQLite: why it accepts no writes until it was verified; empty if it accepts them."""
    checksums: bool = True
    """SQLite: every page has a checksum."""
    nodes: int = 0
    """Processes that are alive."""
    nodes_gone: int = 0
    """Processes that have ended without resigning, and whose rows are not removed yet."""
    open_turns: int = 0
    orphans: int = 0
    """Open turns whose process is gone."""
    clock_ms: int = 0
    """How far the store's clock is ahead of this machine's."""
    node_ahead_ms: int = 0
    """By how much the fastest clock of a live process is ahead of the store's."""
    replication: Replication | None = None

    def with_nodes(
        self,
        nodes: Sequence[NodeRow],
        holders: Sequence[NodeId | None],
        *,
        is_alive: Callable[[NodeRow], bool],
        ahead_ms: Callable[[NodeRow], int],
    ) -> Condition:
        """The condition with the facts about its nodes. The home decides which are alive, and how far their clocks are
        ahead."""
        alive = [each for each in nodes if is_alive(each)]
        living = {each.node_id for each in alive}
        return msgspec.structs.replace(
            self,
            nodes=len(alive),
            nodes_gone=len(nodes) - len(alive),
            open_turns=len(holders),
            # A turn without a holder was handed over: no process has left it behind.
            orphans=sum(node is not None and node not in living for node in holders),
            node_ahead_ms=max([0, *map(ahead_ms, alive)]),
        )
