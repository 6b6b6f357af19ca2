"""Schemas are checked once, and mistakes are told so that a model can correct them."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.schema import (
    PLAIN_DEPTH_MAX,
    InvalidArguments,
    InvalidTool,
    checked,
    is_plain,
    parse_arguments,
)
from holdfast.tools.tool import ToolSpec
from tests.tools.tool_calls import spec

SCHEMA = """{"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1},
    "unit": {"enum": ["C", "F"]}, "tags": {"type": "array", "items": {"type": "string"}},
    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}
}, "required": ["city"], "additionalProperties": false}"""

FORECAST = spec("forecast", parameters=SCHEMA)


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"city": "Oslo"}', {"city": "Oslo"}),
        (' {"city": "Oslo", "days": 2.0} ', {"city": "Oslo", "days": 2.0}),
        ('{"city": "Oslo", "note": null, "tags": []}', {"city": "Oslo", "note": None, "tags": []}),
    ],
)
def test_good_arguments_are_parsed(arguments: str, parsed: object) -> None:
    assert parse_arguments(FORECAST, arguments) == parsed


@pytest.mark.parametrize("arguments", ["", "  ", "{}"])
def test_nothing_means_no_arguments(arguments: str) -> None:
    """Some models send an empty string for a tool without arguments."""
    assert parse_arguments(spec(), arguments) == {}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{", "are not JSON"),
        ("[" * 100_000, "are not JSON"),
        ("\ud800", "are not JSON"),
        ("[]", "have to be a JSON object"),
        ('"city"', "have to be a JSON object"),
        ("{}", '"city" is a required property'),
        ('{"city": 3}', 'city: the value is not of type "string"'),
        ('{"city": "a", "days": 0}', "days: the value is less than the minimum of 1"),
        ('{"city": "a", "unit": "K"}', 'unit: the value is not one of "C" or "F"'),
        ('{"city": "a", "tags": ["x", 1]}', 'tags[1]: the value is not of type "string"'),
        ('{"city": "a", "note": 1}', 'not of type "string", or the value is not of type "null"'),
        ('{"city": "a", "dais": 1}', "did you mean 'days'?"),
        ('{"city": "a", "tags": ' + "[" * 300 + "]" * 300 + "}", "cannot be checked"),
        ('{"city": "a", "tags": [1, 2, 3, 4, 5, 6, 7]}', "; and 2 more."),
    ],
)
def test_bad_arguments_are_told_so_that_a_model_can_correct_them(arguments: str, told: str) -> None:
    with pytest.raises(InvalidArguments) as raised:
        parse_arguments(FORECAST, arguments)
    assert told in str(raised.value)
    assert len(str(raised.value)) < 2000


def test_what_was_sent_is_not_repeated() -> None:
    with pytest.raises(InvalidArguments) as raised:
        parse_arguments(FORECAST, msgspec.json.encode({"city": ["s3cret"] * 1000}).decode())
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (spec(""), "cannot be a tool's name"),
        (spec("two words"), "cannot be a tool's name"),
        (spec("n" * 65), "cannot be a tool's name"),
        (spec("größe"), "cannot be a tool's name"),
        (spec("look\n"), "cannot be a tool's name"),
        (spec(timeout_s=0), "above 0"),
        (spec(timeout_s=1e9), "at most 3600 s"),
        (spec(parameters="{"), "is not a JSON Schema"),
        (spec(parameters="[]"), "has to be that of an object"),
        (spec(parameters='{"type": "string"}'), "has to be that of an object"),
        (spec(parameters='{"type": "object", "properties": {"a": {"type": "texd"}}}'), "is not a"),
        (spec(parameters='{"type": "object", "$ref": "http://127.0.0.1:1/a"}'), "is not a JSON"),
        (spec(parameters='{"type": "object", "$ref": "file:///etc/passwd"}'), "is not a JSON"),
        (spec(parameters='{"type": "object", "$schema": "http://127.0.0.1:1/a"}'), "is not a"),
        (spec(parameters='{"type": "object", "$ref": "#/nowhere"}'), "is not a JSON Schema"),
    ],
)
def test_a_tool_that_cannot_be_offered_is_told_when_it_is_made(wrong: ToolSpec, told: str) -> None:
    with pytest.raises(InvalidTool) as raised:
        checked(wrong)
    assert told in str(raised.value)
    assert "root:" not in str(raised.value)  # nothing of /etc/passwd


def test_a_tool_with_a_bad_schema_cannot_be_called() -> None:
    with pytest.raises(InvalidArguments, match="its schema is not valid"):
        parse_arguments(spec(parameters='{"type": "texd"}'), "{}")


@pytest.mark.parametrize(
    "arguments",
    [
        '{"kr": 1, "kr": 5000}',
        '{"kr": 1, "\\u006br": 5000}',
        '{"to": [{"kr": 1, "kr": 1}]}',
        ' {"a": 1, "kr": {}, "b": 2, "kr": {}} ',
    ],
)
def test_arguments_that_say_something_twice_are_refused(arguments: str) -> None:
    with pytest.raises(InvalidArguments, match=r"say 'kr' twice in one object\. Say it once"):
        parse_arguments(spec(), arguments)


def test_one_name_in_several_objects_is_said_once_in_each() -> None:
    assert parse_arguments(spec(), '{"kr": {"kr": [{"kr": 1}, {"kr": 2}]}}')


# ── schemas that unfold ──────────────────────────────────────────────────────────────────────


def unfolding(links: int, *, by: str = "anyOf") -> str:
    """A chain in which every link refers to the next one twice."""
    chain: dict[str, object] = {
        f"a{n}": {by: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(links)
    }
    chain[f"a{links}"] = {"required": ["nope"]}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": chain}
    return msgspec.json.encode(schema).decode()


def twice(reference: str, **more: object) -> str:
    """A schema that applies itself twice to what is inside."""
    branch = {"properties": {"x": {"$ref": reference}}}
    schema = {"type": "object", "anyOf": [branch, branch], "required": ["nope"], **more}
    return msgspec.json.encode(schema).decode()


@pytest.mark.parametrize("by", ["anyOf", "oneOf", "allOf"])
def test_a_schema_that_unfolds_without_end_is_not_taken(by: str) -> None:
    with pytest.raises(InvalidTool, match="unfolds to more than can be checked"):
        checked(spec(parameters=unfolding(60, by=by)))


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (twice("#top", **{"$anchor": "top"}), "refers to '#top'"),
        (twice("#").replace('"$ref"', '"$dynamicRef"'), "dynamicRef"),
        (
            '{"type":"object","properties":{"x":{"$id":"http://x/","type":"string"}}}',
            r"has an '\$id'",
        ),
    ],
)
def test_a_reference_without_a_bound_is_not_taken(schema: str, told: str) -> None:
    with pytest.raises(InvalidTool, match=told):
        checked(spec(parameters=schema))


def test_arguments_that_a_schema_unfolds_for_are_refused_unchecked() -> None:
    """One that refers to itself is taken: what it costs depends on how deep the arguments are."""
    tool = checked(spec(parameters=twice("#")))
    deep = '{"x":' * 60 + "1" + "}" * 60
    with pytest.raises(InvalidArguments, match="unfolds to more than can be checked"):
        parse_arguments(tool, deep)
    with pytest.raises(InvalidArguments, match="required"):
        parse_arguments(tool, '{"x":{"x":1}}')


def test_many_arguments_for_a_schema_that_unfolds_are_refused_unchecked() -> None:
    schema = msgspec.json.decode(unfolding(14))
    schema["properties"] = {"x": {"items": {"$ref": "#/$defs/a0"}}}
    tool = checked(spec(parameters=msgspec.json.encode(schema).decode()))
    with pytest.raises(InvalidArguments, match="send less at once"):
        parse_arguments(tool, msgspec.json.encode({"x": [{}] * 1000}).decode())
    with pytest.raises(InvalidArguments, match="not what its schema says"):
        parse_arguments(tool, '{"x":[{}]}')


ANYTHING = """{"type": "object", "properties": {"value": {"$ref": "#/$defs/Json"}}, "$defs": {"Json": {"anyOf": [
    {"type": "null"}, {"type": "boolean"}, {"type": "number"}, {"type": "string"},
    {"type": "array", "items": {"$ref": "#/$defs/Json"}},
    {"type": "object", "additionalProperties": {"$ref": "#/$defs/Json"}}]}}}"""


def test_what_refers_to_itself_once_for_each_place_takes_deep_arguments() -> None:
    value: object = 1
    for n in range(40):
        value = [value, 2] if n % 2 else {"left": value, "right": None}
    tool = checked(spec(parameters=ANYTHING))
    parse_arguments(tool, msgspec.json.encode({"value": value}).decode())


# ── plain schemas ────────────────────────────────────────────────────────────────────────────

NAMES = st.sampled_from(["a", "b", "type", "$ref"])
ODD = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | NAMES
WORDS = {
    "type": st.sampled_from(["object", "string", "integer", "text"]),
    "title": st.text(max_size=2),
    "description": st.text(max_size=2),
    "default": ODD,
    "minimum": st.integers(-2, 2) | st.floats(-2, 2),
    "maximum": st.integers(-2, 2),
    "minLength": st.integers(-1, 2),
    "maxItems": st.integers(0, 2),
    "enum": st.lists(NAMES, max_size=3),
    "required": st.lists(NAMES, max_size=3),
    "pattern": st.sampled_from(["a+", "("]),
}


def _nested(schemas: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.fixed_dictionaries(
        {},
        optional={
            **{name: words | ODD for name, words in WORDS.items()},
            "properties": st.dictionaries(NAMES, schemas, max_size=2),
            "items": schemas,
            "anyOf": st.lists(schemas, max_size=2),
            "additionalProperties": schemas | st.booleans(),
        },
    )


SCHEMAS = st.recursive(st.fixed_dictionaries({}, optional=dict(WORDS)), _nested, max_leaves=6)


@given(SCHEMAS)
def test_the_library_takes_every_plain_schema(schema: Any) -> None:
    if is_plain(schema):
        jsonschema_rs.meta.validate(schema)
        jsonschema_rs.validator_for(schema)


def test_the_library_takes_a_plain_schema_of_the_greatest_depth() -> None:
    deepest: Any = {"type": "object"}
    for _ in range(PLAIN_DEPTH_MAX - 1):
        deepest = {"type": "object", "properties": {"inner": deepest}}
    assert is_plain(deepest) and not is_plain({"properties": {"inner": deepest}})
    jsonschema_rs.validator_for(deepest)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"type": "text"},
        {"type": ["string", "null"]},
        {"$ref": "http://elsewhere"},
        {"pattern": "("},
        {"required": ["a", "a"]},
        {"enum": []},
        {"minimum": True},
        {"maxLength": -1},
        {"anyOf": []},
        {"properties": {"a": {"format": "date"}}},
    ],
)
def test_a_schema_with_any_other_form_is_shown_to_the_library(schema: Any) -> None:
    assert not is_plain(schema)


def test_the_schemas_of_usual_tools_are_plain() -> None:
    assert is_plain(msgspec.json.decode(SCHEMA))
