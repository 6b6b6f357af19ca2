"""Variables in the text of an agent file: `${NAME}` and `${env.NAME}`, or `$NAME` as the whole of a value; durations."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.agents.file.document import Where
from holdfast.agents.file.shape_checks import Findings
from holdfast.core.codec import Value

_VARIABLE = re.compile(r"\$\{(?:env\.)?([A-Za-z_]\w*)\}|^\$([A-Za-z_]\w*)$", re.ASCII)


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
    names = [found[1] or found[2] for found in _VARIABLE.finditer(text)]
    known = {name: environment[name] for name in names if environment.get(name)}
    return FilledText(
        text=_VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), text),
        missing=tuple(name for name in dict.fromkeys(names) if name not in known),
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


_IN_PROSE = re.compile(r"\$\$\{|\$\{([^{}\n]*)\}", re.ASCII)
_NAME = re.compile(r"(?:env\.)?([A-Za-z_]\w*)", re.ASCII)


def filled_prose(
    text: str,
    environment: Mapping[str, str],
    found: Findings,
    where: Where,
    *,
    refusal: str = "",
    file: str = "",
) -> str:
    """A text that a model reads, or a model's name, with its variables filled in: no model is told `${NAME}`.

    `$${` stands for `${` itself. A variable that is not set, and anything else in `${…}`, become problems of this
    field; so does every variable if there is a `refusal`, which says why. `file` is the file that the text is in, if
    that is not the agent file.
    """

    def value_of(match: re.Match[str]) -> str:
        if match[1] is None:
            return "${"
        name = _NAME.fullmatch(match[1].strip())
        if name is not None and not refusal and environment.get(name[1]):
            return environment[name[1]]
        if name is None:
            words = f"only a variable's name can stand in ${{…}}, not {match[1][:60]!r}"
        else:
            words = refusal or f"the environment variable {name[1]!r} is not set"
        if file:
            line = text.count("\n", 0, match.start()) + 1
            words = f"{file}, line {line}: {words}"
        found.wrong(where, f"{words}; write $${{ for the characters themselves")
        return match[0]

    return _IN_PROSE.sub(value_of, text) if "${" in text else text
