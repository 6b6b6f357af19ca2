"""Bytes that were written once can be read for ever.

The files in `data/` hold one line for every kind, in its shortest and in its fullest form, as the version in
their name wrote it. Lines may be added, for a new kind or field. A line that is there stays as it is: it lies
on somebody's disk. If a test here fails, the code is wrong, not the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from holdfast.core.codec import Decoder, Unreadable, encode
from holdfast.core.history.conversation import Patch, patch_decoder
from holdfast.core.items import Item, Part, Source, item_decoder
from holdfast.core.turns.events import Event
from holdfast.core.turns.journal import Record, decode_records, encode_records

DATA = Path(__file__).parent / "data"

FILES: dict[str, Decoder[Any]] = {
    "items_v1.jsonl": item_decoder,
    "journal_v1.jsonl": Decoder(Record),
    "patches_v1.jsonl": patch_decoder,
}


def lines(name: str) -> list[bytes]:
    return (DATA / name).read_bytes().rstrip(b"\n").split(b"\n")


LINES = [(name, line) for name in FILES for line in lines(name)]


@pytest.mark.parametrize(
    ("name", "line"),
    LINES,
    ids=[f"{name}:{n}" for name in FILES for n, _ in enumerate(lines(name))],
)
def test_a_line_is_read_and_nothing_of_it_is_lost(name: str, line: bytes) -> None:
    decoder = FILES[name]
    value = decoder.strict(line)
    assert msgspec.json.decode(encode(value)) == msgspec.json.decode(line)
    assert decoder.strict(encode(value)) == value


def test_a_text_with_other_line_ends_in_it_stays_in_its_line() -> None:
    """U+2028 ends a line for many tools, and for Python's `splitlines`; not for us."""
    assert any("\u2028".encode() in line for line in lines("items_v1.jsonl"))


def tags(kinds: object) -> set[str]:
    return {kind.__struct_config__.tag for kind in get_args(kinds)}


def found_tags(name: str) -> list[str]:
    told = [msgspec.json.decode(line) for line in lines(name)]
    return [each["event"]["type"] if "event" in each else each["type"] for each in told]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("items_v1.jsonl", Item), ("journal_v1.jsonl", Event), ("patches_v1.jsonl", Patch)],
)
def test_every_kind_has_its_lines(name: str, kinds: object) -> None:
    found = found_tags(name)
    assert set(found) == tags(kinds)
    assert all(found.count(tag) >= 2 for tag in tags(kinds))


@pytest.mark.parametrize("kinds", [Part, Source])
def test_every_kind_of_content_has_its_lines(kinds: object) -> None:
    text = (DATA / "items_v1.jsonl").read_text(encoding="utf-8")
    assert all(f'"type":"{tag}"' in text for tag in tags(kinds))


def test_a_whole_journal_is_read_as_one_row_and_written_back_byte_for_byte() -> None:
    row = b"\n".join(lines("journal_v1.jsonl"))
    records = decode_records(row)
    readable = [each for each in records if not isinstance(each, Unreadable)]
    assert len(readable) == len(records)
    assert encode_records(readable) == row
