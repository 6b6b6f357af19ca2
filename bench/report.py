"""Writes the report card: one page about everything under `build/bench/`, and pictures of its plots.

    python bench/report.py [--pictures FOLDER]

The page needs nothing but itself. The pictures are photographed by the Chromium that the tests find.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from _figures import BUILD, Figures, load_figures, load_semantics
from _names import GROUPS
from page.document import document
from page.pictures import take


def in_order(figures: list[Figures]) -> list[Figures]:
    """As they are shown; what is not known here comes last."""
    places = {name: number for number, name in enumerate(GROUPS)}
    return sorted(figures, key=lambda each: places.get(each.group, len(places)))


def write(folder: Path = BUILD) -> Path:
    """The page of everything that is there. It says so itself, if that is little."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.html"
    page = document(in_order(load_figures(folder)), load_semantics(folder))
    path.write_text(page, encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of the plots")
    asked = parser.parse_args()
    print(f"the page: {write()}")
    if asked.pictures is not None:
        asked.pictures.mkdir(parents=True, exist_ok=True)
        taken = take(asked.pictures, in_order(load_figures()), load_semantics())
        for path in asyncio.run(taken):
            print(f"a picture: {path}")


if __name__ == "__main__":
    main()
