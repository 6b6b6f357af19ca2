"""Runs a blocking function in a thread, without blocking the event loop.

Each call gets a daemon thread of its own: a tool that hangs must delay neither other tools, as it would in a
pool, nor the end of the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T], *, name: str) -> T:
    """The result of a blocking function. If this is cancelled, the function runs on, and its result is dropped."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]  # a T, since there is no error
        else:
            done.set_exception(error)

    def run() -> None:
        result: T | None = None
        failed: BaseException | None = None
        try:
            result = context.run(work)
        except StopIteration as error:  # a future cannot hold a StopIteration
            failed = RuntimeError(f"StopIteration: {error.value}")
        except BaseException as error:
            failed = error
        try:
            loop.call_soon_threadsafe(settle, result, failed)
        except RuntimeError:
            pass  # the loop is closed, and no caller waits

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
