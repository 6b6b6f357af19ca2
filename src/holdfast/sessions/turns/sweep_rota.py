"""How often a node looks at all open turns of the store.

Such a sweep costs the database as much as there are open turns. If every node made one every `sweep_s`, all together
would cost servers × open turns. So where there are more than `sweepers_max` nodes, a node rests between two of its
sweeps, the longer the more nodes are alive:

1. All nodes together make about `sweepers_max` sweeps in each `sweep_s`, however many they are.
2. Each sweep is of all open turns: no turn depends on one node to be found.
3. A sweep that has found a turn to take over is followed by another, without a rest: dead nodes may have left more.
4. A node counts the living every `sweep_count_s`: when many have died, the others soon sweep more often.

Rests differ by chance, so that nodes which were started together do not sweep together. Where there are few nodes, none
rests, and no chance is drawn.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast import limits


class SweepRota:
    """Tells one node when its next sweep is due. Times are by any clock that does not step."""

    def __init__(self, *, chance: Callable[[], float]) -> None:
        """`chance` gives a number from 0 to 1."""
        self._chance = chance
        self._nodes = 1
        self._counted_s = float("-inf")
        self._swept_s = float("-inf")
        self._stretch = 1.0

    @property
    def rests(self) -> bool:
        """Whether there are so many nodes that this one rests between two sweeps."""
        return self._nodes > limits.sweepers_max

    def is_due(self, now_s: float) -> bool:
        """Whether this node sweeps in this round."""
        rest_s = limits.sweep_s * self._nodes / limits.sweepers_max
        return not self.rests or now_s - self._swept_s >= rest_s * self._stretch

    def note_sweep(self, now_s: float, *, taken: int) -> None:
        """Begin a rest after a sweep that has taken over no turn."""
        if self.rests and not taken:
            self._swept_s, self._stretch = now_s, 0.5 + self._chance()

    def is_count_due(self, now_s: float) -> bool:
        """Whether the living nodes are to be counted in this round."""
        return now_s - self._counted_s >= limits.sweep_count_s

    def note_count(self, now_s: float, nodes: int) -> None:
        """Note how many nodes are alive."""
        self._counted_s, self._nodes = now_s, nodes
