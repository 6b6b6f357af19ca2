"""Which tools may run, by name and pattern. `deny` wins over `ask`, `ask` over `allow`.

1. The operator gives: `allow` counts in an agent file, or in an agent made in code, and nowhere else.
2. Everything else narrows. Settings of a session, an import or a request go through `NarrowedPermissions`, which has
   no `allow`; its `ask` makes an allowed tool need an approval, and allows nothing.
3. A person who approves a call may grant the tool for good (`core/grants.py`). That settles `ask`, and no other rule.

A tool that changes things needs a rule: what no rule names is refused. A tool that only reads is allowed
unless a rule says otherwise.

Patterns are a shell's: `*`, `?`, `[a-z]`. A rule that allows is case-sensitive; a rule that forbids or asks ignores
case, because a rule that was meant to protect must not miss by a capital.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from holdfast.core.codec import Value
from holdfast.core.items import Permissions
from holdfast.tools.tool import ToolSpec

Permission: TypeAlias = Literal["allow", "ask", "deny"]
NO_RULES = Permissions()


class NarrowedPermissions(Value):
    """Tool rules from any source but the operator: tools that need an approval, and tools that never run."""

    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Permissions) -> NarrowedPermissions:
        """The part of a session's settings that counts: not its `allow` and `granted`."""
        return cls(ask=settings.ask, deny=settings.deny)


def permission_for(
    spec: ToolSpec, operator: Permissions = NO_RULES, *narrowings: NarrowedPermissions
) -> Permission:
    """The operator's rules for a tool, narrowed by all the others."""
    given = _given(spec, operator)
    if any(_forbids(spec.name, each.deny) for each in narrowings):
        return "deny"
    if given == "allow" and any(_forbids(spec.name, each.ask) for each in narrowings):
        return "ask"
    return given


def _given(spec: ToolSpec, rules: Permissions) -> Permission:
    if _forbids(spec.name, rules.deny):
        return "deny"
    if _forbids(spec.name, rules.ask):
        return "ask"
    return "allow" if spec.read_only or _allows(spec.name, rules.allow) else "deny"


def _allows(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _forbids(name: str, patterns: tuple[str, ...]) -> bool:
    return _allows(name, patterns) or any(
        fnmatchcase(name.casefold(), pattern.casefold()) for pattern in patterns
    )
