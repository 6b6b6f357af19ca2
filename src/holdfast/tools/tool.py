"""The protocol of a tool: its spec, its input, and its output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from typing import Literal, Protocol

from holdfast.core.codec import Value, encode
from holdfast.core.items import Parts
from holdfast.core.turns.events import Change
from holdfast.tools.files.reserved_files import ReservedFiles

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class ToolSpec(Value):
    """A tool's description of itself."""

    name: str
    description: str
    parameters: str
    """The JSON Schema of the arguments, which are an object."""
    read_only: bool = False
    """The tool changes nothing: a call is not acting, and needs no permission."""
    idempotent: bool = False
    """A second run under the same call key changes nothing more: recovery may run it again after a crash."""
    timeout_s: float = 60.0
    state: str = ""
    """The name of the session state that the tool sets: its calls in one turn run one after the other."""
    memories: bool = False
    """The tool wants its agent's memories in each run."""
    memories_of: str = ""
    """The agent whose memories these are; empty: the agent that calls."""
    deferred: bool = False
    """A model sees the tool only after loading it; see `deferred_tools.py`."""


def fingerprint(spec: ToolSpec, *, origin: str) -> str:
    """Identifies an approved tool: by its origin, and by its description of itself."""
    facts = (origin, spec.name, spec.description, spec.parameters)
    return sha256(encode(facts)).hexdigest()


class ToolRun(Value):
    """One call, as its tool gets it."""

    call_key: str
    """The same for every attempt at this call: an outside system can recognise a repetition by it."""
    arguments: Mapping[str, Json]
    """Checked against the tool's schema."""
    tenant: str
    session_id: str
    agent: str
    state: Mapping[str, str]
    """Session state as this turn sees it, with the changes of its earlier calls."""
    memories: Mapping[str, str] = {}
    """The agent's memories by id, with the changes of earlier calls; empty unless the spec asks for `memories`."""
    reserved: ReservedFiles = ReservedFiles()
    """Files that the server reads, reloads or runs, and that no tool touches."""


class ToolOutput(Value):
    """The outcome of a call. The turn's commit applies the `changes`, or nothing does."""

    content: Parts
    outcome: Literal["ok", "error"] = "ok"
    changes: tuple[Change, ...] = ()


class ToolBroken(Exception):
    """A tool cannot work now, whatever it is asked: what it needs does not answer, or takes no credentials of ours.

    The words are for the model; `cause` is for the operator, and the same for each call that fails like this one.
    """

    def __init__(self, words: str, *, cause: str) -> None:
        super().__init__(words)
        self.cause = cause


class Tool(Protocol):
    spec: ToolSpec

    async def run(self, run: ToolRun) -> ToolOutput:
        """Run the call. It may be cancelled at any await, and then leaves nothing running.

        An error that the model can react to is an output; a raised error fails the call as well, with the error's
        message, and the operator's log tells of it.
        """
        ...


class Toolset(Protocol):
    """Some tools that come and go together."""

    async def tools(self) -> tuple[Tool, ...]:
        """The tools. This may start a server."""
        ...

    async def close(self) -> None: ...


def for_tenant(toolset: Toolset, tenant: str) -> Toolset:
    """The toolset as a tenant has it: some have a connection of their own for each."""
    of_tenant: Callable[[str], Toolset] | None = getattr(toolset, "for_tenant", None)
    return of_tenant(tenant) if of_tenant is not None else toolset


def is_foreign(toolset: Toolset) -> bool:
    """Whether a foreign server or document names the tools, and may name them differently tomorrow."""
    foreign: bool = getattr(toolset, "foreign", False)
    return foreign


def named_in(toolset: Toolset) -> Collection[str]:
    """The tool names that the operator has listed for a toolset; empty if it offers all of its tools."""
    named: Collection[str] = getattr(toolset, "named", ())
    return named


def instruction_of(toolset: Toolset) -> str:
    """A toolset's `instruction` on how to use its tools, if it has one. Known after a call of `tools`; may be
    empty."""
    instruction: str = getattr(toolset, "instruction", "")
    return instruction


def news_of(toolset: Toolset, *, tenant: str, session_id: str) -> str:
    """What a toolset has to tell the model of this conversation now, besides its instruction; mostly nothing."""
    news: Callable[[str, str], str] | None = getattr(toolset, "news", None)
    return news(tenant, session_id) if news is not None else ""


def absence_of(toolset: Toolset) -> str:
    """Why a toolset that its agent cannot do without has no tools now; empty if it is there, or not required. Known
    after a call of `tools`."""
    absence: str = getattr(toolset, "absence", "")
    return absence
