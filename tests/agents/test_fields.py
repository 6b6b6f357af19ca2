"""Every field of docker-agent's format is run, refused with a way out, or cannot matter; nothing is left out in silence.

The corpus has a file for each of the three, one for the types of toolsets that are not run, and one for each version
that says something in its own way; together they use every field of docker-agent's schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from holdfast.agents.file import versions
from holdfast.agents.file.agent_file import Checked, check_agent_file
from holdfast.agents.file.dispositions import (
    CANNOT_MATTER,
    REFUSED,
    TOOLSET_FIELDS,
    TOOLSETS_REFUSED,
)
from holdfast.agents.file.document import Document, Plain, Where, read_document
from holdfast.agents.file.shape_base import Shape
from holdfast.agents.file.shape_checks import Findings, S
from holdfast.agents.file.shapes import FileShape
from holdfast.agents.file.toolsets.toolset_shapes import AnyToolset
from holdfast.agents.file.versions import CURRENT
from tests import repository
from tests.agents.field_table import FIELDS, PAGE, SHAPES, TOOLSETS, fate, rows, table
from tests.agents.file.test_agent_file import in_agent
from tests.agents.schema_walk import KINDS, LIST, SCHEMAS, listed, of_schemas, written

CORPUS = repository.ROOT / "tests/agents/corpus"
ENVIRONMENT = {"BED": "north", "HOME": "/"}


@pytest.fixture
def garden(tmp_path: Path) -> Path:
    for name in ("rules.md", "cutter.md"):
        (tmp_path / name).write_text("Be kind.")
    return tmp_path


def checked(name: str, directory: Path, *, version: int = CURRENT, trusted: bool = True) -> Checked:
    text = (CORPUS / name).read_text(encoding="utf-8").replace('"15"', f'"{version}"')
    return check_agent_file(
        text.encode(), place=name, directory=directory, environment=ENVIRONMENT, trusted=trusted
    )


OUR_OWN = {"python"}
"""Toolsets that docker-agent does not have."""

# ── the list ──


@pytest.mark.parametrize("kind", FIELDS)
def test_every_field_has_a_fate(kind: str) -> None:
    for field in FIELDS[kind].split():
        assert fate(kind, field), field


def test_a_field_that_nobody_decided_about_has_none() -> None:
    with pytest.raises(KeyError):
        fate("an agent", "colour")


def test_every_toolset_has_a_fate() -> None:
    run = {str(each.__struct_config__.tag) for each in get_args(AnyToolset)}
    assert run - OUR_OWN | TOOLSETS_REFUSED.keys() == set(TOOLSETS)
    assert not run & TOOLSETS_REFUSED.keys()


def test_what_is_refused_or_left_out_is_in_the_list() -> None:
    listed = {(SHAPES[kind], field) for kind, names in FIELDS.items() for field in names.split()}
    for refused in REFUSED.items():
        assert {(refused[0], each) for each in refused[1]} <= listed
    for shape in (shape for shape in CANNOT_MATTER if shape not in get_args(AnyToolset)):
        assert {(shape, each) for each in CANNOT_MATTER[shape]} <= listed


def test_the_reference_has_a_row_for_each() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), "run `make reference`"


# ── the corpus ──


def test_what_is_run_loads_whole(garden: Path) -> None:
    found = checked("runs.yaml", garden)
    told = [str(each) for each in (*found.problems, *found.warnings)]
    assert [each for each in told if "Docker's MCP gateway is not installed" not in each] == []


@pytest.mark.parametrize("version", range(CURRENT + 1))
def test_whatever_the_version(garden: Path, version: int) -> None:
    assert not checked("runs.yaml", garden, version=version).problems


def test_what_cannot_matter_loads_with_a_warning_for_each(garden: Path) -> None:
    found = checked("left-out.yaml", garden)
    assert not found.problems
    told = {each.field.rpartition(".")[2] for each in found.warnings}
    wanted = {
        field for kind, field, what, _ in rows() if what == "cannot matter" and kind in FIELDS
    }
    assert told == wanted


def test_what_is_refused_is_told_with_its_place_and_a_way_out(garden: Path) -> None:
    found = checked("refused.yaml", garden)
    lines = (CORPUS / "refused.yaml").read_text(encoding="utf-8").splitlines()
    told = {each.field.rpartition(".")[2] for each in found.problems}
    assert told == {
        field for kind, field, what, _ in rows() if what == "refused" and kind in FIELDS
    }
    for problem in found.problems:
        name = problem.field.rpartition(".")[2]
        assert lines[problem.mark.line - 1][problem.mark.column - 1 :].startswith(f"{name}:")


def test_a_url_may_declare_none_of_the_ways_to_act(garden: Path) -> None:
    told = {each.field for each in checked("runs.yaml", garden, trusted=False).problems}
    refused = {
        "agents.root.hooks", "agents.root.add_environment_info", "agents.root.add_prompt_files",
        "agents.cutter.instruction_file", "toolsets.weather", "providers.shed.base_url", "providers.shed.token_key",
        "providers.shed.headers", "models.careful.base_url", "models.careful.token_key",
        "agents.root.toolsets[3].headers", "agents.cutter.toolsets[0]",
    }  # fmt: skip
    document = read_document((CORPUS / "runs.yaml").read_bytes()).value
    assert isinstance(document, dict)
    toolsets: Any = document["agents"]["root"]["toolsets"]  # type: ignore[index,call-overload]
    refused |= {
        f"agents.root.toolsets[{n}]"
        for n, each in enumerate(toolsets)
        if each["type"] not in HARMLESS
    }
    assert refused <= told


HARMLESS = set(
    "fetch think todo memory plan session_plan tasks model_picker user_prompt background_agents open_url".split()
)
"""Toolsets that act on nothing but our store; `fetch` has a guard of its own, and no headers from a URL."""


class _Recording(Findings):
    """Notes each field of each kind that a document has."""

    def __init__(self, document: Document) -> None:
        super().__init__("corpus", document)
        self.seen: set[tuple[type[Shape], str]] = set()

    def shaped(self, value: Plain, kind: type[S], where: Where) -> S | None:
        self.seen |= {(kind, str(name)) for name in value} if isinstance(value, dict) else set()
        return super().shaped(value, kind, where)


def _used() -> Mapping[str, set[tuple[type[Shape], str]]]:
    found: dict[str, set[tuple[type[Shape], str]]] = {}
    for path in sorted(CORPUS.glob("*.yaml")):
        document = versions.current(read_document(path.read_bytes()))
        assert isinstance(document, Document)
        recording = _Recording(document)
        recording.shaped(document.value, FileShape, ())
        found[path.name] = recording.seen
    return found


def test_the_corpus_uses_every_field() -> None:
    used = set[tuple[type[Shape], str]]().union(*_used().values())
    missing = [
        f"{kind}: {field}"
        for kind, names in FIELDS.items()
        for field in names.split()
        if (SHAPES[kind], field) not in used
    ]
    assert missing == []


def _named(value: Plain) -> Iterator[str]:
    """Every name of a field below this value, and every type."""
    for name, each in value.items() if isinstance(value, dict) else ():
        yield name
        if name == "type" and isinstance(each, str):
            yield f"type: {each}"
        yield from _named(each)
    for each in value if isinstance(value, list) else ():
        yield from _named(each)


@pytest.mark.parametrize("kind", sorted(listed()))
def test_the_corpus_uses_every_field_of_the_schemas(kind: str) -> None:
    used = {
        name
        for path in CORPUS.glob("*.yaml")
        for name in _named(read_document(path.read_bytes()).value)
    }
    wanted = {f"type: {each}" if kind == "a toolset" else each for each in listed()[kind]}
    assert wanted - used == set()


def test_a_file_is_served_without_the_toolsets_that_are_not_run(garden: Path) -> None:
    found = checked("not-run.yaml", garden)
    assert found.problems == ()
    told = [each.field for each in found.warnings]
    assert told == ["rag", *(f"agents.root.toolsets[{n}].type" for n in range(7))]


@pytest.mark.parametrize("name", ["version-0.yaml", "version-6.yaml"])
def test_what_older_files_say_is_understood(garden: Path, name: str) -> None:
    found = checked(name, garden)
    assert found.problems == ()
    assert all("rag" in each.field for each in found.warnings)


def test_toolsets_that_are_refused_are_refused_with_all_their_fields() -> None:
    for tag in TOOLSETS_REFUSED:
        text = in_agent(f"toolsets: [{{type: {tag}, anything: 1}}]")
        found = check_agent_file(text.encode(), place="a.yaml", directory=Path("/"), environment={})
        assert found.problems == ()
        assert [each.field for each in found.warnings] == ["agents.root.toolsets[0].type"]


# ── docker-agent's own schemas ──


def _known(kind: str) -> set[str]:
    """The fields of a kind in our table."""
    return {field for where, field, *_ in rows() if where == kind}


@pytest.mark.parametrize("kind", sorted(listed()))
def test_every_field_of_the_schemas_has_a_row(kind: str) -> None:
    fields = listed()[kind]
    if kind == "a toolset":
        assert fields == set(TOOLSETS)
    elif kind == "Toolset":
        of_toolsets = {field for where, field, *_ in rows() if where.startswith("toolset `")}
        assert fields - {"type"} <= of_toolsets | _known("every toolset")
        assert fields - {"type"} == TOOLSET_FIELDS
    elif kind.startswith("RAGConfig"):
        assert fields - {"description", "instruction"} <= _known("toolset `rag`, `rag_config`")
    elif kind == "RAGToolset":
        assert fields <= _known("toolset `rag`, `rag_config`") | _known("every toolset")
    else:
        assert fields <= _known(KINDS[kind]), kind


def test_the_list_is_what_the_schemas_say() -> None:
    if not SCHEMAS:
        return  # the list was compared where they lie beside the checkout
    assert written(of_schemas()) == LIST.read_text(encoding="utf-8"), (
        "run `python -m tests.agents.schema_walk`"
    )
