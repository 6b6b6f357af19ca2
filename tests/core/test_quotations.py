"""Which questions are about a conversation."""

from __future__ import annotations

import pytest

from holdfast.core.quotations import SaidMessages

TITLE = """### Task:
Write a title.
<chat_history>
USER: What is
  a cairn?
ASSISTANT: A heap.
</chat_history>"""


@pytest.mark.parametrize(
    ("said", "text", "is_quoted"),
    [
        ("What is\na cairn?", TITLE, True),
        ("A heap.", TITLE, True),
        ("What is", TITLE, True),
        ("What is\na beacon?", TITLE, False),
        ("heap", TITLE, False),
        ("Hi", "Hi, how are you?", False),
        ("Hi", "Hi\nHow are you?", False),
        ("How are you?", "Hi\nHow are you?", False),
        ("Hi", "Hi", False),
        ("Hi", "They said:\nHi\nAnd then?", True),
        ("", "They said:\n\nAnd then?", False),
    ],
)
def test_a_quotation_is_a_message_between_other_lines(
    said: str, text: str, is_quoted: bool
) -> None:
    assert SaidMessages([said, "something else"]).are_quoted_in([text]) is is_quoted


def test_messages_of_a_conversation_that_is_told_again_are_not_quoted() -> None:
    said = SaidMessages(["One", "Two"])
    assert not said.are_quoted_in(["Zero", "Two", "Three"])
    assert not said.are_quoted_in([])
