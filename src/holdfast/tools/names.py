"""Tool names that every provider accepts, made from foreign names; and the way back.

1. A valid name stays as it is, with any other names beside it: a permission rule keeps its meaning.
2. Any other name becomes a readable form of itself with eight digits of its hash. The result depends on the name alone,
   not on other names or their order, so a tool has the same name tomorrow.
3. No two names become the same.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from hashlib import sha256
from itertools import count

from holdfast import limits
from holdfast.tools.schema import TOOL_NAME

log = logging.getLogger("holdfast.tools")

_DIGITS = 8
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")


def valid_names(names: Iterable[str], *, prefix: str = "") -> dict[str, str]:
    """Name for the model → original name, in the given order. With a prefix, the former is `prefix_name`."""
    own = list(dict.fromkeys(names))
    wanted = {name: f"{prefix}_{name}" if prefix else name for name in own}
    given = {name: text for name, text in wanted.items() if TOOL_NAME.fullmatch(text)}
    taken = set(given.values())
    for name in sorted(set(own) - given.keys()):
        given[name] = _made(wanted[name], taken)
        taken.add(given[name])
    return {given[name]: name for name in own}


def _made(name: str, taken: set[str]) -> str:
    readable = _INVALID.sub("_", name)[: limits.tool_name_chars_max - _DIGITS - 1]
    for n in count():  # the first candidate fits, unless a server chose its names to collide
        digest = sha256(f"{n}:{name}".encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
        if (made := f"{readable}_{digest}") not in taken:
            return made
    raise AssertionError("there is always another number")


class NameOwners:
    """The foreign toolset that owns each tool name, for as long as the agent is loaded.

    A name belongs to the toolset that the operator listed it for, otherwise to the first toolset that offered it, even
    while that one does not offer it: a rule for its tool never comes to mean another server's.
    """

    def __init__(self) -> None:
        self._origins: dict[str, str] = {}
        self._logged: set[str] = set()

    def reserve(self, names: Iterable[str], origin: str) -> None:
        """Reserve names for the toolset that the operator listed them for."""
        for name in names:
            self._origins.setdefault(name, origin)

    def is_owned(self, name: str, origin: str) -> bool:
        """Whether a foreign toolset may offer a tool of this name; a refusal is logged once."""
        if len(self._origins) < limits.foreign_names_max:
            self._origins.setdefault(name, origin)
        owned = self._origins.get(name) == origin
        if not owned and name not in self._logged and len(self._logged) < limits.foreign_names_max:
            self._logged.add(name)
            log.warning(
                "the tool %s of a server is not offered, since that name is another toolset's; list it under 'tools' of "
                "the one that is meant, or give one of them a 'name'",
                name,
            )
        return owned
