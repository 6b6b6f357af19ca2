"""Pictures of the plots, for pages that cannot hold them as they are: photographed in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from _figures import Figures, Semantics
from _names import HISTORY_CPU, PACE, SHORT, tokens_at
from msgspec import Struct
from playwright.async_api import async_playwright

from page.document import picture
from page.markup import Html
from page.palette import Palette
from page.plots import bars, curves, matrix
from tests.console.browser import launch

SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
WIDTH = 1200


class Shot(Struct, frozen=True):
    """One picture: the name of its file, and the page that it is taken of."""

    name: str
    page: Html


def shots(figures: Sequence[Figures], semantics: Semantics) -> Iterator[Shot]:
    """Those for which there are figures."""
    palette = Palette(name for each in figures for name in each.systems())
    for each in figures:
        under = each.conditions
        where = f"{under.cores} cores, {under.at[:10]}"
        for line in each.lines:
            if line.what in (tokens_at(50, SHORT), PACE) and line.values:
                note = f"{line.better} is better; logarithmic; {where}"
                yield Shot(each.group, picture(bars(line, palette), line.what, note))
        along = [line for line in each.lines if line.curve == HISTORY_CPU]
        if along:
            note = f"in milliseconds; lower is better; logarithmic; {where}"
            yield Shot(each.group, picture(curves(along, each.axis, palette), HISTORY_CPU, note))
    if semantics.columns:
        day = max(column.ran_at for column in semantics.columns)[:10]
        note = f"✓ held, ✗ broken, – not offered, · not run; {day}"
        yield Shot("behaviours", picture(matrix(semantics), "Behaviours", note))


async def take(folder: Path, figures: Sequence[Figures], semantics: Semantics) -> list[Path]:
    """Photograph them all into a folder: NAME-light.png and NAME-dark.png."""
    taken: list[Path] = []
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        for scheme in SCHEMES:
            for shot in shots(figures, semantics):
                page = await browser.new_page(
                    color_scheme=scheme,
                    device_scale_factor=2,
                    viewport={"width": WIDTH, "height": 800},
                )
                await page.set_content(shot.page)
                path = folder / f"{shot.name}-{scheme}.png"
                await page.locator("body").screenshot(path=path)
                taken.append(path)
                await page.close()
        await browser.close()
    return taken
