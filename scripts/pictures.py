"""Draw the terminal pictures of the pages: `make pictures` plays the tour, and keeps what it showed as SVG."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from holdfast.cli.commands.demo import give_tour
from holdfast.cli.tour.demo_server import launched
from holdfast.cli.tour.narration import TourNarration
from holdfast.cli.tour.scenes import SCENES, Scene, SceneResult

HERE = Path(__file__).parents[1] / "docs" / "pictures"
SHOWN = SCENES[4]
"""The scene that is drawn: it says most."""


class Photographer(TourNarration):
    """Puts one scene on a screen that is recorded, and the others nowhere."""

    def __init__(self) -> None:
        self._shot = Console(
            record=True, width=100, file=io.StringIO(), force_terminal=True, highlight=False
        )
        self._nowhere = Console(file=io.StringIO())
        super().__init__(self._nowhere)

    def open(self, scene: Scene, number: int, of: int) -> None:
        self._console = self._shot if scene is SHOWN else self._nowhere
        super().open(scene, number, of)

    def show(self, shown: SceneResult) -> None:
        super().show(shown)
        self._console = self._nowhere

    def picture(self) -> str:
        drawn = self._shot.export_svg(title="holdfast demo", theme=MONOKAI, unique_id="demo")
        # A font from elsewhere would be a request to somebody else's server.
        return re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)


def main() -> None:
    photographer = Photographer()
    with launched() as host:
        if not give_tour(host, photographer, pause=lambda: None):
            raise SystemExit("the tour did not hold; there is no picture of that")
    HERE.mkdir(exist_ok=True)
    (HERE / "demo.svg").write_text(photographer.picture(), encoding="utf-8")


main()
