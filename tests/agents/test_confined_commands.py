"""Commands of an agent file run in the sandbox that the server has, and reach none of the files it is made of."""

from __future__ import annotations

import socket
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.agents.agent import Agent
from holdfast.agents.file.agent_file import Checked, check_agent_file
from holdfast.agents.registry import Registry
from holdfast.agents.sources import Supplies, parse_source
from holdfast.tools.execution import execute
from holdfast.tools.hooks import Verdict, run_hook
from holdfast.tools.sandbox.backend import Backend
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.tool import ToolOutput
from tests.agents.models import Factory
from tests.tools.sandboxes import ENVIRONMENT, sandbox
from tests.tools.tool_calls import Blobs, call_of, said

NOTHING = Backend(kind="none", why="this is a toaster")
AGENT = """
agents:
  root:
    model: openai/gpt-5
    toolsets:
      - {{type: shell{shell}}}
      - type: script
        shell:
          count: {{cmd: sh count.sh, args: {{}}}}
    hooks:
      pre_tool_use:
        - {{matcher: "*", hooks: [{{type: command, command: sh guard.sh}}]}}
"""


def check(text: str, here: Path, box: Sandbox) -> Checked:
    return check_agent_file(
        text.encode(), place="a.yaml", directory=here, environment=ENVIRONMENT, sandbox=box
    )


@pytest.mark.parametrize(
    "toolset",
    ["{type: shell}", "{type: mcp, command: x}", "{type: script, shell: {look: {cmd: ls}}}"],
)
def test_where_commands_must_be_confined_and_cannot_be_a_file_that_has_some_is_refused(
    toolset: str, tmp_path: Path
) -> None:
    text = f"agents:\n  root:\n    model: a/b\n    toolsets:\n      - {toolset}\n"
    (problem,) = check(text, tmp_path, Sandbox("required", find=lambda: NOTHING)).problems
    assert problem.mark.line == 5
    assert "have to be confined" in problem.words and "HOLDFAST_SANDBOX=off" in problem.words
    assert check(text, tmp_path, Sandbox("auto", find=lambda: NOTHING)).problems == ()


def test_hooks_are_commands_too_and_a_server_elsewhere_is_none(tmp_path: Path) -> None:
    box = Sandbox("required", find=lambda: NOTHING)
    remote = (
        "agents: {root: {model: a/b, toolsets: [{type: mcp, remote: {url: 'https://a.example/'}}]}}"
    )
    assert check(remote, tmp_path, box).problems == ()
    hooks = "agents: {root: {model: a/b, hooks: {stop: [{type: command, command: ls}]}}}"
    assert len(check(hooks, tmp_path, box).problems) == 1


# ── what they reach ──

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


async def loaded(here: Path, box: Sandbox, *, shell: str = "", source: str = "agent.yaml") -> Agent:
    """An agent with a shell, a command and a hook, all in the directory of its file."""
    (here / "agent.yaml").write_text(AGENT.format(shell=shell))
    (here / "count.sh").write_text("echo counted")
    (here / "guard.sh").write_text("exit 0")
    (here / "work").mkdir()
    supplies = Supplies(make_model=Factory(), environment=ENVIRONMENT, sandbox=box)
    registry = Registry([parse_source(str(here / source), supplies)])
    box.reserved = registry.reserved
    await registry.refresh()
    return registry.choose(registry.listing()[0].id).agent


async def ran(agent: Agent, name: str, **arguments: str) -> ToolOutput:
    tools = {tool.spec.name: tool for each in agent.toolsets for tool in await each.tools()}
    return await execute(tools[name], call_of(arguments), Blobs())


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@needs_linux
async def test_a_shell_cannot_rewrite_the_agent_that_it_belongs_to(tmp_path: Path) -> None:
    """`allow: [write_file], deny: [shell]` would be a shell four seconds later."""
    agent = await loaded(tmp_path, sandbox("landlock"))
    before = contents(tmp_path)
    for attack in (
        "echo >>agent.yaml",
        "mv agent.yaml work/",
        "echo >>guard.sh",
        "echo >>count.sh",
        "rm guard.sh",
        "cp agent.yaml work/copy",
        f"cd / && echo >>{tmp_path}/agent.yaml",
    ):
        assert (await ran(agent, "shell", cmd=attack)).outcome == "error", attack
    assert contents(tmp_path) == before
    assert said(await ran(agent, "shell", cmd="echo a >work/a && cat work/a")) == "a\n"
    assert said(await ran(agent, "count")) == "counted\n"
    (hook,) = agent.hooks.of("pre_tool_use", tool="shell")
    assert await run_hook(agent.hooks, hook, "pre_tool_use", {}, mark="m") == Verdict()


@needs_linux
async def test_no_command_adds_an_agent_to_a_directory_of_them(tmp_path: Path) -> None:
    box = sandbox("landlock")
    agent = await loaded(tmp_path, box, source=".")
    assert (await ran(agent, "shell", cmd="echo >new.yaml")).outcome == "error"


@needs_linux
async def test_network_and_more_directories_are_the_files_to_declare(tmp_path: Path) -> None:
    here, more, other = (tmp_path / each for each in ("here", "more", "other"))
    for each in (here, more, other):
        each.mkdir()
    (other / "word").write_text("word")
    box = sandbox("landlock")
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        knock = f"python3 -I -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))'"
        attempts = (knock, "echo a >../more/a", "cat ../other/word")
        agent = await loaded(here, box)
        for attempt in attempts:
            assert (await ran(agent, "shell", cmd=attempt)).outcome == "error", attempt
        (here / "work").rmdir()
        declared = ", network: true, roots: [../more], read_roots: [../other]"
        agent = await loaded(here, box, shell=declared)
        for attempt in attempts:
            assert (await ran(agent, "shell", cmd=attempt)).outcome == "ok", attempt
        assert (await ran(agent, "shell", cmd="echo a >../other/a")).outcome == "error"
