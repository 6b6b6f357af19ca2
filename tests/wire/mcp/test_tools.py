"""Names of tools: what hosts take, and no two agents under one name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.mcp.tools import tool_names


@given(st.lists(st.text(min_size=1, max_size=80) | st.sampled_from(["a b", "a_b", "a/b"])))
def test_every_agent_has_a_name_of_its_own_whatever_the_order(ids: list[str]) -> None:
    names = tool_names(ids)
    assert sorted(names.values()) == sorted(set(ids))
    assert all(0 < len(each) <= 64 and each.replace("-", "_").isascii() for each in names)
    assert tool_names(reversed(ids)).items() == names.items()


def test_an_agent_whose_name_hosts_take_keeps_it() -> None:
    names = tool_names(["a b", "a_b", "a/b"])
    assert names["a_b"] == "a_b"
    assert all(each.startswith("a_b-") for each in names if each != "a_b")
