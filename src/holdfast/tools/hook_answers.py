"""Parses a hook's standard output, in the two dialects in use: docker-agent's and Claude Code's.

1. An answer is understood as a whole, or not at all. Every member must be known here and have its expected type; a
   member that only affects a display is known, and ignored.
2. The spelling of a name makes no difference: `hook_specific_output`, `hookSpecificOutput`, `HOOK-SPECIFIC-OUTPUT`.
   Lines before the object are a log, unless one of them could be an answer itself; without an object, any words that
   say no could be an answer.
3. If an answer says several things, the most restrictive one counts. `allow` and `approve` have no effect: rules give
   permissions, hooks only take them away.
4. An answer that is not understood counts as a no; the error quotes it and names the way out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.tools.execution import clean
from holdfast.tools.tool import Json

WAY_OUT = (
    'answer with a JSON object: {"decision": "block", "reason": "…"} to refuse, {} or nothing to agree; '
    "exit code 2 refuses, too; logs belong on standard error"
)
_QUOTED_CHARS = 200


class NotUnderstood(Exception):
    """An answer that could mean anything; the message says what is wrong with it."""


class HookAnswer(Value):
    """A hook's decision about a call. By default the hook changes nothing."""

    blocks: str | None = None
    """Why the hook refuses the call; None if it does not."""
    asks: bool = False
    """The hook wants a person to approve the call."""
    arguments: str | None = None
    """The arguments, as JSON, that replace the call's; None if the hook leaves them alone."""
    context: str = ""
    """Words for the model."""
    response: str | None = None
    """The text that replaces a tool's result; None if the hook leaves it alone."""
    summary: str = ""
    """A summary of the conversation, in place of one that a model writes."""


def read_answer(output: bytes) -> HookAnswer:
    """The answer of a hook that exited with 0. Raises NotUnderstood."""
    try:
        text = output.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise NotUnderstood("it is not UTF-8 text") from error
    if "\0" in text:  # typical of UTF-16
        raise NotUnderstood("it is not UTF-8 text: it has NUL characters")
    said = _object_in(text)
    return HookAnswer() if said is None else _understood(said)


def quoted(output: bytes) -> str:
    """The beginning of an answer, on one line, for an error message."""
    text = ascii(output.decode(errors="replace").strip())[1:-1]
    return f"{text[:_QUOTED_CHARS]}{'…' if len(text) > _QUOTED_CHARS else ''}"


# ── the object in the text ───────────────────────────────────────────────────────────────────

_COULD_BE_AN_ANSWER = re.compile(
    r"""
      \{                                                        # an object that does not begin its line
    | ^\s*(?: " | \[\s*(?: " | \] | $ ) )                       # a text, or a list
    | ^\W*(?: block | den[yi] | forbid | refus | reject )        # a refusal in words
    | ^\W*(?: ask | false | no | stop )\W*$
    | ^\W*(?: continue | decision | permission\w* )\W*[:=]       # a member, in YAML or in a shell's way
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""Plain words count as a log, unless they match this: then they may be meant as an answer."""

_SAYS_NO = re.compile(
    r"\b(?: block | den[yi] | disallow | forbid | prohibit | refus | reject | veto | abort"
    r"| (?:not|n't)\s+(?:allowed|permitted|safe|ok|okay) )",
    re.IGNORECASE | re.VERBOSE,
)
"""A match anywhere in text without an object: it may be a log, or a refusal after a prefix of the hook's own."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def _object_in(text: str) -> Mapping[str, Json] | None:
    """The JSON object that an answer is or ends with; None if the text has none, and nothing that could be one."""
    lines = _COLOUR.sub("", text).splitlines(keepends=True)
    start = next((n for n, line in enumerate(lines) if line.lstrip()[:1] == "{"), len(lines))
    log, rest = "".join(lines[:start]), "".join(lines[start:]).strip()
    if _COULD_BE_AN_ANSWER.search(log) or (not rest and _SAYS_NO.search(log)):
        raise NotUnderstood(
            "its words could be an answer, and are no JSON object on a line of its own"
        )
    if not rest:
        return None
    try:
        said, end = _decoder.raw_decode(rest)
    except (ValueError, RecursionError) as error:
        raise NotUnderstood(f"it is no JSON: {error}") from error
    if rest[end:].strip():
        raise NotUnderstood("something comes after the JSON object")
    assert isinstance(said, dict), "it begins with a brace"
    return said


def _named(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            raise NotUnderstood(f"{name!r} is there twice")
        found[name] = value
    return found


def _odd_number(name: str) -> Json:
    raise NotUnderstood(f"{name} is no number")


_decoder = json.JSONDecoder(object_pairs_hook=_named, parse_constant=_odd_number)


# ── the object's meaning ─────────────────────────────────────────────────────────────────────

_MEMBERS: Mapping[str, type] = {
    "continue": bool,
    "decision": str,
    "reason": str,
    "stopreason": str,
    "permissiondecision": str,
    "permissiondecisionreason": str,
    "updatedinput": dict,
    "updatedtoolresponse": str,
    "additionalcontext": str,
    "summary": str,
    # For a display only: they change nothing about a call.
    "hookeventname": str,
    "suppressoutput": bool,
    "systemmessage": str,
}
_SPECIFIC = "hookspecificoutput"
_NO, _ASK, _NOTHING = ("block", "deny"), ("ask",), ("allow", "approve", "")


def _understood(said: Mapping[str, Json]) -> HookAnswer:
    outer = _members(said)
    specific = outer.pop(_SPECIFIC, None) or {}
    assert isinstance(specific, dict)
    levels = (outer, _members(specific, inner=True))
    decisions = {
        _decision(name, value)
        for level in levels
        for name in ("decision", "permissiondecision")
        if (value := level.get(name)) is not None
    }
    if any(level.get("continue") is False for level in levels):
        return HookAnswer(blocks=_why(levels, "stopreason", "reason") or "it says stop")
    if "deny" in decisions:
        words = _why(levels, "permissiondecisionreason", "reason", "stopreason")
        return HookAnswer(blocks=words or "it says no")
    response = [
        value for level in levels if (value := level.get("updatedtoolresponse")) is not None
    ]
    return HookAnswer(
        asks="ask" in decisions,
        arguments=_arguments(levels),
        context=_why(levels, "additionalcontext", most=limits.hook_response_chars_max),
        response=clean(str(response[-1])) if response else None,
        summary=_why(levels, "summary", most=limits.summary_chars_max),
    )


def _members(said: Mapping[str, Json], *, inner: bool = False) -> dict[str, Json]:
    """The members by their normalised names. Raises NotUnderstood for an unknown member or a wrong type."""
    known = {**_MEMBERS, **({} if inner else {_SPECIFIC: dict})}
    found: dict[str, Json] = {}
    for written, value in said.items():
        name = re.sub(r"[_\s-]", "", written).casefold()
        if name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f"; is {near[0]!r} meant?" if near else ""
            raise NotUnderstood(f"the member {written!r} is not known{meant}")
        if value is not None and type(value) is not known[name]:
            raise NotUnderstood(f"the member {written!r} has to be a {_KINDS[known[name]]}")
        if found.get(name, value) != value:
            raise NotUnderstood(f"the member {written!r} is there twice, in two spellings")
        found[name] = value
    return found


_KINDS = {bool: "boolean", str: "text", dict: "JSON object"}


def _decision(name: str, value: Json) -> str:
    word = value.strip().casefold() if isinstance(value, str) else ""
    if word in _NO:
        return "deny"
    if word in _ASK or word in _NOTHING:
        return word
    raise NotUnderstood(
        f"{name} is {value!r}, and may be {', '.join((*_NO, *_ASK, *filter(None, _NOTHING)))}"
    )


def _why(
    levels: tuple[Mapping[str, Json], ...], *names: str, most: int = limits.hook_words_max
) -> str:
    for name in names:
        for level in levels:
            if isinstance(words := level.get(name), str) and words.strip():
                return clean(words).strip()[:most]
    return ""


def _arguments(levels: tuple[Mapping[str, Json], ...]) -> str | None:
    given = [value for level in levels if (value := level.get("updatedinput")) is not None]
    if not given:
        return None
    if len(given) > 1 and given[0] != given[1]:
        raise NotUnderstood("it changes the arguments in two ways")
    try:
        text = msgspec.json.encode(given[0])
    except (UnicodeEncodeError, ValueError, OverflowError) as error:
        raise NotUnderstood(f"the arguments that it wants cannot be written: {error}") from error
    if len(text) > limits.hook_arguments_bytes_max:
        most = limits.hook_arguments_bytes_max
        raise NotUnderstood(f"it changes the arguments into more than {most} bytes")
    return text.decode()
