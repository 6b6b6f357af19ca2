"""The hash chain: whatever changes in a committed turn, its link no longer fits."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.core.history import chain
from holdfast.core.history.chain import GENESIS, LinkHeader
from holdfast.core.history.checks import StoredTurn, check_history
from holdfast.core.history.conversation import Commit
from holdfast.core.turns.events import StateSet
from holdfast.ids import SessionId, TurnId, Version
from tests.core.builders import after, answered, asked, mint, said, user
from tests.core.histories import (
    commit_on,
    histories,
    new_session,
    session_after,
    stored,
    turn_on,
    with_turn,
)
from tests.core.strategies import values

HEADER = LinkHeader(
    turn_id=TurnId.from_body("0" * 26), version=Version(1), ended_by="completed", agent="butler"
)


class Turn(NamedTuple):
    """What goes into a link."""

    previous: bytes = GENESIS
    header: LinkHeader = HEADER
    items: tuple[bytes, ...] = ()
    changes: tuple[bytes, ...] = ()

    @property
    def link(self) -> bytes:
        return chain.link(self.previous, self.header, items=self.items, changes=self.changes)


def test_the_link_of_a_turn_is_the_same_in_every_version_of_the_code() -> None:
    """Chains lie on disks. If this fails, the code is wrong, not the number."""
    turn = Turn(items=(b'{"type":"user"}', b"{}"), changes=(b'{"type":"state_set"}',))
    assert turn.link.hex() == ("d02a79b0f385225f0f42f52e9f06c395521b10c539df3f679dff1a2701f16b91")


DIFFERENT = [
    Turn(),
    Turn(items=(b"ab",)),
    Turn(items=(b"a", b"b")),
    Turn(items=(b"b", b"a")),
    Turn(items=(b"ab", b"")),
    Turn(items=(b"", b"ab")),
    Turn(changes=(b"ab",)),
    Turn(items=(b"a",), changes=(b"b",)),
    Turn(items=(b"ab",), previous=b"\x01" + GENESIS[1:]),
    *(
        Turn(items=(b"ab",), header=msgspec.structs.replace(HEADER, **change))
        for change in (
            {"turn_id": TurnId.from_body("1" * 26)},
            {"version": Version(2)},
            {"ended_by": "cancelled"},
            {"agent": "pilot"},
        )
    ),
]


def test_no_two_different_turns_have_the_same_link() -> None:
    """Not even if the same bytes are cut into items differently, or are changes instead."""
    assert len({each.link for each in DIFFERENT}) == len(DIFFERENT)


PIECES = st.lists(st.binary(max_size=3), max_size=3).map(tuple)
TURNS = st.builds(Turn, header=values(LinkHeader), items=PIECES, changes=PIECES)


@given(one=TURNS, other=TURNS)
def test_equal_links_mean_equal_turns(one: Turn, other: Turn) -> None:
    assert (one.link == other.link) == (one == other)


def test_a_fork_goes_on_from_the_link_that_it_was_forked_at() -> None:
    parent = with_turn(new_session(), user())
    fork = parent.forked(mint(SessionId))
    assert fork.link == parent.link
    assert with_turn(fork, user()).link != with_turn(parent, user()).link


# ── damage in a stored history ───────────────────────────────────────────────────────────────


def broken_links(turns: tuple[StoredTurn, ...]) -> list[str]:
    return [each.where for each in check_history(turns) if each.code == "link_broken"]


class Damage(NamedTuple):
    """One thing that goes wrong with a stored turn; numbers are taken modulo what there is."""

    kind: str
    turn: int
    item: int
    byte: int
    value: int

    def done_to(self, turn: StoredTurn) -> StoredTurn:
        pieces = list(turn.encoded)
        at = self.item % len(pieces)
        piece = pieces[at]
        byte = self.byte % len(piece)
        match self.kind:
            case "byte changed":
                pieces[at] = piece[:byte] + bytes([self.value]) + piece[byte + 1 :]
            case "byte removed":
                pieces[at] = piece[:byte] + piece[byte + 1 :]
            case "byte added":
                pieces[at] = piece[:byte] + bytes([self.value]) + piece[byte:]
            case "bytes swapped":
                other = self.value % len(piece)
                swapped = bytearray(piece)
                swapped[byte], swapped[other] = swapped[other], swapped[byte]
                pieces[at] = bytes(swapped)
            case "item removed":
                del pieces[at]
            case "item repeated":
                pieces.insert(at, piece)
            case "items swapped":
                other = self.value % len(pieces)
                pieces[at], pieces[other] = pieces[other], pieces[at]
        return msgspec.structs.replace(turn, encoded=tuple(pieces))


KINDS = [
    *("byte changed", "byte removed", "byte added", "bytes swapped"),
    *("item removed", "item repeated", "items swapped"),
]


@pytest.mark.parametrize("kind", KINDS)
@given(commits=histories(3), data=st.data())
def test_any_damage_to_the_bytes_of_a_turn_is_found_and_the_turn_named(
    kind: str, commits: tuple[Commit, ...], data: st.DataObject
) -> None:
    turns = list(stored(commits))
    assert broken_links(tuple(turns)) == []
    numbers = st.integers(0, 255)
    damage = data.draw(
        st.builds(
            Damage, kind=st.just(kind), turn=numbers, item=numbers, byte=numbers, value=numbers
        )
    )
    at = damage.turn % len(turns)
    broken = damage.done_to(turns[at])
    assume(broken != turns[at])
    turns[at] = broken
    assert broken_links(tuple(turns)) == [str(broken.mark.turn_id)]


FORGED: list[dict[str, Any]] = [
    {"turn_id": mint(TurnId)},
    {"ended_by": "cancelled"},
    {"agent": "somebody else"},
    {"version": Version(9)},
    {"continues": mint(TurnId)},
]


@pytest.mark.parametrize("change", FORGED, ids=lambda change: next(iter(change)))
def test_what_is_said_about_a_turn_is_part_of_its_link(change: dict[str, Any]) -> None:
    session = new_session()
    turn = after(turn_on(session), asked(), answered(said()))
    (true,) = stored([commit_on(session, turn)])
    forged = msgspec.structs.replace(true, mark=msgspec.structs.replace(true.mark, **change))
    assert broken_links((true,)) == []
    assert broken_links((forged,)) == [str(forged.mark.turn_id)]


@given(commits=histories(3), at=st.integers(0, 2))
def test_a_change_to_the_session_state_is_part_of_the_link(
    commits: tuple[Commit, ...], at: int
) -> None:
    turns = list(stored(commits))
    at %= len(turns)
    extra = StateSet(name="todo", value='["forged"]')
    turns[at] = msgspec.structs.replace(turns[at], changes=(*turns[at].changes, extra))
    assert broken_links(tuple(turns)) == [str(turns[at].mark.turn_id)]


@given(commits=histories(4), at=st.integers(0, 3))
def test_a_turn_that_is_missing_or_comes_twice_is_found(
    commits: tuple[Commit, ...], at: int
) -> None:
    turns = stored(commits)
    at %= len(turns)
    follower = [str(each.mark.turn_id) for each in turns[at + 1 : at + 2]]
    assert broken_links(turns[:at] + turns[at + 1 :]) == follower
    assert broken_links((*turns[: at + 1], *turns[at:])) == [str(turns[at].mark.turn_id)]


@given(commits=histories(4), at=st.integers(0, 3))
def test_a_changed_link_is_missed_by_its_turn_and_by_the_next(
    commits: tuple[Commit, ...], at: int
) -> None:
    turns = list(stored(commits))
    at %= len(turns)
    mark = turns[at].mark
    forged = bytes([mark.link[0] ^ 1]) + mark.link[1:]
    turns[at] = msgspec.structs.replace(turns[at], mark=msgspec.structs.replace(mark, link=forged))
    expected = [str(each.mark.turn_id) for each in turns[at : at + 2]]
    assert broken_links(tuple(turns)) == expected


@given(histories())
def test_a_session_carries_the_link_of_its_last_turn(commits: tuple[Commit, ...]) -> None:
    session = session_after(commits)
    assert session.link == session.marks[-1].link == commits[-1].link
