"""deny wins over ask, ask over allow; what changes things needs a rule; only the operator allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.items import Permissions
from holdfast.tools.permissions import NarrowedPermissions, Permission, permission_for
from holdfast.tools.tool import ToolSpec

READS = ToolSpec(name="read_file", description="", parameters="{}", read_only=True)
WRITES = ToolSpec(name="write_file", description="", parameters="{}")

NONE = Permissions()


def allow(*patterns: str) -> Permissions:
    return Permissions(allow=patterns)


def ask(*patterns: str) -> Permissions:
    return Permissions(ask=patterns)


def deny(*patterns: str) -> Permissions:
    return Permissions(deny=patterns)


@pytest.mark.parametrize(
    ("tool", "rules", "said"),
    [
        (READS, NONE, "allow"),
        (WRITES, NONE, "deny"),
        (WRITES, allow("write_file"), "allow"),
        (WRITES, allow("write_*"), "allow"),
        (WRITES, allow("*"), "allow"),
        (WRITES, allow("write_fil?"), "allow"),
        (WRITES, allow("[rw]*"), "allow"),
        (WRITES, allow("write"), "deny"),
        (WRITES, allow("xwrite_file", "write_filex"), "deny"),
        (WRITES, allow(""), "deny"),
        (WRITES, allow("write_file:path=/tmp/*"), "deny"),
        (WRITES, ask("write_*"), "ask"),
        (READS, ask("read_*"), "ask"),
        (WRITES, Permissions(allow=("*",), ask=("write_file",)), "ask"),
        (WRITES, Permissions(allow=("*",), ask=("*",), deny=("write_file",)), "deny"),
        (READS, deny("*"), "deny"),
        # a rule that allows is read to the letter, one that protects whatever the case
        (WRITES, allow("Write_File"), "deny"),
        (WRITES, Permissions(allow=("*",), deny=("Write_File",)), "deny"),
        (WRITES, Permissions(allow=("*",), deny=("WRITE_*",)), "deny"),
        (WRITES, Permissions(allow=("*",), ask=("WRITE_?ILE",)), "ask"),
        (READS, deny("READ_*"), "deny"),
        (READS, deny("[A-z]ead_file"), "deny"),
    ],
)
def test_what_the_operators_rules_say(tool: ToolSpec, rules: Permissions, said: Permission) -> None:
    assert permission_for(tool, rules) == said


@pytest.mark.parametrize(
    ("operator", "narrowing", "said"),
    [
        (allow("*"), NarrowedPermissions(), "allow"),
        (allow("*"), NarrowedPermissions(ask=("write_*",)), "ask"),
        (allow("*"), NarrowedPermissions(deny=("WRITE_*",)), "deny"),
        (ask("*"), NarrowedPermissions(deny=("write_file",)), "deny"),
        (NONE, NarrowedPermissions(ask=("write_file",)), "deny"),
        (deny("*"), NarrowedPermissions(ask=("write_file",)), "deny"),
    ],
)
def test_everything_else_narrows(
    operator: Permissions, narrowing: NarrowedPermissions, said: Permission
) -> None:
    """A question opens nothing: what the operator did not allow cannot be approved."""
    assert permission_for(WRITES, operator, narrowing) == said


PATTERNS = st.lists(
    st.sampled_from(["*", "write_file", "Write_*", "read_file", "?ead_*", "x"]), max_size=3
).map(tuple)
RULES = st.builds(Permissions, allow=PATTERNS, ask=PATTERNS, deny=PATTERNS, granted=PATTERNS)
ORDER: tuple[Permission, ...] = ("deny", "ask", "allow")


@given(st.sampled_from([READS, WRITES]), RULES, st.lists(RULES, max_size=3))
def test_no_settings_say_more_than_the_operator(
    tool: ToolSpec, operator: Permissions, settings: list[Permissions]
) -> None:
    narrowed = permission_for(tool, operator, *map(NarrowedPermissions.of, settings))
    assert ORDER.index(narrowed) <= ORDER.index(permission_for(tool, operator))
