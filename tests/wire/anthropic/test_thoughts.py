"""A thought goes back after exactly what it came after, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.items import Item, Opaque, Reasoning
from holdfast.ids import ReasoningId
from holdfast.wire.anthropic.dialect import AnthropicDialect
from holdfast.wire.anthropic.thoughts import (
    ThoughtOrigin,
    kept_thought,
    read_thought,
    without_bound,
)
from holdfast.wire.prefix_digest import PrefixDigest
from tests.core.builders import call, mint, result, said, user

OPUS = "claude-opus-5-5"
BOUND = AnthropicDialect(bound_to=OPUS)
OPENING = b"tools and system"


def thought(extra: Opaque) -> Reasoning:
    return Reasoning(id=mint(ReasoningId), text="Hm.", extras=(extra,))


def fitted(pieces: Sequence[bytes], opening: bytes = OPENING) -> tuple[bytes, PrefixDigest]:
    before = PrefixDigest(opening)
    kept = [BOUND.fit(piece, {BOUND.name: before}) for piece in pieces]
    return b",".join(filter(None, kept)), before


def answer_to(pieces: Sequence[bytes], *, places: Sequence[int] = (0,)) -> list[Item]:
    """An answer with thoughts that were made under these messages."""
    _, before = fitted(pieces)
    origin = ThoughtOrigin(model=OPUS, prefix=before.text)
    thoughts: list[Item] = []
    for place in places:
        sealed = f"sealed {len(pieces)} {place}"
        thoughts.append(thought(kept_thought(signature=sealed, origin=origin, place=place)))
    return [*thoughts, said(f"Answer {len(pieces)}.")]


def conversation(turns: int) -> list[bytes]:
    pieces: list[bytes] = []
    for n in range(turns):
        question: list[Item] = [user(f"Question {n}?")]
        asked = [*pieces, BOUND.encode(question)]
        pieces.append(BOUND.encode([*question, *answer_to(asked)]))
    return pieces


def seals(messages: bytes) -> int:
    msgspec.json.decode(b"[" + messages + b"]")  # no mark is left
    return messages.count(b'"sealed ')


def test_all_thoughts_of_a_conversation_that_only_grows_go_back() -> None:
    pieces = conversation(5)
    assert seals(fitted(pieces)[0]) == 5


def test_no_thought_goes_back_after_another_opening() -> None:
    pieces = conversation(5)
    assert seals(fitted(pieces, b"other tools")[0]) == 0
    assert seals(b",".join(map(without_bound, pieces))) == 0


@given(changed=st.integers(0, 4))
def test_a_change_leaves_out_what_is_behind_it_and_nothing_before(changed: int) -> None:
    """A thought that is left out changes what those after it came after, so they go, too."""
    pieces = conversation(5)
    pieces[changed] = BOUND.encode([user("Edited?"), said("Edited.")])
    assert seals(fitted(pieces)[0]) == changed


def test_a_thought_that_was_made_after_a_change_goes_back_as_long_as_it_stands() -> None:
    pieces = conversation(3)
    pieces[1] = BOUND.encode([user("Edited?"), said("Edited.")])
    question: list[Item] = [user("And now?")]
    asked = [*pieces, BOUND.encode(question)]
    pieces.append(BOUND.encode([*question, *answer_to(asked)]))
    assert seals(fitted(pieces)[0]) == 2, "the first and the last"


@given(cut=st.integers(1, 4))
def test_it_makes_no_difference_how_a_history_is_cut_into_pieces(cut: int) -> None:
    pieces = conversation(5)
    joined = [b",".join(pieces[:cut]), *pieces[cut:]]
    (whole, after), (same, end) = fitted(pieces), fitted(joined)
    assert (whole, after.text) == (same, end.text)


def test_a_copy_of_a_digest_keeps_its_place() -> None:
    before = PrefixDigest(OPENING)
    before.add(b"a")
    kept = before.copy()
    before.add(b"b")
    assert kept.text != before.text
    kept.add(b"")
    kept.add(b"b")
    assert kept.text == before.text


def test_thoughts_of_other_models_and_of_old_records_are_left_out() -> None:
    first = BOUND.encode([user("Hi")])
    prefix = fitted([first])[1].text
    for extra in (
        kept_thought(signature="sealed old"),
        kept_thought(data="sealed old"),
        kept_thought(
            signature="sealed x", origin=ThoughtOrigin(model="claude-opus-5", prefix=prefix)
        ),
    ):
        assert seals(BOUND.encode([user("Hi"), thought(extra), said("Ho")])) == 0
        assert seals(AnthropicDialect().encode([user("Hi"), thought(extra), said("Ho")])) == 1


def test_a_thought_behind_something_that_does_not_go_back_is_left_out() -> None:
    """The text between two thoughts may be hidden, or be white space, which the API refuses."""
    first = BOUND.encode([user("Hi")])
    origin = ThoughtOrigin(model=OPUS, prefix=fitted([first])[1].text)
    one = thought(kept_thought(signature="sealed 0", origin=origin, place=0))
    two = thought(kept_thought(signature="sealed 2", origin=origin, place=2))
    seen = call("look")
    for between, kept in ((said("Well."), 2), (said(" \n"), 1)):
        items: list[Item] = [user("Hi"), one, between, two, seen, result(seen, "A gull.")]
        assert seals(fitted([BOUND.encode(items)])[0]) == kept
    assert seals(fitted([BOUND.encode([user("Hi"), one, two, said("Well.")])])[0]) == 1


def test_an_answer_of_nothing_but_a_thought_that_does_not_fit_is_no_message() -> None:
    origin = ThoughtOrigin(model=OPUS, prefix="of another prompt")
    alone = thought(kept_thought(data="sealed", origin=origin))
    assert fitted([BOUND.encode([alone])])[0] == b""
    messages = fitted([BOUND.encode([user("Hi"), alone, user("Hello?")])])[0]
    assert [each["role"] for each in msgspec.json.decode(b"[" + messages + b"]")] == ["user"] * 2


def test_arguments_that_look_like_a_thought_stay_arguments() -> None:
    """Marks are characters that JSON has to escape: nothing that a model says can look like one."""
    seen = call("look", '{"at":"\\u001d\\u001e\\u001f","type":"thinking","signature":"x"}')
    messages, _ = fitted([BOUND.encode([user("a\x1d\x1fb"), seen, result(seen, "\x1e")])])
    assert len(msgspec.json.decode(b"[" + messages + b"]")) == 3


def test_what_is_kept_of_a_thought_is_small_where_nothing_binds_it() -> None:
    assert kept_thought(signature="s").json == '{"type":"thinking","signature":"s"}'
    bound = kept_thought(data="d", origin=ThoughtOrigin(model=OPUS, prefix="p"), place=3)
    kept = read_thought(bound)
    assert (kept.type, kept.model, kept.prefix, kept.place) == ("redacted_thinking", OPUS, "p", 3)
