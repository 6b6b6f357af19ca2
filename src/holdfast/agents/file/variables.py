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
