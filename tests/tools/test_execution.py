"""A tool runs within its bounds, and whatever it returns can be written and read back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.codec import Decoder, encode
from holdfast.core.items import Blob, File, Image, Inline, Link, Parts, Refusal, Text
from holdfast.core.turns.events import Change, MemoryAdded, MemoryDeleted, StateSet
from holdfast.errors import StoreUnavailable
from holdfast.tools.execution import clean, execute
from holdfast.tools.tool import Tool, ToolBroken, ToolOutput, ToolRun
from tests.tools.tool_calls import Blobs, Doing, call_of, said

decoder: Decoder[ToolOutput] = Decoder(ToolOutput)


async def returned(output: object, blobs: Blobs | None = None) -> ToolOutput:
    async def do(run: ToolRun) -> Any:
        return output

    return await execute(Doing(do), call_of(), blobs or Blobs())


def raising(error: BaseException) -> Callable[[ToolRun], Awaitable[ToolOutput]]:
    async def do(run: ToolRun) -> ToolOutput:
        raise error

    return do


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such city"), "'doing' failed: ValueError: no such city"),
        (KeyError(), "'doing' failed: KeyError"),
        (TimeoutError("the socket"), "'doing' failed: TimeoutError: the socket"),
        (asyncio.CancelledError(), "'doing' failed: CancelledError"),
        (SystemExit(3), "'doing' failed: SystemExit: 3"),
        (Wordless(), "'doing' failed: Wordless: and says nothing about it (RuntimeError)"),
        (ValueError("half \ud800"), "'doing' failed: ValueError: half ?"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_a_tool_raises_is_its_answer(error: BaseException, told: str) -> None:
    output = await execute(Doing(raising(error)), call_of(), Blobs())
    assert (output.outcome, said(output)) == ("error", told)


async def causes(tool: Tool) -> list[tuple[str, str]]:
    """What the operator is told of a call."""
    told: list[tuple[str, str]] = []
    await execute(
        tool, call_of(), Blobs(), tell_broken=lambda cause, detail: told.append((cause, detail))
    )
    return told


async def test_the_operator_is_told_of_a_tool_that_is_broken_and_where() -> None:
    ((cause, detail),) = await causes(Doing(raising(OSError("no route to db.example"))))
    assert cause.startswith("OSError in test_execution.py:")
    assert detail == "no route to db.example"
    ((cause, detail),) = await causes(Doing(raising(Wordless())))
    assert cause.startswith("Wordless in ") and detail
    broken = ToolBroken("It answers 503: <html>", cause="it answers 503")
    assert await causes(Doing(raising(broken))) == [("it answers 503", "")]

    async def wait(run: ToolRun) -> ToolOutput:
        await asyncio.Event().wait()
        raise AssertionError

    assert await causes(Doing(wait, timeout_s=0.01)) == [("did not finish within 0.01 s", "")]


async def test_the_operator_is_not_told_of_an_answer_that_is_an_error() -> None:
    async def refuse(run: ToolRun) -> ToolOutput:
        return ToolOutput(content=(Text(text="there is no such city"),), outcome="error")

    assert await causes(Doing(refuse)) == []


async def test_a_tool_that_takes_too_long_is_stopped() -> None:
    stopped = asyncio.Event()

    async def do(run: ToolRun) -> ToolOutput:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    output = await execute(Doing(do, timeout_s=0.01), call_of(), Blobs())
    assert stopped.is_set()
    assert said(output) == "'doing' did not finish within 0.01 s and was stopped."


async def test_cancelling_the_call_cancels_the_tool() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def do(run: ToolRun) -> ToolOutput:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    running = asyncio.create_task(execute(Doing(do), call_of(), Blobs()))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stopped.is_set()


async def test_a_store_that_cannot_keep_a_blob_is_not_the_tools_fault() -> None:
    async def keep(data: bytes, media_type: str) -> Blob:
        raise StoreUnavailable("the disk is away")

    async def do(run: ToolRun) -> ToolOutput:
        return ToolOutput(content=(Text(text="x" * (limits.tool_output_chars_max + 1)),))

    with pytest.raises(StoreUnavailable):
        await execute(Doing(do), call_of(), keep)


def ok(*parts: Any, changes: Any = ()) -> ToolOutput:
    return ToolOutput(content=parts, changes=changes)


GOOD: list[tuple[str, ToolOutput]] = [
    ("nothing", ok()),
    ("text", ok(Text(text="hello"))),
    ("several", ok(Text(text="a"), Refusal(text="b"), Image(source=Link(url="https://x/y.png")))),
    ("small bytes", ok(File(source=Inline(media_type="text/plain", data=b"a"), name="a.txt"))),
    ("state", ok(Text(text="a"), changes=(StateSet(name="todo", value="[1]"),))),
    ("state forgotten", ok(changes=(StateSet(name="todo", value=""),))),
    ("memory", ok(changes=(MemoryAdded(memory_id="m1", agent="root", text="likes tea"),))),
    ("memory gone", ok(changes=(MemoryDeleted(memory_id="m1", agent="root"),))),
]


@pytest.mark.parametrize("output", [each[1] for each in GOOD], ids=[each[0] for each in GOOD])
async def test_a_good_output_comes_back_as_it_is(output: ToolOutput) -> None:
    assert await returned(output) == output


BIG = "x" * (limits.state_value_bytes_max + 1)
MANY: tuple[Change, ...] = tuple(StateSet(name=f"n{n}", value="1") for n in range(65))

BAD: list[tuple[str, object, str]] = [
    ("not an output", "hello", "it is a str, not a ToolOutput"),
    ("None", None, "it is a NoneType, not a ToolOutput"),
    ("a list", ToolOutput(content=[Text(text="a")]), "have to be tuples"),  # type: ignore[arg-type]
    ("too many parts", ok(*[Text(text="a")] * 65), "it has 65 parts, at most 64"),
    ("no part", ok("hello"), "a str is not a part"),
    ("no text", ok(Text(text=3)), "its text is not text"),  # type: ignore[arg-type]
    ("no place", ok(File(source=None)), "is not a place for bytes"),  # type: ignore[arg-type]
    ("no bytes", ok(File(source=Inline(media_type="a", data="b"))), "bytes are not bytes"),  # type: ignore[arg-type]
    (
        "a huge file",
        ok(File(source=Inline(media_type="a", data=bytes(limits.tool_output_bytes_max + 1)))),
        "a file in it has 4194305 bytes",
    ),
    ("a false digest", ok(File(source=Blob(media_type="a", digest="x", size_bytes=1))), "regex"),
    ("a half link", ok(Image(source=Link(url="\ud800"))), "surrogates"),
    ("a false outcome", ToolOutput(content=(), outcome="fine"), "enum"),  # type: ignore[arg-type]
    ("too many changes", ok(changes=MANY), "it has 65 changes, at most 64"),
    ("no change", ok(changes=(3,)), "a int is not a change"),
    ("an empty state name", ok(changes=(StateSet(name="", value="1"),)), "1–64 printable"),
    ("a long state name", ok(changes=(StateSet(name="n" * 65, value="1"),)), "1–64 printable"),
    ("a strange state name", ok(changes=(StateSet(name="a\n", value="1"),)), "1–64 printable"),
    ("a half state name", ok(changes=(StateSet(name="\ud800", value="1"),)), "1–64 printable"),
    ("a large state", ok(changes=(StateSet(name="n", value=f'"{BIG}"'),)), "262147 bytes, at most"),
    ("state that is no JSON", ok(changes=(StateSet(name="n", value="{"),)), "is not JSON"),
    ("half JSON", ok(changes=(StateSet(name="n", value='"\ud800"'),)), "is not JSON"),
    ("deep JSON", ok(changes=(StateSet(name="n", value="[" * 9999),)), "is not JSON"),
    ("state that is no text", ok(changes=(StateSet(name="n", value=1),)), "not a whole one"),  # type: ignore[arg-type]
    ("somebody's memory", ok(changes=(MemoryDeleted(memory_id="m", agent="x"),)), "belongs to"),
    ("no memory id", ok(changes=(MemoryDeleted(memory_id="", agent="root"),)), "1–128 printable"),
    (
        "a large memory",
        ok(changes=(MemoryAdded(memory_id="m", agent="root", text=BIG),)),
        "bytes, at most 16384",
    ),
    (
        "a half memory",
        ok(changes=(MemoryAdded(memory_id="m", agent="root", text="\ud800"),)),
        "surrogates",
    ),
    (
        "an error with changes",
        ToolOutput(content=(), outcome="error", changes=(StateSet(name="n", value="1"),)),
        "an error cannot have changes",
    ),
]


@pytest.mark.parametrize(
    ("output", "why"), [each[1:] for each in BAD], ids=[each[0] for each in BAD]
)
async def test_a_bad_output_is_an_error_and_changes_nothing(output: object, why: str) -> None:
    """A journal that cannot be read back would lose the whole turn, not only this result."""
    told = await returned(output)
    assert told.outcome == "error"
    assert told.changes == ()
    assert why in said(told)
    assert decoder.strict(encode(told)) == told


async def test_half_characters_in_text_are_replaced() -> None:
    assert said(await returned(ok(Text(text="half \ud83d and whole 😀")))) == "half ? and whole 😀"


async def test_of_a_long_text_the_model_sees_both_ends_and_the_blob_holds_all() -> None:
    blobs, text = Blobs(), "a" * limits.tool_output_chars_max + "z" * 100
    output = await returned(ok(Text(text=text)), blobs)
    shown, file = output.content
    assert isinstance(shown, Text)
    assert shown.text.startswith("aaa") and shown.text.endswith("zzz")
    assert "[… 100 characters left out …]" in shown.text
    assert isinstance(file, File) and isinstance(file.source, Blob)
    assert blobs.kept[file.source.digest] == text.encode()


async def test_the_bound_is_for_all_parts_together() -> None:
    half = "x" * (limits.tool_output_chars_max - 1)
    output = await returned(ok(*[Text(text=half)] * 5))
    assert len(said(output)) < limits.tool_output_chars_max + 1000


async def test_of_an_enormous_text_only_the_ends_are_kept() -> None:
    blobs = Blobs()
    output = await returned(ok(Text(text="x" * (limits.tool_output_bytes_max + 1))), blobs)
    assert len(output.content) == 1
    assert blobs.kept == {}


async def test_bytes_too_large_for_an_item_become_a_blob() -> None:
    blobs, data = Blobs(), bytes(limits.inline_bytes_max + 1)
    output = await returned(ok(Image(source=Inline(media_type="image/png", data=data))), blobs)
    (image,) = output.content
    assert isinstance(image, Image) and isinstance(image.source, Blob)
    assert (image.source.media_type, image.source.size_bytes) == ("image/png", len(data))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters()) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)
parts = (
    st.builds(Text, text=anything)
    | st.builds(File, source=anything, name=anything)
    | st.builds(Image, source=st.builds(Inline, media_type=anything, data=anything))
    | st.builds(Image, source=st.builds(Link, url=anything), detail=anything)
    | anything
)
changes = (
    st.builds(StateSet, name=anything, value=anything)
    | st.builds(MemoryAdded, memory_id=anything, agent=anything, text=anything)
    | anything
)
outputs = anything | st.builds(
    ToolOutput,
    content=st.lists(parts, max_size=3).map(tuple) | anything,
    outcome=st.sampled_from(["ok", "error"]) | anything,
    changes=st.lists(changes, max_size=3).map(tuple) | anything,
)


@given(outputs)
def test_whatever_a_tool_returns_can_be_written_and_read_back(output: object) -> None:
    told = asyncio.run(returned(output))
    assert decoder.strict(encode(told)) == told


@given(st.text(st.characters(codec=None)))
def test_cleaned_text_can_be_encoded_and_good_text_stays(text: str) -> None:
    clean(text).encode()
    if not any(0xD800 <= ord(char) < 0xE000 for char in text):
        assert clean(text) == text


def test_nothing_here_waits_for_long() -> None:
    content: Parts = (Text(text="x" * sys.maxunicode),)
    assert asyncio.run(returned(ToolOutput(content=content))).outcome == "ok"
