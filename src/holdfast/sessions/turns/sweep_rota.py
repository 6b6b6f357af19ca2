"""How often a node looks at all open turns of the store.

Such a sweep costs the database as much as there are open turns. If every node made one every `sweep_s`, all together
would cost servers × open turns. So where there are more than `sweepers_max` nodes, a node rests between two of its
sweeps, the longer the more nodes are alive:

1. All nodes together make about `sweepers_max` sweeps in each `sweep_s`, however many they are.
2. Each sweep is of all open turns: no turn depends on one node to be found.
3. A node counts the living every `sweep_count_s`: when many have died, the others soon sweep more often.

Rests differ by chance, so that nodes which were started together do not sweep together.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast import limits


class SweepRota:
    """Tells one node when its next sweep is due. Times are by any clock that does not step."""

    def __init__(self, *, chance: Callable[[], float]) -> None:
        """`chance` gives a number from 0 to 1."""
        self._chance = chance
        self.nodes = 1
        """How many nodes are alive, as this one has counted them last."""
        self._swept_s = float("-inf")
        self._stretch = 1.0

    def is_due(self, now_s: float) -> bool:
        """Whether this node sweeps in this round; if so, its rest begins."""
        if self.nodes <= limits.sweepers_max:
            return True
        rest_s = limits.sweep_s * self.nodes / limits.sweepers_max
        if now_s - self._swept_s < rest_s * self._stretch:
            return False
        self._swept_s, self._stretch = now_s, 0.5 + self._chance()
        return True
