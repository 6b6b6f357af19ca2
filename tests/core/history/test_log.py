"""A sequence that only grows, and is shared."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.history.log import Log

# ── what one holder sees never changes ───────────────────────────────────────────────────────


def test_extending_a_log_leaves_the_one_before_as_it_was() -> None:
    before = Log("ab")
    after = before.extended("cd")

    assert list(before) == ["a", "b"]
    assert list(after) == ["a", "b", "c", "d"]


def test_two_holders_that_extend_the_same_log_part_ways() -> None:
    """A turn that is tried and thrown away must not show up in the one that is kept."""
    base = Log("ab")
    mine, yours = base.appended("m"), base.appended("y")

    assert (tuple(base), tuple(mine), tuple(yours)) == (tuple("ab"), tuple("abm"), tuple("aby"))
    assert tuple(mine.appended("m")) == tuple("abmm")
    assert tuple(yours.appended("y")) == tuple("abyy")


@pytest.mark.parametrize("grow", [lambda log: log.appended("m"), lambda log: log.extended("m")])
def test_an_empty_log_may_be_shared_by_all(grow: Callable[[Log[str]], Log[str]]) -> None:
    """It is a default; the first who goes on from it must not make it theirs."""
    nothing: Log[str] = Log()
    mine = grow(nothing)
    assert tuple(mine.appended("n")) == ("m", "n")
    assert nothing._shared == [] and tuple(grow(nothing)) == ("m",)


def test_a_source_that_fails_half_way_leaves_no_trace() -> None:
    def failing() -> list[str]:
        raise RuntimeError("the line went dead")

    base = Log("ab")
    with pytest.raises(RuntimeError):
        base.extended(x if x != "d" else failing()[0] for x in "cd")

    assert tuple(base) == ("a", "b")
    assert tuple(base.appended("e")) == ("a", "b", "e")


def test_a_log_may_be_extended_by_itself() -> None:
    base = Log("ab")
    assert tuple(base.extended(base)) == tuple("abab")


def test_appending_costs_what_is_new() -> None:
    """All values of one line share a single list; only a second line pays for a copy."""
    base = Log(range(1000))
    after = base.appended(1000)
    other = base.appended(2000)

    assert after._shared is base._shared
    assert other._shared is not base._shared


# ── reading ──────────────────────────────────────────────────────────────────────────────────


def test_a_prefix_shares_and_ends_where_it_should() -> None:
    log = Log("abcd")
    assert tuple(log.prefix(2)) == ("a", "b")
    assert tuple(log.prefix(2).appended("x")) == ("a", "b", "x")
    assert tuple(log) == tuple("abcd")


@pytest.mark.parametrize("length", [-1, 3])
def test_there_is_no_prefix_longer_than_the_log(length: int) -> None:
    with pytest.raises(AssertionError, match=f"no prefix of {length} in a log of 2"):
        Log("ab").prefix(length)


def test_since_gives_the_tail_and_no_more_than_this_log_sees() -> None:
    base = Log("abc")
    base.appended("d")
    assert base.since(1) == ("b", "c")
    assert base.since(3) == ()


@pytest.mark.parametrize("index", [-4, 3, 100])
def test_a_position_outside_is_an_index_error(index: int) -> None:
    log = Log("abc")
    log.appended("d")  # in the shared list, yet not in this log
    with pytest.raises(IndexError, match=f"position {index} in a log of 3"):
        log[index]


def test_the_last_item_is_the_last_that_this_log_sees() -> None:
    before = Log("ab")
    before.appended("c")
    assert before.last == "b" and Log[str]().last is None


def test_logs_are_equal_by_content() -> None:
    log = Log("ab")
    assert log == Log("ab")
    assert log == log.appended("c").prefix(2)
    assert hash(log) == hash(Log("ab"))
    assert log != Log("ax")
    assert log != Log("abc")
    assert log != ("a", "b")


def test_a_log_tells_its_length_in_a_debugger() -> None:
    assert repr(Log("abc")) == "<Log of 3>"


# ── as a model: a log is a tuple ─────────────────────────────────────────────────────────────

steps = st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(), max_size=3)), max_size=12)


@given(steps)
def test_any_tree_of_extensions_reads_like_tuples(tree: list[tuple[int, list[int]]]) -> None:
    """Whichever value is extended, in whatever order, every value stays what it was."""
    logs: list[Log[int]] = [Log()]
    models: list[tuple[int, ...]] = [()]
    for parent, items in tree:
        parent %= len(logs)
        logs.append(logs[parent].extended(items))
        models.append((*models[parent], *items))
    for log, model in zip(logs, models, strict=True):
        assert tuple(log) == model
        assert len(log) == len(model)


@given(st.lists(st.integers(), max_size=8), st.slices(8), st.integers(-10, 10))
def test_indexing_reads_like_a_tuple(items: list[int], part: slice, index: int) -> None:
    log, model = Log(items), tuple(items)
    log.appended(0)
    assert log[part] == model[part]
    if -len(model) <= index < len(model):
        assert log[index] == model[index]
