"""Every behaviour on one system, each on a folder of its own."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from _figures import Cell, Verdict
from systems.base import NotOffered, System

from scenarios.behaviours import Behaviour
from scenarios.stage import DidNotHappen, Stage, staged

FINDINGS_MAX = 3
PLAY_S = 240.0
"""How long a behaviour may take: a few starts, and one or two answers that never come."""

Databases = Callable[[], AbstractContextManager[str]]


async def play(
    system: System, behaviour: Behaviour, folder: Path, databases: Databases | None
) -> Cell:
    """One behaviour on one system."""
    lines: list[str] = []
    wanted = databases() if databases and system.needs_postgres else nullcontext(None)
    with tempfile.TemporaryDirectory(dir=folder) as place, wanted as postgres:
        async with staged(system, Path(place), postgres) as stage:
            lines = stage.lines
            limit = asyncio.timeout(PLAY_S)
            try:
                async with limit:
                    found = await behaviour.play(stage)
            except NotOffered as error:
                return Cell(behaviour.name, "not offered", f"It has no {error}.", lines)
            except DidNotHappen as error:
                return Cell(behaviour.name, "not run", f"It did not come to that: {error}", lines)
            except Exception as error:  # told in the row, with the system's last words
                why = f"It did not end in {PLAY_S:.0f} s." if limit.expired() else f"{error!r}"
                return Cell(behaviour.name, "not run", why, [*lines, *_words(stage)])
    verdict: Verdict = "broken" if found else "held"
    why = "; ".join(briefly(found)) or behaviour.promise
    return Cell(behaviour.name, verdict, why, lines)


def briefly(found: Sequence[str]) -> list[str]:
    """The first few findings; what the model was told and what the store holds are mostly the same."""
    sources = ("the model was told: ", "the store holds: ")
    seen: dict[str, None] = {}
    for each in found:
        for source in sources:
            each = each.removeprefix(source)
        seen[each] = None
    several = list(seen)
    left = len(several) - FINDINGS_MAX
    return [*several[:FINDINGS_MAX], *([f"and {left} more"] if left > 0 else [])]


def _words(stage: Stage) -> Sequence[str]:
    try:
        return stage.running.last_words().splitlines()[-30:]
    except (AssertionError, ValueError):
        return []


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
