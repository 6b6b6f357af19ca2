"""The published schema says what the loader does, as far as a schema can."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec
import pytest

from holdfast.agents.file.document import read_document
from holdfast.agents.file.schema import DESCRIPTIONS, agent_file_schema
from tests import repository
from tests.agents.file.test_agent_file import WARNED, in_agent, in_model, in_script
from tests.agents.file_rules import real_files

PUBLISHED = repository.ROOT / "docs/reference/agent-file.schema.json"
SCHEMA: dict[str, Any] = msgspec.json.decode(agent_file_schema())
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)


def fits(text: str) -> bool:
    return VALIDATOR.is_valid(read_document(text.encode()).value)


def test_what_is_published_is_what_the_shapes_say() -> None:
    assert PUBLISHED.read_bytes() == agent_file_schema(), "run `make schema`"


def test_it_is_a_schema_by_its_own_dialect() -> None:
    jsonschema_rs.meta.validate(SCHEMA)


def test_every_field_says_what_it_is_for_and_nothing_else_does() -> None:
    silent, used = [], set()
    for kind, schema in SCHEMA["$defs"].items():
        for field, each in schema["properties"].items():
            if "description" not in each:
                silent.append(f"{kind}.{field}")
            used |= {f"{kind}.{field}", field}
    assert silent == []
    assert set(DESCRIPTIONS) <= used


def test_our_examples_fit() -> None:
    texts = real_files()
    assert len(texts) == 9
    for text in texts:
        VALIDATOR.validate(read_document(text.encode()).value)


@pytest.mark.parametrize("text", [text for text, _ in WARNED])
def test_what_is_only_warned_about_fits(text: str) -> None:
    assert fits(text)


@pytest.mark.parametrize(
    "text",
    [
        "agents: []",
        "version: 2",
        in_agent("modle: x"),
        in_agent("description: 3"),
        in_agent("toolsets: [{type: scrpt}]"),
        in_agent("toolsets: [{type: think, shel: 3}]"),
        in_agent("toolsets: [null]"),
        in_agent("commands: {fix: 3}"),
        in_agent("hooks: {pre_tool_use: [{matcher: a}]}"),
        in_model("temperature: hot"),
        in_script("cmd: a\nread_only: 1"),
    ],
)
def test_what_is_refused_for_its_shape_does_not_fit(text: str) -> None:
    assert not fits(text)


@pytest.mark.parametrize(
    "text",
    [
        in_agent("commands: {fix: Fix it, plan: {instruction: Plan}}"),
        in_agent("commands: [{fix: Fix it}]"),
        in_agent("structured_output: {name: a, schema: {type: object}}"),
        in_model("thinking_budget: 1024"),
    ],
)
def test_short_forms_fit(text: str) -> None:
    assert fits(text)
