"""The `python` toolset: functions of a Python file, as tools.

The file runs in the server's own process, outside every sandbox and with all rights of the server: the operator who
names it trusts it like the server's own code.

1. Nothing runs before the tools are first needed; an agent file can be checked without running its tools.
2. The source is compiled from the file itself, as it was when its agent file was read, never from a compiled copy
   beside it, which a tool might have written.
3. The file cannot import its neighbours: only the file itself is kept out of the tools' reach.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from hashlib import sha256
from pathlib import Path
from types import FunctionType, ModuleType

from holdfast.errors import HoldfastError
from holdfast.observe.trouble import Trouble
from holdfast.tools.function import FunctionTool, FunctionToolset, tool
from holdfast.tools.threads import in_thread
from holdfast.tools.tool import Tool

log = logging.getLogger("holdfast.tools")


class PythonToolset:
    """The tools of one Python file: those that `names` lists, or every function that `@tool` decorates."""

    def __init__(
        self,
        path: Path,
        names: tuple[str, ...] | None = None,
        *,
        required: bool = True,
        source: bytes | None = None,
    ) -> None:
        """`source`: what the file held when its agent file was read; None: what it holds when it is run."""
        self._path = path
        self._source = source
        self._names = names
        self._required = required
        self._lock = asyncio.Lock()
        self._tools: tuple[Tool, ...] | None = None
        self._trouble = ""
        self._told = Trouble(f"tools of {path.name}", log, steady_s=0)  # it is run once
        self.named = names or ()
        """The tool names that the operator has listed."""

    @property
    def instruction(self) -> str:
        """Why there are no tools, for the model; empty if there are."""
        return self._trouble

    @property
    def absence(self) -> str:
        """Why there are no tools, if a turn cannot do without them."""
        return self._trouble if self._required else ""

    async def tools(self) -> tuple[Tool, ...]:
        """The tools; none if the file cannot be loaded. A file that failed is tried again with the next turn."""
        async with self._lock:
            if self._tools is None:
                try:
                    loaded = await in_thread(self._loaded, name=self._path.name)
                    self._tools, self._trouble = await loaded.tools(), ""
                    self._told.worked()
                except (Exception, SystemExit) as error:  # foreign code: it may raise anything
                    why = str(error) if isinstance(error, HoldfastError) else _described(error)
                    self._trouble = f"The tools of {self._path.name} cannot be used now: {why}"
                    self._told.failed(why)
            return self._tools or ()

    async def close(self) -> None:
        """Nothing to close."""

    def _loaded(self) -> FunctionToolset:
        module = loaded_module(self._path, self._source)
        if self._names is None:
            found = [each for each in vars(module).values() if isinstance(each, FunctionTool)]
            if not found:
                raise ImportError(
                    "no function in it has @tool; decorate one, or list some under 'tools'"
                )
            return FunctionToolset(*found)
        return FunctionToolset(*(_function(module, name) for name in self._names))

    def __repr__(self) -> str:
        return f"<PythonToolset {self._path.name}>"


def loaded_module(path: Path, source: bytes | None = None) -> ModuleType:
    """Run a Python file, or this source of it, and return its module. A file of the same path replaces the module that
    was made before."""
    module = ModuleType(f"holdfast_tools_{sha256(str(path).encode()).hexdigest()[:12]}")
    module.__file__ = str(path)
    source = path.read_bytes() if source is None else source
    code = compile(source, str(path), "exec", dont_inherit=True)
    sys.modules[module.__name__] = (
        module  # dataclasses look for the names of their annotations there
    )
    exec(code, module.__dict__)
    return module


def _described(error: BaseException) -> str:
    """An error of foreign code in one line."""
    return f"{type(error).__name__}: {error}"


def _function(module: ModuleType, name: str) -> FunctionTool:
    found = getattr(module, name, None)
    if isinstance(found, FunctionTool):
        return found
    if isinstance(found, FunctionType):
        return tool(found)
    raise ImportError(f"it has no function {name!r}")
