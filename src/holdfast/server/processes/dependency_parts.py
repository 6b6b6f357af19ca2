"""The check for parts of other packages that we use although their authors do not promise to keep them.

uvicorn's protocols are made to be replaced, not subclassed; we subclass them all the same, because they parse and
frame well, but pace badly. A version without a part that we need is refused when the server starts, and not when a
request first needs it.
"""

from __future__ import annotations

from types import FunctionType

from holdfast.errors import InvalidValue
from holdfast.libraries import importlib_metadata


def demand_parts(package: str, owner: type, *names: str) -> None:
    """Raise InvalidValue if a class lacks one of these names: as a member, or as a name that its methods use."""
    missing = sorted(set(names) - _parts_of(owner))
    if missing:
        raise InvalidValue(
            f"{package} {importlib_metadata.version(package)} has no {', '.join(missing)} in its {owner.__name__}, which "
            f"this server leans on; install the version of {package} that requirements.txt names"
        )


def _parts_of(owner: type) -> set[str]:
    found = set(dir(owner))
    for each in owner.__mro__:
        for member in vars(each).values():
            if isinstance(member, FunctionType):
                found |= set(member.__code__.co_names)
    return found
