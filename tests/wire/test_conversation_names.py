"""Names of conversations in a base URL, in a chat program's header, and in a body."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import InvalidValue
from holdfast.ids import SessionKey
from holdfast.wire.conversation_names import (
    base_name,
    chat_id,
    derived_name,
    named_path,
    parse_conversation_from,
)
from holdfast.wire.problems import Refused


@pytest.mark.parametrize(
    ("path", "name", "rest"),
    [
        ("/c/kitchen/v1/chat/completions", "kitchen", "/v1/chat/completions"),
        ("/c/kitchen/v1", "kitchen", "/v1"),
        ("/c/a%2Fb%20c/v1/models", "a/b c", "/v1/models"),
        ("/c/a/b/v1/models", "a/b", "/v1/models"),  # a proxy has decoded it
        ("/c/v1/v1/models", "v1", "/v1/models"),
        ("/c/conv_1/v1/responses/resp_1", "conv_1", "/v1/responses/resp_1"),
    ],
)
def test_a_base_url_names_a_conversation(path: str, name: str, rest: str) -> None:
    found = named_path(path)
    assert found is not None and (found.name, found.path) == (name, rest)


@pytest.mark.parametrize(
    "path", ["/c/kitchen", "/c//v1/models", "/c/v1/models", "/v1/c/x", "/c/x/v1x"]
)
def test_other_paths_name_none(path: str) -> None:
    assert named_path(path) is None


@pytest.mark.parametrize("name", ["hf_key_01", "sk-proj-0123456789abcdefghij", "..", "a/../b", "."])
def test_a_name_that_is_a_secret_or_does_not_survive_a_proxy_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        base_name(name)


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ({"x-openwebui-chat-id": "3f2a-77"}, "3f2a-77"),
        ({"x-session-affinity": "ses_1"}, "ses_1"),
        ({"x-claude-code-session-id": "s1"}, "s1"),
        ({"x-claude-code-session-id": "s1", "x-claude-code-agent-id": "a7"}, "s1/a7"),
        ({"x-claude-code-agent-id": "a7"}, None),
        ({"x-session-affinity": "node-3", "x-openwebui-chat-id": "3f2a-77"}, "3f2a-77"),
        ({"x-openwebui-chat-id": "3f2a-77", "x-claude-code-session-id": "s1"}, "s1"),
        ({"x-openwebui-chat-id": "local:abc"}, None),
        ({"x-openwebui-chat-id": "temporary:abc"}, None),
        ({"x-openwebui-chat-id": " "}, None),
        ({"x-openwebui-chat-id": "{{CHAT_ID}}"}, None),
        ({}, None),
    ],
)
def test_the_header_of_a_chat_program_names_a_chat_that_is_kept(
    sent: dict[str, str], name: str | None
) -> None:
    assert chat_id(sent) == name


@pytest.mark.parametrize(
    ("source", "body", "name"),
    [
        ("user", {"user": "ada"}, "user:ada"),
        ("user", {"user": "Ada Lovelace"}, "user:Ada%20Lovelace"),
        ("user", {"user": "100%"}, "user:100%25"),
        ("session_id", {"session_id": "s1"}, "session_id:s1"),
        ("metadata.chat", {"metadata": {"chat": "c1"}}, "metadata.chat:c1"),
        ("metadata.chat", {"metadata": {"chat": 7}}, "metadata.chat:7"),
        ("metadata.chat", {"metadata": {"chat": None}}, None),
        ("user", {"user": " "}, None),
        ("user", {}, None),
    ],
)
def test_a_body_names_a_conversation_under_a_prefix(
    source: str, body: object, name: str | None
) -> None:
    found = derived_name(parse_conversation_from(source), msgspec.json.encode(body))
    assert found == name
    assert found is None or SessionKey(found)


@pytest.mark.parametrize("value", [True, 1.5, {"id": "c1"}, ["c1"]])
def test_a_part_that_is_no_name_is_refused(value: object) -> None:
    """The conversation would be lost without a word otherwise."""
    with pytest.raises(Refused) as caught:
        derived_name("session_id", msgspec.json.encode({"session_id": value}))
    assert caught.value.problem.param == "session_id"


def test_what_cannot_be_read_names_nothing() -> None:
    assert derived_name("user", b"{") is None


@pytest.mark.parametrize("source", ["", "model", "metadata", "metadata.", "messages.0"])
def test_only_parts_that_say_who_is_speaking_name_a_conversation(source: str) -> None:
    with pytest.raises(InvalidValue):
        parse_conversation_from(source)
