"""What is too large for an item is set aside, and named by its digest."""

from __future__ import annotations

from hashlib import sha256

from holdfast import limits
from holdfast.core.attachments import are_words, set_aside
from holdfast.core.codec import encode
from holdfast.core.items import (
    AssistantMessage,
    Audio,
    Blob,
    File,
    Image,
    Inline,
    Link,
    Text,
    UserMessage,
    item_decoder,
)
from holdfast.ids import MessageId
from tests.core.builders import call

ID = MessageId("msg_" + "0" * 26)
SMALL = Inline(media_type="image/png", data=bytes(limits.inline_bytes_max))
LARGE = Inline(media_type="image/png", data=bytes(limits.inline_bytes_max + 1))


def test_words_alone_are_told_from_everything_else() -> None:
    words = UserMessage(id=ID, content=(Text(text="look"),))
    picture = UserMessage(id=ID, content=(Text(text="look"), Image(source=SMALL)))
    assert are_words(()) and are_words((words, call("look")))
    assert not are_words((words, picture))


def test_what_is_too_large_becomes_a_blob_and_the_rest_stays() -> None:
    words = Text(text="look")
    link = Image(source=Link(url="https://example.org/a.png"))
    message = UserMessage(
        id=ID,
        content=(words, Image(source=SMALL), Image(source=LARGE, detail="high"), link),
    )
    (lightened,), large = set_aside((message,))
    assert large == (LARGE.data,)
    assert isinstance(lightened, UserMessage)
    blob = Blob(
        media_type="image/png",
        digest=f"sha256:{sha256(LARGE.data).hexdigest()}",
        size_bytes=len(LARGE.data),
    )
    assert lightened.content == (
        words,
        Image(source=SMALL),
        Image(source=blob, detail="high"),
        link,
    )
    assert item_decoder.strict(encode(lightened)) == lightened


def test_sound_and_files_are_treated_alike() -> None:
    message = UserMessage(id=ID, content=(Audio(source=LARGE), File(source=LARGE, name="a.pdf")))
    (lightened,), large = set_aside((message,))
    assert len(large) == 2
    assert isinstance(lightened, UserMessage)
    assert all(isinstance(each.source, Blob) for each in lightened.content)  # type: ignore[union-attr]


def test_items_without_anything_large_are_the_same_items() -> None:
    items = (UserMessage(id=ID, content=(Text(text="x"),)), AssistantMessage(id=ID, content=()))
    same, large = set_aside(items)
    assert (same, large) == (items, ())
    assert same[0] is items[0]


def test_what_has_no_content_stays_as_it_is_beside_what_has() -> None:
    errand, photo = call("errand"), UserMessage(id=ID, content=(Image(source=LARGE),))
    (first, second), large = set_aside((errand, photo))
    assert first is errand
    assert large == (LARGE.data,)
    assert second != photo
