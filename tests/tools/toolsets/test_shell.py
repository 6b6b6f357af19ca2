"""Commands that a model writes: they need a permission, see no secret, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.core.items import Permissions
from holdfast.tools.execution import execute
from holdfast.tools.permissions import permission_for
from holdfast.tools.tool import Json, Tool, ToolOutput
from holdfast.tools.toolsets.shell import ShellToolset
from tests.tools.tool_calls import Blobs, Pipe, call_of, leap, said

OURS = {"PATH": os.environ["PATH"], "HOME": "/people/ada", "OPENAI_API_KEY": "sk-secret"}


async def shell(directory: Path) -> Tool:
    toolset = ShellToolset(directory, env={"DESK": "front"}, environment=OURS)
    (tool,) = await toolset.tools()
    return tool


async def ran(directory: Path, cmd: str, **arguments: Json) -> ToolOutput:
    return await execute(await shell(directory), call_of({"cmd": cmd, **arguments}), Blobs())


async def test_it_runs_only_where_a_rule_allows_it(tmp_path: Path) -> None:
    spec = (await shell(tmp_path)).spec
    assert not spec.read_only and not spec.idempotent
    assert permission_for(spec, arguments={}) == "deny"
    assert permission_for(spec, Permissions(allow=("shell",)), arguments={}) == "allow"


async def test_a_command_runs_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    assert said(await ran(tmp_path, "pwd")).strip() == str(tmp_path)
    assert said(await ran(tmp_path, "pwd", cwd="below")).strip() == str(tmp_path / "below")
    gone = await ran(tmp_path, "pwd", cwd="gone")
    assert (gone.outcome, "could not be started" in said(gone)) == ("error", True)


async def test_how_it_ended_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = await ran(tmp_path, "echo out; echo err >&2; exit 3")
    assert (output.outcome, said(output)) == ("error", "out\nerr\n[exit code 3]")
    with closing(Pipe(tmp_path / "fifo")) as pipe:
        cmd = "echo begun; echo up > fifo; exec sleep 600"
        task = asyncio.ensure_future(ran(tmp_path, cmd, timeout=60))
        await pipe.heard()
    leap(monkeypatch, 60)
    output = await task
    assert output.outcome == "error"
    assert said(output).startswith("begun\n[the command did not finish within 60 s")


async def test_a_command_sees_what_is_declared_and_no_secret(tmp_path: Path) -> None:
    printed = said(await ran(tmp_path, "env"))
    assert "DESK=front" in printed
    assert "sk-secret" not in printed


async def test_of_too_much_output_both_ends_are_shown(tmp_path: Path) -> None:
    printed = said(await ran(tmp_path, "echo first; yes | head -n 100000; echo last"))
    assert printed.startswith("first")
    assert printed.endswith("last\n")
    assert len(printed) < limits.tool_output_chars_max + 100


def is_alive(pid: int) -> bool:
    """Whether it runs. A zombie has no command line any more."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):  # it may go while it is read
        return False


async def test_a_cancelled_command_is_gone_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "script_kill_grace_s", 60.0)
    pipe = Pipe(tmp_path / "fifo")
    cmd = "sh -c 'echo $$ > fifo; exec sleep 600' & wait"
    task = asyncio.ensure_future(ran(tmp_path, cmd))
    child = int(await pipe.heard())
    pipe.close()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not is_alive(child)
