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

from holdfast.core.codec import DAMAGE, Value
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
_CLIMBS = re.compile(r"(?<!\.)\.\.(?:[/\s$]|\Z)")
"""A part of a path in a command that leads up; `a..b` is a range, and `./...` are packages of Go."""
_JOINT = re.compile(r"([;&|<>`()\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029])")
"""What a rule that forbids takes for an end of a command, whatever quotes are around it."""
_ASSIGNMENT = re.compile(r"(?<![\w$])([A-Za-z_]\w*)=([\"']?)([^\s\"';&|]*)\2")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_SPACES = re.compile(r"\$\{?IFS\}?(?:\$\d)?|\\\n")
_BRACES = re.compile(r"(?<![^\s{}])([^\s{}]*)\{([^\s{}]*,[^\s{}]*)\}([^\s{}]*)")
_ANSI_C = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([0-7]{1,3})|([a-z]))")
_LETTERS = {"n": "\n", "t": " ", "r": "\r"}
_RUNNERS = frozenset(
    """
    ! { ash at bash batch builtin busybox bwrap chroot chrt command coproc csh dash do doas elif else entr env
    eval exec expect fakeroot fd find firejail fish flock gdb if ionice ksh ltrace nice nohup nsenter numactl parallel perf
    pkexec prlimit proot rlwrap runuser script setarch setpriv setsid sh ssh start-stop-daemon stdbuf strace su sudo
    systemd-run taskset tcsh then time timeout toybox trap unbuffer unshare until valgrind watch while xargs zsh
    """.split()
)
"""Programs and words of a shell that run what is named after them."""
_RUNNING = frozenset(("run", "exec"))
"""Their second words: `docker exec`, `poetry run`."""
_WORDS_COMPARED = 16
"""The words of a command that is found behind another one, at most, so that a long line costs no more than its length."""


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
    except DAMAGE:
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
    if argument in COMMANDS:
        plain = re.sub(r"[\"'\\]", "", value)
        if _MORE_THAN_ONE_COMMAND.search(value) or _CLIMBS.search(plain):
            return False
    return ".." not in re.split(r"[/\\]", value) and fnmatchcase(value, glob)


# ── what a rule that forbids or asks matches ─────────────────────────────────────────────────


def _forbids(name: str, arguments: Arguments, rules: Iterable[str]) -> bool:
    return any(_is_hit(name, arguments, rule) for rule in map(read_rule, rules))


def _is_hit(name: str, arguments: Arguments, rule: ToolRule) -> bool:
    return _names(name, rule) and all(
        _is_about(argument, arguments.get(argument), glob) for argument, glob in rule.conditions
    )


def _is_about(argument: str, value: Json, glob: str) -> bool:
    """Whether a pattern fits anything that a value may mean."""
    if any(_is_like(each, glob) for each in _readings(argument, value)):
        return True
    return (
        argument in COMMANDS and isinstance(value, str) and _runs_anything(_expanded(value), glob)
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
                for text in dict.fromkeys((value, _expanded(value))):
                    yield from _commands_in(text)
            elif "/" in value:
                yield posixpath.normpath(value)
        case list():
            for each in value:
                yield from _readings(argument, each)
        case _:
            yield _text(value)


def _commands_in(text: str) -> Iterator[str]:
    """Every command that a command line may run, without quotes and with one space between words.

    After a program that runs what is named after it (`sudo`, `xargs`, `find -exec`), after a variable that is set and
    after a redirection, each further word may be where a command begins.
    """
    joint, before = "", ""
    for n, part in enumerate(_JOINT.split(text)):
        if n % 2:
            joint, before = part, joint
            continue
        words = re.sub(r"[\"'\\]", "", part).strip("} \t").split()
        if not words:
            continue
        first = posixpath.basename(words[0]).casefold()
        runs_others = (
            first in _RUNNERS
            or "=" in words[0]
            or not _RUNNING.isdisjoint(words[1:3])
            or "<" in (joint, before)
            or joint == ">"
        )
        yield from _spelled(words)
        for start, word in enumerate(words):
            rest = words[start : start + _WORDS_COMPARED]
            if runs_others:
                yield from _spelled(rest)
            if "=" in word:
                yield from _spelled([word.partition("=")[2].lstrip("!"), *rest[1:]])


def _spelled(words: list[str]) -> Iterator[str]:
    """A command with and without the path of its program, and, since more words may come from elsewhere, with a space
    after them."""
    for program in dict.fromkeys((words[0], posixpath.basename(words[0]))):
        command = " ".join((program, *words[1:]))
        yield command
        yield f"{command} "


def _expanded(text: str) -> str:
    """A command line with the words that a shell makes of it, as far as the line itself tells them: variables that it
    sets, escapes, braces."""
    text = _SPACES.sub(" ", _ANSI_C.sub(lambda found: _ESCAPE.sub(_escaped, found[1]), text))
    known = {found[1]: found[3] for found in _ASSIGNMENT.finditer(text)}
    text = _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), text)
    return _BRACES.sub(
        lambda found: " ".join(f"{found[1]}{each}{found[3]}" for each in found[2].split(",")), text
    )


def _escaped(found: re.Match[str]) -> str:
    digits, octal = found[1] or found[2], found[3]
    if digits or octal:
        return chr(int(digits, 16) if digits else int(octal, 8))
    return _LETTERS.get(found[4], "")


def _runs_anything(text: str, glob: str) -> bool:
    """Whether the shell makes the name of a program that runs: of a variable or of what another command prints, which may
    be any, or of a pattern that fits the program of a rule."""
    named = glob.split()[0].casefold() if glob.split() else ""
    for command in re.split(r"[;&|\n]+|(?<!\$)\(", text):
        words = re.sub(r"[\"'\\]", "", command).split()
        found = (each for each in words if not _ASSIGNMENT.match(each) and each not in _RUNNERS)
        program = posixpath.basename(next(found, "")).casefold()
        if not {"$", "`"}.isdisjoint(program):
            return True
        if not {"*", "?", "["}.isdisjoint(program) and fnmatchcase(named, program):
            return True
    return False


def _text(value: Json) -> str:
    return msgspec.json.encode(value).decode()
