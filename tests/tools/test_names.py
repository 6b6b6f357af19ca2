"""Names that every provider takes, made of whatever a server chose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.names import valid_names
from holdfast.tools.schema import TOOL_NAME

names = st.lists(
    st.text(st.characters(exclude_categories=()), max_size=90), unique=True, max_size=30
)
prefixes = st.sampled_from(["", "desk", "the desk", "x" * 70])


@given(names, prefixes)
def test_every_name_is_valid_and_leads_back(own: list[str], prefix: str) -> None:
    made = valid_names(own, prefix=prefix)
    assert list(made.values()) == own
    assert all(TOOL_NAME.fullmatch(name) for name in made)


@given(names, st.randoms(use_true_random=False))
def test_a_name_depends_neither_on_its_neighbours_nor_on_their_order(
    own: list[str], random: object
) -> None:
    made = {name: given for given, name in valid_names(own).items()}
    backwards = {name: given for given, name in valid_names(reversed(own)).items()}
    assert made == backwards
    for name in own:
        assert valid_names([name]) == {made[name]: name}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (["read_file", "get-sum"], ["read_file", "get-sum"]),
        (["a.b", "a_b", "a/b"], ["a_b_", "a_b", "a_b_"]),
        (["größe"], ["gr__e_"]),
        ([""], ["_"]),
        (["a", "a"], ["a"]),
        (["x" * 65], ["x" * 55 + "_"]),
    ],
)
def test_a_valid_name_stays_and_another_stays_readable(own: list[str], expected: list[str]) -> None:
    made = list(valid_names(own))
    assert len(made) == len(expected)
    for name, start in zip(made, expected, strict=True):
        assert name == start or (name.startswith(start) and len(name) == len(start) + 8)


def test_a_server_cannot_take_the_name_that_another_tool_would_get() -> None:
    (made,) = valid_names(["a.b"])
    both = valid_names(["a.b", made])
    assert both[made] == made
    assert len(both) == 2


def test_with_a_prefix() -> None:
    assert valid_names(["look", "find"], prefix="desk") == {
        "desk_look": "look",
        "desk_find": "find",
    }
