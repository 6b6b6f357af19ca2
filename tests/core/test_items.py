"""What items are made of, and the small questions that others ask about them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.codec import Unreadable, encode
from holdfast.core.history.conversation import settings_decoder
from holdfast.core.items import (
    Audio,
    File,
    Image,
    Link,
    Parts,
    Path,
    Refusal,
    SessionSettings,
    Text,
    TurnLimits,
    end_of,
    is_substantial,
    item_decoder,
    item_id,
    path_text,
    plain_text,
    text_of,
)
from holdfast.ids import CallId
from tests.core.builders import summary, user
from tests.core.strategies import minted

ELSEWHERE = Link(url="https://example.com/x")

SAYS: list[tuple[Parts, str, bool]] = [
    ((), "", False),
    ((Text(text=""),), "", False),
    ((Text(text=" \t\n\u2003"),), " \t\n\u2003", False),
    ((Text(text=" "), Refusal(text="\n")), " \n", False),
    ((Text(text=" hi "),), " hi ", True),
    ((Refusal(text="No."),), "No.", True),
    ((Text(text="a"), Refusal(text="b"), Text(text="c")), "abc", True),
    ((Image(source=ELSEWHERE),), "", True),
    ((Audio(source=ELSEWHERE, transcript="heard"),), "", True),
    ((Text(text=" "), File(source=ELSEWHERE)), " ", True),
]


@pytest.mark.parametrize(("parts", "text", "substantial"), SAYS)
def test_parts_have_a_text_and_say_something_or_nothing(
    parts: Parts, text: str, substantial: bool
) -> None:
    """An image or file alone is something, white space is nothing."""
    assert text_of(parts) == text
    assert is_substantial(parts) is substantial


def test_the_end_of_a_text_keeps_what_is_not_text() -> None:
    picture = Image(source=Link(url="https://example.com/a.png"))
    parts = (picture, Text(text="Passages.\n"), Text(text="Oslo? "))
    assert end_of(parts, 5) == (Text(text="Oslo?"), picture)
    assert end_of(parts, 0) == (picture,)


def test_plain_text_is_one_part_or_none() -> None:
    assert plain_text("hi") == (Text(text="hi"),)
    assert plain_text("") == ()


@given(st.lists(minted(CallId), max_size=4).map(tuple))
def test_a_path_survives_being_one_string(path: Path) -> None:
    assert tuple(filter(None, path_text(path).split("/"))) == path


def test_an_item_has_an_id_unless_it_cannot_be_read() -> None:
    message = user()
    assert item_id(message) == message.id
    assert item_id(Unreadable(raw=b"", why="damaged")) is None


# ── settings ─────────────────────────────────────────────────────────────────────────────────


def test_attributes_are_set_replaced_removed_and_sorted() -> None:
    first = SessionSettings().with_attributes(topic="Oslo", colour="blue")
    then = first.with_attributes(colour=None, topic="Bergen", budget="", absent=None)
    assert first.attributes == (("colour", "blue"), ("topic", "Oslo"))
    assert then.attributes == (("budget", ""), ("topic", "Bergen"))


@given(
    before=st.dictionaries(st.text(min_size=1), st.text(), max_size=4),
    changes=st.dictionaries(st.text(min_size=1), st.none() | st.text(), max_size=4),
)
def test_any_name_can_be_an_attribute(
    before: dict[str, str], changes: dict[str, str | None]
) -> None:
    settings = SessionSettings().with_attributes(**before).with_attributes(**changes)
    merged = {**before, **changes}
    assert dict(settings.attributes) == {k: v for k, v in merged.items() if v is not None}
    assert list(settings.attributes) == sorted(settings.attributes)


def test_an_attribute_may_be_called_self() -> None:
    """Clients choose the names of their metadata."""
    assert SessionSettings().with_attributes(self="x").attributes == (("self", "x"),)


def test_other_settings_stay_when_attributes_change() -> None:
    settings = SessionSettings(working_directory="trip", limits=TurnLimits(steps_max=3))
    changed = settings.with_attributes(topic="Oslo")
    assert changed.with_attributes(topic=None) == settings


# ── bounds ───────────────────────────────────────────────────────────────────────────────────


def many(number: int) -> bytes:
    pairs = ",".join(f'["a{n:02}","x"]' for n in range(number))
    return f'{{"attributes":[{pairs}]}}'.encode()


@pytest.mark.parametrize(
    ("raw", "readable"),
    [
        (many(limits.attributes_max), True),
        (many(limits.attributes_max + 1), False),
        (b'{"attributes":[["","x"]]}', False),
        (b'{"limits":{"steps_max":1,"calls_max":0}}', True),
        (b'{"limits":{"steps_max":0}}', False),
        (b'{"evaluations":[{"owner":"","json":"1"}]}', False),
    ],
)
def test_settings_keep_to_their_bounds(raw: bytes, readable: bool) -> None:
    assert isinstance(settings_decoder.lenient(raw), SessionSettings) is readable


def test_a_summary_covers_no_less_than_nothing() -> None:
    raw = encode(summary(covers_to=1)).replace(b'"covers_to":1', b'"covers_to":-1')
    assert isinstance(item_decoder.lenient(raw), Unreadable)
