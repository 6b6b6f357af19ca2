"""Checks tool schemas once, and a call's arguments against them, with messages that a model can act on.

A schema is foreign text (an agent file's, an MCP server's). So it can never make us fetch anything, and a bad schema
is reported when the tool is made, not when a model first calls it.

The schemas of most tools are plain: valid by their form alone. A server that has no others starts without the
validator's library, which takes five megabytes. The first call loads it: arguments are always checked by the library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import NoReturn

import msgspec

from holdfast import limits
from holdfast.errors import InvalidValue
from holdfast.libraries import jsonschema_rs
from holdfast.printable import shortened
from holdfast.tools.schema_cost import TooCostly, steps, visits
from holdfast.tools.tool import Json, ToolSpec

TOOL_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{limits.tool_name_chars_max}}}")
WRONG_MAX = 5
"""More mistakes than this in one message only confuse the model."""


class InvalidArguments(Exception):
    """A call's arguments do not fit its tool's schema; the message is for the model to act on."""


class InvalidTool(InvalidValue):
    """A tool cannot be offered to a model; the message is for the tool's author."""

    code = "invalid_tool"


def checked(spec: ToolSpec) -> ToolSpec:
    """The same spec, checked: every provider takes it. Raises InvalidTool."""
    if TOOL_NAME.fullmatch(spec.name) is None:
        raise InvalidTool(
            f"{shortened(spec.name, 200)!r} cannot be a tool's name: take 1–{limits.tool_name_chars_max} "
            "letters, digits, '_' and '-'"
        )
    if not 0 < spec.timeout_s <= limits.tool_timeout_s_max:
        raise InvalidTool(
            f"the timeout of {spec.name!r} has to be above 0 and at most {limits.tool_timeout_s_max:g} s"
        )
    check_schema(spec.parameters, of=spec.name)
    return spec


def check_schema(schema: str, *, of: str) -> None:
    """Raises InvalidTool unless this is the schema of an object that needs no network."""
    try:
        known = msgspec.json.decode(schema)
        if not isinstance(known, dict) or known.get("type") != "object":
            raise InvalidTool(f"the schema of {of!r} has to be that of an object")
        if not is_plain(known):
            _validator(schema)
        visits(schema, depth=1)
    except TooCostly as error:
        raise InvalidTool(f"{of!r} cannot be offered: {error}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidTool):
            raise
        first = str(error).partition("\n")[0]
        raise InvalidTool(
            f"the schema of {of!r} is not a JSON Schema: {shortened(first, 200)}"
        ) from error


def parse_arguments(spec: ToolSpec, arguments: str) -> dict[str, Json]:
    """The arguments of a call, checked against its tool's schema. Raises InvalidArguments."""
    try:
        parsed: Json = msgspec.json.decode(arguments.strip() or "{}")
        twice = _named_twice(arguments)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"The arguments of {spec.name!r} are not JSON ({error}). Send one JSON object."
        ) from error
    if not isinstance(parsed, dict):
        raise InvalidArguments(f"The arguments of {spec.name!r} have to be a JSON object.")
    # A person who approves the call could take the first for the value that counts.
    if twice is not None:
        raise InvalidArguments(
            f"The arguments of {spec.name!r} say {shortened(twice, 200)!r} twice in one object. Say it once, and call it again."
        )
    wrong = _mistakes(spec, parsed)
    if wrong:
        more = f"; and {len(wrong) - WRONG_MAX} more" if len(wrong) > WRONG_MAX else ""
        raise InvalidArguments(
            f"The arguments of {spec.name!r} do not fit: {'; '.join(wrong[:WRONG_MAX])}{more}. "
            "Correct them and call it again."
        )
    return parsed


def _named_twice(arguments: str) -> str | None:
    """A name that occurs twice in one object of this JSON; None if there is none."""
    found: list[str] = []

    def check(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                found.append(name)
            seen.add(name)

    # Numbers are not parsed: one that is too long is reported elsewhere.
    json.loads(arguments.strip() or "{}", object_pairs_hook=check, parse_int=str, parse_float=str)
    return found[0] if found else None


def _mistakes(spec: ToolSpec, parsed: dict[str, Json]) -> list[str]:
    try:
        validator = _validator(spec.parameters)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"{spec.name!r} cannot be called: its schema is not valid. Do without it."
        ) from error
    try:
        effort = steps(spec.parameters, parsed)
        if validator.is_valid(parsed):
            return []
        # Error messages take a thousand times as long as the check.
        if effort > limits.schema_words_steps_max:
            return ["they are not what its schema says"]
        return [_in_words(each, spec) for each in validator.iter_errors(parsed)]
    except (ValueError, RecursionError) as error:  # JSON that the validator cannot take
        raise InvalidArguments(
            f"The arguments of {spec.name!r} cannot be checked: {error}."
        ) from error


@lru_cache(maxsize=512)
def _validator(schema: str) -> jsonschema_rs.Validator:
    # Masked: the arguments can be long, and the model knows them already.
    return jsonschema_rs.validator_for(
        msgspec.json.decode(schema), retriever=_refuse, mask="the value"
    )


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} would have to be fetched; write it into the schema")


def _in_words(error: jsonschema_rs.ValidationError, spec: ToolSpec) -> str:
    where = "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path
    ).removeprefix(".")
    words = error.message
    if not where and error.kind.name == "additionalProperties":
        properties = msgspec.json.decode(spec.parameters).get("properties", {})
        words += f"; {suggest(error.kind.value[0], properties)}"
    if error.kind.name == "anyOf":
        words = f"{words}: {', or '.join(dict.fromkeys(_reasons(error)))}"
    return shortened(f"{where}: {words}" if where else words, 300)


def _reasons(error: jsonschema_rs.ValidationError) -> Iterable[str]:
    for branch in error.kind.value:
        for inner in branch:
            yield inner.message


def suggest(word: str, known: Iterable[str]) -> str:
    """`there are: a, b; did you mean 'a'?`, to end an error message with."""
    names = list(known)
    close = get_close_matches(word, names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"there are: {', '.join(names) or 'none'}{hint}"


# ── plain schemas ────────────────────────────────────────────────────────────────────────────

PLAIN_DEPTH_MAX = 16
"""The library reads this and more; a schema that is nested deeper is shown to it."""

_TYPES = frozenset("array boolean integer null number object string".split())


def is_plain(schema: Json, depth: int = PLAIN_DEPTH_MAX) -> bool:
    """Whether a schema has members of these forms only. A schema that is not plain may be valid, too."""
    return (
        isinstance(schema, dict)
        and depth > 0
        and all(
            (form := _FORMS.get(name)) is not None and form(value, depth - 1)
            for name, value in schema.items()
        )
    )


def _is_type(value: Json, depth: int) -> bool:
    return isinstance(value, str) and value in _TYPES


def _is_text(value: Json, depth: int) -> bool:
    return isinstance(value, str)


def _is_anything(value: Json, depth: int) -> bool:
    return True


def _is_number(value: Json, depth: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Json, depth: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _are_choices(value: Json, depth: int) -> bool:
    """Distinct texts, one at least."""
    return _are_names(value, depth) and bool(value)


def _are_names(value: Json, depth: int) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(each, str) for each in value)
        and len(set(map(str, value))) == len(value)
    )


def _are_properties(value: Json, depth: int) -> bool:
    return isinstance(value, dict) and all(is_plain(each, depth) for each in value.values())


def _are_schemas(value: Json, depth: int) -> bool:
    return isinstance(value, list) and bool(value) and all(is_plain(each, depth) for each in value)


def _is_switch(value: Json, depth: int) -> bool:
    return isinstance(value, bool) or is_plain(value, depth)


_FORMS: Mapping[str, Callable[[Json, int], bool]] = {
    "additionalProperties": _is_switch,
    "anyOf": _are_schemas,
    "default": _is_anything,
    "description": _is_text,
    "enum": _are_choices,
    "items": is_plain,
    "maxItems": _is_count,
    "maxLength": _is_count,
    "maximum": _is_number,
    "minItems": _is_count,
    "minLength": _is_count,
    "minimum": _is_number,
    "properties": _are_properties,
    "required": _are_names,
    "title": _is_text,
    "type": _is_type,
}
