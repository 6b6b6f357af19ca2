"""Retries of store calls: a store may be unavailable for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast import limits
from holdfast.errors import StoreUnavailable

T = TypeVar("T")

RETRY_PAUSE_S = 0.2


async def persistently(ask: Callable[[], Awaitable[T]]) -> T:
    """Call the store, and again while it is unavailable, for up to `store_retry_s`. Raises StoreUnavailable after
    that."""
    give_up_at: float | None = None
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            now = asyncio.get_running_loop().time()
            give_up_at = give_up_at or now + limits.store_retry_s
            if now >= give_up_at:
                raise
        await asyncio.sleep(RETRY_PAUSE_S)


def told_again(error: StoreUnavailable) -> StoreUnavailable:
    """A copy of the error without its traceback, to be raised again later."""
    return type(error)(*error.args)
