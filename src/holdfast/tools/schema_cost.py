"""Bounds the cost of a schema check before anything is checked.

A few hundred bytes of schema can unfold to billions of steps: `a` is any of `b` and `b`, `b` any of `c` and `c`, and
so on; or a schema that refers to itself twice for the same property. A validator takes every one of these steps.

1. The bound is on how often one place in the arguments is visited, over all schemas that apply to it and to the
   places around it. So the number of places times the bound is more than the whole work.
2. It is computed with every schema counted once for each depth, however often it is referred to.
3. A schema with a reference that is not understood here has no bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from holdfast import limits
from holdfast.tools.tool import Json

_SAME_PLACE = ("not", "if", "then", "else")
_SAME_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_PLACE_MAPS = ("dependentSchemas", "dependencies")
_OTHER_REFERENCES = ("$dynamicRef", "$recursiveRef")
_PROPERTIES = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEMS = ("items", "additionalItems", "unevaluatedItems", "contains")
WITHOUT_ID = "a part of its schema has an '$id'; leave that out"
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")


class TooCostly(ValueError):
    """The schema has no bound, or one beyond the limit; the message says which."""


def steps(schema: str, value: Json) -> int:
    """The most steps that checking this value can take. Raises TooCostly, RecursionError."""
    places, depth = _measured(value)
    found = places * visits(schema, depth)
    if found > limits.schema_steps_max:
        raise TooCostly("checking them against its schema would take too long; send less at once")
    return found


@lru_cache(maxsize=512)
def visits(schema: str, depth: int) -> int:
    """The most visits to one place, in arguments of this depth. Raises TooCostly, RecursionError."""
    root = msgspec.json.decode(schema)
    return _Count(root).total(root, depth)


def _measured(value: Json) -> tuple[int, int]:
    """How many values this one contains, itself included, and their greatest depth."""
    places, depth, level = 0, -1, [value]
    while level:
        places, depth = places + len(level), depth + 1
        inner: list[Json] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        level = inner
    return places, depth


class _Cost(NamedTuple):
    """Visits to a place itself, and to the most visited place inside it: of an object, and of a list."""

    here: int
    in_object: int
    in_list: int

    @property
    def total(self) -> int:
        return self.here + max(self.in_object, self.in_list)


class _Count:
    """Counts the visits of one schema."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._draft = root.get("$schema") if isinstance(root, dict) else None
        self._known: dict[tuple[int, int], _Cost] = {}

    def total(self, schema: Json, depth: int) -> int:
        return self._of(schema, depth).total

    def _of(self, schema: Json, depth: int) -> _Cost:
        if not isinstance(schema, dict):
            return _Cost(1, 0, 0)
        key = (id(schema), depth)
        if key not in self._known:
            if len(self._known) == limits.schema_parts_max:
                raise TooCostly(f"its schema has more than {limits.schema_parts_max} parts")
            self._known[key] = _Cost(1, 0, 0)  # for a reference back to itself at the same place
            self._known[key] = self._counted(schema, depth)
            if self._known[key].total > limits.schema_visits_max:
                raise TooCostly("its schema unfolds to more than can be checked")
        return self._known[key]

    def _counted(self, schema: dict[str, Json], depth: int) -> _Cost:
        if schema is not self._root and self._has_id(schema):
            raise TooCostly(WITHOUT_ID)
        found = [self._of(each, depth) for each in self._at_same_place(schema)]
        # `unevaluated…` has to find out what was evaluated: everything that applies is visited once more.
        times = 2 if any(name in schema for name in _UNEVALUATED) else 1
        objects, lists = self._inside(schema, depth - 1) if depth else (0, 0)
        return _Cost(
            1 + times * sum(each.here for each in found),
            objects + times * sum(each.in_object for each in found),
            lists + times * sum(each.in_list for each in found),
        )

    def _at_same_place(self, schema: dict[str, Json]) -> Iterable[Json]:
        if isinstance(reference := schema.get("$ref"), str):
            yield self._pointed(reference)
        if any(name in schema for name in _OTHER_REFERENCES):
            raise TooCostly("its schema has a '$dynamicRef'; use '$ref'")
        yield from (schema[name] for name in _SAME_PLACE if name in schema)
        for name in _SAME_PLACE_LISTS:
            yield from _members(schema.get(name))
        for name in _SAME_PLACE_MAPS:
            yield from _members(schema.get(name))

    def _inside(self, schema: dict[str, Json], depth: int) -> tuple[int, int]:
        """Visits to the property, and to the item, that most schemas apply to."""

        def most(name: str) -> int:
            return max((self.total(each, depth) for each in _members(schema.get(name))), default=0)

        def every(*names: str) -> int:
            return sum(self.total(schema[name], depth) for name in names if name in schema)

        patterns = sum(
            self.total(each, depth) for each in _members(schema.get("patternProperties"))
        )
        listed = most("items") if isinstance(schema.get("items"), list) else 0
        return (
            most("properties") + patterns + every(*_PROPERTIES),
            most("prefixItems") + listed + every(*_ITEMS),
        )

    def _has_id(self, schema: dict[str, Json]) -> bool:
        """Whether references inside it may be relative to it, not to the whole schema. Old drafts call it `id`."""
        drafts = (self._draft, schema.get("$schema"))
        is_old = any(isinstance(each, str) and "draft-0" in each for each in drafts)
        names = ("$id", "id") if is_old else ("$id",)
        return any(isinstance(schema.get(name), str) for name in names)

    def _pointed(self, reference: str) -> Json:
        if reference != "#" and not reference.startswith("#/"):
            raise TooCostly(f"its schema refers to {reference[:100]!r}; use '#/$defs/…'")
        there = self._root
        for step in unquote(reference).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(there, dict) and name in there:
                there = there[name]
            elif isinstance(there, list) and name.isdecimal() and int(name) < len(there):
                there = there[int(name)]
            else:
                raise TooCostly(f"its schema refers to {reference[:100]!r}, which is not there")
            if isinstance(there, dict) and self._has_id(there):
                raise TooCostly(WITHOUT_ID)
        return there


def _members(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
