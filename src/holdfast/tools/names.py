"""Names of tools that every provider takes, made of names that somebody else chose; and the way back.

1. A name that is valid stays as it is, whatever else is there: what a permission rule says keeps its meaning.
2. Any other becomes a readable form of itself with eight digits of its hash. So it depends on the name alone, and not
   on its neighbours or their order: a tool is called the same tomorrow.
3. No two become the same.
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
    """Name for a model → the one it was made of, in the order they came. With a prefix, `prefix_name`."""
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
    for n in count():  # the first will do, unless somebody has gone out of their way
        digest = sha256(f"{n}:{name}".encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
        if (made := f"{readable}_{digest}") not in taken:
            return made
    raise AssertionError("there is always another number")


class NameOwners:
    """Which foreign toolset of an agent each tool name belongs to, as long as the agent is loaded.

    A name stays with the toolset that the operator has listed it for, or else with the first that had it, also while
    that one does not offer it: a rule that means its tool never comes to mean another server's.
    """

    def __init__(self) -> None:
        self._origins: dict[str, str] = {}
        self._told: set[str] = set()

    def reserve(self, names: Iterable[str], origin: str) -> None:
        """Keep names for the toolset that they are listed for."""
        for name in names:
            self._origins.setdefault(name, origin)

    def is_owned(self, name: str, origin: str) -> bool:
        """Whether a foreign toolset may offer a tool of this name; if not, it is logged once."""
        if len(self._origins) < limits.foreign_names_max:
            self._origins.setdefault(name, origin)
        owned = self._origins.get(name) == origin
        if not owned and name not in self._told and len(self._told) < limits.foreign_names_max:
            self._told.add(name)
            log.warning(
                "the tool %s of a server is not offered, since that name is another toolset's; list it under 'tools' of "
                "the one that is meant, or give one of them a 'name'",
                name,
            )
        return owned
