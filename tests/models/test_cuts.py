"""A stream means the same however its bytes are cut up, and nothing but a whole one is a success.

Whatever the wire: each of them is listened to by other code, and all of it has to keep to this.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.items import ToolCall
from holdfast.core.turns import events as ev
from holdfast.core.turns.deltas import FinishDelta
from holdfast.models.model import Model, ModelFailed
from holdfast.testing import FakeUpstream, Reply, says
from holdfast.testing.upstream.replies import CutBy
from tests.models.conversations import answered, heard
from tests.models.wires import TONGUES, Tongue, deltas_of

every_tongue = pytest.mark.parametrize("tongue", TONGUES.values(), ids=TONGUES.keys())


@every_tongue
def test_a_stream_makes_the_same_items_cut_at_every_byte(tongue: Tongue) -> None:
    body, expected = tongue.body, tongue.expected
    for cut in range(len(body) + 1):
        assert tongue.answer_of(body[:cut], body[cut:]) == expected


@every_tongue
@given(data=st.data())
def test_a_stream_makes_the_same_items_in_any_pieces(tongue: Tongue, data: st.DataObject) -> None:
    body = tongue.body
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=60))
    edges = [0, *sorted(cuts), len(body)]
    assert tongue.answer_of(*(body[a:b] for a, b in pairwise(edges))) == tongue.expected


TEXTS = st.lists(st.text(min_size=1, max_size=6), max_size=4)
NAMES = st.text(min_size=1, max_size=5)
OBJECTS = st.dictionaries(st.text(max_size=3), st.integers(), max_size=2).map(
    lambda value: msgspec.json.encode(value).decode()
)


@every_tongue
@given(data=st.data(), said=TEXTS, thought=TEXTS, write=st.integers(1, 40))
def test_any_answer_comes_back_as_it_was_given(
    tongue: Tongue, data: st.DataObject, said: list[str], thought: list[str], write: int
) -> None:
    arguments = OBJECTS if tongue.objects_only else st.text(max_size=10)
    calls = st.lists(st.tuples(NAMES, arguments, NAMES), max_size=3, unique_by=lambda call: call[2])
    script = says(
        *said,
        thinks=thought,
        refuses=data.draw(TEXTS) if tongue.has_refusals else (),
        calls=data.draw(calls),
    )
    body = tongue.body_of(script)
    pieces = [body[n : n + write] for n in range(0, len(body), write)]
    got, was_given = tongue.answer_of(*pieces), answered(deltas_of(script))
    if tongue.objects_only:
        got, was_given = _normal(got), _normal(was_given)
    assert (got.items, got.finish) == (was_given.items, was_given.finish)


def _normal(answer: ev.Answered) -> ev.Answered:
    """The same, with arguments spelled one way: where they travel as JSON, their spelling may change."""
    items = tuple(
        msgspec.structs.replace(
            item, arguments=msgspec.json.encode(msgspec.json.decode(item.arguments)).decode()
        )
        if isinstance(item, ToolCall)
        else item
        for item in answer.items
    )
    return msgspec.structs.replace(answer, items=items)


# Over real sockets: fewer, since each is a connection.


@every_tongue
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(),
    write_bytes=st.none() | st.integers(1, 200),
    crlf=st.booleans(),
    chunked=st.booleans(),
)
async def test_a_stream_makes_the_same_items_over_a_socket(
    tongue: Tongue, data: st.DataObject, write_bytes: int | None, crlf: bool, chunked: bool
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(tongue.body)), max_size=12))
    reply = Reply(
        script=tongue.script,
        cuts=tuple(cuts),
        write_bytes=write_bytes,
        line_end=b"\r\n" if crlf else b"\n",
        chunked=chunked,
    )
    async with FakeUpstream(reply) as upstream:
        model = tongue.model(upstream)
        assert answered(await heard(model)) == tongue.expected
        await model.close()


@every_tongue
@pytest.mark.parametrize("cut_by", ["reset", "close", "end"])
async def test_a_lost_connection_is_a_failure_or_the_whole_answer(
    tongue: Tongue, cut_by: CutBy
) -> None:
    """Tried all over the stream: never half an answer that passes for a whole one."""
    body, expected = tongue.body, tongue.expected
    finished = body.index(tongue.finish)
    async with FakeUpstream() as upstream:
        model = tongue.model(upstream)
        for cut_at in (0, 1, 5, *range(40, len(body), 211), len(body) - 1):
            upstream.will(Reply(script=tongue.script, cut_at=cut_at, cut_by=cut_by))
            outcome = await _outcome(model)
            if isinstance(outcome, ModelFailed):
                assert (outcome.reason, outcome.transient) == ("upstream_broke_off", True)
            else:
                assert cut_at > finished, "nobody said that it was finished"
                assert outcome.items == expected.items
        await model.close()


async def _outcome(model: Model) -> ev.Answered | ModelFailed:
    try:
        return answered(await heard(model))
    except ModelFailed as failure:
        return failure


@every_tongue
def test_a_prefix_is_never_a_success(tongue: Tongue) -> None:
    body = tongue.body
    for end in range(body.index(tongue.finish)):
        ear = tongue.hearing()
        ear.feed(body[:end])
        assert not ear.finished


@every_tongue
@given(noise=st.binary(max_size=60))
def test_noise_is_never_a_success(tongue: Tongue, noise: bytes) -> None:
    ear = tongue.hearing()
    ear.feed(b"data: " + noise + b"\n\n")
    assert not ear.finished


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@every_tongue
@given(data=st.data())
def test_a_stream_with_bytes_changed_never_does_worse_than_fail(
    tongue: Tongue, data: st.DataObject
) -> None:
    """Odd bytes are the upstream's failure, never a crash of ours."""
    body = bytearray(tongue.body)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    ear = tongue.hearing()
    deltas = ear.feed(bytes(body))
    assert ear.finished == any(isinstance(each, FinishDelta) for each in deltas)


@every_tongue
@given(said=JSON, name=st.sampled_from(["", "event: message_delta\n", "event: error\n"]))
def test_any_json_is_heard_or_is_a_failure(tongue: Tongue, said: object, name: str) -> None:
    ear = tongue.hearing()
    ear.feed(name.encode() + b"data: " + msgspec.json.encode(said) + b"\n\n")
    assert not ear.finished
