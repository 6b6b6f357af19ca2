"""Files of older versions are read as current ones, and complaints are about the file as it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.file import versions
from holdfast.agents.file.document import Document, DocumentNode, Where, read_document
from holdfast.agents.file.versions import CURRENT, STEPS, NotRead
from tests.agents.file.test_agent_file import SMALL, in_agent, problems, read, warnings
from tests.agents.file_rules import judge, real_files

READ = (*STEPS, CURRENT)


def upgraded(text: str) -> Document:
    found = versions.current(read_document(text.encode()))
    assert isinstance(found, Document)
    return found


def said_as(text: str, version: int) -> str:
    """The same file, said to be of that version."""
    lines = [line for line in text.splitlines() if not line.startswith("version:")]
    return "\n".join((f'version: "{version}"', *lines))


# ── which are read ──


@pytest.mark.parametrize("version", READ)
@pytest.mark.parametrize("quote", ["", '"'])
def test_every_version_is_read(version: int, quote: str) -> None:
    assert read(f"version: {quote}{version}{quote}\n{SMALL}").warnings == ()


def test_a_file_without_a_version_has_the_current_one() -> None:
    document = read_document(SMALL.encode())
    assert versions.current(document) is document


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("16", "is newer than what is read here (0 to 15); write '15' if the file uses nothing that is newer"),
        ("seven", "expected a version of the format, such as '15'"),
        ("'-1'", "expected a version of the format"),
    ],
)  # fmt: skip
def test_any_other_is_refused_with_the_way_out(version: str, told: str) -> None:
    (found,) = problems(f"version: {version}\n{SMALL}")
    assert found.startswith(f"shop.yaml:1:1: version: {told}")


# ── nothing else changes ──


@pytest.mark.parametrize("version", STEPS)
@pytest.mark.parametrize("text", real_files(), ids=lambda text: text[:30])
def test_a_file_that_uses_nothing_that_changed_comes_out_as_it_went_in(
    text: str, version: int
) -> None:
    before, after = read_document(said_as(text, version).encode()), upgraded(said_as(text, version))
    assert isinstance(before.value, dict)
    assert after.value == {**before.value, "version": str(CURRENT)}
    for where in _places(before.root, ()):
        assert after.mark(where) == before.mark(where)
        assert after.written(where) == where


_names = st.text("abcdefgh", min_size=1, max_size=4)
_trees = st.recursive(
    st.none() | st.booleans() | st.integers() | _names,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_names, below, max_size=3),
    max_leaves=12,
)


@given(tree=st.dictionaries(_names | st.just("agents"), _trees), version=st.sampled_from(READ))
def test_what_no_step_knows_of_is_never_touched(tree: dict[str, object], version: int) -> None:
    root = _node({**tree, "version": version})
    found = versions.current(Document(root))
    assert isinstance(found, Document)
    assert found.value == {**tree, "version": version if version == CURRENT else str(CURRENT)}


def _node(value: object) -> DocumentNode:
    mark = read_document(b"a").root.mark
    if isinstance(value, dict):
        return DocumentNode(mark=mark, value={name: _node(each) for name, each in value.items()})
    if isinstance(value, list):
        return DocumentNode(mark=mark, value=[_node(each) for each in value])
    assert value is None or isinstance(value, bool | int | str)
    return DocumentNode(mark=mark, value=value)


def _places(node: DocumentNode, where: Where) -> list[Where]:
    below: list[tuple[str | int, DocumentNode]] = []
    if isinstance(node.value, dict):
        below = [*node.value.items()]
    elif isinstance(node.value, list):
        below = [*enumerate(node.value)]
    return [where, *(place for key, each in below for place in _places(each, (*where, key)))]


# ── each change ──


@pytest.mark.parametrize("version", READ)
def test_a_sandbox_that_was_dropped_after_5_is_refused_and_never_left_out(version: int) -> None:
    """Somebody relied on it: commands would run where they were not meant to."""
    shell = in_agent("toolsets:\n  - type: shell\n    sandbox: {paths: [.]}\n")
    (found,) = problems(f"version: {version}\n{shell}")
    assert found.startswith("shop.yaml:7:9: agents.root.toolsets[0].sandbox: was dropped")


@pytest.mark.parametrize("version", [5, 6])
def test_sources_of_documents_are_toolsets_since_7(version: int) -> None:
    text = f"version: {version}\n" + in_agent(
        "rag: [docs, wiki]\ntoolsets:\n  - type: think\nsub_agents: [nobody]\n"
    )
    document = upgraded(text)
    assert isinstance(document.value, dict)
    agents = document.value["agents"]
    assert agents == {
        "root": {
            "model": "openai/gpt-5",
            "toolsets": [
                {"type": "think"},
                {"type": "rag", "ref": "docs"},
                {"type": "rag", "ref": "wiki"},
            ],
            "sub_agents": ["nobody"],
        }
    }
    assert document.mark(("agents", "root", "toolsets", 2)).line == 5
    assert document.written(("agents", "root", "toolsets", 2, "ref")) == (
        *("agents", "root", "rag", 1, "ref"),
    )
    told = warnings(text.replace("[nobody]", "[]"))
    assert told[0].startswith("shop.yaml:5:11: agents.root.rag[0].type: rag: refused")
    assert len(told) == 2


def test_what_was_moved_is_told_of_in_the_field_that_it_was_written_in() -> None:
    (found,) = warnings("version: 6\n" + in_agent("rag:\n  - docs\n"))
    assert found.startswith("shop.yaml:6:9: agents.root.rag[0].type: rag: refused")


@pytest.mark.parametrize(
    "fields", ["rag: docs", "rag: [docs]\ntoolsets: think", "rag: [docs]\ntoolsets:", "rag: [{}]"]
)
def test_a_step_leaves_what_it_cannot_make_sense_of_to_the_reader(fields: str) -> None:
    judge(("version: 6\n" + in_agent(fields)).encode())


OLDEST = """\
version: 0
models:
  m: {type: openai, model: gpt-5}
agents:
  root:
    model: m
    think: true
    todo: {shared: true}
    memory: {path: m.db}
    toolsets: [{type: fetch}]
"""


def test_what_agents_could_do_by_themselves_are_toolsets_since_1() -> None:
    document = upgraded(OLDEST)
    assert isinstance(document.value, dict)
    assert document.value["models"] == {"m": {"provider": "openai", "model": "gpt-5"}}
    assert document.value["agents"] == {
        "root": {
            "model": "m",
            "toolsets": [
                {"type": "think"},
                {"type": "todo", "shared": True},
                {"type": "memory", "path": "m.db"},
                {"type": "fetch"},
            ],
        }
    }
    assert document.written(("models", "m", "provider")) == ("models", "m", "type")
    assert document.written(("agents", "root", "toolsets", 1, "shared")) == (
        *("agents", "root", "todo", "shared"),
    )
    assert read(OLDEST).warnings == ()


@pytest.mark.parametrize("version", ["", "version:\n", "version: ''\n"])
def test_a_file_without_a_version_may_be_in_any(version: str) -> None:
    text = OLDEST.replace("version: 0\n", version)
    found, oldest = upgraded(text).value, upgraded(OLDEST).value
    assert isinstance(found, dict) and isinstance(oldest, dict)
    assert (found["agents"], found["models"]) == (oldest["agents"], oldest["models"])
    assert len(read(text).agents[0].tools.toolsets) == 4


@pytest.mark.parametrize("fields", ["think: false", "think: maybe", "todo: 3", "memory: []"])
def test_what_is_not_wanted_or_makes_no_sense_becomes_no_toolset(fields: str) -> None:
    value = upgraded("version: 0\n" + in_agent(fields)).value
    assert isinstance(value, dict) and isinstance(value["agents"], dict)
    root = value["agents"]["root"]
    assert isinstance(root, dict) and "toolsets" not in root
    judge(("version: 0\n" + in_agent(fields)).encode())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("env: {A: b}\n" + SMALL, "env: was dropped by docker-agent after version 1"),
        ("agents: {root: {model: m}}\nmodels: {m: {provider: a, model: b, env: {A: b}}}", "models.m.env: was dropped"),
        (in_agent("toolsets: [{type: mcp, command: a, env_file: x}]"), "toolsets[0].env_file: was dropped"),
    ],
)  # fmt: skip
def test_variables_that_were_dropped_after_1_are_refused(text: str, told: str) -> None:
    (found,) = problems(f"version: 1\n{text}")
    assert told in found


def test_a_file_of_5_takes_every_step() -> None:
    assert upgraded("version: 5\n" + in_agent("rag: [docs]")).value == {
        "version": str(CURRENT),
        "agents": {"root": {"model": "openai/gpt-5", "toolsets": [{"type": "rag", "ref": "docs"}]}},
    }


def test_a_version_that_is_not_read_is_a_value() -> None:
    assert isinstance(versions.current(read_document(b"version: 99")), NotRead)
