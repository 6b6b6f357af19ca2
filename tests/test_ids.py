"""Names parse to themselves or do not exist, and minted ones sort in the order of their minting."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidId
from holdfast.ids import (
    CallId,
    IdempotencyKey,
    ItemId,
    KeyId,
    MessageId,
    MintedId,
    Minter,
    Name,
    NodeId,
    NoteId,
    ReasoningId,
    ResponseId,
    ResultId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
    mint,
    trusted,
)
from holdfast.limits import idempotency_key_chars_max, session_key_chars_max

BODY = "0k5zv1xq7m8n9p0r2s3t4a5b6c"
ITEM_IDS: list[type[ItemId]] = [MessageId, CallId, ResultId, ReasoningId, NoteId]
MINTED: list[type[MintedId]] = [SessionId, TurnId, ResponseId, NodeId, *ITEM_IDS]
NAMES: list[type[Name]] = [SessionKey, Tenant, IdempotencyKey, ItemId, *MINTED]

TIMES_MS = st.integers(0, (1 << 48) - 1)
ENTROPIES = st.integers(0, (1 << 80) - 1)

# ── parsing ──────────────────────────────────────────────────────────────────────────────────

GOOD = [
    (SessionKey, "trip-to-oslo"),
    (SessionKey, "!"),
    (SessionKey, "~" * session_key_chars_max),
    (SessionKey, "conv"),
    (SessionKey, "Conv_case-matters"),
    (SessionKey, "my-conv_"),
    (Tenant, "local"),
    (Tenant, "7"),
    (Tenant, "a" * 64),
    (Tenant, "acme-eu_2"),
    (IdempotencyKey, "a" * idempotency_key_chars_max),
    (IdempotencyKey, '"'),
    (SessionId, f"conv_{BODY}"),
    (SessionId, "conv_7zzzzzzzzzzzzzzzzzzzzzzzzz"),
    (ItemId, f"msg_{BODY}"),
    (ItemId, f"fc_{BODY}"),
    (ItemId, f"fco_{BODY}"),
    (ItemId, f"rs_{BODY}"),
    (ItemId, f"itm_{BODY}"),
]

BAD = [
    (SessionKey, ""),
    (SessionKey, "two words"),
    (SessionKey, "tab\t"),
    (SessionKey, "line\n"),
    (SessionKey, "\x7f"),
    (SessionKey, "Ångström"),
    (SessionKey, "x" * (session_key_chars_max + 1)),
    (SessionKey, f"conv_{BODY}"),
    (SessionKey, "conv_"),
    (Tenant, ""),
    (Tenant, "-acme"),
    (Tenant, "Acme"),
    (Tenant, "a" * 65),
    (Tenant, "acme\n"),
    (IdempotencyKey, ""),
    (IdempotencyKey, "a b"),
    (IdempotencyKey, "a" * (idempotency_key_chars_max + 1)),
    (SessionId, BODY),
    (SessionId, f"turn_{BODY}"),
    (SessionId, f"CONV_{BODY}"),
    (SessionId, f"conv_{BODY.upper()}"),
    (SessionId, f"conv_{BODY[:-1]}"),
    (SessionId, f"conv_{BODY}0"),
    (SessionId, f"conv_{BODY}\n"),
    (SessionId, f"conv_8{BODY[1:]}"),
    (SessionId, f"conv_{BODY[:-1]}u"),
    (SessionId, f"conv_{BODY[:-1]}٣"),
    (ItemId, f"conv_{BODY}"),
    (MessageId, f"fc_{BODY}"),
    (CallId, f"fco_{BODY}"),
    (ResultId, f"fc_{BODY}"),
]


@pytest.mark.parametrize(("kind", "text"), GOOD)
def test_a_well_formed_name_parses_to_itself(kind: type[Name], text: str) -> None:
    name = kind(text)
    assert name == text
    assert type(name) is kind
    assert kind(name) == name


@pytest.mark.parametrize(("kind", "text"), BAD)
def test_a_malformed_name_does_not_exist(kind: type[Name], text: str) -> None:
    with pytest.raises(InvalidId) as refused:
        kind(text)
    assert (refused.value.kind, refused.value.text) == (kind.kind, text)
    assert refused.value.expected == kind.expected


@given(text=st.one_of(st.text(), st.text("convturnmsgfc_" + BODY, min_size=20, max_size=40)))
def test_any_text_parses_to_itself_or_is_refused(text: str) -> None:
    for kind in NAMES:
        if kind.pattern.fullmatch(text):
            assert kind(text) == text
        else:
            with pytest.raises(InvalidId):
                kind(text)


def test_the_repr_of_a_name_says_what_it_names() -> None:
    assert repr(SessionKey("trip-to-oslo")) == "SessionKey('trip-to-oslo')"
    assert f"{SessionKey('trip-to-oslo')}" == "trip-to-oslo"


HEADERS = [
    ("abc", "abc"),
    ('"abc"', "abc"),
    ('"', '"'),
    ('"abc', '"abc'),
    ('""abc""', '"abc"'),
]


@pytest.mark.parametrize(("header", "key"), HEADERS)
def test_an_idempotency_key_comes_bare_or_quoted(header: str, key: str) -> None:
    assert IdempotencyKey.from_header(header) == key


@pytest.mark.parametrize("header", ["", '""', '" "', "a b"])
def test_a_header_without_an_idempotency_key_is_refused(header: str) -> None:
    with pytest.raises(InvalidId):
        IdempotencyKey.from_header(header)


# ── one body under several names ─────────────────────────────────────────────────────────────


def test_a_turn_is_a_response_is_a_completion() -> None:
    turn_id = TurnId.from_body(BODY)
    assert turn_id.response_id == f"resp_{BODY}"
    assert turn_id.response_id.turn_id == turn_id
    assert turn_id.completion_id == f"chatcmpl-{BODY}"


@pytest.mark.parametrize("kind", MINTED)
def test_an_id_without_its_prefix_is_its_body(kind: type[MintedId]) -> None:
    assert kind.from_body(BODY) == kind.prefix + BODY
    assert kind.from_body(BODY).body == BODY


@pytest.mark.parametrize("kind", ITEM_IDS)
def test_every_kind_of_item_id_is_an_item_id(kind: type[ItemId]) -> None:
    assert ItemId(kind.from_body(BODY)) == kind.from_body(BODY)


def test_no_prefix_is_used_twice() -> None:
    assert len({kind.prefix for kind in MINTED}) == len(MINTED)


# ── versions ─────────────────────────────────────────────────────────────────────────────────


@given(st.integers(0, 10**18 - 1))
def test_a_version_survives_its_etag(number: int) -> None:
    version = Version(number)
    assert Version.from_etag(version.etag) == version
    assert version.next == number + 1
    assert type(version.next) is Version


ETAGS = [
    "",
    "7",
    '"',
    '""',
    'W/"7"',
    '"07"',
    '"-1"',
    '"7" "8"',
    '"٣"',
    "*",
    f'"{10**18}"',
    '"7',
    "'7'",
]


@pytest.mark.parametrize("text", ETAGS)
def test_anything_but_one_strong_tag_with_a_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidId):
        Version.from_etag(text)


def test_space_around_an_etag_is_nothing() -> None:
    assert Version.from_etag(' "7" ') == 7


def test_there_is_no_version_before_the_first() -> None:
    with pytest.raises(InvalidId, match="whole number from 0"):
        Version(-1)


@pytest.mark.parametrize("number", [1.5, 1.0, "1", None, [1]])
def test_what_is_not_a_whole_number_is_no_version(number: Any) -> None:
    """Half a version in a damaged record must not be read as a whole one."""
    with pytest.raises(TypeError):
        Version(number)


# ── minting ──────────────────────────────────────────────────────────────────────────────────


@given(at_ms=TIMES_MS, entropy=ENTROPIES)
def test_a_minted_id_parses_and_tells_its_time(at_ms: int, entropy: int) -> None:
    for kind in MINTED:
        made = mint(kind, at_ms=at_ms, entropy=entropy)
        assert type(made) is kind
        assert kind(str(made)) == made
        assert made.minted_at_ms == at_ms


@given(one=st.tuples(TIMES_MS, ENTROPIES), other=st.tuples(TIMES_MS, ENTROPIES))
def test_ids_sort_by_time_then_entropy(one: tuple[int, int], other: tuple[int, int]) -> None:
    mine, theirs = (mint(TurnId, at_ms=at_ms, entropy=rest) for at_ms, rest in (one, other))
    assert (mine < theirs) == (one < other)
    assert (mine == theirs) == (one == other)


@pytest.mark.parametrize(("at_ms", "entropy"), [(-1, 0), (1 << 48, 0), (0, -1), (0, 1 << 80)])
def test_minting_outside_its_bits_is_a_bug(at_ms: int, entropy: int) -> None:
    with pytest.raises(AssertionError):
        mint(TurnId, at_ms=at_ms, entropy=entropy)


def minter(times_ms: list[int], rolls: st.DataObject | None = None) -> Minter:
    """A minter whose clock shows these times, one after the other, and whose dice are hypothesis's."""
    clock = iter(times_ms)

    def random_bits(bits: int) -> int:
        return rolls.draw(st.integers(0, (1 << bits) - 1)) if rolls else 0

    return Minter(now_ms=lambda: next(clock), random_bits=random_bits)


@given(times_ms=st.lists(st.integers(0, 5), min_size=2, max_size=12), rolls=st.data())
def test_ids_sort_as_minted_whatever_the_clock_does(
    times_ms: list[int], rolls: st.DataObject
) -> None:
    """Within one millisecond, and when the clock steps back: positions in a history depend on it."""
    make = minter(times_ms, rolls)
    made = [make(TurnId) for _ in times_ms]
    assert all(earlier < later for earlier, later in pairwise(made))


@given(rolls=st.data())
def test_ids_of_different_kinds_share_one_order(rolls: st.DataObject) -> None:
    make = minter([3] * len(MINTED), rolls)
    bodies = [make(kind).body for kind in MINTED]
    assert bodies == sorted(set(bodies))


def test_a_full_millisecond_spills_into_the_next() -> None:
    most = [(1 << 80) - 1, 0]  # the highest entropy, then a step of one, for each id
    dice = iter(most * 2)
    make = Minter(now_ms=lambda: 5, random_bits=lambda bits: next(dice))
    assert [make(TurnId).minted_at_ms for _ in range(2)] == [5, 6]


def test_the_same_clock_and_dice_give_the_same_ids() -> None:
    """This is what lets a simulation replay a run."""
    one, other = minter([1, 1, 0, 9]), minter([1, 1, 0, 9])
    assert [one(TurnId) for _ in range(4)] == [other(TurnId) for _ in range(4)]


def test_ids_are_those_of_earlier_versions() -> None:
    """From the same clock and dice: simulated stories and the seeds of mutants depend on it."""
    times_ms = iter(
        [0, 5, 4, 1_750_000_000_000, 1_750_000_000_000, 1_750_000_001_024, (1 << 48) - 1]
    )
    make = Minter(now_ms=lambda: next(times_ms), random_bits=random.Random(7).getrandbits)
    kinds: tuple[type[MintedId], ...] = (
        SessionId,
        TurnId,
        ResponseId,
        NodeId,
        KeyId,
        MessageId,
        CallId,
    )
    assert [make(kind) for kind in kinds] == [
        "conv_00000000004tff59tdwh9edd1r",
        "turn_00000000051head8x4a1jh69re",
        "resp_00000000051head8x4a1vswnj2",
        "node_01jxt21q00jmrnv7e9z0c1ht0h",
        "key_01jxt21q00jmrnv7e9z0kf3v47",
        "msg_01jxt21r002r00k6agv0vfcxec",
        "fc_7zzzzzzzzz27h6p3amkdqg6stt",
    ]


def test_an_ordinary_id_has_the_time_of_the_clock() -> None:
    make = minter([7, 1_750_000_000_000])
    assert [make(TurnId).minted_at_ms for _ in range(2)] == [7, 1_750_000_000_000]


def test_what_is_trusted_is_what_parsing_would_have_made() -> None:
    turn = minter([7])(TurnId)
    made = trusted(TurnId)(str(turn))
    assert (made, type(made)) == (turn, TurnId)
    assert (trusted(Version)(7), type(trusted(Version)(7))) == (Version(7), Version)
