"""Asking a store that may be away for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast import limits
from holdfast.errors import StoreUnavailable

T = TypeVar("T")

RETRY_PAUSE_S = 0.2


async def persistently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the store, and again if it does not answer, for as long as it may be worth waiting."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + limits.store_retry_s
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            if loop.time() >= give_up_at:
                raise
        await asyncio.sleep(RETRY_PAUSE_S)
