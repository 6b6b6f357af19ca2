"""What a Messages request becomes, and which parts of it are refused or ignored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.items import File, Image, Inline, Link, Text
from holdfast.core.turns.events import FORCED_TOOL_CHOICE
from holdfast.wire.anthropic.door.request import (
    MessagesAsk,
    read_messages_request,
    same_request,
    unheeded_betas,
)
from holdfast.wire.problems import Refused


def asked(*messages: Any, **more: Any) -> MessagesAsk:
    said = [
        {"role": "user", "content": each} if isinstance(each, str) else each for each in messages
    ]
    body = {
        "model": "root",
        "max_tokens": 9,
        "messages": said or [{"role": "user", "content": "Hi"}],
    }
    return read_messages_request(msgspec.json.encode({**body, **more}))


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def answer(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def test_results_come_before_the_words_beside_them_and_keep_that_they_failed() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}
    other = {"type": "tool_result", "tool_use_id": "t2"}
    read = asked(user({"type": "text", "text": "And?"}, result, other)).messages
    assert [(each.role, each.call_id, each.failed) for each in read] == [
        ("tool", "t1", True),
        ("tool", "t2", False),
        ("user", "", False),
    ]
    assert read[0].content == (Text(text="no"),)


def test_an_answer_is_told_in_the_order_of_its_blocks() -> None:
    read = asked(
        "Hi",
        answer(
            {"type": "thinking", "thinking": "Hm.", "signature": "theirs"},
            {"type": "text", "text": "Let me."},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
            {"type": "redacted_thinking", "data": "xyz"},
            {"type": "thinking", "thinking": "So.", "signature": "hft_rs_1"},
            {"type": "text", "text": "Done."},
        ),
    ).messages
    first, second = read[1:]
    assert [each.text for each in first.thoughts] == ["Hm."]
    assert (first.content, first.calls[0].arguments) == ((Text(text="Let me."),), '{"at":1}')
    assert "theirs" in first.thoughts[0].extras[0].json
    assert [bool(each.extras) for each in second.thoughts] == [True, False], "the second is ours"
    assert second.content == (Text(text="Done."),)


def test_instructions_are_those_of_system_and_of_system_messages() -> None:
    blocks = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    read = asked("Hi", {"role": "system", "content": "Be brief."}, system=blocks)
    assert read.instructions == ("Be kind.", "Be brief.")
    assert asked("Hi", system="Be kind.").instructions == ("Be kind.",)


def test_pictures_and_documents() -> None:
    (read,) = asked(
        user(
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="},
            },
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {
                "type": "document",
                "title": "notes",
                "context": "From Ada.",
                "source": {"type": "text", "media_type": "text/plain", "data": "Hello"},
            },
            {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
            {
                "type": "search_result",
                "source": "https://example.org",
                "title": "Oslo",
                "content": [{"type": "text", "text": "A town."}],
            },
        )
    ).messages
    assert read.content == (
        Image(source=Inline(media_type="image/png", data=b"A")),
        Image(source=Link(url="https://example.org/a.png")),
        Text(text="From Ada."),
        File(source=Inline(media_type="text/plain", data=b"Hello"), name="notes"),
        File(source=Link(url="file_1")),
        Text(text="Oslo (https://example.org)\nA town."),
    )


def test_blocks_of_other_servers_are_kept_and_named() -> None:
    foreign = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    read = asked("Hi", answer({"type": "text", "text": "I looked."}, foreign), "And?")
    assert read.left_alone == ("messages[1].content[1]",)
    assert "server_tool_use" in read.messages[1].extras[0].json
    assert read.messages[1].content == (Text(text="I looked."),)


@pytest.mark.parametrize(
    ("more", "effort", "shows"),
    [
        ({}, None, False),
        ({"thinking": {"type": "adaptive"}}, None, True),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, None, False),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low", True),
        ({"thinking": {"type": "enabled", "budget_tokens": 50000}}, "xhigh", True),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max", True),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, "none", False),
    ],
)
def test_thinking_is_an_effort(more: dict[str, Any], effort: str | None, shows: bool) -> None:
    read = asked(**more)
    assert (read.parameters.reasoning_effort, read.shows_thoughts) == (effort, shows)
    by = "output_config.effort" if effort == "max" else "thinking"
    assert [each.name for each in read.given] == ([by] if effort else [])


TOOL = {"name": "look", "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("choice", "ours", "forces"),
    [
        ({"type": "auto"}, "auto", False),
        ({"type": "any"}, "required", True),
        ({"type": "none"}, "none", False),
        ({"type": "tool", "name": "look"}, '{"type":"function","function":{"name":"look"}}', True),
    ],
)
def test_a_choice_of_tools(choice: dict[str, Any], ours: str, forces: bool) -> None:
    """A model that cannot be forced to a call ignores some of them, and the client learns that it did."""
    read = asked(tools=[TOOL], tool_choice={**choice, "disable_parallel_tool_use": True})
    assert (FORCED_TOOL_CHOICE in {each.ours for each in read.given}) is forces
    assert read.parameters.tool_choice == ours
    assert read.parameters.parallel_tool_calls is False


def test_other_parameters() -> None:
    schema = {"type": "object", "properties": {}}
    read = asked(
        tools=[
            TOOL,
            {"type": "bash_20250124", "name": "bash"},
            {"type": "custom", **TOOL, "name": "b"},
        ],
        stop_sequences=["END"],
        top_k=5,
        metadata={"user_id": "ada"},
        output_config={"format": {"type": "json_schema", "schema": schema}},
        context_management={"edits": []},
        cache_control={"type": "ephemeral"},
        service_tier="auto",
    )
    assert [each.name for each in read.client_tools] == ["look", "b"]
    assert read.left_alone == ("context_management", "tools[1]")
    assert read.parameters.stop == ("END",)
    assert dict(read.parameters.others) == {"top_k": "5", "user": '"ada"'}
    assert '"json_schema"' in (read.parameters.output_schema or "")
    assert {each.name for each in read.given} == {
        "stop_sequences",
        "top_k",
        "user",
        "output_config.format",
    }


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"max_tokens": None}, "missing_required_parameter"),
        ({"max_tokens": 0}, "invalid_value"),
        ({"temperature": 1.5}, "invalid_value"),
        ({"messages": []}, "no_new_user_message"),
        ({"messages": [user({"type": "text"})]}, "invalid_type"),
        (
            {"messages": [user({"type": "image", "source": {"type": "base64", "data": "?"}})]},
            "invalid_content",
        ),
        (
            {"messages": [user({"type": "image", "source": {"type": "file"}})]},
            "unsupported_parameter",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "invalid_type"),
        ({"tools": [TOOL, TOOL]}, "invalid_tool"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "invalid_tool"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "invalid_value"),
        ({"system": 7}, "invalid_type"),
    ],
)
def test_what_cannot_be_honoured_is_refused(more: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as refused:
        asked(**more)
    assert refused.value.problem.code == code


def test_a_request_is_the_same_streamed_or_not() -> None:
    plain = {"model": "root", "messages": [], "max_tokens": 9}
    streamed = msgspec.json.encode({**plain, "stream": True})
    assert same_request(streamed) == same_request(msgspec.json.encode(plain))
    assert same_request(streamed) != same_request(msgspec.json.encode({**plain, "max_tokens": 8}))


def test_documents_inside_documents_are_not_followed() -> None:
    inside: Any = {"type": "text", "text": "deep"}
    for _ in range(200):
        inside = {"type": "document", "source": {"type": "content", "content": [inside]}}
    first = {
        "type": "document",
        "source": {"type": "content", "content": [{"type": "text", "text": "a"}]},
    }
    (read,) = asked(user(first, inside)).messages
    assert read.content == (Text(text="a"),)


def test_a_users_id_is_passed_on_unless_it_is_more_than_an_id() -> None:
    assert dict(asked(metadata={"user_id": "ada"}).parameters.others) == {"user": '"ada"'}
    assert asked(metadata={"user_id": "x" * 65}).parameters.others == ()


def test_betas_that_change_nothing_are_named() -> None:
    header = "effort-2025-11-24, context-1m-2025-08-07,interleaved-thinking-2025-05-14, b\tad"
    assert unheeded_betas(header, "true") == ("?beta", "anthropic-beta:context-1m-2025-08-07")
    assert unheeded_betas("", "") == ()
