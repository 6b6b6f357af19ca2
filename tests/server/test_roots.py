"""A root is the directory that it was when its agent file was read: no command makes another one of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.agents.agent import Team
from holdfast.agents.registry import Registry
from holdfast.agents.sources import Supplies, parse_source
from holdfast.core.turns.events import TurnRequest
from holdfast.ids import TurnId
from holdfast.testing import ScriptedModel
from holdfast.tools.execution import execute
from holdfast.tools.hooks import run_hook
from holdfast.tools.mcp.config import Stdio
from holdfast.tools.sandbox.backend import Kind
from holdfast.tools.tool import Json, Tool
from tests.tools.sandboxes import sandbox
from tests.tools.tool_calls import Blobs, call_of, said

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

AGENT = """
agents:
  root:
    model: demo/parrot
    toolsets:
      - {{type: shell, working_dir: {home}/shared}}
      - {{type: filesystem, roots: [{home}/shared/files/here, {home}/link]}}
      - type: script
        shell:
          works: {{cmd: "cat notes; echo evil >made", working_dir: {home}/shared/script/here}}
          reads: {{cmd: "cat {home}/victim/notes", working_dir: {home}/fixed, read_roots: [{home}/shared/read/here]}}
    permissions: {{allow: ["*"]}}
    hooks:
      pre_tool_use:
        - matcher: reads
          hooks: [{{type: command, command: "cat >&2 {home}/victim/notes; exit 2", roots: [{home}/shared/hook/here]}}]
"""
SWAP = "for each in files script read hook; do mv $each/here $each/there; ln -s {victim} $each/here; done; ls */here/"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("files", "script", "read", "hook"):
        (tmp_path / "shared" / name / "here").mkdir(parents=True)
        (tmp_path / "shared" / name / "here" / "notes").write_text("mine")
    for name in ("victim", "fixed", "agents"):
        (tmp_path / name).mkdir()
    (tmp_path / "victim" / "notes").write_text("secret")
    (tmp_path / "link").symlink_to("fixed")
    (tmp_path / "fixed" / "notes").write_text("mine")
    (tmp_path / "agents" / "a.yaml").write_text(AGENT.format(home=tmp_path))
    return tmp_path


async def use(team: Team, name: str, **arguments: Json) -> str:
    tools: dict[str, Tool] = {
        tool.spec.name: tool
        for toolset in team.agents["root"].toolsets
        for tool in await toolset.tools()
    }
    return said(await execute(tools[name], call_of(arguments), Blobs()))


@pytest.mark.parametrize("kind", ["landlock", "bubblewrap"])
async def test_no_command_makes_another_directory_of_a_root(home: Path, kind: Kind) -> None:
    """Else it would reach, through a tool that may do more, or through its own next command, whatever it likes."""
    supplies = Supplies(
        make_model=lambda config: ScriptedModel(), environment={}, sandbox=sandbox(kind)
    )
    registry = Registry([parse_source(str(home / "agents"), supplies)])
    await registry.refresh()
    key = registry.choose("root").source_key
    request = TurnRequest(turn_id=TurnId("turn_" + "0" * 26), source_key=key)
    with registry.team_for(request) as found:
        team = found
    assert await use(team, "read_file", path="notes") == "mine"
    assert await use(team, "read_file", path=f"{home}/link/notes") == "mine"
    assert await use(team, "works") == "mine"
    hooks = team.agents["root"].hooks
    swapped = await use(team, "shell", cmd=SWAP.format(victim=home / "victim"))
    assert "notes" not in swapped, "it cannot look into that itself"
    told = [
        await use(team, "read_file", path="notes"),
        await use(team, "write_file", path="made", content="evil"),
        await use(team, "works"),
        await use(team, "reads"),
        (await run_hook(hooks, hooks.every["pre_tool_use"][0], "pre_tool_use", {}, mark="m")).blocks
        or "",
    ]
    assert all("secret" not in each for each in told)
    assert "is not the directory any more" in told[0]
    assert "leads elsewhere than when the agent file was read" in told[2]
    assert [each.name for each in (home / "victim").iterdir()] == ["notes"]
    await registry.close()


def test_an_mcp_server_has_the_directories_that_its_words_led_to(home: Path) -> None:
    (home / "to").symlink_to("fixed")
    program = Stdio(
        command="act", args=("to/", "--x"), directory=f"{home}/link/..", roots=(f"{home}/link",)
    )
    pinned = program.pinned()
    assert pinned.directory == str(home)
    assert pinned.roots == (f"{home}/fixed", f"{home}/fixed")
