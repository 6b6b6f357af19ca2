"""An engine that is closed when a block is left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.store.sqlite.engine.engine import TIMEOUT_S, SqliteEngine


@asynccontextmanager
async def opened(
    path: Path, *, timeout_s: float = TIMEOUT_S, inline: bool = False
) -> AsyncIterator[SqliteEngine]:
    engine = SqliteEngine.open(path, timeout_s=timeout_s, inline=inline)
    try:
        yield engine
    finally:
        await engine.close()
