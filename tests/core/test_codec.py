"""Values become bytes and come back as they were; what cannot come back harms nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.codec import Decoder, Unreadable, encode
from holdfast.core.history.chain import LinkHeader
from holdfast.core.history.conversation import Annotation, Notes, patch_decoder
from holdfast.core.items import Item, Opaque, SessionSettings, UserMessage, item_decoder
from holdfast.core.turns.journal import Record, decode_records, encode_records
from holdfast.ids import MessageId, TurnId, Version
from tests.core.builders import mint, user
from tests.core.strategies import minted, values

# ── there and back ───────────────────────────────────────────────────────────────────────────

STORED: list[Any] = [Item, Record, Annotation, SessionSettings, LinkHeader]


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: getattr(kind, "__name__", "Item"))
@given(data=st.data())
def test_a_value_comes_back_as_it_was(kind: Any, data: st.DataObject) -> None:
    value = data.draw(values(kind))
    raw = encode(value)
    back: Any = Decoder[Any](kind).strict(raw)
    assert back == value
    assert type(back) is type(value)
    assert encode(back) == raw


@given(message_id=minted(MessageId), owner=st.text(min_size=1, max_size=64), json=st.text())
@example(mint(MessageId), "anthropic", '{ "signature":"EqQ\\/B" , "n": 1.50, "n": 1e0 }\n')
@example(mint(MessageId), "openai", "not even JSON \x00\u2028")
def test_what_is_somebody_elses_comes_back_byte_for_byte(
    message_id: MessageId, owner: str, json: str
) -> None:
    """A signature covers the exact bytes: spaces, escapes, key order and repeated keys included."""
    item = UserMessage(id=message_id, content=(), extras=(Opaque(owner=owner, json=json),))
    back = item_decoder.strict(encode(item))
    assert isinstance(back, UserMessage)
    assert back.extras[0].json.encode() == json.encode()


def test_ids_come_back_as_ids_and_versions_as_versions() -> None:
    header = LinkHeader(
        turn_id=mint(TurnId), version=Version(7), ended_by="completed", agent="butler"
    )
    back = Decoder[LinkHeader](LinkHeader).strict(encode(header))
    assert (type(back.turn_id), type(back.version)) == (TurnId, Version)


def test_a_default_costs_nothing() -> None:
    assert encode(SessionSettings()) == b"{}"
    assert encode(Notes()) == b"{}"


def test_a_field_from_the_future_is_passed_over() -> None:
    """A newer version may have added one; its default is what we know."""
    message = user()
    raw = encode(message).replace(b"{", b'{"mood":{"of":["the",1]},', 1)
    assert item_decoder.strict(raw) == message


def test_what_has_no_encoding_is_a_bug() -> None:
    with pytest.raises(NotImplementedError, match="object has no encoding"):
        encode(object())


# ── damage ───────────────────────────────────────────────────────────────────────────────────

GOOD = encode(user())

DAMAGED: dict[str, bytes] = {
    "nothing": b"",
    "a zero byte": b"\x00",
    "cut short": GOOD[:-1],
    "not JSON": b"}" + GOOD,
    "two values": GOOD + GOOD,
    "a kind from the future": GOOD.replace(b'"user"', b'"telepathy"'),
    "no kind": GOOD.replace(b'"type"', b'"epyt"'),
    "a missing field": GOOD.replace(b'"content"', b'"tnetnoc"'),
    "an id of another kind": GOOD.replace(b"msg_", b"fco_"),
    "a number for an id": b'{"type":"user","id":5,"content":[]}',
    "a broken character": GOOD.replace(b"Hello", b"Hell\xff"),
    "half a character": GOOD.replace(b"Hello", b"Hell\xc3"),
    "half a surrogate pair": GOOD.replace(b"Hello", b"\\ud83c"),
    "a very deep value": GOOD.replace(b"{", b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b",", 1),
    "too many extras": GOOD.replace(b"{", b'{"extras":[' + b"0," * 17 + b"0],", 1),
}


@pytest.mark.parametrize("raw", DAMAGED.values(), ids=DAMAGED.keys())
def test_what_cannot_be_read_says_why_and_keeps_its_bytes(raw: bytes) -> None:
    found = item_decoder.lenient(raw)
    assert isinstance(found, Unreadable)
    assert found.raw == raw
    assert found.why


@pytest.mark.parametrize("version", [b"1.5", b"1.0", b"1e3", b'"1"', b"null", b"-1", b"[]"])
def test_a_version_that_is_no_whole_number_is_damage(version: bytes) -> None:
    header = LinkHeader(turn_id=mint(TurnId), version=Version(1), ended_by="completed", agent="")
    raw = encode(header).replace(b'"version":1', b'"version":' + version)
    assert isinstance(Decoder[LinkHeader](LinkHeader).lenient(raw), Unreadable)


@given(st.binary(max_size=60))
def test_no_bytes_at_all_make_reading_fail(raw: bytes) -> None:
    item_decoder.lenient(raw)
    patch_decoder.lenient(raw)


@given(item=values(Item), at=st.integers(0), byte=st.binary(min_size=1, max_size=1))
def test_no_single_wrong_byte_makes_reading_fail(item: Item, at: int, byte: bytes) -> None:
    raw = encode(item)
    at %= len(raw)
    found = item_decoder.lenient(raw[:at] + byte + raw[at + 1 :])
    assert isinstance(found, Unreadable | msgspec.Struct)


@given(
    records=st.lists(values(Record), min_size=1, max_size=4),
    at=st.integers(0),
    damage=st.binary(max_size=40).map(lambda raw: b"\xff" + raw.replace(b"\n", b"")),
)
def test_a_damaged_line_among_good_ones_is_unreadable_by_itself(
    records: list[Record], at: int, damage: bytes
) -> None:
    """Its neighbours, and with them the session, live on."""
    at %= len(records)
    rows = encode_records(records).split(b"\n")
    rows[at] = damage
    found = decode_records(b"\n".join(rows))
    assert found[:at] + found[at + 1 :] == tuple(records[:at] + records[at + 1 :])
    assert isinstance(found[at], Unreadable)


def test_reading_strictly_raises_instead() -> None:
    with pytest.raises(msgspec.DecodeError):
        item_decoder.strict(b"{}")
