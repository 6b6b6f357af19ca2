"""Declared commands: arguments are variables, never shell; the server's secrets stay with the server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.items import Blob, File
from holdfast.tools.execution import execute
from holdfast.tools.process import Exit
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.schema import InvalidArguments, InvalidTool, parse_arguments
from holdfast.tools.tool import Json, ToolOutput
from holdfast.tools.toolsets.script import (
    ScriptCommand,
    ScriptTool,
    ScriptToolset,
    as_variables,
    in_words,
)
from tests.tools.tool_calls import KEY, Blobs, call_of, said

TEXT: Json = {"type": "string"}

OURS = {
    "PATH": os.environ["PATH"],
    "HOME": "/people/ada",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "OPENAI_API_KEY": "sk-secret",
    "AWS_SECRET_ACCESS_KEY": "also",
    "GITHUB_TOKEN": "ghp",
}


def made(
    script: ScriptCommand,
    *,
    directory: Path = Path("/"),
    name: str = "look",
    sandbox: Sandbox | None = None,
) -> ScriptTool:
    return ScriptTool(
        name, script, directory=directory, environment=OURS, sandbox=sandbox or Sandbox("off")
    )


async def ran(
    script: ScriptCommand,
    arguments: Mapping[str, Json] | None = None,
    *,
    directory: Path = Path("/"),
) -> ToolOutput:
    return await execute(made(script, directory=directory), call_of(arguments), Blobs())


async def test_a_command_is_described_by_its_declaration() -> None:
    script = ScriptCommand(
        cmd="curl $url",
        description="Fetch a page.",
        args={"url": {"type": "string", "description": "Where."}, "n": {"type": "integer"}},
        required=("url",),
        read_only=True,
        idempotent=True,
    )
    toolset = ScriptToolset({"fetch": script}, directory=Path("/"), environment=OURS)
    (tool,) = await toolset.tools()
    assert (tool.spec.name, tool.spec.description) == ("fetch", "Fetch a page.")
    assert (tool.spec.read_only, tool.spec.idempotent) == (True, True)
    assert msgspec.json.decode(tool.spec.parameters) == {
        "type": "object",
        "properties": {
            "url": {"type": "string", "description": "Where."},
            "n": {"type": "integer"},
        },
        "required": ["url"],
        "additionalProperties": False,
    }
    await toolset.close()


def test_unless_said_otherwise_all_arguments_are_required() -> None:
    spec = made(ScriptCommand(cmd="true", args={"a": TEXT, "b": TEXT})).spec
    with pytest.raises(InvalidArguments, match='"b" is a required property'):
        parse_arguments(spec, '{"a": "1"}')


NASTY = [
    "; echo pwned",
    "$(echo pwned)",
    "`echo pwned`",
    "' ; echo pwned; '",
    '" ; echo pwned; "',
    "a\necho pwned",
    "${IFS}echo${IFS}pwned",
    "$HOME",
    "\\",
    "() { :; }; echo pwned",
    "-n",
    "*",
    "",
    "größe 😀",
]


@pytest.mark.parametrize("value", NASTY)
async def test_an_argument_is_a_value_and_never_shell(value: str) -> None:
    script = ScriptCommand(cmd='printf "%s" "$word"', args={"word": TEXT})
    told = said(await ran(script, {"word": value}))
    assert told == (value or "[exit code 0, no output]")


@settings(max_examples=15)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=50))
async def test_whatever_a_model_says_arrives_as_it_was_said(value: str) -> None:
    script = ScriptCommand(cmd='printf "%s" "$word"', args={"word": TEXT})
    assert said(await ran(script, {"word": value})) == value


@pytest.mark.parametrize(
    ("value", "variable"),
    [
        ("text", "text"),
        (3, "3"),
        (2.5, "2.5"),
        (True, "true"),
        ([1, "a"], '[1,"a"]'),
        ({"a": None}, '{"a":null}'),
        ("half \ud800", "half ?"),
    ],
)
def test_arguments_become_variables(value: Json, variable: str) -> None:
    assert as_variables({"a": value, "b": None}) == {"a": variable}


@pytest.mark.parametrize(
    ("value", "told"),
    [("a\0b", "contains a NUL"), ("x" * (limits.script_argument_bytes_max + 1), "longer than")],
)
async def test_what_cannot_be_a_variable_is_told(value: str, told: str) -> None:
    output = await ran(ScriptCommand(cmd="true", args={"word": TEXT}), {"word": value})
    assert output.outcome == "error"
    assert told in said(output)


async def test_a_command_sees_what_is_listed_and_declared_and_nothing_else() -> None:
    script = ScriptCommand(
        cmd="env", args={"word": TEXT}, env={"COLOUR": "blue"}, pass_env=("GITHUB_TOKEN",)
    )
    seen = dict(line.split("=", 1) for line in said(await ran(script, {"word": "w"})).splitlines())
    for own in ("PWD", "OLDPWD", "SHLVL", "_"):  # the shell's
        seen.pop(own, None)
    assert seen == {
        "PATH": OURS["PATH"],
        "HOME": "/people/ada",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "COLOUR": "blue",
        "GITHUB_TOKEN": "ghp",
        "word": "w",
        "HOLDFAST_CALL_KEY": KEY,
    }


async def test_a_long_output_is_shown_by_its_ends_and_kept_whole() -> None:
    blobs = Blobs()
    tool = made(ScriptCommand(cmd="i=0; while [ $i -lt 9000 ]; do echo line $i; i=$((i+1)); done"))
    output = await execute(tool, call_of(), blobs)
    shown = said(output)
    assert shown.startswith("line 0\n") and shown.endswith("line 8999\n")
    assert "characters left out" in shown
    file = output.content[1]
    assert isinstance(file, File) and isinstance(file.source, Blob)
    assert blobs.kept[file.source.digest].count(b"\n") == 9000


async def test_of_an_enormous_output_the_ends_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "tool_output_bytes_max", 50_000)
    blobs = Blobs()
    tool = made(
        ScriptCommand(cmd="echo first; head -c 200000 /dev/zero | tr '\\0' x; echo; echo last")
    )
    output = await execute(tool, call_of(), blobs)
    assert said(output).startswith("first\n") and said(output).endswith("last\n")
    assert "bytes left out" in said(output)
    assert blobs.kept == {}


async def test_bytes_that_are_no_text_are_replaced() -> None:
    assert said(await ran(ScriptCommand(cmd="printf 'a\\377b'"))) == "a\ufffdb"


@pytest.mark.parametrize(
    ("ended", "outcome", "told"),
    [
        (Exit(output=b"a\n", code=0), "ok", "a\n"),
        (Exit(output=b"", code=0), "ok", "[exit code 0, no output]"),
        (Exit(output=b"no\n", code=3), "error", "no\n[exit code 3]"),
        (Exit(output=b"", code=3), "error", "[exit code 3]"),
        (Exit(output=b"", code=0, killed_by=9), "error", "[the command was ended by signal 9]"),
        (
            Exit(output=b"so far", why_stopped="did not finish within 3 s"),
            "error",
            "so far\n[the command did not finish within 3 s and was stopped]",
        ),
    ],
)
def test_the_model_is_told_how_it_ended(ended: Exit, outcome: str, told: str) -> None:
    output = in_words(ended)
    assert (output.outcome, said(output)) == (outcome, told)


async def test_where_a_command_runs(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "link").symlink_to("inner")
    for given_, where in {
        "": tmp_path,
        "inner": tmp_path / "inner",
        "./inner/../inner": tmp_path / "inner",
        "link": tmp_path / "inner",
        "/": Path("/"),
    }.items():
        told = await ran(ScriptCommand(cmd="pwd -P", working_dir=given_), directory=tmp_path)
        assert said(told) == f"{where.resolve()}\n"


@pytest.mark.parametrize("working_dir", ["..", "inner/../..", "out", "out/../x"])
def test_a_relative_directory_does_not_lead_out(working_dir: str, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "out").symlink_to("..")
    with pytest.raises(InvalidTool, match="leads out of"):
        made(ScriptCommand(cmd="true", working_dir=working_dir), directory=base)


async def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    output = await ran(ScriptCommand(cmd="true", working_dir="gone"), directory=tmp_path)
    assert output.outcome == "error"
    assert "could not be started" in said(output)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"cmd": " "}, "has no command"),
    ({"cmd": "a\0b"}, "has no command"),
    ({"args": {"a-b": TEXT}}, "becomes an environment variable"),
    ({"args": {"": TEXT}}, "becomes an environment variable"),
    ({"args": {"a=b": TEXT}}, "becomes an environment variable"),
    ({"args": {"größe": TEXT}}, "becomes an environment variable"),
    ({"args": {"PATH": TEXT}}, "take another name"),
    ({"args": {"LD_PRELOAD": TEXT}}, "take another name"),
    ({"args": {"BASH_ENV": TEXT}}, "take another name"),
    ({"args": {"HOLDFAST_CALL_KEY": TEXT}}, "take another name"),
    ({"args": {"a": TEXT}, "required": ("b",)}, "requires the argument 'b'; there are: a"),
    ({"args": {"a": {"type": "texd"}}}, "is not a JSON Schema"),
    ({"args": {"a": {"$ref": "http://127.0.0.1:1/"}}}, "is not a JSON Schema"),
    ({"env": {"a b": "c"}}, "declares a variable with the name 'a b'"),
    ({"pass_env": ("a=b",)}, "declares a variable with the name 'a=b'"),
    ({"timeout_s": 0.0}, "has to be above 0 s"),
    ({"timeout_s": 1e6}, "at most 3600 s"),
]


@pytest.mark.parametrize(("fields", "told"), BAD)
def test_a_declaration_that_cannot_be_a_tool_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidTool) as raised:
        made(ScriptCommand(**{"cmd": "true", **fields}))
    assert told in str(raised.value)


def test_a_bad_name_is_refused() -> None:
    with pytest.raises(InvalidTool, match="cannot be a tool's name"):
        made(ScriptCommand(cmd="true"), name="two words")
