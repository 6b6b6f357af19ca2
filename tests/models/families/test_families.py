"""What each family of models takes: every fact has a source, and every model that a vendor names has a row."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator

import pytest
from anthropic.types.model import Model as ClaudeName
from google.genai._gaos.types.interactions.model import Model as GeminiName
from openai.types.shared.all_models import AllModels

from holdfast.models.families import claude, gemini, gpt
from holdfast.models.families.family import Family, columns_of

ROWS = (*claude.FAMILIES, claude.COMPATIBLE, *gpt.FAMILIES, *gemini.FAMILIES)


def literals(annotation: object) -> Iterator[str]:
    """Every string that a type names, however it is nested."""
    for each in typing.get_args(annotation):
        if isinstance(each, str):
            yield each
        else:
            yield from literals(each)


@pytest.mark.parametrize(
    ("names", "find", "least"),
    [
        (ClaudeName, claude.claude_family, 20),
        (AllModels, gpt.gpt_family, 100),
        (GeminiName, gemini.gemini_family, 35),
    ],
)
def test_every_model_that_a_vendors_sdk_names_has_a_row(
    names: object, find: Callable[[str], Family | None], least: int
) -> None:
    """A model that comes with a new version of an SDK fails here, and gets a row with its facts."""
    named = set(literals(names))
    assert len(named) >= least, "the SDK says it otherwise now"
    assert sorted(name for name in named if find(name) is None) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.names[0])
def test_every_fact_has_a_source_or_says_that_it_has_none(row: Family) -> None:
    told = [name for _, names in row.sources for name in names.split()]
    assert len(told) == len(set(told)) and columns_of(row).issuperset(told), "a column once"
    assert row.unverified == columns_of(row).difference(told)
    for source, _ in row.sources:
        assert source.url.startswith("https://") and len(source.read) == len("2026-11-18")


def test_a_name_leads_to_one_row() -> None:
    names = [name for row in ROWS for name in row.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("model", "begins"),
    [
        ("claude-3-7-sonnet-latest", "claude-3-7-sonnet"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("claude-opus-4@20250514", "claude-opus-4"),
        ("claude-opus-4-1", "claude-opus-4"),
        ("claude-opus-4.7", "claude-opus-4-8"),
        ("anthropic.claude-sonnet-4-6-v1:0", "claude-sonnet-4-6"),
        ("us.anthropic.claude-opus-5-5", "claude-opus-5-5"),
        ("Claude-Sonnet-5", "claude-opus-5"),
        ("house-model", ""),
    ],
)
def test_a_claude_is_found_by_the_names_that_other_platforms_give_it(
    model: str, begins: str
) -> None:
    family = claude.claude_family(model)
    assert family is not None and family.names[0] == begins


@pytest.mark.parametrize("model", ["claude-opus-4-9", "claude-opus-6", "claude-saga-7"])
def test_a_later_version_is_not_taken_for_an_earlier_one(model: str) -> None:
    assert claude.claude_family(model) is None


@pytest.mark.parametrize(
    ("model", "begins"),
    [
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-mini", "gpt-5"),
        ("gpt-5.1-codex-max", "gpt-5.1-codex-max"),
        ("gpt-5-chat-latest", "gpt-5.3-chat"),
        ("gpt-4-0125-preview", "gpt-4-turbo"),
        ("gpt-4-32k-0314", "gpt-4-32k"),
        ("gpt-4-0613", "gpt-4"),
        ("o3-deep-research", "o1"),
    ],
)
def test_a_gpt_is_found_by_the_longest_name(model: str, begins: str) -> None:
    family = gpt.gpt_family(model)
    assert family is not None and family.names[0] == begins
    assert gpt.gpt_family("gpt-7") is None
