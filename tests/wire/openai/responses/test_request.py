"""Reading a Responses request: what is taken, what is left alone, what is refused and under which name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import Fresh, Incoming, take_in
from holdfast.core.items import (
    File,
    ForeignItem,
    Image,
    Inline,
    Link,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from holdfast.ids import MessageId, ResponseId, SessionId
from holdfast.wire.openai.responses.answer import Echo, echo_of, note_of
from holdfast.wire.openai.responses.item_addresses import ItemAddress, read_address
from holdfast.wire.openai.responses.items import ItemReference, read_input
from holdfast.wire.openai.responses.request import ResponsesAsk, read_responses_request
from holdfast.wire.problems import Problem, Refused
from tests.core.builders import new_minter

MINT = new_minter()


def asked(**body: Any) -> ResponsesAsk:
    return read_responses_request(msgspec.json.encode({"model": "m", "input": "Hi", **body}))


def refusal(**body: Any) -> Problem:
    with pytest.raises(Refused) as refused:
        asked(**body)
    return refused.value.problem


def pieces(*items: Any) -> tuple[Any, ...]:
    return read_input(msgspec.Raw(msgspec.json.encode(items)))


def test_a_text_is_a_users_message() -> None:
    ask = asked()
    assert ask.input == (Incoming(role="user", content=(Text(text="Hi"),)),)
    assert (ask.store, ask.stream, ask.background, ask.conversation) == (True, False, False, None)


def test_messages_may_lack_type_id_and_status_and_content_may_be_a_string_or_parts() -> None:
    found = pieces(
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes?", "annotations": [], "logprobs": []}],
        },
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    )
    assert [each.role for each in found] == ["system", "user", "assistant", "assistant"]
    assert found[3].content == (Refusal(text="No."),)


def test_images_and_files_come_as_bytes_ids_or_addresses() -> None:
    (found,) = pieces(
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "low"},
                {"type": "input_image", "file_id": "file_1"},
                {"type": "input_file", "file_url": "https://x/y.pdf"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "JVBERi0x"},
                {"type": "of_tomorrow", "anything": 1},
            ],
        }
    )
    assert found.content == (
        Image(source=Inline(media_type="image/png", data=b"hi"), detail="low"),
        Image(source=Link(url="file_1")),
        File(source=Link(url="https://x/y.pdf")),
        File(source=Inline(media_type="application/pdf", data=b"%PDF-1"), name="a.pdf"),
    )


def test_calls_side_by_side_are_one_step_and_their_results_are_tool_messages() -> None:
    found = pieces(
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [{"type": "input_text", "text": "2"}],
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    )
    taken = take_in(Snapshot(session_id=MINT(SessionId)), found, MINT)
    assert isinstance(taken, Fresh)
    thought, call, other, one, two, kept = taken.input
    assert isinstance(thought, Reasoning)
    assert [each.owner for each in thought.extras] == ["openai"]
    assert isinstance(call, ToolCall) and isinstance(other, ToolCall)
    assert (call.call_id, call.name, other.call_id, other.name) == ("a", "f", "b", "g")
    assert isinstance(one, ToolResult) and isinstance(two, ToolResult)
    assert (one.call_id, two.call_id, two.content) == ("a", "b", (Text(text="2"),))
    assert isinstance(kept, ForeignItem) and kept.original.kind == "web_search_call"


def test_a_reference_is_kept_until_somebody_knows_what_it_means() -> None:
    assert pieces({"type": "item_reference", "id": "msg_1"}) == (ItemReference(id="msg_1"),)
    assert pieces({"id": "msg_1"}) == pieces({"type": None, "id": "msg_1"})
    assert pieces({"id": "msg_1"}) == (ItemReference(id="msg_1"),)


def test_an_address_leads_to_an_item_in_its_session() -> None:
    item, session_id = MINT(MessageId), MINT(SessionId)
    address = ItemAddress(item=item, session_id=session_id)
    assert read_address(str(address)) == address
    assert read_address(str(item)) == ItemAddress(item=item)
    assert len(str(address)) <= 64, "clients are told that ids are no longer"
    for text in ("", "msg_", "msg_1", f"{item}x", f"conv_{item.body}", f"{address}0"):
        assert read_address(text) is None


def test_tools_are_functions_or_left_alone_and_echoed_with_every_member() -> None:
    ask = asked(
        tools=[
            {"type": "function", "name": "f", "parameters": {"type": "object"}},
            {"type": "web_search"},
            {"type": "namespace", "name": 7, "tools": []} | {"name": "n"},
        ],
        tool_choice={"type": "function", "name": "f"},
    )
    assert [each.name for each in ask.client_tools] == ["f"]
    assert ask.left_alone == ("tools[1]", "tools[2]")
    first = msgspec.json.decode(ask.echo.tools)[0]
    assert first == {
        "type": "function",
        "name": "f",
        "description": None,
        "parameters": {"type": "object"},
        "strict": None,
    }


def test_unknown_fields_and_include_values_are_left_alone() -> None:
    ask = asked(client_metadata={"a": 1}, include=["reasoning.encrypted_content"], generate=False)
    assert not ask.echo.show_tools
    assert asked(include=["holdfast.tool_calls"]).echo.show_tools


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"model": ""}, "model", "missing_required_parameter"),
        ({"input": None}, "input", "missing_required_parameter"),
        ({"input": 7}, "input", "invalid_type"),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input[0].role", "invalid_value"),
        ({"input": [{"content": "x"}]}, "input[0].role", "missing_required_parameter"),
        (
            {"input": [{"type": "function_call_output", "output": "x"}]},
            "input[0].call_id",
            "missing_required_parameter",
        ),
        ({"input": [{"role": "user", "content": 7}]}, "input[0]", "invalid_type"),
        ({"max_output_tokens": 15}, "max_output_tokens", "invalid_value"),
        ({"max_tool_calls": 0}, "max_tool_calls", "invalid_value"),
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"top_logprobs": 2}, "top_logprobs", "unsupported_parameter"),
        ({"truncation": "some"}, "truncation", "invalid_type"),
        ({"tool_choice": "maybe"}, "tool_choice", "invalid_value"),
        ({"tool_choice": {"type": "function"}}, "tool_choice", "invalid_value"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice", "invalid_value"),
        ({"tools": [{"type": "function"}]}, "tools[0]", "invalid_tool"),
        ({"text": {"format": {"type": "xml"}}}, "text.format", "unsupported_parameter"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n"}}},
            "text.format.schema",
            "missing_required_parameter",
        ),
        ({"metadata": {"": "x"}}, "metadata", "invalid_value"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata", "invalid_value"),
        ({"background": True, "store": False}, "background", "invalid_value"),
        ({"conversation": "trip"}, "conversation", "invalid_value"),
        (
            {"previous_response_id": "resp_1"},
            "previous_response_id",
            "previous_response_not_found",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(body: dict[str, Any], param: str, code: str) -> None:
    problem = refusal(**body)
    assert (problem.status, problem.param, problem.code) == (400, param, code)


FUNCTION = {"name": "f", "parameters": {}}


@pytest.mark.parametrize(
    "body",
    [
        {"tool_choice": {"type": "function", "function": FUNCTION}},
        {"tools": [{"type": "function", "function": FUNCTION}]},
        {"text": {"format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}}},
    ],
)
def test_a_parameter_in_the_form_of_chat_is_refused_with_the_right_form(
    body: dict[str, Any],
) -> None:
    problem = refusal(**body)
    assert "has the form of Chat Completions; here " in problem.message
    assert problem.param is not None and problem.param.split(".")[0].split("[")[0] in body


def test_a_conversation_and_a_previous_response_exclude_each_other() -> None:
    names = {
        "conversation": {"id": str(MINT(SessionId))},
        "previous_response_id": str(MINT(ResponseId)),
    }
    problem = refusal(**names)
    assert problem.status == 400
    assert all(name in problem.message for name in names)


def test_what_was_asked_for_can_be_kept_with_an_item_and_read_again() -> None:
    echo = asked(metadata={"b": "2", "a": "1"}, temperature=0.5, instructions="Be nice.").echo
    kept = UserMessage(id=MINT(MessageId), content=(), extras=(note_of(echo),))
    assert echo_of([UserMessage(id=MINT(MessageId), content=()), kept]) == echo
    assert echo_of([]) is None


def test_what_is_too_large_to_be_kept_every_time_goes_without_instructions_and_tools() -> None:
    echo = Echo(model="m", instructions="x" * 20_000, temperature=0.5)
    kept = UserMessage(id=MINT(MessageId), content=(), extras=(note_of(echo),))
    assert echo_of([kept]) == Echo(model="m", temperature=0.5)


def test_a_summary_that_another_server_has_sealed_is_left_alone() -> None:
    """It is kept as it is, and no model is shown it."""
    (kept,) = pieces({"type": "compaction", "encrypted_content": "gAAAA"})
    assert isinstance(kept, Incoming) and kept.foreign is not None and not kept.foreign.text
