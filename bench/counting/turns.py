"""So many whole turns in memory: resolve, begin, ten records, commit. Run by `bench/_instructions.py`."""

from __future__ import annotations

import gc
import sys

import uvloop
from sessions import Measured, play
from still import sessions_of


async def main(count: int) -> None:
    async with sessions_of(play) as sessions:
        await Measured(sessions, "counted").grow(2 * count)


if __name__ == "__main__":
    gc.disable()  # when it collects depends on everything that went before
    uvloop.run(main(int(sys.argv[1])))
