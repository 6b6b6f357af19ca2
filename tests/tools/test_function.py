"""A function with types and a docstring is a tool."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import msgspec
import pytest
from msgspec import Meta, Struct

from holdfast import limits
from holdfast.core.items import Image, Link, Text
from holdfast.core.turns.events import StateSet
from holdfast.tools.execution import execute
from holdfast.tools.function import FunctionTool, FunctionToolset, parse_docstring, tool
from holdfast.tools.schema import InvalidArguments, InvalidTool, parse_arguments
from holdfast.tools.tool import Json, ToolOutput, ToolRun
from tests.tools.tool_calls import KEY, Blobs, call_of, said


class Point(Struct):
    x: int
    y: int = 0


class Box(TypedDict):
    wide: int
    note: NotRequired[str]


@dataclass
class Size:
    wide: int


class Unit(Enum):
    C = "c"
    F = "f"


class Arguments(Struct):
    """Named like what the schema is made from."""

    a: int


@tool
def plain() -> str:
    """Do nothing."""
    return "nothing"


@tool(read_only=True, idempotent=True, timeout_s=3)
def forecast(city: str, days: Literal[1, 3, 7] = 1, note: Optional[str] = None) -> str:  # noqa: UP045
    """The weather in a city.

    From the met office.

    Args:
        city (str): Its name, as people
            there write it.
        days: How far to look ahead.

    Returns:
        note: the weather.
    """
    return f"{city} {days} {note}"


@tool
def shapes(
    points: list[Point],
    box: Box,
    size: Size,
    unit: Unit,
    inner: Arguments,
    count: Annotated[int, Meta(ge=1, description="How many.")] = 2,
    tags: list[str] = [],  # noqa: B006
    any_of: int | str | None = None,
    extra: dict[str, float] | None = None,
) -> Any:
    """Shapes.

    count: not this one.
    """
    return [points, box, size, unit, inner, count, tags, any_of, extra]


def schema_of(made: FunctionTool) -> Any:
    return msgspec.json.decode(made.spec.parameters)


async def called(made: FunctionTool, arguments: str) -> ToolOutput:
    """As the loop does it."""
    run = call_of(parse_arguments(made.spec, arguments))
    return await execute(made, run, Blobs())


def test_a_tool_is_named_and_described_by_its_function() -> None:
    spec = forecast.spec
    assert spec.name == "forecast"
    assert spec.description == "The weather in a city.\n\nFrom the met office."
    assert (spec.read_only, spec.idempotent, spec.timeout_s) == (True, True, 3)
    assert schema_of(forecast) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name, as people there write it."},
            "days": {"enum": [1, 3, 7], "default": 1, "description": "How far to look ahead."},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_unless_said_otherwise_a_tool_acts() -> None:
    assert (plain.spec.read_only, plain.spec.idempotent) == (False, False)
    assert schema_of(plain)["properties"] == {}


def test_a_name_and_a_description_can_be_given() -> None:
    made = tool(name="other", description="Other words.")(lambda: "a")
    assert (made.spec.name, made.spec.description) == ("other", "Other words.")


def test_types_become_schemas() -> None:
    schema = schema_of(shapes)
    assert schema["required"] == ["points", "box", "size", "unit", "inner"]
    assert schema["properties"]["points"] == {"type": "array", "items": {"$ref": "#/$defs/Point"}}
    assert schema["properties"]["count"] == {
        "type": "integer",
        "minimum": 1,
        "description": "How many.",
        "default": 2,
    }
    assert schema["properties"]["tags"]["default"] == []
    assert {"Point", "Box", "Size", "Unit"} < set(schema["$defs"])


async def test_arguments_arrive_as_what_they_are_annotated_as() -> None:
    output = await called(
        shapes,
        '{"points": [{"x": 1}], "box": {"wide": 2}, "size": {"wide": 3}, "unit": "c", '
        '"inner": {"a": 1}, "count": 3.0, "any_of": "a", "extra": {"a": 1}}',
    )
    assert msgspec.json.decode(said(output)) == [
        [{"x": 1, "y": 0}],
        {"wide": 2},
        {"wide": 3},
        "c",
        {"a": 1},
        3,
        [],
        "a",
        {"a": 1.0},
    ]


async def test_a_default_is_the_functions_own() -> None:
    """Also one that JSON has no word for, and never a copy of it."""
    marker = object()

    @tool
    def f(value: int = marker) -> bool:  # type: ignore[assignment]
        return value is marker

    assert schema_of(f)["properties"] == {"value": {"type": "integer"}}
    assert said(await called(f, "{}")) == "true"


def test_arguments_are_checked_before_the_function_sees_them() -> None:
    with pytest.raises(InvalidArguments, match="not one of 1, 3 or 7"):
        parse_arguments(forecast.spec, '{"city": "Oslo", "days": 2}')


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", (Text(text="text"),)),
        ("", (Text(text=""),)),
        (None, (Text(text="done"),)),
        (3, (Text(text="3"),)),
        ([], (Text(text="[]"),)),
        ({"a": [1, None]}, (Text(text='{"a":[1,null]}'),)),
        (Point(1, 2), (Text(text='{"x":1,"y":2}'),)),
        (Size(1), (Text(text='{"wide":1}'),)),
        (Text(text="a"), (Text(text="a"),)),
        (
            [Text(text="a"), Image(source=Link(url="https://x/y"))],
            (Text(text="a"), Image(source=Link(url="https://x/y"))),
        ),
        (ToolOutput(content=(Text(text="a"),)), (Text(text="a"),)),
    ],
    ids=str,
)
async def test_what_a_function_may_return(value: object, content: object) -> None:
    made = tool(name="f")(lambda: value)
    assert (await execute(made, call_of(), Blobs())).content == content


async def test_what_cannot_be_encoded_is_an_error() -> None:
    output = await execute(tool(name="f")(lambda: object()), call_of(), Blobs())
    assert output.outcome == "error"
    assert "object has no encoding" in said(output)


async def test_an_argument_annotated_as_the_run_receives_it() -> None:
    @tool
    def remember(text: str, run: ToolRun) -> ToolOutput:
        """text: What to remember."""
        change = StateSet(name="notes", value=msgspec.json.encode([text]).decode())
        return ToolOutput(content=(Text(text=run.call_key),), changes=(change,))

    assert list(schema_of(remember)["properties"]) == ["text"]
    output = await called(remember, '{"text": "tea"}')
    assert output.content == (Text(text=KEY),)
    assert output.changes == (StateSet(name="notes", value='["tea"]'),)


async def test_async_functions_run_where_they_are_and_others_in_a_thread() -> None:
    where = ContextVar("where", default="nowhere")

    @tool
    async def here() -> list[Json]:
        return [threading.current_thread() is threading.main_thread(), where.get()]

    @tool
    def there() -> list[Json]:
        return [threading.current_thread() is threading.main_thread(), where.get()]

    where.set("a test")
    assert said(await called(here, "{}")) == '[true,"a test"]'
    assert said(await called(there, "{}")) == '[false,"a test"]'


async def test_a_thread_that_nobody_waits_for_holds_nobody_up() -> None:
    let_go, begun = threading.Event(), threading.Event()

    @tool(timeout_s=0.05)
    def hangs() -> str:
        begun.set()
        let_go.wait()
        return "at last"

    output = await execute(hangs, call_of(), Blobs())
    assert begun.wait(60)
    assert said(output) == "'hangs' did not finish within 0.05 s and was stopped."
    let_go.set()


async def test_hanging_threads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "tool_threads_max", 1)
    let_go, begun = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    def hangs() -> str:
        loop.call_soon_threadsafe(begun.set)
        let_go.wait()
        return "at last"

    first = asyncio.create_task(execute(hangs, call_of(), Blobs()))
    await begun.wait()
    assert "1 earlier calls of it are still running" in said(
        await execute(hangs, call_of(), Blobs())
    )
    let_go.set()
    assert said(await first) == "at last"
    assert said(await execute(hangs, call_of(), Blobs())) == "at last"


@pytest.mark.parametrize("error", [StopIteration("a"), ValueError("b"), SystemExit(1)])
async def test_what_a_thread_raises_is_told(error: BaseException) -> None:
    @tool
    def fails() -> str:
        raise error

    output = await execute(fails, call_of(), Blobs())
    assert output.outcome == "error"
    assert type(error).__name__ in said(output)


def test_a_tool_can_still_be_called_as_a_function() -> None:
    assert forecast("Oslo", days=3) == "Oslo 3 None"
    assert forecast.__doc__ is not None


class Greeter:
    def greet(self, name: str) -> str:
        """Greet somebody."""
        return f"Hello {name}"

    def __call__(self, name: str) -> str:
        """Call somebody.

        name: Whom.
        """
        return f"Hey {name}"


async def test_methods_and_callable_objects_are_functions_too() -> None:
    assert said(await called(tool(Greeter().greet), '{"name": "Ada"}')) == "Hello Ada"
    made = tool(name="call")(Greeter())
    assert made.spec.description == "Call somebody."
    assert said(await called(made, '{"name": "Ada"}')) == "Hey Ada"


def many(*args: int) -> None: ...
def keywords(**kwargs: int) -> None: ...
def bare(city) -> None: ...  # type: ignore[no-untyped-def]
def positional(city: str, /) -> None: ...
def unknown(city: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def custom(city: threading.Lock) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (many, "*args: 'int' cannot be called by name"),
        (keywords, "**kwargs: 'int' cannot be called by name"),
        (bare, "its argument 'city' has no annotation"),
        (Greeter.greet, "its argument 'self' has no annotation"),
        (positional, "cannot be called by name"),
        (unknown, "name 'Nowhere' is not defined"),
        (custom, "cannot be a tool"),
        (lambda: None, "cannot be a tool's name"),
    ],
)
def test_what_cannot_be_a_tool_is_told_when_it_is_made(
    function: Callable[..., object], told: str
) -> None:
    with pytest.raises(InvalidTool) as raised:
        tool(function)
    assert told in str(raised.value)


async def test_a_toolset_holds_functions_and_tools() -> None:
    def other() -> str:
        return "b"

    toolset = FunctionToolset(plain, other)
    assert [each.spec.name for each in await toolset.tools()] == ["plain", "other"]
    await toolset.close()


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidTool, match="two tools of one toolset are called 'plain'"):
        FunctionToolset(plain, plain)


@pytest.mark.parametrize(
    ("text", "description", "parameters"),
    [
        ("", "", {}),
        ("One line.", "One line.", {}),
        ("Do.\n\nArgs:\n    a: First.\n    b: Second.", "Do.", {"a": "First.", "b": "Second."}),
        ("Do.\n\nArgs:\n  a (int): First,\n    and more.\n\n    b: no", "Do.", {"a": "First, and more.", "b": "no"}),
        ("Do.\n\na: First.\n  More.\nb: Second.\nEnd.", "Do.\n\nEnd.", {"a": "First. More.", "b": "Second."}),
        ("Do.\n\nother: stays here.", "Do.\n\nother: stays here.", {}),
        ("Do.\n\nArguments:\n    **b: Second.\n\nReturns:\n    a: not this", "Do.", {"b": "Second."}),
        ("Do.\n\nRaises:\n    a: not this\n\nExample:\n    lost", "Do.", {}),
        ("Args:\n    a:\n        Below.", "", {"a": "Below."}),
        ("Note: see there.", "Note: see there.", {}),
    ],
)  # fmt: skip
def test_docstrings(text: str, description: str, parameters: dict[str, str]) -> None:
    documented = parse_docstring(text, ["a", "b"])
    assert (documented.description, documented.parameters) == (description, parameters)
