"""Python functions as tools.

    @tool(read_only=True)
    def forecast(city: str, days: Literal[1, 3, 7] = 1) -> str:
        '''The weather in a city.

        Args:
            city: Its name, as people there write it.
            days: How far to look ahead.
        '''

The schema comes from the signature, the descriptions from the docstring. A model's arguments are checked and converted
before the function gets them. A parameter annotated `ToolRun` is hidden from the model: it receives the call.

A function that is not `async` runs in a thread. A thread cannot be stopped: when the turn is cancelled, or the timeout
passes, the turn no longer waits for it, but it runs to its end. Write `async` where that matters.
"""

from __future__ import annotations

import inspect
import re
import threading
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, Union, overload

import msgspec

from holdfast import limits
from holdfast.core.codec import encode
from holdfast.core.items import Audio, File, Image, Part, Refusal, Text
from holdfast.tools.execution import failure
from holdfast.tools.schema import InvalidTool, checked
from holdfast.tools.threads import in_thread
from holdfast.tools.tool import Json, Tool, ToolOutput, ToolRun, ToolSpec

Function: TypeAlias = Callable[..., object]

_PARTS = Text | Refusal | Image | Audio | File


class FunctionTool:
    """A function that a model can call. It is still a function: a direct call runs it without checks or bounds."""

    def __init__(self, function: Function, spec: ToolSpec, signature: _Signature) -> None:
        self.spec = spec
        self._function = function
        self._signature = signature
        self._is_async = inspect.iscoroutinefunction(function)
        self._running = 0
        self._counting = threading.Lock()
        self.__doc__ = function.__doc__

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._function(*args, **kwargs)

    async def run(self, run: ToolRun) -> ToolOutput:
        try:
            arguments = self._signature.arguments(run)
        except msgspec.ValidationError as error:
            return failure(f"{self.spec.name!r} does not take these arguments: {error}")
        if self._is_async:
            made = self._function(**arguments)
            assert isinstance(made, Awaitable)
            return output_of(await made)
        self._take_thread()
        return output_of(await in_thread(lambda: self._in_thread(arguments), name=self.spec.name))

    def _take_thread(self) -> None:
        with self._counting:
            if self._running >= limits.tool_threads_max:
                raise RuntimeError(f"{self._running} earlier calls of it are still running")
            self._running += 1

    def _in_thread(self, arguments: dict[str, object]) -> object:
        try:
            return self._function(**arguments)
        finally:
            with self._counting:
                self._running -= 1

    def __repr__(self) -> str:
        return f"<FunctionTool {self.spec.name}>"


class FunctionToolset:
    """Some functions that come and go together; plain functions become tools with the defaults of `tool`."""

    def __init__(self, *functions: FunctionTool | Function) -> None:
        made = [each if isinstance(each, FunctionTool) else tool(each) for each in functions]
        names = [each.spec.name for each in made]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidTool(f"two tools of one toolset are called {twice[0]!r}; rename one")
        self._tools: tuple[Tool, ...] = tuple(made)

    async def tools(self) -> tuple[Tool, ...]:
        return self._tools

    async def close(self) -> None:
        """Nothing to close."""

    def __repr__(self) -> str:
        return f"<FunctionToolset {', '.join(each.spec.name for each in self._tools)}>"


@overload
def tool(function: Function, /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    read_only: bool = False,
    idempotent: bool = False,
    timeout_s: float = 60.0,
) -> Callable[[Function], FunctionTool]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    read_only: bool = False,
    idempotent: bool = False,
    timeout_s: float = 60.0,
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a function a tool. Raises InvalidTool if its signature cannot be offered to a model.

    `read_only`: the function changes nothing, so it needs no permission. `idempotent`: running it again under the same
    call key changes nothing more, so recovery may run it again after a crash.
    """

    def make(function: Function) -> FunctionTool:
        called = name or getattr(function, "__name__", type(function).__name__)
        documented = parse_docstring(
            inspect.getdoc(_inner(function)) or "", _parameter_names(function)
        )
        signature = _Signature(function, called, documented.parameters)
        spec = ToolSpec(
            name=called,
            description=description or documented.description,
            parameters=signature.schema,
            read_only=read_only,
            idempotent=idempotent,
            timeout_s=timeout_s,
        )
        return FunctionTool(function, checked(spec), signature)

    return make if function is None else make(function)


# ── from a signature to a schema ─────────────────────────────────────────────────────────────


class _Signature:
    """A function's parameters as a schema, and the conversion of a call's arguments to them."""

    def __init__(self, function: Function, name: str, described: Mapping[str, str]) -> None:
        self._run_as: str | None = None
        fields: list[tuple[str, Any, Any]] = []
        defaults: dict[str, object] = {}
        for parameter, kind in _parameters(function, name):
            if kind is ToolRun:
                self._run_as = parameter.name
            elif parameter.default is parameter.empty:
                fields.append((parameter.name, kind, msgspec.NODEFAULT))
            else:
                # An argument that the model leaves out is left out of the call, so Python's default applies.
                fields.append((parameter.name, Union[kind, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007
                defaults[parameter.name] = parameter.default
        try:
            self._kind = msgspec.defstruct(
                "Arguments", fields, kw_only=True, forbid_unknown_fields=True
            )
            self.schema = _schema(self._kind, described, defaults)
        except TypeError as error:
            raise InvalidTool(f"{name!r} cannot be a tool: {error}") from error

    def arguments(self, run: ToolRun) -> dict[str, object]:
        given = msgspec.convert(_whole(dict(run.arguments)), self._kind)
        arguments = {
            name: value
            for name in self._kind.__struct_fields__
            if (value := getattr(given, name)) is not msgspec.UNSET
        }
        return arguments if self._run_as is None else {**arguments, self._run_as: run}


def _whole(value: Json) -> Json:
    """The value with 3.0 written as 3: JSON has one kind of number, Python's `int` takes no float."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _whole(each) for name, each in value.items()}
        case list():
            return [_whole(each) for each in value]
        case _:
            return value


def _parameter_names(function: Function) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _parameters(function: Function, name: str) -> list[tuple[inspect.Parameter, Any]]:
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    try:
        kinds = typing.get_type_hints(_inner(function), include_extras=True)
    except NameError as error:
        raise InvalidTool(
            f"{name!r} cannot be a tool: {error}; its annotations have to be known at module level"
        ) from error
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in named:
            raise InvalidTool(
                f"{name!r} cannot be a tool: {parameter} cannot be called by name; "
                "give every argument a name and a type"
            )
        if parameter.annotation is parameter.empty:
            raise InvalidTool(
                f"{name!r} cannot be a tool: its argument {parameter.name!r} has no annotation"
            )
        found.append((parameter, kinds[parameter.name]))
    return found


def _inner(function: Function) -> Function:
    """The function that has the annotations: itself, or the `__call__` of an object."""
    return function if inspect.isroutine(function) else type(function).__call__


def _schema(
    kind: type[msgspec.Struct], described: Mapping[str, str], defaults: Mapping[str, object]
) -> str:
    (itself,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    schema = components.pop(itself["$ref"].removeprefix("#/$defs/"))
    schema.pop("title", None)
    for name, property_ in schema["properties"].items():
        if name in described:
            property_.setdefault("description", described[name])
        if name in defaults and (default := _as_json(defaults[name])) is not None:
            property_["default"] = default
    if components:
        schema["$defs"] = components
    return msgspec.json.encode(schema).decode()


def _as_json(default: object) -> Json:
    """A parameter's default as JSON for the schema, or None if JSON cannot express it."""
    try:
        plain: Json = msgspec.to_builtins(default)
    except (TypeError, ValueError):
        return None
    return plain


# ── docstrings ───────────────────────────────────────────────────────────────────────────────


class Documented(msgspec.Struct, frozen=True):
    description: str
    parameters: dict[str, str]


_SECTION = re.compile(
    r"(args|arguments|parameters|returns?|raises|yields?|examples?|notes?):\s*", re.IGNORECASE
)
_ARGUMENTS = {"args", "arguments", "parameters"}
_ENTRY = re.compile(r"(?P<indent>\s*)\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)")


def parse_docstring(text: str, parameters: Sequence[str]) -> Documented:
    """A docstring's description of its function, and of each parameter.

    It reads Google's `Args:` section, or plain lines `name: …` anywhere; deeper lines continue the line above them.
    """
    said: list[str] = []
    described: dict[str, list[str]] = {}
    into, depth = said, -1
    section = ""
    for line in text.splitlines():
        heading = _SECTION.fullmatch(line.strip())
        entry = _ENTRY.fullmatch(line)
        if heading and heading[1].lower() not in parameters:
            section, into, depth = heading[1].lower(), [], -1
        elif entry and entry["name"] in parameters and section in {"", *_ARGUMENTS}:
            into, depth = [entry["text"].strip()], len(entry["indent"])
            described[entry["name"]] = into
        elif depth >= 0 and line.strip() and _indent(line) <= depth:
            into, depth = (said if not section else []), -1
            into.append(line)
        else:
            into.append(line.strip() if depth >= 0 else line)
    return Documented(
        description="\n".join(said).strip(),
        parameters={name: " ".join(lines).strip() for name, lines in described.items()},
    )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# ── return values ────────────────────────────────────────────────────────────────────────────


def output_of(value: object) -> ToolOutput:
    """A function's return value as a tool's output: text and parts as they are, anything else as JSON."""
    match value:
        case ToolOutput():
            return value
        case str():
            return ToolOutput(content=(Text(text=value),))
        case None:
            return ToolOutput(content=(Text(text="done"),))
        case Text() | Refusal() | Image() | Audio() | File():
            return ToolOutput(content=(value,))
        case tuple() | list() if value and all(isinstance(each, _PARTS) for each in value):
            parts: tuple[Part, ...] = tuple(value)
            return ToolOutput(content=parts)
        case _:
            return ToolOutput(content=(Text(text=encode(value).decode()),))
