"""The values and fields that a body's type accepts at a place, for error messages that list them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import inspect


def values_at(kind: object, place: str) -> list[str]:
    """The values that a field such as `messages[0].role` may have; empty if any value of its type will do."""
    return [
        str(value)
        for each in _kinds_at(kind, place)
        if isinstance(each, inspect.LiteralType)
        for value in each.values
    ]


def fields_at(kind: object, place: str) -> list[str]:
    """The fields that the object at a place may have; the empty place is the body itself."""
    return [
        field.encode_name
        for each in _kinds_at(kind, place)
        if isinstance(each, inspect.StructType)
        for field in each.fields
    ]


def _kinds_at(kind: object, place: str) -> list[inspect.Type]:
    kinds = list(_flat([inspect.type_info(kind)]))
    for step in re.findall(r"\[[^]]*]|[^.\[\]]+", place):
        kinds = list(_flat(inner for each in kinds for inner in _inside(each, step)))
    return kinds


def _flat(kinds: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    for each in kinds:
        if isinstance(each, inspect.UnionType):
            yield from _flat(each.types)
        elif isinstance(each, inspect.Metadata):
            yield from _flat([each.type])
        else:
            yield each


def _inside(kind: inspect.Type, step: str) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == step)
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield kind.item_type
