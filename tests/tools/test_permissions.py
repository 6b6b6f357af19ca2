"""deny wins over ask, ask over allow; what changes things needs a rule."""

from __future__ import annotations

import pytest

from holdfast.core.items import Permissions
from holdfast.tools.base import ToolSpec
from holdfast.tools.permissions import Permission, permission_for

READS = ToolSpec(name="read_file", description="", parameters="{}", read_only=True)
WRITES = ToolSpec(name="write_file", description="", parameters="{}")

NONE = Permissions()


def allow(*patterns: str) -> Permissions:
    return Permissions(allow=patterns)


def ask(*patterns: str) -> Permissions:
    return Permissions(ask=patterns)


def deny(*patterns: str) -> Permissions:
    return Permissions(deny=patterns)


def granted(*names: str) -> Permissions:
    return Permissions(granted=names)


@pytest.mark.parametrize(
    ("tool", "rules", "said"),
    [
        (READS, (), "allow"),
        (READS, (NONE,), "allow"),
        (WRITES, (), "deny"),
        (WRITES, (NONE,), "deny"),
        (WRITES, (allow("write_file"),), "allow"),
        (WRITES, (allow("write_*"),), "allow"),
        (WRITES, (allow("*"),), "allow"),
        (WRITES, (allow("write_fil?"),), "allow"),
        (WRITES, (allow("[rw]*"),), "allow"),
        (WRITES, (allow("write"),), "deny"),
        (WRITES, (allow("xwrite_file", "write_filex"),), "deny"),
        (WRITES, (allow(""),), "deny"),
        (WRITES, (allow("write_file:path=/tmp/*"),), "deny"),
        (WRITES, (ask("write_*"),), "ask"),
        (READS, (ask("read_*"),), "ask"),
        (WRITES, (Permissions(allow=("*",), ask=("write_file",)),), "ask"),
        (WRITES, (Permissions(allow=("*",), ask=("*",), deny=("write_file",)),), "deny"),
        (READS, (deny("*"),), "deny"),
        # several layers: all of them together, in whatever order
        (WRITES, (allow("*"), deny("write_file")), "deny"),
        (WRITES, (deny("write_file"), allow("*")), "deny"),
        (WRITES, (ask("*"), allow("write_file")), "ask"),
        (WRITES, (NONE, allow("write_file")), "allow"),
        # what a person has granted: an answer to a question, and nothing else
        (WRITES, (ask("write_*"), granted("write_file")), "allow"),
        (READS, (ask("read_*"), granted("read_file")), "allow"),
        (WRITES, (ask("*"), granted("write_*")), "ask"),
        (WRITES, (ask("*"), granted("Write_File")), "ask"),
        (WRITES, (granted("write_file"),), "deny"),
        (WRITES, (ask("*"), deny("write_file"), granted("write_file")), "deny"),
        # a rule that allows is read to the letter, one that protects whatever the case
        (WRITES, (allow("Write_File"),), "deny"),
        (WRITES, (allow("*"), deny("Write_File")), "deny"),
        (WRITES, (allow("*"), deny("WRITE_*")), "deny"),
        (WRITES, (allow("*"), ask("WRITE_?ILE")), "ask"),
        (READS, (deny("READ_*"),), "deny"),
        (READS, (deny("[A-z]ead_file"),), "deny"),
    ],
)
def test_what_the_rules_say(
    tool: ToolSpec, rules: tuple[Permissions, ...], said: Permission
) -> None:
    assert permission_for(tool, *rules) == said
