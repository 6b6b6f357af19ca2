"""What docker-agent's newer fields mean here."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agents.agent import Agent, ModelConfig
from holdfast.agents.file.agent_file import AgentFile, assemble, check_agent_file
from holdfast.agents.file.toolsets.toolset_shapes import MemoryToolsetShape
from holdfast.errors import SourceUnusable
from holdfast.tools.execution import execute
from holdfast.tools.mcp.config import McpServer
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.tool import Tool, instruction_of
from tests.agents.file.test_agent_file import in_agent, team_of, warnings
from tests.agents.models import Factory
from tests.tools.tool_calls import Blobs, call_of, said


def read(text: str, directory: Path = Path("/"), /, **environment: str) -> AgentFile:
    return check_agent_file(
        text.encode(), place="a.yaml", directory=directory, environment=environment
    ).usable()


def model_of(text: str, **environment: str) -> ModelConfig:
    return read(text, **environment).agents[0].model


async def root_of(text: str) -> Agent:
    return (await team_of(text)).agents["root"]


async def tools_of(agent: Agent) -> dict[str, Tool]:
    return {each.spec.name: each for toolset in agent.toolsets for each in await toolset.tools()}


# ── models ──


@pytest.mark.parametrize(
    ("environment", "chosen"),
    [
        ({"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "b"}, "anthropic"),
        ({"OPENAI_API_KEY": "b"}, "openai"),
        ({"MISTRAL_API_KEY": "c", "OPENAI_API_KEY": " "}, "mistral"),
        ({}, "dmr"),
    ],
)
@pytest.mark.parametrize("text", ["agents: {root: {model: auto}}", "agents: {root: {}}"])
def test_auto_is_the_first_provider_that_there_is_a_key_for(
    text: str, environment: dict[str, str], chosen: str
) -> None:
    assert model_of(text, **environment).provider == chosen


FIRST = """
agents: {root: {model: m}}
providers: {house: {base_url: "https://house.example/v1", token_key: HOUSE_KEY}}
models: {m: {first_available: [house/a, anthropic/b, named]}, named: {provider: openai, model: c}}
"""


@pytest.mark.parametrize(
    ("environment", "chosen"),
    [
        ({"HOUSE_KEY": "x", "OPENAI_API_KEY": "y"}, "house/a"),
        ({"OPENAI_API_KEY": "y"}, "openai/c"),
        ({}, "house/a"),
    ],
)
def test_the_first_available_model_is_the_first_with_a_key(
    environment: dict[str, str], chosen: str
) -> None:
    assert model_of(FIRST, **environment).name == chosen


def test_a_provider_that_is_not_known_is_not_available() -> None:
    text = """
agents: {root: {model: m}}
models: {m: {first_available: [chatgpt/gpt-5, house/big, openai/gpt-5]}}
"""
    assert model_of(text, OPENAI_API_KEY="a").provider == "openai"
    house = text + "providers: {house: {base_url: 'https://house.example/v1'}}"
    assert model_of(house, OPENAI_API_KEY="a").provider == "house"
    assert model_of(text.replace("house/big", "demo/demo")).provider == "demo"


def test_a_provider_of_the_file_has_defaults_for_its_models() -> None:
    text = """
agents: {root: {model: m}, plain: {model: roses/other}}
providers:
  roses: {provider: anthropic, temperature: 0.3, max_tokens: 200, thinking_budget: 4096,
          provider_opts: {context_size: 1000, seed: 1}}
models: {m: {provider: roses, model: claude, temperature: 0.9, provider_opts: {seed: 2}}}
"""
    own, plain = (each.model for each in read(text).agents)
    assert (own.provider, own.kind, own.name) == ("roses", "anthropic", "roses/claude")
    assert (own.parameters.temperature, plain.parameters.temperature) == (0.9, 0.3)
    assert own.parameters.max_output_tokens == plain.parameters.max_output_tokens == 200
    assert own.thinking_tokens == plain.thinking_tokens == 4096
    assert (own.parameters.seed, plain.parameters.seed) == (2, 1)
    assert own.context_window == plain.context_window == 1000


def test_models_with_commas_take_turns() -> None:
    found = model_of("agents: {root: {model: 'openai/a, google/b'}}")
    assert found.takes_turns and found.name == "openai/a"
    assert [each.name for each in found.fallbacks] == ["google/b"]


def test_a_model_may_stand_for_several_that_take_turns() -> None:
    text = """
agents: {root: {model: both}}
models: {both: {model: "a,google/b"}, a: {provider: openai, model: x}}
"""
    found = model_of(text)
    assert found.takes_turns and found.name == "openai/x"
    assert [each.name for each in found.fallbacks] == ["google/b"]


def test_bedrock_as_docker_agent_has_it() -> None:
    text = """
agents: {root: {model: m}}
models: {m: {provider: amazon-bedrock, model: us.anthropic.claude-opus-4-8, thinking_budget: 2048,
             provider_opts: {region: eu-west-1}}}
"""
    found = model_of(text)
    assert (found.api, found.region, found.thinking_tokens) == ("anthropic", "eu-west-1", 2048)


@pytest.mark.parametrize(
    ("said", "effort"), [("xhigh", "xhigh"), ("adaptive", "high"), ("adaptive/low", "low")]
)
def test_how_much_a_model_thinks(said: str, effort: str) -> None:
    text = f"agents: {{root: {{model: m}}}}\nmodels: {{m: {{provider: openai, model: a, thinking_budget: {said}}}}}"
    assert model_of(text).parameters.reasoning_effort == effort


@pytest.mark.parametrize(
    "model",
    [
        "provider: openai, model: a, base_url: 'https://${env.NOBODY}/v1'",
        "provider: openai, model: a, headers: {X-A: 'Bearer ${NOBODY}'}",
        "provider: house, model: a",
    ],
)
async def test_a_model_whose_variables_are_not_set_cannot_be_used_yet(model: str) -> None:
    """As one without a key: `agents check` warns, `serve` refuses, and nothing is sent half filled in."""
    text = f"""
agents: {{root: {{model: m}}}}
providers: {{house: {{base_url: "$NOBODY", headers: {{X: "${{env.NOBODY}}"}}}}}}
models: {{m: {{{model}}}}}
"""
    file = read(text)
    assert "NOBODY" in file.agents[0].model.unset
    with pytest.raises(SourceUnusable, match="'NOBODY' is not set"):
        await assemble(file, Factory())


def test_a_model_may_have_the_name_of_what_it_is() -> None:
    text = "agents: {root: {model: openai/a}}\nmodels: {openai/a: {provider: openai, model: b}}"
    assert model_of(text).model == "b"


def test_colleagues_work_side_by_side_by_themselves() -> None:
    (toolset,) = read(in_agent("toolsets: [{type: background_agents}]")).agents[0].tools.toolsets
    assert "call transfer_task several times in one answer" in instruction_of(toolset)


def test_options_of_a_server_are_passed_on() -> None:
    text = """
agents: {root: {model: m}}
models: {m: {provider: ollama, model: a, provider_opts: {top_k: 5, http_headers: {X-A: b}, extra_body: {a: [1]}}}}
"""
    found = model_of(text)
    assert found.options == (("top_k", "5"), ("a", "[1]"))
    assert found.headers.pairs == (("X-A", "b"),)


async def test_summaries_have_a_model_of_their_own() -> None:
    text = """
agents:
  root: {model: m, compaction_threshold: 0.5}
  own: {model: m, compaction_model: openai/c, session_compaction: false}
models: {m: {provider: openai, model: a, compaction_model: openai/b}}
"""
    team = await assemble(read(text), Factory())
    root, own = (each.compaction for each in team.agents.values())
    assert root.model is not None and own.model is not None
    assert (root.model.name, root.at_share, root.by_itself) == ("openai/b", 0.5, True)
    assert (own.model.name, own.at_share, own.by_itself) == ("openai/c", None, False)


# ── toolsets ──


async def test_toolsets_and_commands_that_agents_share() -> None:
    text = """
toolsets: {notes: {type: memory}, list: {type: todo}}
commands: {some: {a: one, b: two}}
agents:
  root:
    model: a/b
    toolsets: [{type: think}]
    use_toolsets: [notes, list]
    use_commands: [some]
    commands: {b: own, c: {agent: root, url: "https://a.example"}}
"""
    root = await root_of(text)
    assert list(await tools_of(root))[:2] == ["think", "add_memory"]
    assert {each.name: each.instruction for each in root.commands} == {
        "a": "one",
        "b": "own",
        "c": "",
    }
    assert (root.commands[-1].agent, root.commands[-1].url) == ("root", "https://a.example")


async def test_agents_with_one_path_have_one_memory() -> None:
    text = """
agents:
  root: {model: a/b, toolsets: [{type: memory, path: x.db}]}
  second: {model: a/b, toolsets: [{type: memory, path: x.db}]}
  third: {model: a/b, toolsets: [{type: memory, path: y.db}]}
  fourth: {model: a/b, toolsets: [{type: memory}]}
"""
    owners = [
        (await tools_of(each))["add_memory"].spec.memories_of
        for each in (await team_of(text)).agents.values()
    ]
    assert owners == ["root", "root", "third", ""]


@pytest.mark.parametrize(
    "fields",
    [
        "readonly: true\ntoolsets: [{type: filesystem, roots: [.]}, {type: memory}, {type: shell}]",
        "toolsets: [{type: filesystem, roots: [.], readonly: true}, {type: memory, readonly: true}]",
    ],
)
async def test_only_what_changes_nothing(fields: str) -> None:
    found = await tools_of(await root_of(in_agent(fields)))
    assert found and all(each.spec.read_only for each in found.values())
    assert {"read_file", "get_memories"} <= found.keys()


def test_of_a_server_only_what_says_that_it_changes_nothing() -> None:
    for text in (
        in_agent("readonly: true\ntoolsets: [{type: mcp, command: a}]"),
        in_agent("toolsets: [{type: mcp, command: a, readonly: true}]"),
    ):
        (toolset,) = read(text).agents[0].tools.toolsets
        assert isinstance(toolset, McpToolset) and toolset.server.only_readers


async def test_which_files_are_reached(tmp_path: Path) -> None:
    for name in ("open/a.txt", "open/secret/b.txt", "open/key.pem", "closed/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"this is {name}")
    (tmp_path / "open/link").symlink_to("secret")
    text = in_agent(
        "permissions: {allow: [write_file]}\n"
        "toolsets: [{type: filesystem, allow_list: [~/open], deny_list: [~/open/secret, open/key.pem]}]"
    )
    file = read(text, tmp_path, HOME=str(tmp_path))
    root = (await assemble(file, Factory())).agents["root"]
    tools = await tools_of(root)

    async def told(tool: str, path: str, **more: str) -> str:
        return said(await execute(tools[tool], call_of({"path": path, **more}), Blobs()))

    assert await told("read_file", "a.txt") == "this is open/a.txt"
    for path in ("secret/b.txt", "link/b.txt", "key.pem", str(tmp_path / "closed/c.txt")):
        assert "this is" not in await told("read_file", path), path
        await told("write_file", path, content="changed")
    assert (tmp_path / "open/secret/b.txt").read_text() == "this is open/secret/b.txt"
    assert (tmp_path / "open/key.pem").read_text() == "this is open/key.pem"
    assert "b.txt" not in await told("directory_tree", ".")


def server_of(fields: str) -> McpServer:
    text = in_agent(f"toolsets: [{{type: mcp, {fields}}}]")
    (toolset,) = read(text).agents[0].tools.toolsets
    assert isinstance(toolset, McpToolset)
    return toolset.server


def test_how_a_server_is_started() -> None:
    found = server_of("command: a, lifecycle: {startup_timeout: 5s, call_timeout: 1m30s}")
    assert (found.start_s, found.timeout_s, found.required) == (5, 90, False)
    for fields in ("required: true", "lifecycle: {required: true}", "lifecycle: {profile: strict}"):
        assert server_of(f"command: a, {fields}").required
    assert not server_of("command: a, lifecycle: {profile: strict, required: false}").required
    by_events = server_of("remote: {url: 'https://a.example/sse', transport_type: sse}").transport
    assert getattr(by_events, "events", False)


async def test_what_becomes_of_the_rest() -> None:
    text = "runtime: {safety: strict}\nagents: {root: {model: a/b}, own: {model: a/b, safety: balanced}}"
    team = await assemble(read(text), Factory())
    assert [each.safety for each in team.agents.values()] == ["strict", "balanced"]
    assert (await root_of(in_agent(""))).safety == "restricted"


async def test_an_instruction_in_files(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("First.\n")
    (tmp_path / "b.md").write_text("Second.")
    for said_as, words in (("a.md", "First."), ("[a.md, b.md]", "First.\n\nSecond.")):
        file = read(in_agent(f"instruction_file: {said_as}"), tmp_path)
        assert (await assemble(file, Factory())).agents["root"].instruction == words


async def test_skills_are_read_when_they_are_needed(tmp_path: Path) -> None:
    place = tmp_path / ".agents/skills/sow"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(
        "---\nname: sowing\ndescription: When to sow.\n---\nAfter the frost."
    )
    text = """
skills: {house: [{name: prune, description: How to prune., instructions: "Cut."}]}
agents: {root: {model: a/b, skills: true, use_skills: [house]}, other: {model: a/b, skills: [sowing]}}
"""
    file = read(text, tmp_path)
    team = await assemble(file, Factory())
    root = team.agents["root"]
    (toolset,) = root.toolsets
    assert "- sowing: When to sow.\n- prune: How to prune." in instruction_of(toolset)
    tool = (await tools_of(root))["read_skill"]
    assert said(await execute(tool, call_of({"name": "sowing"}), Blobs())) == "After the frost."
    assert str(tmp_path / ".agents/skills") in file.files.readable
    (place / "SKILL.md").write_text("---\nname: sowing\n---\nBefore it.")
    assert read(text, tmp_path).digest != file.digest
    (place / "SKILL.md").write_text("no front")
    with pytest.raises(SourceUnusable, match="does not begin with its name"):
        read(text, tmp_path)


def test_skills_beside_a_file_are_not_for_a_url() -> None:
    found = check_agent_file(
        in_agent("skills: true").encode(),
        place="a.yaml",
        directory=Path("/"),
        environment={},
        trusted=False,
    )
    assert [each.field for each in found.problems] == ["agents.root.skills"]


def test_what_is_built_in_is_a_field_or_a_fact() -> None:
    text = in_agent("""
        max_iterations: 20
        hooks:
          turn_start:
            - {type: builtin, command: add_date}
            - {type: builtin, command: add_git_diff, args: [full]}
          session_start: [{type: builtin, command: add_recent_commits, args: ["3"]}]
          before_llm_call: [{type: builtin, command: max_iterations, args: ["5"]}]
    """)
    plan = read(text).agents[0]
    assert (plan.shape.add_date, plan.shape.max_iterations) == (True, 5)
    assert list(plan.hooks.every) == ["user_prompt_submit"]
    commands = [each.command for each in plan.hooks.every["user_prompt_submit"]]
    assert commands[0].startswith("git log --oneline -n 3") and commands[1].startswith("git diff 2")
    assert all(each.is_plain for each in plan.hooks.every["user_prompt_submit"])


def test_a_file_with_a_guard_and_no_tools_is_told() -> None:
    assert warnings(in_agent("toolsets: [{type: user_prompt}, {type: todo, shared: true}]")) == []


# ── colleagues that are not run here ──

APART = """
agents:
  root:
    model: openai/gpt-5
    sub_agents: [clerk, coder, pirate:agentcatalog/pirate]
    handoffs: [coder]
    commands: {code: {agent: coder}, bill: {agent: clerk}}
  clerk: {model: openai/gpt-5}
  coder: {harness: {type: codex, config: {sandbox: on}}, instruction: Write code.}
"""


OTHER_FILES = "agents of other files are not run here; copy the agent into this file, and name it"
OTHER_PROGRAMS = "agents of other programs are not run here; give the agent a 'model'"


async def test_a_file_is_served_without_the_colleagues_that_are_not_run() -> None:
    team = await team_of(APART)
    root = team.agents["root"]
    assert (list(team.agents), root.sub_agents, root.handoffs) == (
        ["root", "clerk"],
        ("clerk",),
        (),
    )
    assert [each.name for each in root.commands] == ["bill"]
    assert instruction_of(root.toolsets[-1]) == (
        "coder is not here: agents of other programs are not run here\n"
        "pirate:agentcatalog/pirate is not here: agents of other files are not run here"
    )
    told = [each.split(": ", 1)[1] for each in warnings(APART)]
    assert told == [
        "agents.root.sub_agents[1]: left out: agents of other programs are not run here",
        "agents.root.sub_agents[2]: refused, so it is not here, and its colleague is told so: "
        + OTHER_FILES,
        "agents.root.handoffs[0]: left out: agents of other programs are not run here",
        "agents.root.commands: 'code' is for an agent that is not here: agents of other programs are not run here",
        "agents.coder.harness: refused, so it is not here, and its colleagues are told so: "
        + OTHER_PROGRAMS,
    ]


@pytest.mark.parametrize("kind", ["lsp", "git"])
def test_a_strict_toolset_that_is_not_run_leaves_its_file_usable(kind: str) -> None:
    """docker-agent starts without it, too; `required: true` is another matter."""
    text = in_agent(f"toolsets: [{{type: {kind}, lifecycle: {{profile: strict}}}}]")
    assert [each for each in warnings(text) if f"{kind}: refused" in each]


# ── hooks and prompt files ──


def test_guards_of_newer_files_run_before_a_tool_in_their_order() -> None:
    text = in_agent("""
    hooks:
      pre_tool_use: [{hooks: [{type: command, command: c}]}]
      tool_guard: [{matcher: shell, hooks: [{type: command, command: b, strict_output: true}]}]
      tool_input_transform: [{hooks: [{type: command, command: a}, {type: builtin, command: redact_secrets}]}]
""")
    plan = read(text).agents[0]
    hooks = plan.hooks.every["pre_tool_use"]
    assert [(each.command, each.matcher) for each in hooks] == [
        ("a", "*"),
        ("b", "shell"),
        ("c", "*"),
    ]
    assert plan.shape.redact_secrets


def test_an_agent_is_told_where_more_prompt_files_are(tmp_path: Path) -> None:
    for name in ("a", "a/b", "a/b/c", ".git", "d"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "AGENTS.md").write_text("Be kind.")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    text = in_agent("add_prompt_files: [AGENTS.md]\nadd_prompt_files_depth: 2")
    brief, below = read(text, tmp_path).agents[0].surroundings
    assert brief == "Be brief."
    assert below.splitlines()[1:] == ["- a/AGENTS.md", "- d/AGENTS.md", "- a/b/AGENTS.md"]
    (tmp_path / "d" / "AGENTS.md").unlink()
    other = read(text, tmp_path)
    assert "d/AGENTS.md" not in other.agents[0].surroundings[1]


# ── models for results ──


async def test_a_toolset_may_name_the_model_that_reads_its_results() -> None:
    text = """
models: {fast: {provider: openai, model: gpt-5-nano}}
toolsets: {notes: {type: think, model: fast}}
agents:
  root:
    model: openai/gpt-5
    use_toolsets: [notes]
    toolsets: [{type: todo}, {type: mcp, command: a, model: anthropic/claude-haiku-4-5}]
"""
    agent = await root_of(text)
    models = dict(zip(agent.origins, agent.toolsets, strict=True))
    named = {type(models[origin]).__name__: name for origin, name in agent.result_models.items()}
    assert named == {"ThinkToolset": "fast", "McpToolset": "anthropic/claude-haiku-4-5"}
    assert agent.other_models["fast"].model.name == "openai/gpt-5-nano"
    assert warnings(text) == []


# ── skills that run apart ──

APART_SKILL = """
models: {fast: {provider: openai, model: gpt-5-nano}}
permissions: {allow: [write_file], deny: [edit_file]}
agents:
  root:
    model: openai/gpt-5
    sub_agents: [clerk]
    budgets: []
    toolsets: [{type: filesystem}, {type: think}]
    skills:
      - {name: plain, description: Read it., instructions: Be brief.}
      - {name: triage, description: Sort bugs., instructions: "Sort $${them}.", context: fork, model: fast,
         allowed_tools: ["read_*", write_file]}
  clerk: {model: openai/gpt-5}
"""


async def test_a_skill_that_runs_apart_is_an_agent_with_the_tools_and_the_rules_of_its_own() -> (
    None
):
    team = await team_of(APART_SKILL)
    root, triage = team.agents["root"], team.agents["root.triage"]
    assert root.sub_agents == ("clerk", "root.triage")
    assert "triage" not in " ".join(map(instruction_of, root.toolsets))
    assert (triage.description, triage.instruction) == ("Sort bugs.", "Sort $${them}.")
    assert triage.model.name == "openai/gpt-5-nano"
    assert triage.permissions == root.permissions
    assert triage.sub_agents == ()
    assert sorted(await tools_of(triage)) == ["read_file", "read_multiple_files", "write_file"]
    assert "read_skill" in await tools_of(root)
    assert team.entry == "root"
    assert warnings(APART_SKILL) == []


def test_a_skill_beside_the_file_may_run_apart(tmp_path: Path) -> None:
    place = tmp_path / ".agents/skills/triage"
    place.mkdir(parents=True)
    text = "---\nname: triage\ndescription: Sort bugs.\ncontext: fork\nmodel: openai/gpt-5-nano\n---\n{}"
    (place / "SKILL.md").write_text(text.format("Sort them."))
    file = read(in_agent("skills: true"), tmp_path)
    assert [each.name for each in file.agents] == ["root", "root.triage"]
    assert file.agents[1].model.model == "gpt-5-nano"
    (place / "SKILL.md").write_text(text.format("Sort them well."))
    assert read(in_agent("skills: true"), tmp_path).digest != file.digest


@pytest.mark.parametrize(
    "said",
    ["Sort bugs: all.", "'Sort bugs: all.'", ">\n  Sort bugs:\n  all.", "|-\n  Sort bugs:\n  all."],
)
async def test_a_skill_beside_the_file_describes_itself_in_yaml(tmp_path: Path, said: str) -> None:
    place = tmp_path / "skills/triage"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(f"---\nname: triage\ndescription: {said}\n---\nSort them.")
    (toolset,) = read(in_agent("skills: true"), tmp_path).agents[0].tools.toolsets
    assert instruction_of(toolset).endswith("- triage: Sort bugs: all.")


def test_an_agent_cannot_have_the_name_of_a_skill_that_runs_apart() -> None:
    text = APART_SKILL.replace("  clerk:", "  root.triage: {model: openai/gpt-5}\n  clerk:")
    with pytest.raises(SourceUnusable, match=r"there is an agent 'root\.triage' already"):
        read(text)


# ── what Claude's API has as betas ──


def test_a_task_budget_and_fallbacks_go_along_with_each_request() -> None:
    text = """
agents: {root: {model: m}}
models:
  m: {provider: anthropic, model: claude-fable-5-1, task_budget: 64000, provider_opts: {fallbacks: [claude-opus-4-8]}}
"""
    assert dict(model_of(text).options) == {
        "task_budget": '{"type":"tokens","total":64000}',
        "fallbacks": '[{"model":"claude-opus-4-8"}]',
    }
    assert warnings(text) == []
    other = text.replace("anthropic", "openai").replace(
        ", provider_opts: {fallbacks: [claude-opus-4-8]}", ""
    )
    (told,) = warnings(other)
    assert "models.m.task_budget: left out: only Anthropic's API has it" in told


# ── older files ──


@pytest.mark.parametrize("version", ["", 'version: "1"\n'])
def test_a_memory_of_the_first_files_is_a_toolset(version: str) -> None:
    text = f"{version}agents: {{root: {{model: a/b, memory: {{path: m.db, add_date: true}}}}}}"
    (toolset,) = read(text).agents[0].shape.toolsets
    assert toolset == MemoryToolsetShape(path="m.db")


def test_a_variable_of_a_command_may_be_bare() -> None:
    text = in_agent("commands: {greet: 'Say hello to $NAME, $OTHER and $x.'}")
    (command,) = read(text, NAME="Ada").agents[0].commands
    assert command.instruction == "Say hello to Ada, $OTHER and $x."


# ── what a model takes ──


def test_what_a_model_does_not_take_is_known() -> None:
    text = "agents: {root: {model: m}}\nmodels: {m: {provider: openai, model: gpt-4, capabilities: {pdf: false, audio: false}}}"
    assert model_of(text).without == ("pdf", "audio")
    assert warnings(text) == []
    claude = text.replace("openai", "anthropic")
    assert model_of(claude).without == ()
    assert "models.m.capabilities.pdf: left out: Claude is shown" in warnings(claude)[0]


async def test_an_empty_list_of_tools_chooses_none() -> None:
    """docker-agent then offers all of them."""
    some, every = [
        await tools_of(await root_of(in_agent(f"toolsets: [{{type: todo{tools}}}]")))
        for tools in (", tools: []", "")
    ]
    assert some.keys() == every.keys()
    assert server_of("command: a, tools: []").only is None
