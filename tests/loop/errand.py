"""A turn with everything in it, played the same way from wherever it is taken up.

The butler looks, books and pays side by side, and sends the scout, who looks and sends the runner; then hands
over to the clerk while still looking; the clerk has the last word. What a model says depends on how often it has
spoken in what it is shown, so an attempt can be broken off and taken up again at any point. Its words are never
the same twice: one can tell whether an answer that was set aside is ever seen again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from holdfast.testing import Script, says
from tests.loop.stage import Deed, Stage, agent, by_place, handoff, task

LOOK = ("look", "{}")

_answers = count(1)
"""Over all errands: one that is taken up says nothing that was said before."""


class Errand(Stage):
    """The stage for it."""

    def __init__(self) -> None:
        self.look = Deed("look", read_only=True)
        self.book = Deed("book")
        self.pay = Deed("pay", idempotent=True)
        self.deeds = (self.look, self.book, self.pay)
        calls = [LOOK, ("book", "{}"), ("pay", "{}"), task("scout"), ("dig", "{}")]
        line = (
            self._says("At once.", calls=calls),
            self._says("One moment.", calls=[handoff("clerk"), LOOK]),
            self._says("Everything is settled."),
            self._says("Gladly."),
        )
        scout = (
            self._says("I go.", calls=[LOOK, task("runner")]),
            self._says("I am back."),
        )
        super().__init__(
            agent(
                "butler",
                model=by_place(*line),
                tools=self.deeds,
                sub_agents=("scout",),
                handoffs=("clerk",),
            ),
            agent("clerk", model=by_place(*line), tools=[self.look]),
            agent("scout", model=by_place(*scout), tools=[self.look], sub_agents=("runner",)),
            agent("runner", model=by_place(self._says("I ran."))),
        )

    def _says(self, text: str, calls: list[tuple[str, str]] | None = None) -> Callable[[], Script]:
        def script() -> Script:
            n = next(_answers)
            return says(f"<{n}> ", text, thinks=[f"<{n}?>"], calls=calls or [])

        return script
