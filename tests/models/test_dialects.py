"""Models of different providers stand in for each other: each hears the same history in its own dialect."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.items import (
    Blob,
    File,
    Image,
    Inline,
    Interruption,
    Item,
    Part,
    Text,
    UserMessage,
)
from holdfast.ids import NoteId
from holdfast.loop.encoded_histories import joined, piece_of
from holdfast.models.dialects import Kind, LimitedDialect, SeveralDialects
from holdfast.models.fallback import FallbackModel
from holdfast.models.model import Dialect
from holdfast.testing import FakeUpstream, refuses
from holdfast.wire.anthropic.dialect import AnthropicDialect
from holdfast.wire.google.dialect import GoogleDialect
from holdfast.wire.openai.chat.messages import ChatDialect
from holdfast.wire.openai.responses.dialect import ResponsesDialect
from tests.models.wires import CALLS, TONGUES
from tests.server.stubs import HeldTool, agent, serving
from tests.wire.histories import DIGEST, MINT, call, result, said, thought, user

DIALECTS: list[Dialect] = [
    ChatDialect(),
    AnthropicDialect(),
    GoogleDialect(signed=True),
    ResponsesDialect(),
]

LOOK = call("look")
PICTURE = Image(source=Blob(media_type="image/png", digest=DIGEST, size_bytes=3))
TURNS: list[list[Item]] = [
    [user("Hi"), said("Hello, you.")],
    [user("Look", PICTURE), LOOK, result(LOOK, "seen"), said("There.")],
    [thought("hm")],
    [user("\x00\x01,"), said(",")],
    [],
]


@pytest.mark.parametrize("dialects", [*combinations(DIALECTS, 2), DIALECTS])
def test_each_model_is_told_what_it_would_be_told_alone(dialects: list[Dialect]) -> None:
    several = SeveralDialects(dialects)
    blobs = {DIGEST: b"png"}
    for turn in TURNS:
        together = several.encode(turn)
        whole = several.with_blobs(together, blobs) if several.blobs_in(together) else together
        for dialect in dialects:
            alone = dialect.with_blobs(dialect.encode(turn), blobs)
            assert several.only(dialect.name, whole) == alone


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_each_model_is_told_what_was_left_open(dialect: Dialect) -> None:
    """In a role of its own where every server of the dialect takes one in the middle, else as marked text."""
    note = Interruption(id=MINT(NoteId), ended_by="model_error")
    (told,) = msgspec.json.decode(b"[" + dialect.encode([note]) + b"]")
    assert told["role"] == ("developer" if dialect.name == "responses" else "user")
    assert (
        "[The previous turn was interrupted: the model failed."
        in msgspec.json.encode(told).decode()
    )


def test_nothing_to_say_is_nothing() -> None:
    assert SeveralDialects(DIALECTS).encode([]) == b""
    assert SeveralDialects(DIALECTS).only("chat", b"") == b""


@given(turns=st.lists(st.sampled_from(TURNS), max_size=6))
def test_histories_that_were_joined_come_apart_again(turns: list[list[Item]]) -> None:
    """Kept histories are joined when they are many, with a comma; whatever is in them, none is lost."""
    several = SeveralDialects(DIALECTS)
    pieces = tuple(piece_of(data, several) for turn in turns if (data := several.encode(turn)))
    together = joined(pieces).data
    assert several.blobs_in(together) == frozenset().union(*(each.blobs for each in pieces))
    for dialect in DIALECTS:
        alone = b",".join(filter(None, (dialect.encode(turn) for turn in turns)))
        assert several.only(dialect.name, together) == alone
        msgspec.json.decode(b"[" + alone + b"]")


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in TONGUES for b in TONGUES if a != b])
async def test_a_provider_that_is_down_is_stood_in_for_by_another(first: str, second: str) -> None:
    """In the middle of a conversation with calls and thoughts, on every pair of wires."""
    up, other = TONGUES[first], TONGUES[second]
    async with (
        FakeUpstream(up.script, "Done.", refuses(503)) as here,
        FakeUpstream("Yes.") as there,
    ):
        model = FallbackModel(up.model(here), other.model(there), cooldown_s=60)
        tools = [HeldTool(name, held=False) for name, _, _ in CALLS]
        async with serving(agent(model, *tools)) as server:
            await server.chat("Go", to="trip")
            stood_in = await server.chat("Once more", to="trip")
        await model.close()
    assert stood_in.text == "Yes."
    assert (len(here.requests), len(there.requests)) == (3, 1)
    asked = there.requests[0].body.decode()
    for words in ("Go", "Oslo.", "Done.", "Once more", CALLS[0][2]):
        assert words in asked
    assert "Hm, so." not in asked, "what the other one thought is none of its business"


def test_a_model_is_told_of_what_it_does_not_take() -> None:
    picture = Image(source=Inline(media_type="image/png", data=b"p"))
    paper = File(source=Inline(media_type="application/pdf", data=b"d"), name="a.pdf")
    notes = File(source=Inline(media_type="text/plain", data=b"n"), name="n.txt")
    film = File(source=Inline(media_type="video/mp4", data=b"v"), name="v.mp4")
    words = Text(text="Look.")
    asked = user("Look.", picture, paper, notes, film)
    assert isinstance(asked, UserMessage)
    inner = ChatDialect()
    cases: list[tuple[tuple[Kind, ...], tuple[Part, ...]]] = [
        (("pdf", "video"), (words, picture, told("pdf"), notes, told("video"))),
        (("image",), (words, told("image"), paper, notes, film)),
        (("audio",), asked.content),
    ]
    for without, kept in cases:
        dialect = LimitedDialect(inner, without)
        said = msgspec.structs.replace(asked, content=kept)
        assert dialect.encode([asked]) == inner.encode([said])
        assert dialect.name != inner.name, "histories are kept apart by the name"


def told(kind: str) -> Text:
    return Text(text=f"[{kind} left out]")
