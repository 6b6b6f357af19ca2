"""The toolsets of an agent file: docker-agent's words, every mistake with its place, nothing started."""

from __future__ import annotations

import asyncio
import json
import os
import textwrap
from pathlib import Path

import pytest

from holdfast.agents.file.agent_file import AgentFile, check_agent_file
from holdfast.agents.file.variables import filled
from holdfast.errors import SourceUnusable
from holdfast.tools.execution import execute
from holdfast.tools.mcp import lazy_sdk
from holdfast.tools.mcp.config import McpServer, Remote, Stdio
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.notes.todo import INSTRUCTION
from holdfast.tools.permissions import permission_for
from holdfast.tools.sandbox.sandbox import Mode, Sandbox
from holdfast.tools.tool import Toolset, instruction_of
from holdfast.tools.toolset_choice import ChosenToolset
from tests import markdown, repository
from tests.tools.tool_calls import Blobs, call_of, said

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "TOKEN": "s3cret", "OPENAI_API_KEY": "sk-other"}


HERE = Path("/usr/bin")


def read(
    toolsets: str, *, top: str = "", directory: Path = HERE, trusted: bool = True
) -> AgentFile:
    text = f"agents:\n  root:\n    model: openai/gpt-5\n    toolsets:\n{textwrap.indent(textwrap.dedent(toolsets), '      ')}"
    return check_agent_file(
        f"{text}\n{textwrap.dedent(top)}".encode(),
        place="shop.yaml",
        directory=directory,
        environment=ENVIRONMENT,
        trusted=trusted,
    ).usable()


def made(toolsets: str, *, top: str = "", directory: Path = HERE) -> tuple[Toolset, ...]:
    return read(toolsets, top=top, directory=directory).agents[0].tools.toolsets


def wrong(toolsets: str, *, top: str = "", trusted: bool = True) -> str:
    with pytest.raises(SourceUnusable) as raised:
        read(toolsets, top=top, trusted=trusted)
    return "\n".join(raised.value.problems)


async def names(toolset: Toolset) -> list[str]:
    return [each.spec.name for each in await toolset.tools()]


def server(toolsets: str, *, top: str = "", directory: Path = HERE) -> McpServer:
    (toolset,) = made(toolsets, top=top, directory=directory)
    assert isinstance(toolset, McpToolset)
    return toolset.server


# ── our own ──


async def test_every_toolset_has_its_tools(tmp_path: Path) -> None:
    toolsets = made(
        "- type: shell\n- {type: filesystem, roots: [.]}\n- type: fetch\n- type: think\n- type: todo\n- type: memory\n",
        directory=tmp_path,
    )
    found = [name for toolset in toolsets for name in await names(toolset)]
    assert len(found) == len(set(found)) == 21
    assert {"shell", "read_file", "fetch", "think", "create_todo", "add_memory"} < set(found)


async def test_only_the_tools_that_are_listed_are_offered() -> None:
    (toolset,) = made("- type: todo\n  tools: [list_todos, create_todo]\n")
    assert await names(toolset) == ["create_todo", "list_todos"]
    assert instruction_of(toolset) == INSTRUCTION
    await toolset.close()


def test_a_files_own_words_stand_in_place_of_a_toolsets() -> None:
    first, second, third = made(
        """
        - type: todo
          instruction: Keep it short.
        - type: think
          instruction: "{ORIGINAL_INSTRUCTIONS} But quickly."
        - type: script
          instruction: Look twice.
          shell: {look: {cmd: ls}}
        """
    )
    assert instruction_of(first) == "Keep it short."
    assert instruction_of(second).startswith("Before you act")
    assert instruction_of(second).endswith(" But quickly.")
    assert instruction_of(third) == "Look twice."


async def test_files_are_below_the_agent_file_unless_said_otherwise(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("here")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "b.txt").write_text("there")
    (toolset,) = made("- type: filesystem\n", directory=tmp_path)
    tools = {each.spec.name: each for each in await toolset.tools()}
    assert said(await execute(tools["read_file"], call_of({"path": "a.txt"}), Blobs())) == "here"
    (toolset,) = made(
        "- type: filesystem\n  roots: [docs]\n  tools: [read_file]\n", directory=tmp_path
    )
    (tool,) = await toolset.tools()
    assert said(await execute(tool, call_of({"path": "b.txt"}), Blobs())) == "there"
    assert "leads out" in said(await execute(tool, call_of({"path": "../a.txt"}), Blobs()))


async def test_a_shell_has_its_variables_and_its_directory(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (toolset,) = made(
        "- type: shell\n  working_dir: sub\n  env: {A: '${TOKEN}', B: 'x${env.TOKEN}', C: $TOKEN}\n",
        directory=tmp_path,
    )
    (tool,) = await toolset.tools()
    output = said(
        await execute(tool, call_of({"cmd": "echo $A $B $C $OPENAI_API_KEY; pwd"}), Blobs())
    )
    assert output == f"s3cret xs3cret s3cret\n{tmp_path}/sub\n"


async def test_fetch_goes_where_the_file_says() -> None:
    (toolset,) = made("- type: fetch\n  allowed_domains: [example.org]\n  timeout: 5\n")
    (tool,) = await toolset.tools()
    output = await execute(tool, call_of({"urls": ["http://127.0.0.1/"]}), Blobs())
    assert "only these domains are allowed: example.org" in said(output)
    (toolset,) = made("- type: fetch\n")
    (tool,) = await toolset.tools()
    assert "private or special" in said(
        await execute(tool, call_of({"urls": ["http://127.0.0.1/"]}), Blobs())
    )
    (toolset,) = made("- type: fetch\n  allow_private_ips: true\n")
    (tool,) = await toolset.tools()
    output = await execute(tool, call_of({"urls": ["http://127.0.0.1:1/"]}), Blobs())
    assert "cannot be connected to" in said(output)


def test_the_examples_of_the_guide_load_as_they_stand() -> None:
    page = (repository.ROOT / "docs/guides/tools.md").read_text(encoding="utf-8")
    blocks = [each for each in markdown.blocks(page) if "agent-file" in each.info]
    for block in blocks:
        file = check_agent_file(
            block.text.encode(),
            place="guide",
            directory=repository.ROOT,
            environment={**ENVIRONMENT, "GITHUB_TOKEN": "a", "ISSUES_TOKEN": "b"},
        ).usable()
        assert (file.warnings, file.agents[0].name) == ((), "root")
    assert len(blocks) == 5


# ── MCP ──


def test_a_program_as_a_server(tmp_path: Path) -> None:
    made_of = server(
        """
        - type: mcp
          command: npx
          args: [-y, some-server]
          env: {API_TOKEN: "${TOKEN}", MODE: fast}
          name: shop
          tools: [search]
          trust_hints: true
          timeout: 20
        """,
        directory=tmp_path,
    )
    assert isinstance(made_of.transport, Stdio)
    assert (made_of.transport.command, made_of.transport.args) == ("npx", ("-y", "some-server"))
    assert dict(made_of.transport.env) == {
        "PATH": "/usr/bin:/bin",
        "API_TOKEN": "s3cret",
        "MODE": "fast",
    }
    assert made_of.transport.directory == str(tmp_path)
    assert (made_of.name, made_of.only, made_of.trust_hints) == ("shop", ("search",), True)
    assert (made_of.timeout_s, made_of.secrets) == (20.0, ("s3cret",))


def test_a_server_over_http() -> None:
    made_of = server(
        """
        - type: mcp
          remote:
            url: https://example.org/mcp?key=${TOKEN}
            transport_type: streamable-http
            headers: {Authorization: "Bearer ${env.TOKEN}"}
        """
    )
    assert made_of.transport == Remote(
        url="https://example.org/mcp?key=s3cret",
        headers={"Authorization": "Bearer s3cret"},
        login="holdfast agents login shop.yaml",
    )
    assert not made_of.transport.takes_login
    assert "s3cret" not in made_of.shown
    assert set(made_of.secrets) == {"s3cret"}


TOP = """
mcps:
  shop:
    command: shop-server
    args: [--quiet]
    env: {A: a, B: b}
    tools: [look]
    instruction: Ask the shop.
  gateway: {ref: "docker:context7"}
"""


def test_a_server_that_is_defined_once_is_referred_to_and_shared() -> None:
    toolset, again, own = made(
        """
        - {type: mcp, ref: shop}
        - {type: mcp, ref: shop}
        - {type: mcp, ref: shop, tools: [find], instruction: Hurry., env: {B: c}}
        """,
        top=TOP,
    )
    assert isinstance(toolset, ChosenToolset) and isinstance(again, ChosenToolset)
    assert toolset._inner is again._inner
    assert instruction_of(toolset) == "Ask the shop."
    assert isinstance(own, ChosenToolset) and isinstance(own._inner, McpToolset)
    mine = own._inner.server
    assert isinstance(mine.transport, Stdio)
    assert (mine.transport.args, mine.only, instruction_of(own)) == (
        ("--quiet",),
        ("find",),
        "Hurry.",
    )
    assert (mine.transport.env["A"], mine.transport.env["B"]) == ("a", "c")


async def test_without_docker_its_gateway_has_no_tools_and_the_agent_is_told() -> None:
    file = read("- {type: mcp, ref: gateway}\n- {type: mcp, ref: 'docker:x'}\n", top=TOP)
    assert [each.mark.line for each in file.warnings] == [5, 6]
    for toolset in file.agents[0].tools.toolsets:
        assert await toolset.tools() == ()
        assert "Docker's MCP gateway is not installed" in instruction_of(toolset)


@pytest.mark.parametrize(
    ("mode", "said", "runs"),
    [
        ("off", "", True),
        ("auto", "", False),
        ("auto", ", sandbox: off", True),
        ("required", ", sandbox: off", False),
    ],
)
def test_dockers_gateway_runs_only_where_the_operator_gives_it_the_socket(
    tmp_path: Path, mode: Mode, said: str, runs: bool
) -> None:
    """Docker's socket is root on this machine: no sandbox would hold a program that has it."""
    program = tmp_path / "docker"
    program.touch(mode=0o755)
    text = f"agents: {{root: {{model: a/b, toolsets: [{{type: mcp, ref: 'docker:duckduckgo'{said}}}]}}}}"
    checked = check_agent_file(
        text.encode(),
        place="shop.yaml",
        directory=tmp_path,
        environment={"PATH": str(tmp_path)},
        sandbox=Sandbox(mode),
    )
    (toolset,) = checked.usable().agents[0].tools.toolsets
    if runs:
        assert isinstance(toolset, McpToolset) and isinstance(toolset.server.transport, Stdio)
        found = toolset.server.transport
        assert (found.command, found.args[-1]) == ("docker", "--servers=duckduckgo")
    else:
        (told,) = checked.warnings
        assert "needs Docker's socket, which is root on this machine" in told.words


async def test_dockers_gateway_is_given_the_settings_of_a_server(tmp_path: Path) -> None:
    """As docker-agent gives them, in a file that is there for as long as the gateway runs."""
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\necho "$@"\nfor last; do :; done\ncat "${last#--config=}"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    settings = "{path: ., note: '${NOPE} \"$(id)\"'}"
    text = f"agents: {{root: {{model: a/b, toolsets: [{{type: mcp, ref: 'docker:ast-grep', config: {settings}}}]}}}}"
    file = check_agent_file(
        text.encode(),
        place="shop.yaml",
        directory=tmp_path,
        environment=environment,
        sandbox=Sandbox("off"),
    ).usable()
    (toolset,) = file.agents[0].tools.toolsets
    assert isinstance(toolset, McpToolset) and isinstance(toolset.server.transport, Stdio)
    run = toolset.server.transport
    gateway = await asyncio.create_subprocess_exec(
        run.command, *run.args, env=environment, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await gateway.communicate()
    first, _, config = said.decode().partition("\n")
    assert first.startswith("mcp gateway run --servers=ast-grep --config=")
    assert json.loads(config) == {"ast-grep": {"path": ".", "note": '${NOPE} "$(id)"'}}
    assert os.listdir(tmp_path) == ["docker"], "the file is gone"


@pytest.mark.parametrize(
    "toolset",
    [
        "{type: mcp, ref: 'docker:x', required: true}",
        "{type: mcp, ref: 'docker:x', lifecycle: {profile: strict}}",
        "{type: mcp, command: a, env: {K: '${NOPE}'}, lifecycle: {required: true}}",
        "{type: openapi, url: 'https://a/b', headers: {K: '${NOPE}'}, required: true}",
    ],
)
def test_a_required_toolset_that_this_machine_cannot_offer_is_a_problem(toolset: str) -> None:
    with pytest.raises(SourceUnusable, match=r"not installed|'NOPE' is not set"):
        read(f"- {toolset}")


@pytest.mark.parametrize(
    "toolset",
    [
        "{type: mcp, command: a, env: {K: '${NOPE}'}}",
        "{type: mcp, remote: {url: 'http://a/', headers: {K: $NOPE}}}",
        "{type: shell, env: {A: '${NOPE}'}}",
        "{type: script, shell: {a: {cmd: a, env: {A: '${env.NOPE}'}}}}",
        "{type: fetch, headers: {A: '${NOPE}'}}",
        "{type: api, api_config: {name: a, method: GET, endpoint: 'https://a/${env.NOPE}'}}",
    ],
)
async def test_a_variable_that_is_not_set_leaves_a_toolset_without_tools(toolset: str) -> None:
    """As a missing key is: it is about this machine, not about the file."""
    file = read(f"- {toolset}")
    (told,) = file.warnings
    assert "the environment variable 'NOPE' is not set; the toolset has no tools" in told.words
    (found,) = file.agents[0].tools.toolsets
    assert await found.tools() == ()
    assert "NOPE is not set" in instruction_of(found)


def test_without_the_extra_the_file_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_sdk, "find_spec", lambda name: None)
    told = wrong("- {type: mcp, command: x}\n")
    assert told.startswith("shop.yaml:5:9: agents.root.toolsets[0]: ")
    assert "pip install 'holdfast[mcp]'" in told


async def test_an_api_by_its_document(tmp_path: Path) -> None:
    document = '{"openapi": "3.1.0", "paths": {"/a": {"get": {"operationId": "look"}, "put": {"operationId": "set"}}}}'
    (tmp_path / "api.json").write_text(document)
    (toolset,) = made(
        "- {type: openapi, url: api.json, tools: [look], headers: {A: '${TOKEN}'}, base_url: 'https://example.org/'}",
        directory=tmp_path,
    )
    assert await names(toolset) == ["look"]


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("openapi: 3.1.0\npaths:\n  /a:\n    get: {operationId: look}\n", ""),
        ("openapi: 3.1.0\nopenapi: 3.1.0\n", "line 2: the key 'openapi' is already there"),
        ("[" * 100_000, "nested more than 32 levels deep"),
        ("swagger: '2.0'", "it is not an OpenAPI 3 document"),
    ],
)
async def test_a_document_in_yaml_is_read_with_care(
    tmp_path: Path, document: str, told: str
) -> None:
    (tmp_path / "api.yaml").write_text(document)
    (toolset,) = made("- {type: openapi, url: api.yaml}", directory=tmp_path)
    assert await names(toolset) == ([] if told else ["look"])
    assert told in instruction_of(toolset)


# ── mistakes ──

WRONG = [
    ("- {type: mcp}", "toolsets[0]: give one of 'command', 'remote' and 'ref'"),
    ("- {type: mcp, command: a, remote: {url: 'http://a/'}}", "give one of"),
    ("- {type: mcp, ref: shp}", "toolsets[0].ref: no such server; did you mean 'shop'?"),
    ("- {type: mcp, ref: shop, command: a}", "leave out 'command' and 'remote'"),
    ("- {type: mcp, remote: {url: 'ftp://a/'}}", "remote.url: only http and https"),
    ("- {type: mcp, remote: {url: 'http://a/', transport_type: pigeon}}", "transport_type: has to be one of: streamable"),
    ("- {type: mcp, command: a, lifecycle: {call_timeout: soon}}", "lifecycle.call_timeout: expected a duration"),
    ("- {type: api, api_config: {name: a, method: GET, endpoint: '/x'}}", "api_config.endpoint: expected the address"),
    ("- {type: api, api_config: {name: a, method: GET, endpoint: 'https://a/${x}'}}", "x in the address is not under 'args'"),
    ("- {type: api, api_config: {name: a, method: GET, endpoint: 'https://${x}/', args: {x: {type: string}}}}", "no argument can stand in the name"),
    ("- {type: api, api_config: {name: a, method: GET, endpoint: 'https://a/${x + 1}', args: {x: {type: string}}}}", "only the names of arguments"),
    ("- {type: mcp, remote: {}}", "toolsets[0].remote: 'url' is missing"),
    ("- {type: mcp, command: a, name: two words}", "toolsets[0].name: tools begin with it"),
    ("- {type: mcp, command: a, working_dir: ../..}", "toolsets[0].working_dir: leads out of"),
    ("- {type: mcp, command: a, timeout: 0}", "timeout: expected a number > 0"),
    ("- {type: mcp, comand: a}", "toolsets[0].comand: unknown field; did you mean 'command'?"),
    ("- {type: script, shell: {fetch: {cmd: a}}}\n- {type: fetch}", "toolsets[1]: another tool of this agent is called 'fetch'"),
    ("- {type: filesystem, roots: [nowhere]}", "toolsets[0].roots[0]: there is no such directory"),
    ("- {type: fetch, allowed_domains: example.org}", "allowed_domains: expected a list"),
    ("- {type: openapi}", "toolsets[0]: 'url' is missing"),
    ("- {type: python}", "toolsets[0]: 'file' is missing"),
    ("- {type: python, file: ../tools.py}", "toolsets[0].file: leads out of"),
    ("- {type: python, file: none.py}", "toolsets[0].file: there is no such file"),
    ("- {type: openapi, url: 'ftp://a/b'}", "toolsets[0].url: only http and https"),
    ("- {type: openapi, url: ../../api.json}", "toolsets[0].url: leads out of"),
    ("- {type: shel}", "toolsets[0].type: has to be one of: script, shell, background_jobs"),
    ("- {type: a2a, url: 'ftp://a/b'}", "toolsets[0].url: only http and https"),
    ("- {type: a2a, url: 'https://a.example', name: a b}", "toolsets[0].name: tools begin with it"),
    ("- {type: webhook, webhook_config: {url: 'https://a.example', provider: pigeon}}", "toolsets[0].webhook_config.provider: has to be one of: generic"),
    ("- {type: webhook, webhook_config: {url: 'https://a.example', provider: telegram}}", "'chat_id' is missing"),
    ("- {type: background_jobs, working_dir: ../..}", "toolsets[0].working_dir: leads out of"),
    ("- {type: [shell]}", "toolsets[0].type: has to be one of"),
    ("- shell", "toolsets[0]: expected a mapping, got text"),
]  # fmt: skip


async def test_without_a_root_the_directory_of_the_file_is_the_root(tmp_path: Path) -> None:
    """As in docker-agent, where it is the working directory; rules say what may be written."""
    file = read("- {type: filesystem}\n", directory=tmp_path)
    (found,) = file.agents[0].tools.toolsets
    names = {each.spec.name for each in await found.tools() if not each.spec.read_only}
    assert names == {"write_file", "edit_file", "create_directory"}
    assert str(tmp_path) in instruction_of(found)


@pytest.mark.parametrize(
    ("top", "permission"),
    [("", "deny"), ("permissions: {allow: [write_file]}\n", "allow"), ("runtime: {safety: balanced}\n", "ask")],
)  # fmt: skip
async def test_it_is_written_to_by_a_rule_alone(top: str, permission: str, tmp_path: Path) -> None:
    (plan,) = read("- {type: filesystem}\n", top=top, directory=tmp_path).agents
    (writer,) = [
        each.spec for each in await plan.tools.toolsets[0].tools() if each.spec.name == "write_file"
    ]
    given = permission_for(writer, plan.permissions, arguments={"path": "a"}, safety=plan.safety)
    assert given == permission


@pytest.mark.parametrize("listed", ["[nowhere, .]", "[other, .]", "[., other]", "[.]"])
async def test_a_relative_path_begins_beside_the_file(tmp_path: Path, listed: str) -> None:
    """As in docker-agent, where it begins in the working directory, wherever that is in `allow_list`."""
    (tmp_path / "other").mkdir()
    (tmp_path / "a.txt").write_text("here")
    file = read(f"- {{type: filesystem, allow_list: {listed}}}\n", directory=tmp_path)
    (toolset,) = file.agents[0].tools.toolsets
    (reader,) = [each for each in await toolset.tools() if each.spec.name == "read_file"]
    assert said(await execute(reader, call_of({"path": "a.txt"}), Blobs())) == "here"


async def test_a_toolset_that_only_reads_says_so(tmp_path: Path) -> None:
    file = read("- {type: filesystem, readonly: true}\n", directory=tmp_path)
    (found,) = file.agents[0].tools.toolsets
    tools = await found.tools()
    assert all(each.spec.read_only for each in tools) and tools


@pytest.mark.parametrize(
    ("toolset", "told"),
    [
        ("{type: todo, tools: [list_todo, list_todos]}", "tools[0]: no such tool; did you mean 'list_todos'?; left out"),
        ("{type: think, defer: [thnk]}", "defer[0]: no such tool; did you mean 'think'?"),
        ("{type: script, defer: [b], shell: {a: {cmd: a}}}", "defer[0]: no such tool"),
        ("{type: filesystem, allow_list: [., nowhere]}", "allow_list[1]: there is no such directory"),
    ],
)  # fmt: skip
def test_what_docker_agent_passes_over_is_warned_about(
    toolset: str, told: str, tmp_path: Path
) -> None:
    (warning,) = read(f"- {toolset}", directory=tmp_path).warnings
    assert f"agents.root.toolsets[0].{told}" in str(warning)


@pytest.mark.parametrize(
    ("domain", "told"),
    [
        ("a*.example.org", "expected a host, or '*.host'"),
        ("example.org/docs", "this is no network"),
    ],
)
def test_a_domain_that_no_host_can_have_is_told(domain: str, told: str) -> None:
    """It would block nothing."""
    assert f"blocked_domains[0]: {told}" in wrong(
        f"- {{type: fetch, blocked_domains: ['{domain}']}}"
    )


def test_a_toolset_that_is_there_twice_counts_once() -> None:
    assert len(made("- {type: think}\n- {type: todo}\n- {type: think}")) == 2


@pytest.mark.parametrize(("toolsets", "told"), WRONG, ids=[each[1][:60] for each in WRONG])
def test_a_mistake_is_told_with_its_place(toolsets: str, told: str) -> None:
    found = wrong(f"{toolsets}\n", top=TOP)
    assert told in found
    assert "s3cret" not in found


@pytest.mark.parametrize(
    ("toolset", "what"),
    [
        ("- {type: shell}", "run commands on this machine"),
        ("- {type: lsp, command: gopls}", "use this machine"),
        ("- {type: git}", "use this machine"),
        ("- {type: filesystem}", "read and change files"),
        ("- {type: mcp, command: a}", "run commands on this machine, and reach servers"),
        ("- {type: mcp, remote: {url: 'http://a/'}}", "reach servers"),
        ("- {type: openapi, url: 'https://a.example/'}", "reach servers"),
        ("- {type: python, file: tools.py}", "run Python in the server itself"),
        ("- {type: fetch, allow_private_ips: true}", "reach into the private network"),
    ],
)
def test_a_remote_file_is_not_trusted_with_this_machine(toolset: str, what: str) -> None:
    told = wrong(f"{toolset}\n", trusted=False)
    assert "is not accepted from a URL" in told
    assert what in told


def test_a_remote_file_may_think_and_read_the_open_web() -> None:
    file = read("- type: think\n- type: todo\n- type: memory\n- type: fetch\n", trusted=False)
    assert len(file.agents[0].tools.toolsets) == 4


@pytest.mark.parametrize(
    ("text", "expected", "missing"),
    [
        ("plain", "plain", ()),
        ("$TOKEN", "s3cret", ()),
        ("${TOKEN}", "s3cret", ()),
        ("a ${env.TOKEN} b ${TOKEN}", "a s3cret b s3cret", ()),
        ("pa$TOKEN", "pa$TOKEN", ()),
        ("$", "$", ()),
        ("${NOPE} $5", "${NOPE} $5", ("NOPE",)),
    ],
)
def test_which_variables_are_filled_in(text: str, expected: str, missing: tuple[str, ...]) -> None:
    found = filled(text, ENVIRONMENT)
    assert (found.text, found.missing) == (expected, missing)


# ── deferred tools ──


@pytest.mark.parametrize(
    ("toolset", "expected"),
    [
        ("{type: filesystem, tools: [read_file, list_directory], defer: true}", ["list_directory", "read_file"]),
        ("{type: filesystem, tools: [read_file, list_directory], defer: [read_file]}", ["read_file"]),
        ("{type: filesystem, tools: [read_file, list_directory], defer: false}", []),
        ("{type: script, defer: [a], shell: {a: {cmd: a}, b: {cmd: b}}}", ["a"]),
    ],
)  # fmt: skip
async def test_tools_that_a_model_has_to_look_for(toolset: str, expected: list[str]) -> None:
    (there,) = made(f"- {toolset}")
    assert sorted(each.spec.name for each in await there.tools() if each.spec.deferred) == expected


@pytest.mark.parametrize(
    ("toolset", "told"),
    [
        ("{type: script, shell: {add_tool: {cmd: a}}}", "another tool of this agent has that name already"),
        ("{type: think, defer: 3}", "toolsets[0].defer: expected"),
    ],
)  # fmt: skip
def test_what_cannot_be_looked_for_is_told(toolset: str, told: str) -> None:
    assert told in wrong(f"- {toolset}")


def test_a_server_that_is_defined_once_may_be_deferred_there() -> None:
    top = "mcps: {gh: {command: x, name: gh, defer: [merge]}}"
    (toolset,) = made("- {type: mcp, ref: gh}", top=top)
    assert isinstance(toolset, ChosenToolset)
    assert toolset._deferred == ["merge", "gh_merge"]
