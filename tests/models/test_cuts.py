"""A stream means the same however its bytes are cut up, and nothing but a whole one is a success."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import events as ev
from holdfast.core.accumulate import Delta
from holdfast.core.events import Usage
from holdfast.models.base import Model, ModelFailed
from holdfast.testing import FakeUpstream, Gate, Reply, Script, says
from holdfast.testing.upstream.replies import CutBy, Request, streamed
from holdfast.wire.hearing import ChatHearing
from tests.models.talking import answered, heard, model_at

SCRIPT = says(
    "Grüße ",
    "aus 😀\u2028 ",
    "Oslo.",
    thinks=["Hm, ", "so."],
    refuses=["Nicht ", "alles."],
    calls=[("look", '{"wo": "Ås", "n": [1, 2]}', "call_1"), ("fly", '{"to":"Bodø"}', "call_2")],
    usage=Usage(input_tokens=9, cached_tokens=3, output_tokens=40, reasoning_tokens=2),
)
EXPECTED = answered([each for each in SCRIPT.steps if not isinstance(each, Gate | ModelFailed)])


def body_of(script: Script) -> bytes:
    asked = b'{"model":"fake-model","stream":true,"stream_options":{"include_usage":true}}'
    request = Request("POST", "/v1/chat/completions", {}, asked)
    frames = streamed(Reply(script=script), request, number=1)
    return b"".join(each for each in frames if isinstance(each, bytes))


BODY = body_of(SCRIPT)


def answer_of(*pieces: bytes) -> ev.Answered:
    ear = ChatHearing(event_bytes_max=1 << 20)
    deltas: list[Delta] = [delta for piece in pieces for delta in ear.feed(piece)]
    return answered(deltas)


def test_a_stream_makes_the_same_items_cut_at_every_byte() -> None:
    for cut in range(len(BODY) + 1):
        assert answer_of(BODY[:cut], BODY[cut:]) == EXPECTED


@given(cuts=st.lists(st.integers(0, len(BODY)), max_size=60))
def test_a_stream_makes_the_same_items_in_any_pieces(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(BODY)]
    assert answer_of(*(BODY[a:b] for a, b in pairwise(edges))) == EXPECTED


TEXTS = st.lists(st.text(min_size=1, max_size=6), max_size=4)
CALLS = st.lists(
    st.tuples(
        st.text(min_size=1, max_size=5), st.text(max_size=10), st.text(min_size=1, max_size=5)
    ),
    max_size=3,
    unique_by=lambda call: call[2],
)


@given(said=TEXTS, thought=TEXTS, refused=TEXTS, calls=CALLS, write=st.integers(1, 40))
def test_any_answer_comes_back_as_it_was_given(
    said: list[str],
    thought: list[str],
    refused: list[str],
    calls: list[tuple[str, str, str]],
    write: int,
) -> None:
    script = says(*said, thinks=thought, refuses=refused, calls=calls)
    body = body_of(script)
    pieces = [body[n : n + write] for n in range(0, len(body), write)]
    given_ = [each for each in script.steps if not isinstance(each, Gate | ModelFailed)]
    assert answer_of(*pieces) == answered(given_)


# Over real sockets: fewer, since each is a connection.


@settings(max_examples=25)
@given(
    cuts=st.lists(st.integers(0, len(BODY)), max_size=12),
    write_bytes=st.none() | st.integers(1, 200),
    crlf=st.booleans(),
    chunked=st.booleans(),
)
async def test_a_stream_makes_the_same_items_over_a_socket(
    cuts: list[int], write_bytes: int | None, crlf: bool, chunked: bool
) -> None:
    reply = Reply(
        script=SCRIPT,
        cuts=tuple(cuts),
        write_bytes=write_bytes,
        line_end=b"\r\n" if crlf else b"\n",
        chunked=chunked,
    )
    async with FakeUpstream(reply) as upstream:
        model = model_at(upstream.base_url)
        assert answered(await heard(model)) == EXPECTED
        await model.close()


@pytest.mark.parametrize("cut_by", ["reset", "close", "end"])
async def test_a_lost_connection_is_a_failure_or_the_whole_answer(cut_by: CutBy) -> None:
    """Tried all over the stream: never half an answer that passes for a whole one."""
    finished = BODY.index(b'"finish_reason":"tool_calls"')
    async with FakeUpstream() as upstream:
        model = model_at(upstream.base_url)
        for cut_at in (0, 1, 5, *range(40, len(BODY), 211), len(BODY) - 1):
            upstream.will(Reply(script=SCRIPT, cut_at=cut_at, cut_by=cut_by))
            outcome = await _outcome(model)
            if isinstance(outcome, ModelFailed):
                assert (outcome.reason, outcome.transient) == ("upstream_broke_off", True)
            else:
                assert cut_at > finished, "nobody said that it was finished"
                assert outcome.items == EXPECTED.items
        await model.close()


async def _outcome(model: Model) -> ev.Answered | ModelFailed:
    try:
        return answered(await heard(model))
    except ModelFailed as failure:
        return failure


def test_a_prefix_is_never_a_success() -> None:
    finished = BODY.index(b'"finish_reason":"tool_calls"')
    for end in range(finished):
        ear = ChatHearing(event_bytes_max=1 << 20)
        ear.feed(BODY[:end])
        assert not ear.finished


@given(noise=st.binary(max_size=60))
def test_noise_is_never_a_success(noise: bytes) -> None:
    ear = ChatHearing(event_bytes_max=1 << 20)
    ear.feed(b"data: " + noise + b"\n\n")
    assert not ear.finished
