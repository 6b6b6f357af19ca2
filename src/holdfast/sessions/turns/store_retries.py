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
    """The same in its words, without the frames that it has come through: for clients that are told later."""
    return type(error)(*error.args)
