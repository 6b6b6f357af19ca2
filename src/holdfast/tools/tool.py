"""The protocol of a tool: what it says about itself, what it is given, what it gives back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Literal, Protocol

from holdfast.core.codec import Value, encode
from holdfast.core.items import Parts
from holdfast.core.turns.events import Change
from holdfast.tools.files.reserved_files import ReservedFiles

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class ToolSpec(Value):
    """What a tool says about itself."""

    name: str
    description: str
    parameters: str
    """The JSON Schema of its arguments, an object's."""
    read_only: bool = False
    """It changes nothing: running it is not acting, and needs no permission."""
    idempotent: bool = False
    """Running it again under the same call key does nothing more: after a crash it may be."""
    timeout_s: float = 60.0
    state: str = ""
    """The name of the session state that it sets: such calls of a turn run one after the other."""
    memories: bool = False
    """It is to be given what its agent remembers."""
    deferred: bool = False
    """Models are told of it once they have loaded it; see `deferred_tools.py`."""


def fingerprint(spec: ToolSpec, *, origin: str) -> str:
    """What a tool is known by to whoever has approved it: where it comes from, and what it says about itself."""
    told = (origin, spec.name, spec.description, spec.parameters)
    return sha256(encode(told)).hexdigest()


class ToolRun(Value):
    """One call, as its tool sees it."""

    call_key: str
    """Stable over every attempt at this call: what an outside system can tell a repetition by."""
    arguments: Mapping[str, Json]
    """Valid by the tool's schema."""
    tenant: str
    session_id: str
    agent: str
    state: Mapping[str, str]
    """Session state as this turn sees it, changes of its earlier calls included."""
    memories: Mapping[str, str] = {}
    """What its agent remembers, by id, in the same way; if its tool asked for that."""
    reserved: ReservedFiles = ReservedFiles()
    """Files that the server reads, reloads or runs, and no tool touches."""


class ToolOutput(Value):
    """What came of a call. `changes` are applied by the turn's commit, or not at all."""

    content: Parts
    outcome: Literal["ok", "error"] = "ok"
    changes: tuple[Change, ...] = ()


class Tool(Protocol):
    spec: ToolSpec

    async def run(self, run: ToolRun) -> ToolOutput:
        """Do it. May be cancelled at any await, and then leaves nothing running behind.

        An error that the model can do something about is an output; what is raised fails the call
        as well, with the error's words.
        """
        ...


class Toolset(Protocol):
    """Some tools that come and go together."""

    async def tools(self) -> tuple[Tool, ...]:
        """The tools, started if they have to be."""
        ...

    async def close(self) -> None: ...


def is_foreign(toolset: Toolset) -> bool:
    """Whether somebody else's server or document names its tools, and may name them otherwise tomorrow."""
    foreign: bool = getattr(toolset, "foreign", False)
    return foreign


def named_in(toolset: Toolset) -> Collection[str]:
    """The names of tools that the operator has listed for a toolset; none if it has all of its tools."""
    named: Collection[str] = getattr(toolset, "named", ())
    return named


def instruction_of(toolset: Toolset) -> str:
    """What agents are told about how a toolset's tools are to be used: its `instruction`, if it has one. Known once
    the tools have been asked for; empty if there is nothing to say."""
    instruction: str = getattr(toolset, "instruction", "")
    return instruction
