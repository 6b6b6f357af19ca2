"""The `python` toolset: functions of a Python file, as tools.

The file runs in the server's own process, outside every sandbox and with all rights of the server: the operator who
names it trusts it like the server's own code.

1. Nothing runs before the tools are first needed; an agent file can be checked without running its tools.
2. The source is compiled from the file itself, as it was when its agent file was read, never from a compiled copy
   beside it, which a tool might have written.
3. The file cannot import its neighbours: only the file itself is kept out of the tools' reach.
"""

from __future__ import annotations

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
from holdfast.tools.toolsets.server_tools import ServerToolset

log = logging.getLogger("holdfast.tools")


class PythonToolset(ServerToolset):
    """The tools of one Python file: those that `names` lists, or every function that `@tool` decorates."""

    foreign = False
    failures = (Exception, SystemExit)

    def __init__(
        self,
        path: Path,
        names: tuple[str, ...] | None = None,
        *,
        required: bool = True,
        source: bytes | None = None,
    ) -> None:
        """`source`: what the file held when its agent file was read; None: what it holds when it is run."""
        # A file that failed is tried again with the next turn.
        super().__init__(path.name, required=required, refresh_s=0)
        self._told = Trouble(f"tools of {path.name}", log, steady_s=0)  # it is run once
        self._path = path
        self._source = source
        self._names = names
        self.named = names or ()
        """The tool names that the operator has listed."""

    async def _load(self) -> tuple[Tool, ...]:
        return await (await in_thread(self._loaded, name=self._path.name)).tools()

    def _why(self, error: BaseException) -> str:
        """An error of foreign code in one line."""
        if isinstance(error, HoldfastError):
            return str(error)
        return f"{type(error).__name__}: {error}"

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


def _function(module: ModuleType, name: str) -> FunctionTool:
    found = getattr(module, name, None)
    if isinstance(found, FunctionTool):
        return found
    if isinstance(found, FunctionType):
        return tool(found)
    raise ImportError(f"it has no function {name!r}")
