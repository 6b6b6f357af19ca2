"""Whatever is in an agent file: it is used, or told about with its place, and nothing in it is done."""

from __future__ import annotations

import os
import subprocess
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.file_rules import judge, nothing_is_done, real_files

FILES = real_files()
ODD = [
    "null", "true", "-1", "1e400", "0x1F", "''", "[]", "{}", "[[[]]]", "{a: {b: c}}", "*a", "&a b", "!!python/name:os.system",
    "!!binary aGk=", "<<: *a", "? [a]", "|", ">-", "\t", "\x00", "\x85", "\ufeff", "\u2028", "${env.HOME}", "$(touch x)", "../..",
    "docker:x", "https://x/y", "🦀", "- ", ": ", "#", "---", "...", "%YAML 1.1", "script", "mcp", "root",
]  # fmt: skip


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    judge(data)


@given(st.data())
def test_a_real_file_with_lines_changed(data: st.DataObject) -> None:
    """Lines lost, doubled, moved, indented otherwise, cut off: what happens to files in editors and merges."""
    lines = data.draw(st.sampled_from(FILES)).splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        n = data.draw(st.integers(0, len(lines) - 1))
        line = lines[n]
        m = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(
            st.sampled_from(["lose", "double", "move", "indent", "cut", "odd", "join"])
        )
        match change:
            case "lose" if len(lines) > 1:
                del lines[n]
            case "double":
                lines.insert(m, line)
            case "move":
                lines[n], lines[m] = lines[m], lines[n]
            case "indent":
                lines[n] = " " * data.draw(st.integers(0, 12)) + line.lstrip()
            case "cut":
                lines[n] = line[: data.draw(st.integers(0, len(line)))]
            case "odd":
                at = data.draw(st.integers(0, len(line)))
                lines[n] = line[:at] + data.draw(st.sampled_from(ODD)) + line[at:]
            case _:
                lines[n] = line + lines[m].strip()
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    judge(end.join(lines).encode())


@given(st.data())
def test_a_real_file_with_values_changed(data: st.DataObject) -> None:
    """A value becomes one of another kind, from anywhere else in a file; a key has another name."""
    tree = yaml.safe_load(data.draw(st.sampled_from(FILES)))
    other = yaml.safe_load(data.draw(st.sampled_from(FILES)))
    for _ in range(data.draw(st.integers(1, 3))):
        held, key = data.draw(st.sampled_from(places(tree)))
        source, name = data.draw(st.sampled_from(places(other)))
        match data.draw(st.sampled_from(["lose", "other", "odd", "rename"])):
            case "lose":
                held.pop(key)
            case "other":
                held[key] = deepcopy(source[name])
            case "odd":
                held[key] = data.draw(
                    st.sampled_from([None, True, 0, -1, 1.5, "", "x" * 200, [], {}])
                )
            case _ if isinstance(held, dict):
                held[str(name)] = held.pop(key)
        if not places(tree):
            break
    judge(yaml.safe_dump(tree, allow_unicode=True).encode())


def places(tree: Any) -> list[tuple[Any, Any]]:  # a container, and where in it
    found: list[tuple[Any, Any]] = []
    entries = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in entries:
        found += [(tree, key), *places(value)]
    return found


@pytest.mark.parametrize("text", FILES)
def test_real_files_are_used_as_they_stand(text: str) -> None:
    assert judge(text.encode()).problems == () or "add_prompt_files" in text or "roots" in text


def test_the_judge_sees_what_is_done() -> None:
    """The checks themselves are on trial."""
    with pytest.raises(AssertionError, match=r"subprocess\.Popen"), nothing_is_done():
        subprocess.run(["true"], check=True)
    with pytest.raises(AssertionError, match="open"), nothing_is_done():
        open(os.devnull, "w")  # noqa: SIM115
