"""Which tools may run, by name and pattern. `deny` wins over `ask`, `ask` over `allow`.
A person who was asked may grant a tool for good; that answers the question, and no other rule.

A tool that changes things needs a rule: what no rule names is refused. A tool that only reads is allowed
unless a rule says otherwise.

Patterns are a shell's: `*`, `?`, `[a-z]`. A rule that allows is read to the letter; one that forbids or asks is
read generously, whatever the case, because a rule that was meant to protect must not miss by a capital.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from holdfast.core.items import Permissions
from holdfast.tools.base import ToolSpec

Permission: TypeAlias = Literal["allow", "ask", "deny"]


def permission_for(spec: ToolSpec, *rules: Permissions) -> Permission:
    """What the rules, all of them together, say about a tool."""
    if any(_forbids(spec.name, each.deny) for each in rules):
        return "deny"
    if any(_forbids(spec.name, each.ask) for each in rules):
        return "allow" if any(spec.name in each.granted for each in rules) else "ask"
    if spec.read_only or any(_allows(spec.name, each.allow) for each in rules):
        return "allow"
    return "deny"


def _allows(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _forbids(name: str, patterns: tuple[str, ...]) -> bool:
    return _allows(name, patterns) or any(
        fnmatchcase(name.casefold(), pattern.casefold()) for pattern in patterns
    )
