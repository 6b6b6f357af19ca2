"""Which calls may run, by rules about tools and their arguments. `deny` wins over `ask`, `ask` over `allow`.

1. The operator gives: `allow` counts in an agent file, or in an agent made in code, and nowhere else.
2. Everything else narrows. Settings of a session, an import or a request go through `NarrowedPermissions`, which has
   no `allow`; its `ask` makes an allowed call need an approval, and allows nothing.
3. A person who approves a call may grant the tool for good (`core/grants.py`). That settles `ask`, and no other rule.
4. A rule is a tool's name, or a name with conditions on arguments: `shell:cmd=git *`, `write_file:path=/notes/*`. All
   conditions have to hold. An `allow` with conditions is more specific than an `ask` without any, and wins over it.
5. A command that may be more than one command, and a path that climbs, fulfil no condition that allows.

A tool that changes things needs a rule: what no rule names is refused. A tool that only reads is allowed unless a rule
says otherwise. The operator may choose another `Safety` for what no rule names.

Patterns are a shell's: `*`, `?`, `[a-z]`. A rule that allows is case-sensitive; a rule that forbids or asks ignores
case, because a rule that was meant to protect must not miss by a capital.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.codec import Value
from holdfast.core.items import Permissions
from holdfast.tools.tool import Json, ToolSpec

Permission: TypeAlias = Literal["allow", "ask", "deny"]
Safety: TypeAlias = Literal["strict", "balanced", "restricted", "autonomous"]
"""Calls that no rule names: all are asked about; those that change things are asked about; those are refused; all run."""
Arguments: TypeAlias = Mapping[str, Json]
NO_RULES = Permissions()

COMMANDS = ("cmd", "command")
"""Arguments that a shell reads."""

_CONDITION = re.compile(r":(?=[A-Za-z_][\w.-]*=)")
_MORE_THAN_ONE_COMMAND = re.compile(r"[;&|<>`\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]|\$[({\['\"]")
"""What joins commands, runs one inside another, or sends its output elsewhere, and what some program may take for a line
break. Quoting is not read: a command with one of these in quotes has to be allowed by another rule, or by a person."""
_BEFORE_A_COMMAND = re.compile(
    r"""(?:\w+=\S*|-\S+|\d+[smhd]?|!|\{|builtin|command|do|doas|elif|else|env|exec|if|nice|nohup|setsid|stdbuf|sudo|then|time|timeout
    |until|while|xargs|[\w./-]*/?(?:ba|da|k|z)?sh)(?:\s+|$)""",
    re.VERBOSE,
)
"""What may stand before the name of a command that is run all the same."""


class NarrowedPermissions(Value):
    """Tool rules from any source but the operator: calls that need an approval, and calls that never run."""

    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Permissions) -> NarrowedPermissions:
        """The part of a session's settings that counts: not its `allow` and `granted`."""
        return cls(ask=settings.ask, deny=settings.deny)


class ToolRule(Value):
    """A rule: a pattern for names of tools, and patterns for arguments of the call."""

    name: str
    conditions: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=1024)
def read_rule(text: str) -> ToolRule:
    """The rule that a text says. Colons that begin no `:argument=` belong to the pattern before them."""
    name, *conditions = _CONDITION.split(text)
    pairs = (each.partition("=") for each in conditions)
    return ToolRule(name=name, conditions=tuple((argument, glob) for argument, _, glob in pairs))


def permission_for(
    spec: ToolSpec,
    operator: Permissions = NO_RULES,
    *narrowings: NarrowedPermissions,
    arguments: Arguments,
    safety: Safety = "restricted",
) -> Permission:
    """The operator's rules for a call of this tool, narrowed by all the others."""
    given = _given(spec, arguments, operator, safety)
    if any(_forbids(spec.name, arguments, each.deny) for each in narrowings):
        return "deny"
    if given == "allow" and any(_forbids(spec.name, arguments, each.ask) for each in narrowings):
        return "ask"
    return given


def parsed_arguments(text: str) -> Arguments:
    """The arguments of a call; none if they are not a JSON object: such a call never runs."""
    try:
        found: Json = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _given(spec: ToolSpec, arguments: Arguments, rules: Permissions, safety: Safety) -> Permission:
    name = spec.name
    if _forbids(name, arguments, rules.deny):
        return "deny"
    asking = [each for each in map(read_rule, rules.ask) if _is_hit(name, arguments, each)]
    if any(each.conditions for each in asking):
        return "ask"
    allowing = [each for each in map(read_rule, rules.allow) if _allows(name, arguments, each)]
    if asking:
        return "allow" if any(each.conditions for each in allowing) else "ask"
    if allowing or safety == "autonomous" or (spec.read_only and safety != "strict"):
        return "allow"
    return "deny" if safety == "restricted" else "ask"


# ── what a rule that allows matches ──────────────────────────────────────────────────────────


def _allows(name: str, arguments: Arguments, rule: ToolRule) -> bool:
    return fnmatchcase(name, rule.name) and all(
        _is_safely(argument, arguments.get(argument), glob) for argument, glob in rule.conditions
    )


def _is_safely(argument: str, value: Json, glob: str) -> bool:
    """Whether a value fits a pattern, and can mean nothing more than it shows."""
    if isinstance(value, bool | int | float):
        return fnmatchcase(_text(value), glob)
    if isinstance(value, list):
        return bool(value) and all(_is_safely(argument, each, glob) for each in value)
    if not isinstance(value, str):
        return False
    if argument in COMMANDS and _MORE_THAN_ONE_COMMAND.search(value):
        return False
    return ".." not in re.split(r"[/\\]", value) and fnmatchcase(value, glob)


# ── what a rule that forbids or asks matches ─────────────────────────────────────────────────


def _forbids(name: str, arguments: Arguments, rules: Iterable[str]) -> bool:
    return any(_is_hit(name, arguments, rule) for rule in map(read_rule, rules))


def _is_hit(name: str, arguments: Arguments, rule: ToolRule) -> bool:
    return _names(name, rule) and all(
        any(_is_like(each, glob) for each in _readings(argument, arguments.get(argument)))
        for argument, glob in rule.conditions
    )


def _names(name: str, rule: ToolRule) -> bool:
    return _is_like(name, rule.name)


def _is_like(text: str, glob: str) -> bool:
    return fnmatchcase(text, glob) or fnmatchcase(text.casefold(), glob.casefold())


def _readings(argument: str, value: Json) -> Iterator[str]:
    """Everything that an argument may mean to its tool: each command in a command line, a path in its plain form."""
    match value:
        case None:
            return
        case str():
            yield value
            yield value.strip()
            if argument in COMMANDS:
                for each in _MORE_THAN_ONE_COMMAND.split(value):
                    yield each.strip(" \t(){}\"'")
                    yield from _commands_in(each)
            elif "/" in value:
                yield posixpath.normpath(value)
        case list():
            for each in value:
                yield from _readings(argument, each)
        case _:
            yield _text(value)


def _commands_in(part: str) -> Iterator[str]:
    """A part of a command line without quotes, with one space between words: as it is, after each word that may stand
    before a command, and with the command's name alone in place of its path."""
    rest = " ".join(re.sub(r"[\"'\\()]", "", part).split())
    while rest:
        yield rest
        name, space, words = rest.partition(" ")
        yield posixpath.basename(name) + space + words
        found = _BEFORE_A_COMMAND.match(rest)
        if found is None:
            return
        rest = rest[found.end() :]


def _text(value: Json) -> str:
    return msgspec.json.encode(value).decode()
