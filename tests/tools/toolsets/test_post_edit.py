"""Commands that run after a file was written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.agents.file.agent_file import assemble
from holdfast.tools.execution import execute
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.tool import Json
from holdfast.tools.toolsets.filesystem import AfterWriting, EditCommand, FilesystemToolset
from tests.agents.file.test_agent_file import in_agent
from tests.agents.file.test_docker_fields import read, tools_of
from tests.agents.models import Factory
from tests.tools.tool_calls import Blobs, call_of, said


def files_with(directory: Path, **commands: str) -> FilesystemToolset:
    made = (EditCommand(pattern=f"*.{end}", cmd=cmd) for end, cmd in commands.items())
    after = AfterWriting(
        *made,
        directory=directory,
        environment={"PATH": os.environ["PATH"]},
        cell=Sandbox("off").cell(str(directory)),
    )
    return FilesystemToolset(directory, after_writing=after)


async def ask(toolset: FilesystemToolset, name: str, **arguments: Json) -> tuple[str, str]:
    tool = next(each for each in toolset.listed if each.spec.name == name)
    output = await execute(tool, call_of(arguments), Blobs())
    return output.outcome, said(output)


async def test_a_command_runs_after_each_file_that_it_is_for(tmp_path: Path) -> None:
    toolset = files_with(tmp_path, go='echo "$path" >> log')
    written = tmp_path / "a.go"
    assert (await ask(toolset, "write_file", path="a.go", content="x"))[0] == "ok"
    edits: list[Json] = [{"oldText": "x", "newText": "y"}]
    assert (await ask(toolset, "edit_file", path="a.go", edits=edits))[0] == "ok"
    assert (await ask(toolset, "write_file", path="a.md", content="x"))[0] == "ok"
    assert (await ask(toolset, "read_file", path="a.go"))[1] == "y"
    assert (tmp_path / "log").read_text().split() == [str(written)] * 2


async def test_what_a_command_that_fails_says_is_told(tmp_path: Path) -> None:
    toolset = files_with(tmp_path, go="echo bad syntax; exit 3")
    outcome, words = await ask(toolset, "write_file", path="a.go", content="x")
    assert outcome == "error" and "a.go was written, but" in words
    assert "bad syntax" in words and "exit code 3" in words
    assert (tmp_path / "a.go").read_text() == "x"


async def test_nothing_runs_after_a_file_that_was_not_written(tmp_path: Path) -> None:
    toolset = files_with(tmp_path, go="echo ran > log")
    edits: list[Json] = [{"oldText": "nope", "newText": "y"}]
    assert (await ask(toolset, "edit_file", path="a.go", edits=edits))[0] == "error"
    assert not (tmp_path / "log").exists()


def test_writing_is_not_repeated_after_a_crash_if_a_command_comes_with_it(tmp_path: Path) -> None:
    plain = {each.spec.name: each.spec for each in FilesystemToolset(tmp_path).listed}
    more = {each.spec.name: each.spec for each in files_with(tmp_path, go="true").listed}
    assert plain["write_file"].idempotent and not more["write_file"].idempotent


@pytest.mark.parametrize("roots", ["", "roots: [.], "])
async def test_a_file_says_what_runs(tmp_path: Path, roots: str) -> None:
    text = in_agent(
        "permissions: {allow: [write_file]}\n"
        f"toolsets: [{{type: filesystem, {roots}tools: [read_file, write_file], "
        "post_edit: [{path: '*.go', cmd: './format.sh $path'}]}]"
    )
    file = read(text, tmp_path, PATH=os.environ["PATH"])
    assert file.warnings == ()
    assert str(tmp_path / "format.sh") in file.files.readable, "no tool can change what runs"
    root = (await assemble(file, Factory())).agents["root"]
    assert "write_file" in await tools_of(root)
