"""The output of the tour: the steps, the conversation before and after side by side, and each claim with a mark."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from holdfast.cli.tour.scenes import ConversationState, Scene, SceneResult

HOLDS, BROKEN = "✔", "✘"


class TourNarration:
    """Prints scenes on a terminal; in a pipe the same text without colours."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def open(self, scene: Scene, number: int, of: int) -> None:
        self._console.print()
        self._console.print(Rule(f"{number} of {of}  {scene.title}", align="left", style="bold"))
        self._line(f"elsewhere: {scene.elsewhere}", "dim")
        self._console.print()

    def tell(self, step: str) -> None:
        self._line(f"→ {step}")

    def show(self, shown: SceneResult) -> None:
        sides = Table(box=None, padding=(0, 4, 0, 0), pad_edge=False, expand=True)
        for reading in (shown.before, shown.after):
            sides.add_column(reading.title, header_style="underline", ratio=1, overflow="fold")
        sides.add_row(_text(shown.before), _text(shown.after))
        self._console.print()
        self._console.print(Padding(sides, (0, 2)))
        self._console.print()
        for claim in shown.claims:
            mark, style = (HOLDS, "green") if claim.holds else (BROKEN, "bold red")
            self._console.print(Padding(Text.assemble((mark, style), " ", claim.says), (0, 2)))

    def close(self, held: int, broken: int, seconds: float) -> None:
        self._console.print()
        self._console.print(Rule(style="bold"))
        if broken:
            self._line(f"{BROKEN} {broken} of {held + broken} claims do not hold.", "bold red")
            self._line("This should not happen. Please report it, with everything above.")
            return
        self._line(f"{HOLDS} All {held} claims hold, in {seconds:.0f} s.", "bold green")
        self._line("Each was read back from a real server, through its public API.")
        self._line(
            "Next: `holdfast chat` to talk, `holdfast serve` to serve, the documentation to read on."
        )

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Padding(Text(text, style=style), (0, 2)))


def _text(reading: ConversationState) -> Text:
    return Text("\n".join(reading.lines) or "(nothing)")
