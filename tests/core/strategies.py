"""Values of core types for properties, derived from the types themselves.

`values(kind)` reads what msgspec knows of a type, so a field that is added tomorrow is tried tomorrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st
from msgspec import inspect

from holdfast.ids import (
    CallId,
    ItemId,
    MessageId,
    MintedId,
    NoteId,
    ReasoningId,
    ResultId,
    Version,
    mint,
)

TIMES_MS = st.integers(0, (1 << 48) - 1)
ENTROPIES = st.integers(0, (1 << 80) - 1)
ITEM_IDS: tuple[type[ItemId], ...] = (MessageId, CallId, ResultId, ReasoningId, NoteId)

Minted = TypeVar("Minted", bound=MintedId)


def minted(kind: type[Minted]) -> st.SearchStrategy[Minted]:
    """Ids of this kind, over all times."""
    return st.builds(
        lambda at_ms, entropy: mint(kind, at_ms=at_ms, entropy=entropy), TIMES_MS, ENTROPIES
    )


@cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type, or of one of the types of a union; bounds respected, defaults left out often."""
    return _values(inspect.type_info(kind))


def _values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.StructType():
            return _structs(kind)
        case inspect.UnionType():
            return st.one_of(*map(_values, kind.types))
        case inspect.VarTupleType():
            size_max = min(3, kind.max_length or 3)
            return st.lists(_values(kind.item_type), max_size=size_max).map(tuple)
        case inspect.TupleType():
            return st.tuples(*map(_values, kind.item_types))
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.StrType(pattern=str(pattern)):
            return st.from_regex(pattern, fullmatch=True)
        case inspect.StrType():
            return st.text(min_size=kind.min_length or 0, max_size=min(30, kind.max_length or 30))
        case inspect.BytesType():
            return st.binary(max_size=30)
        case inspect.IntType():
            return st.integers(kind.ge or 0, 1 << 53)
        case inspect.CustomType():
            return _custom(kind.cls)
    return _PLAIN[type(kind)]


_PLAIN: Mapping[type[inspect.Type], st.SearchStrategy[Any]] = {
    inspect.BoolType: st.booleans(),
    inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
    inspect.NoneType: st.none(),
}


def _structs(kind: inspect.StructType) -> st.SearchStrategy[Any]:
    fields = {each.name: _values(each.type) for each in kind.fields}
    required = {each.name for each in kind.fields if each.required}
    return st.fixed_dictionaries(
        {name: field for name, field in fields.items() if name in required},
        optional={name: field for name, field in fields.items() if name not in required},
    ).map(lambda given: kind.cls(**given))


def _custom(kind: type[Any]) -> st.SearchStrategy[Any]:
    if kind is Version:
        return st.integers(0, 1 << 53).map(Version)
    if kind is ItemId:
        return st.one_of(*map(minted, ITEM_IDS)).map(ItemId)
    return minted(kind)
