"""Retries of store calls: a store may be unavailable for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast import limits
from holdfast.errors import StoreError, StoreReadOnly, StoreUnavailable

T = TypeVar("T")
E = TypeVar("E", bound=StoreError)

RETRY_PAUSE_S = 0.2


async def persistently(ask: Callable[[], Awaitable[T]]) -> T:
    """Call the store, and again while it is unavailable, for up to `store_retry_s`. Raises StoreUnavailable after
    that, and StoreReadOnly at once: an operator has to act before the store takes writes again."""
    give_up_at: float | None = None
    while True:
        try:
            return await ask()
        except StoreReadOnly:
            raise
        except StoreUnavailable:
            now = asyncio.get_running_loop().time()
            give_up_at = give_up_at or now + limits.store_retry_s
            if now >= give_up_at:
                raise
        await asyncio.sleep(RETRY_PAUSE_S)


def told_again(error: E) -> E:
    """A copy of the error without its traceback, to be raised again later."""
    again = type(error).__new__(
        type(error)
    )  # an initialiser would take other arguments, or say everything twice
    again.args = error.args
    again.__dict__.update(error.__dict__)
    return again
