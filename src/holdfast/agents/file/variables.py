"""Variables in the text of an agent file: `${NAME}`, `${env.NAME}` and `${env.NAME || "a default"}`, or `$NAME` as the whole
of a value; durations."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.agents.file.document import Where
from holdfast.agents.file.shape_checks import Findings
from holdfast.core.codec import Value

_NAMED = r"""(?:env\.)?([A-Za-z_]\w*)(?:\s*(?:\|\||\?\?)\s*("[^"{}\n]*"|'[^'{}\n]*'))?"""
"""A variable's name, and the default in quotes that stands for it if it is not set."""
_VARIABLE = re.compile(rf"\$\{{\s*{_NAMED}\s*\}}|^\$([A-Za-z_]\w*)$", re.ASCII)


_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?", re.ASCII)


def seconds_in(text: str) -> float | None:
    """A duration as Go writes it (`30s`, `2m30s`, `500ms`); 0 for none, None for a text that is no duration."""
    if text in ("", "0"):
        return 0.0
    found = _DURATION.fullmatch(text)
    if found is None or len(text) > 20:
        return None
    hours, minutes, seconds, millis = (float(each or 0) for each in found.groups())
    return hours * 3600 + minutes * 60 + seconds + millis / 1000


class FilledText(Value):
    """A text with its variables filled in: not to be shown."""

    text: str
    missing: tuple[str, ...] = ()
    """Names of variables that are not set."""
    secrets: tuple[str, ...] = ()
    """Values from the environment."""


def filled(text: str, environment: Mapping[str, str]) -> FilledText:
    """The text with its variables filled in; unset variables are left unchanged, and listed as missing."""
    names = {found[1] or found[3]: found[2] for found in _VARIABLE.finditer(text)}
    known = {name: environment[name] for name in names if environment.get(name)}

    def value_of(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        return known.get(name, found[0] if found[2] is None else found[2][1:-1])

    return FilledText(
        text=_VARIABLE.sub(value_of, text),
        missing=tuple(
            name for name, default in names.items() if name not in known and default is None
        ),
        secrets=tuple(known.values()),
    )


def filled_in(
    text: str, environment: Mapping[str, str], found: Findings, where: Where
) -> FilledText:
    """The same; unset variables become problems of this field."""
    result = filled(text, environment)
    for name in result.missing:
        found.wrong(where, f"the environment variable {name!r} is not set")
    return result


_JAVASCRIPT = frozenset(
    """
    env new typeof void delete await function class this undefined null true false NaN Infinity Array BigInt Boolean Date
    Error Function Intl JSON Map Math Number Object Promise Proxy Reflect RegExp Set String Symbol decodeURI
    decodeURIComponent encodeURI encodeURIComponent escape eval globalThis isFinite isNaN parseFloat parseInt unescape
    """.split()
)
"""What a JavaScript expression can begin with in docker-agent; a word that it does not know leaves a text as it stands."""
_IN_PROSE = re.compile(r"\$\$\{|\$\{([^{}\n]*)\}", re.ASCII)
_NAME = re.compile(_NAMED, re.ASCII)


def filled_prose(
    text: str,
    environment: Mapping[str, str],
    found: Findings,
    where: Where,
    *,
    refusal: str = "",
    file: str = "",
) -> str:
    """A text that a model reads, with its variables filled in.

    `$${` stands for `${` itself. As in docker-agent, `${env.NAME}` is nothing where it is not set, and what it could
    not evaluate, such as a shell's `${NAME:-x}`, stays as it stands; both with a warning. Other expressions become
    problems of this field; so does every variable if there is a `refusal`, which says why. `file` is the file that the
    text is in, if that is not the agent file.
    """

    def said(words: str, at: re.Match[str]) -> str:
        line = text.count("\n", 0, at.start()) + 1
        return f"{file}, line {line}: {words}" if file else words

    def value_of(match: re.Match[str]) -> str:
        if match[1] is None:
            return "${"
        inner = match[1].strip()
        name = _NAME.fullmatch(inner)
        if name is None and _is_unknown(inner):
            words = f"{match[0][:60]!r} is no variable; its model is told it as it stands"
            found.warn(where, said(words, match))
            return match[0]
        if name is None or refusal:
            words = refusal or f"only a variable's name can stand in ${{…}}, not {inner[:60]!r}"
            found.wrong(where, f"{said(words, match)}; write $${{ for the characters themselves")
            return match[0]
        default = None if name[2] is None else name[2][1:-1]
        if (value := environment.get(name[1]) or default) is not None:
            return value
        is_nothing = inner.startswith("env.")
        words = f"the environment variable {name[1]!r} is not set; its model is told "
        words += "nothing in its place" if is_nothing else f"{match[0]!r}"
        found.warn(where, said(words, match))
        return "" if is_nothing else match[0]

    return _IN_PROSE.sub(value_of, text) if "${" in text else text


def _is_unknown(expression: str) -> bool:
    """Whether docker-agent cannot evaluate this expression: it is empty, or begins with a word that it does not know."""
    word = re.match(r"[A-Za-z_$][\w$]*", expression, re.ASCII)
    return not expression if word is None else word[0] not in _JAVASCRIPT


def filled_name(
    text: str, environment: Mapping[str, str], found: Findings, where: Where, *, refusal: str = ""
) -> str:
    """The name of a model or a provider, with its variables filled in. One that is not set, and anything else in
    `${…}`, become problems of this field; so does every variable if there is a `refusal`, which says why."""

    def value_of(match: re.Match[str]) -> str:
        if match[1] is None:
            return "${"
        name = _NAME.fullmatch(match[1].strip())
        if name is not None and not refusal:
            default = None if name[2] is None else name[2][1:-1]
            if (value := environment.get(name[1]) or default) is not None:
                return value
        if name is None:
            words = f"only a variable's name can stand in ${{…}}, not {match[1][:60]!r}"
        else:
            words = refusal or f"the environment variable {name[1]!r} is not set"
        found.wrong(where, f"{words}; write $${{ for the characters themselves")
        return match[0]

    return _IN_PROSE.sub(value_of, text) if "${" in text else text
