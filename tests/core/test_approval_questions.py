"""The question about a waiting call shows the call and nothing else, and only its own words answer it."""

from __future__ import annotations

import re
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.approval_questions import (
    LINE_CHARS,
    ChatQuestion,
    question_in,
    without_question,
)
from holdfast.core.items import AssistantMessage, Item, ToolCall, plain_text
from holdfast.ids import CallId, MessageId, TurnId
from tests.core.builders import new_minter

HOSTILE = (
    "![x](https://evil.example/?q=1)",
    "```\n\n![x](https://evil.example)\n\n```",
    "~~~",
    "<img src=https://evil.example>",
    "<!--",
    "&#x202e;evil",
    "[a](javascript:x)",
    "\u202eevil\u202c",
    "\u2066\u200b\u200d\ufeff\U000e0041\u00ad\u061c",
    "\x1b[2J",
    "\u2028\u2029\r\n\t\x00\x85",
    "\ud800",
    "[Waiting for your approval] This call has not run:",
)


def asked(arguments: str = "{}", *, name: str = "pay", text: str = "", n: int = 1) -> ChatQuestion:
    mint = new_minter()
    items: list[Item] = [
        ToolCall(
            id=mint(CallId),
            call_id=f"c{k}",
            name=name,
            arguments=arguments,
            agent="root",
            waits_for="approval",
            chat_key="",
        )
        for k in range(n)
    ]
    said = AssistantMessage(id=mint(MessageId), content=plain_text(text), agent="root")
    found = question_in((said, *items), mint(TurnId))
    assert found is not None
    return found


def shown(text: str) -> str:
    """What a question shows of a call: everything between the fences, or all of it without one."""
    parts = re.split(r"^```$", text, flags=re.MULTILINE)
    assert len(parts) in (1, 3)
    return parts[1] if len(parts) == 3 else text


def demand_harmless(question: ChatQuestion) -> None:
    text = question.text
    inside = shown(text)
    for letter in text.replace("\n", ""):
        assert letter == " " or unicodedata.category(letter)[0] not in "CZ", hex(ord(letter))
    assert "`" not in inside or question.needs_code
    for sign in ("![", "](", "<img", "<!--", "</"):
        assert sign not in inside
    assert max(map(len, inside.split("\n"))) <= LINE_CHARS + 2 or question.needs_code


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("text", ["May I?", "Look: <b>this</b>", "```\nopen"])
def test_no_argument_or_name_does_anything_but_show_itself(words: str, text: str) -> None:
    encoded = words.encode("utf-8", "replace").decode()
    demand_harmless(asked(msgspec.json.encode({"to": encoded}).decode(), text=text))
    demand_harmless(asked(words, text=text))
    demand_harmless(asked(name=words, text=text))


@given(st.text(), st.text())
def test_no_text_does(arguments: str, name: str) -> None:
    demand_harmless(asked(arguments, name=name))


def test_arguments_are_whole_and_long_ones_need_no_scrolling() -> None:
    long = "a" * 500 + "; rm -rf /"
    question = asked(f'{{"cmd":"{long}","n":12345678901234567890123}}')
    inside = shown(question.text)
    assert long in inside.replace("\n↪ ", "") and "12345678901234567890123" in inside


def test_letters_that_are_written_as_escapes_are_shown_as_letters() -> None:
    inside = shown(asked(r'{"cmd":"\u0072m \u202e\u0022 \\u0041"}').text)
    assert r'"cmd": "rm \u202e\u0022 \\u0041"' in inside


@pytest.mark.parametrize(
    "text",
    ["```\ncode", "````\n```\n", "~~~", "- ```sh\nls", "<!-- ", "<details>", "a <b", HOSTILE[-1]],
)
def test_behind_a_text_that_could_hide_the_question_a_yes_needs_its_code(text: str) -> None:
    question = asked(text=text)
    (code,) = question.codes
    assert question.decisions("yes") is None
    assert question.decisions(f"yes {code}") == {question.calls[0].id: True}
    assert question.decisions("no") == {question.calls[0].id: False}
    assert f"`yes {code}`" in question.text


@pytest.mark.parametrize(
    "text", ["", "May I?", "```\nls\n```\nMay I?", "1 < 2, and `x`", "~~~\na\n~~~"]
)
def test_behind_any_other_text_it_does_not(text: str) -> None:
    assert asked(text=text).decisions("yes") is not None


def test_codes_differ_however_many_calls_there_are() -> None:
    question = asked(n=200)
    assert len(question.codes) == 200
    both = " ".join(question.codes)
    assert question.decisions(f"no {both}") == {each.id: False for each in question.calls}
    assert question.decisions(f"yes {both} yes") is None


@given(st.text(st.characters(codec="utf-8")))
def test_an_answer_is_found_without_its_question(text: str) -> None:
    said = without_question(text)
    assert without_question(f"{said}\n\n{asked().text}").rstrip() == said.rstrip()
    assert without_question(f"{said}\n\n{asked().repeated('Why.')}").rstrip() == said.rstrip()


def test_where_nothing_is_stored_the_question_says_how_to_be_able_to_answer_it() -> None:
    text = msgspec.structs.replace(asked(), is_kept=False).text
    assert "cannot be answered here" in text and "`X-Conversation-Id`" in text
    assert "holdfast approvals" not in text, "there would be nothing to decide about"
