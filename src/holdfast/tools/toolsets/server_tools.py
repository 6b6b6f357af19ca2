"""A toolset whose tools a server, or a document, names: read when they are first needed, and again after a failure."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from holdfast import limits
from holdfast.observe.trouble import Trouble
from holdfast.tools.tool import Tool
from holdfast.tools.toolsets.openapi_document import Unusable
from holdfast.tools.web.address_guard import FetchFailed

log = logging.getLogger("holdfast.tools")


class ServerToolset(ABC):
    """Some tools that a server names. While it cannot be read there are none, and the agents' instruction says why."""

    foreign = True
    failures: ClassVar[tuple[type[BaseException], ...]] = (FetchFailed, Unusable, OSError)
    """What `_load` may raise."""

    def __init__(
        self,
        what: str,
        *,
        required: bool = False,
        refresh_s: float = limits.api_refresh_s,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`what`: the server, in words that may be shown. `required`: a turn without its tools fails. `refresh_s`: how
        long it is not asked again after a failure."""
        self._what = what
        self._refresh_s = refresh_s
        self._required = required
        self._now_s = now_s
        self._tools: tuple[Tool, ...] | None = None
        self._lock = asyncio.Lock()
        self._not_before_s = 0.0
        self._trouble = ""
        self._told = Trouble(what, log, steady_s=0)  # it is read once
        self._about = ""
        """What the server says of itself, for the model; set by `_load`."""

    @abstractmethod
    async def _load(self) -> tuple[Tool, ...]:
        """Ask the server for its tools. Raises one of its `failures`."""

    def _why(self, error: BaseException) -> str:
        return error.why if isinstance(error, FetchFailed) else str(error)

    @property
    def instruction(self) -> str:
        return self._trouble or self._about

    @property
    def absence(self) -> str:
        """Why there are no tools, if they are required."""
        return self._trouble if self._required else ""

    async def tools(self) -> tuple[Tool, ...]:
        async with self._lock:
            if self._tools is None and self._now_s() >= self._not_before_s:
                try:
                    self._tools = await self._load()
                    self._trouble = ""
                    self._told.worked()
                except self.failures as error:
                    self._not_before_s = self._now_s() + self._refresh_s
                    why = self._why(error)
                    self._trouble = f"The tools of {self._what} cannot be used now: {why}"
                    self._told.failed(why)
        return self._tools or ()

    async def close(self) -> None:  # noqa: B027
        """Nothing to close."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._what}>"
