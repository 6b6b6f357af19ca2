"""Conversations that a system shows as items of the Responses API are read as what was said."""

from __future__ import annotations

from typing import Any

import pytest
from scenarios.judging import torn_calls
from systems.base import Said
from systems.ogx import said_of_items

CALL = {"type": "mcp_call", "id": "fc_1", "name": "charge", "arguments": "{}"}


def message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "output_text", "text": text}]}


def test_messages_are_read_in_order_and_lists_of_tools_are_not() -> None:
    items = [message("user", "Hello"), {"type": "mcp_list_tools"}, message("assistant", "Well")]
    assert said_of_items(items) == (Said("user", "Hello"), Said("assistant", "Well"))


@pytest.mark.parametrize(
    "result", [{"output": "charged"}, {"output": ""}, {"output": None, "error": "refused"}]
)
def test_a_call_that_has_ended_is_a_call_and_its_result(result: dict[str, str | None]) -> None:
    call, answer = said_of_items([{**CALL, **result}])
    assert call.calls == (answer.answers,)
    assert not list(torn_calls([call, answer]))


def test_a_call_that_has_not_is_torn() -> None:
    assert list(torn_calls(said_of_items([CALL]))) == ["call fc_1 has no result"]


def test_an_item_of_another_kind_is_not_passed_over() -> None:
    with pytest.raises(ValueError, match="web_search_call has no place"):
        said_of_items([{"type": "web_search_call"}])
