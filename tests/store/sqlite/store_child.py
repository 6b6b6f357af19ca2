"""Other processes that have the same store open. Run as `python -m tests.store.sqlite.store_child COMMAND PATH`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from secrets import randbits

from holdfast.ids import Minter
from holdfast.store.sqlite import SqliteStore
from tests.store.builders import Player

ROOT = Path(__file__).parents[3]


def start(command: str, path: Path) -> subprocess.Popen[str]:
    """Start a process that runs one of the commands below; it says lines, and is told lines."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.sqlite.store_child", command, str(path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def say(line: object) -> None:
    os.write(1, f"{line}\n".encode())


async def migrate(path: Path) -> None:
    """Open the store when told to; say from which step to which that brought it."""
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    store = await SqliteStore.open(path)
    assert store.migrated is not None
    say(f"{store.migrated.before} {store.migrated.after}")
    await store.close()


async def play(path: Path) -> None:
    """Play turns in one session until told to stop; say each text that was acknowledged."""
    store = await SqliteStore.open(path)
    mint = Minter(now_ms=lambda: time.time_ns() // 1_000_000, random_bits=randbits)
    player = Player(store, mint)
    await player.renew()
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    number = 0
    while not told.done():
        await player.play("line", f"{number}")
        say(number)
        number += 1
    await store.close()


if __name__ == "__main__":
    _, command, path = sys.argv
    asyncio.run({"migrate": migrate, "play": play}[command](Path(path)))
