"""What all shapes of an agent file share: the struct that they begin from, and the bounds of plain values."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, TypeVar

from msgspec import Meta

from holdfast import limits
from holdfast.core.codec import Value

Text: TypeAlias = Annotated[str, Meta(max_length=limits.agent_file_bytes_max)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=limits.tool_timeout_s_max)]
Duration: TypeAlias = Annotated[str, Meta(max_length=20)]
"""As Go writes it: `30s`, `2m30s`, `500ms`."""
Schema: TypeAlias = Annotated[dict[str, Any], Meta(description="A JSON Schema")]


class Shape(Value, forbid_unknown_fields=True):
    """A mapping with known fields."""


S = TypeVar("S", bound=Shape)


def filled_up(kind: type[S], own: Shape, other: Shape, **both: object) -> S:
    """The fields of this kind from `own`, or from `other` where it says nothing; of those in `both`, these values."""
    blank = kind()
    fields = {
        name: value
        if (value := getattr(own, name)) != getattr(blank, name)
        else getattr(other, name)
        for name in kind.__struct_fields__
    }
    return kind(**{**fields, **both})
