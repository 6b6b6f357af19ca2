"""What headers say, once parsed."""

from __future__ import annotations

import pytest

from holdfast.core.policy import Policy
from holdfast.ids import SessionId, SessionKey, Version
from holdfast.wire.headers import Naming, read_naming
from holdfast.wire.problems import Problem, Refused


def refused(**headers: str) -> Problem:
    with pytest.raises(Refused) as caught:
        read_naming({name.replace("_", "-"): value for name, value in headers.items()})
    assert caught.value.problem.status == 400
    return caught.value.problem


def test_silence_is_a_request_without_a_conversation() -> None:
    assert read_naming({}) == Naming(name=None)


def test_everything_that_can_be_said() -> None:
    naming = read_naming(
        {
            "x-conversation-id": "Trip/1",
            "x-conversation-create": "NEVER",
            "if-match": '"7"',
            "x-on-busy": "steer",
            "x-turn-policy": "cancel=discard, disconnect=finish",
            "idempotency-key": '"abc"',
            "x-stainless-retry-count": "2",
            "x-show-tools": "true",
            "x-show-reasoning": "true",
        }
    )
    assert naming == Naming(
        name=SessionKey("Trip/1"),
        create=False,
        if_match=Version(7),
        on_busy="steer",
        policy=Policy(cancel="discard", disconnect="finish"),
        idempotency_key=naming.idempotency_key,
        client_attempt=2,
        show_tools=True,
        show_reasoning=True,
    )
    assert naming.idempotency_key == "abc"


def test_an_id_is_recognised_and_an_alias_understood() -> None:
    text = "conv_" + "0" * 26
    assert read_naming({"x-conversation-id": text}).name == SessionId(text)
    assert read_naming({"x-openclaw-session-key": "a"}).name == SessionKey("a")
    assert read_naming({"x-mine": "a"}, names=("x-conversation-id", "x-mine")).name == "a"
    both = {"x-conversation-id": "a", "x-openclaw-session-key": "a"}
    assert read_naming(both).name == SessionKey("a")


def test_headers_that_clients_send_unasked_name_nothing() -> None:
    sent = {"x-session-id": "a", "session-id": "b", "x-openwebui-chat-id": "c", "session_id": "d"}
    assert read_naming(sent).name is None


@pytest.mark.parametrize("count", ["x", "-1", "1.5", "٣", "9" * 9])
def test_a_counter_that_is_none_counts_as_nothing(count: str) -> None:
    assert read_naming({"x-stainless-retry-count": count}).client_attempt == 0


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("x_conversation_id", "", "invalid_conversation_key"),
        ("x_conversation_id", "a, b", "invalid_conversation_key"),
        ("x_conversation_create", "always", "invalid_header"),
        ("if_match", "7", "invalid_version"),
        ("if_match", 'W/"7"', "invalid_version"),
        ("x_on_busy", "shout", "invalid_header"),
        ("x_turn_policy", "cancel=never", "invalid_turn_policy"),
        ("idempotency_key", "", "invalid_idempotency_key"),
        ("idempotency_key", "x" * 256, "invalid_idempotency_key"),
        ("x_show_tools", "1", "invalid_header"),
    ],
)
def test_a_header_that_cannot_be_meant_is_refused(name: str, value: str, code: str) -> None:
    problem = refused(**{name: value})
    assert (problem.code, problem.param) == (code, name.replace("_", "-"))
