"""What a remembered approval is good for: one tool as it was, and the arguments that were approved."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.grants import Grant, canonical, held_by, holder
from holdfast.ids import SessionId
from tests.core.builders import mint

EXACT = Grant(tool="pay", fingerprint="f1", arguments='{"kr":5,"to":"Ada"}')
ANY = Grant(tool="pay", fingerprint="f1")


def covers(
    grant: Grant, *, tool: str = "pay", fingerprint: str = "f1", arguments: str = "{}"
) -> bool:
    return grant.covers(tool=tool, fingerprint=fingerprint, arguments=arguments)


@pytest.mark.parametrize(
    "arguments", ['{"kr":5,"to":"Ada"}', ' {"to": "Ada",\n "kr": 5} ', '{"kr":6,"kr":5,"to":"Ada"}']
)
def test_the_same_arguments_are_covered_however_they_are_written(arguments: str) -> None:
    assert covers(EXACT, arguments=arguments)


@pytest.mark.parametrize(
    "arguments", ["", "{", "{}", '{"kr":6,"to":"Ada"}', '{"kr":5.0,"to":"Ada"}', '{"kr":5}', "null"]
)
def test_other_arguments_are_not(arguments: str) -> None:
    assert not covers(EXACT, arguments=arguments)
    assert covers(ANY, arguments=arguments)


@pytest.mark.parametrize("grant", [EXACT, ANY])
def test_another_tool_or_one_that_has_changed_is_not_covered(grant: Grant) -> None:
    said = '{"kr":5,"to":"Ada"}'
    assert covers(grant, arguments=said)
    assert not covers(grant, arguments=said, tool="Pay")
    assert not covers(grant, arguments=said, tool="pay ")
    assert not covers(grant, arguments=said, fingerprint="f2")


def test_a_tool_that_nobody_knows_is_covered_by_nothing() -> None:
    assert not covers(Grant(tool="pay", fingerprint=""), fingerprint="")


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _json))
def test_writing_arguments_in_the_one_way_changes_nothing(arguments: dict[str, object]) -> None:
    text = json.dumps(arguments)
    once = canonical(text)
    assert once is not None
    assert json.loads(once) == arguments
    assert canonical(once) == once


def test_what_is_too_deep_to_read_is_covered_by_nothing() -> None:
    assert canonical("[" * 100_000) is None


def test_a_grant_of_one_session_is_never_taken_for_one_of_every_session() -> None:
    session_id = mint(SessionId)
    assert held_by(holder("butler", session_id)) == ("butler", session_id)
    for agent in ("butler", "a/b"):
        assert held_by(agent) == (agent, None)
