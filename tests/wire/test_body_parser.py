"""A body that does not fit is refused in words that say what would."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal

import pytest

from holdfast.core.codec import Value
from holdfast.wire.anthropic.door.request import read_messages_request
from holdfast.wire.api.objects import Decisions, Place, RequestBody
from holdfast.wire.api.overview import Remark
from holdfast.wire.body_parser import BodyDecoder, read_body
from holdfast.wire.conversation_names import derived_name
from holdfast.wire.openai.chat.request import ChatRequest, read_chat_request
from holdfast.wire.openai.responses.request import read_responses_request
from holdfast.wire.openai.responses.socket import lane_of
from holdfast.wire.problems import Problem, Refused


class Deep(Value):
    either: list[dict[str, Literal["a", "b"]]] | None = None


def refused(kind: type[RequestBody | Deep | ChatRequest], body: str) -> Problem:
    with pytest.raises(Refused) as caught:
        read_body(BodyDecoder[object](kind), body.encode())
    assert caught.value.problem.status == 400
    return caught.value.problem


@pytest.mark.parametrize(
    ("kind", "body", "param", "known"),
    [
        (Place, '{"key": "x"}', "key", "; there are: version"),
        (Remark, '{"flag": {"colour": 1}}', "flag.colour", "; there are: name, value"),
        (
            Decisions,
            '{"decisions": {"x": {"yes": 1}}}',
            "decisions.yes",
            "; there are: approve, remember, arguments",
        ),
    ],
)
def test_a_parameter_that_there_is_not_is_told_which_there_are(
    kind: type[RequestBody], body: str, param: str, known: str
) -> None:
    problem = refused(kind, body)
    assert (problem.code, problem.param) == ("unknown_parameter", param)
    assert problem.message == f"there is no parameter {param!r}{known}"


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (
            ChatRequest,
            '{"model": "m", "messages": [{"role": "usr"}]}',
            "messages[0].role: Invalid enum value 'usr'; it is one of assistant, developer, system, tool, user",
        ),
        (
            Deep,
            '{"either": [{"x": "c"}]}',
            "either[0]: Invalid enum value 'c'; it is one of a, b",
        ),
        (Place, '{"version": "x"}', "version: Expected `int | null`, got `str`"),
        (Place, "[]", "Expected `object`, got `array`"),
    ],
)
def test_a_value_that_cannot_be_is_told_what_can(
    kind: type[RequestBody], body: str, message: str
) -> None:
    problem = refused(kind, body)
    assert problem.code == "invalid_type"
    assert problem.message == message


def test_what_is_no_json_is_said_to_be_none() -> None:
    assert refused(Place, "{").code == "invalid_json"


READERS: tuple[tuple[Callable[[bytes], object], str], ...] = (
    (
        read_chat_request,
        '{"model": "m", "messages": [{"role": "user", "content": "x", "a": DEEP}]}',
    ),
    (
        read_chat_request,
        '{"model": "m", "messages": [{"role": "user", "content": [{"type": "a", "a": DEEP}]}]}',
    ),
    (
        read_responses_request,
        '{"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "a": DEEP}]}]}',
    ),
    (read_responses_request, '{"model": "m", "input": [{"type": "a", "a": DEEP}]}'),
    (
        read_messages_request,
        '{"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": "x", "a": DEEP}]}]}',
    ),
    (partial(derived_name, "user"), '{"user": "x", "metadata": DEEP}'),
    (lane_of, '{"stream_id": "x", "a": DEEP}'),
)


@pytest.mark.parametrize(("read", "body"), READERS)
def test_lists_that_are_nested_too_deep_are_refused_in_each_part_of_a_body(
    read: Callable[[bytes], object], body: str
) -> None:
    """A part is decoded again where more calls are under way, and Python counts both together."""
    for depth in (*range(600, 1000), 100_000):
        with suppress(Refused):
            read(body.replace("DEEP", "[" * depth + "]" * depth).encode())


def test_a_decoder_learns_its_type_once_however_it_is_held() -> None:
    decoder = BodyDecoder[Deep](Deep)
    held = decoder.decode  # by a name of its own
    assert held(b"{}") == decoder.decode("{}") == Deep()
    assert decoder.decode is decoder.decode, "msgspec's own function by now"
    assert held(b'{"either": []}') == Deep(either=[])
