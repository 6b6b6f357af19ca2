"""A stream as values: whole or not at all, however it is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.events import (
    AnswerFinished,
    AnswerRefusal,
    AnswerText,
    ChatReader,
    StreamCut,
    TokenUsage,
    ToolUse,
    ToolUseFinished,
    ToolUseStarted,
)
from holdfast.errors import ServerRefused

CALL = b'{"id":"fc_1","name":"look","arguments":"{}","agent":"root"'
STREAM = b"".join(
    b"data: " + each + b"\n\n"
    for each in (
        b'{"choices":[{"delta":{"role":"assistant","content":""}}]}',
        b'{"choices":[{"delta":{"content":"Let me "}}],"usage":null}',
        b'{"choices":[{"delta":{}}],"holdfast":{"tool_started":' + CALL + b"}}}",
        b'{"choices":[{"delta":{}}],"holdfast":{"tool_finished":' + CALL + b',"outcome":"ok"}}}',
        b'{"choices":[{"delta":{"refusal":"No."}}]}',
        b'{"choices":[{"delta":{},"finish_reason":"stop"}],"holdfast":{"turn_id":"turn_1","version":4}}',
        b'{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}',
        b"[DONE]",
    )
)
SEEN = ToolUse(id="fc_1", name="look", arguments="{}", agent="root")
EVENTS = [
    AnswerText(text="Let me "),
    ToolUseStarted(call=SEEN),
    ToolUseFinished(call=SEEN, outcome="ok"),
    AnswerRefusal(text="No."),
    AnswerFinished(
        reason="stop",
        turn_id="turn_1",
        version=4,
        usage=TokenUsage(prompt_tokens=5, completion_tokens=2, total_tokens=7),
    ),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_are_the_same_whatever_the_cuts(cuts: list[int]) -> None:
    reader, places = ChatReader(), [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in pairwise(places)]
    assert [event for piece in pieces for event in reader.feed(piece)] == EVENTS
    reader.end()


def test_a_stream_that_ends_early_is_never_taken_for_a_success() -> None:
    for size in range(len(STREAM) - 1):
        reader = ChatReader()
        events = list(reader.feed(STREAM[:size]))
        assert not any(isinstance(each, AnswerFinished) for each in events)
        with pytest.raises(StreamCut):
            reader.end()


def test_an_error_in_a_stream_is_raised_with_its_turn() -> None:
    reader = ChatReader("turn_1")
    frame = b'data: {"error":{"message":"no","type":"x","param":null,"code":"turn_cancelled"}}\n\n'
    with pytest.raises(ServerRefused) as refused:
        list(reader.feed(frame))
    assert (refused.value.reason, refused.value.turn_id) == ("turn_cancelled", "turn_1")
