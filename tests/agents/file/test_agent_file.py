"""Agent files: docker-agent's shape, every mistake with its line, nothing executed, no secret told."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.agents.agent import ModelConfig, PromptCommand, Team
from holdfast.agents.file.agent_file import AgentFile, assemble, check_agent_file
from holdfast.agents.file.dispositions import CANNOT_MATTER, REFUSED, TOOLSETS_REFUSED
from holdfast.agents.file.shapes import AgentShape, FileShape, ModelShape
from holdfast.core.items import Permissions, TurnLimits
from holdfast.core.policy import Policy
from holdfast.core.turns.events import Parameters
from holdfast.errors import SourceUnusable
from holdfast.models.output_choices import OutputSchema, read_schema
from holdfast.models.price import Price
from holdfast.tools.hooks import Hook
from holdfast.tools.mcp.config import Remote
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.tool import instruction_of
from tests import markdown, repository
from tests.agents.models import Factory

ENVIRONMENT = {"HOUSE_URL": "http://127.0.0.1:9/v1", "SECRET": "s3cret"}


def read(
    text: str,
    *,
    trusted: bool = True,
    directory: Path = Path("/"),
    environment: Mapping[str, str] = ENVIRONMENT,
) -> AgentFile:
    return check_agent_file(
        textwrap.dedent(text).encode(),
        place="shop.yaml",
        directory=directory,
        environment=environment,
        trusted=trusted,
    ).usable()


async def team_of(text: str) -> Team:
    return await assemble(read(text), Factory())


def problems(text: str, *, trusted: bool = True) -> list[str]:
    with pytest.raises(SourceUnusable) as raised:
        read(text, trusted=trusted)
    return list(raised.value.problems)


def warnings(text: str) -> list[str]:
    return [str(each) for each in read(text).warnings]


SMALL = "agents: {root: {model: openai/gpt-5}}"


def in_agent(fields: str) -> str:
    """A file with one agent, whose fields begin on line 4."""
    return "agents:\n  root:\n    model: openai/gpt-5\n" + textwrap.indent(
        textwrap.dedent(fields), "    "
    )


def in_script(fields: str) -> str:
    """A file with one command, whose fields begin on line 8."""
    command = "toolsets:\n  - type: script\n    shell:\n      look:\n"
    return in_agent(command + textwrap.indent(textwrap.dedent(fields), "        "))


def in_model(fields: str) -> str:
    """A file with one model, whose fields begin on line 6."""
    head = "agents: {root: {model: m}}\nmodels:\n  m:\n    provider: openai\n    model: gpt-5\n"
    return head + textwrap.indent(textwrap.dedent(fields), "    ")


# ── good files ──


async def test_the_example_of_the_reference_loads_as_it_stands() -> None:
    page = (repository.ROOT / "docs/reference/agent-file.md").read_text(encoding="utf-8")
    (block,) = (each for each in markdown.blocks(page) if "agent-file" in each.info)
    file = read(block.text)
    team = await assemble(file, Factory())
    assert list(team.agents) == ["root", "clerk", "manager"]
    assert (team.entry, team.warnings) == ("root", ())
    root, clerk, manager = team.agents.values()
    assert root.description == "Welcomes customers and answers what it can."
    assert root.instruction.startswith("You work at the front desk")
    assert root.welcome_message == "Hello! What can I do for you?"
    assert (root.sub_agents, root.handoffs) == (("clerk",), ("manager",))
    assert root.limits == TurnLimits(steps_max=20, calls_max=50, cost_micros_max=500_000)
    assert root.policy == Policy(cancel="keep", disconnect="finish")
    assert root.parameters == Parameters(max_output_tokens=4000, reasoning_effort="low")
    assert root.permissions == Permissions(allow=("find_*",), deny=("delete_*",))
    assert clerk.permissions.ask == ("mark_delivered",)
    assert file.agents[0].model == ModelConfig(
        provider="openai",
        model="gpt-5",
        parameters=root.parameters,
        fallbacks=(ModelConfig(provider="openai", model="gpt-5-mini", retries=2),),
        retries=2,
        cooldown_s=150.0,
    )
    assert file.agents[2].model == ModelConfig(
        provider="house",
        model="llama-3.3",
        base_url="http://127.0.0.1:9/v1",
        token_key="HOUSE_KEY",
        api="chat",
        parameters=manager.parameters,
    )
    tools = {tool.spec.name: tool.spec for tool in await clerk.toolsets[0].tools()}
    assert list(tools) == ["find_parcel", "mark_delivered"]
    assert tools["find_parcel"].read_only and not tools["mark_delivered"].read_only
    assert msgspec.json.decode(tools["mark_delivered"].parameters)["required"] == ["number"]


async def test_no_model_is_told_the_name_of_a_variable() -> None:
    """Neither in its instruction nor as its own name; what looks like one can be written all the same."""
    text = (
        "agents: {root: {model: 'openai/${MODEL}', instruction: 'At ${env.SHOP}, $${x} and $5.', "
        "fallback: {models: ['${SPARE}']}}}\n"
        "models: {spare: {provider: '${WHO}', model: 'm-${MODEL}'}}"
    )
    environment = {"MODEL": "gpt-5", "SHOP": "the desk", "SPARE": "spare", "WHO": "google"}
    file = read(text, environment=environment)
    team = await assemble(file, Factory())
    assert team.agents["root"].instruction == "At the desk, ${x} and $5."
    config = file.agents[0].model
    assert (config.provider, config.model) == ("openai", "gpt-5")
    assert [(each.provider, each.model) for each in config.fallbacks] == [("google", "m-gpt-5")]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('${env.SHOP || "a shop"}', "the desk"),
        ('${env.NOBODY || "a shop"}', "a shop"),
        ("${NOBODY ?? 'a shop'}", "a shop"),
        ('${env.NOBODY || ""}', ""),
    ],
)
def test_a_variable_may_have_a_default(said: str, told: str) -> None:
    """In an instruction, and in a header that would otherwise be sent as it stands."""
    text = in_agent(
        f"instruction: |\n  At {said}.\ntoolsets:\n  - type: mcp\n    remote:\n      url: https://a.example\n"
        f"      headers:\n        X-Shop: |-\n          {said}"
    )
    (plan,) = read(text, environment={"SHOP": "the desk"}).agents
    assert plan.instruction.strip() == f"At {told}."
    (toolset,) = plan.tools.toolsets
    assert isinstance(toolset, McpToolset) and isinstance(toolset.server.transport, Remote)
    assert toolset.server.transport.headers == {"X-Shop": told}


def test_a_command_has_its_variables_filled_in() -> None:
    text = in_agent("commands: {greet: 'Greet ${env.SHOP}${NOBODY}.'}")
    (plan,) = read(text, environment={"SHOP": "the desk"}).agents
    assert [each.instruction for each in plan.commands] == ["Greet the desk."]


SNIPPET = "Deploy to ${env.SHOP}:\n\n    cp a $${HOME:-/root}/b\n"


async def test_an_instruction_in_a_file_has_its_variables_filled_in(tmp_path: Path) -> None:
    """A shell snippet has a way out; other prompt files are documents, and are told as they are."""
    (tmp_path / "told.md").write_text(SNIPPET)
    (tmp_path / "notes.md").write_text("cp a ${HOME:-/root}/b")
    text = in_agent("instruction_file: told.md\nadd_prompt_files: [notes.md]")
    file = read(text, directory=tmp_path, environment={"SHOP": "the desk"})
    team = await assemble(file, Factory())
    told = team.agents["root"].instruction
    assert "Deploy to the desk:" in told and "cp a ${HOME:-/root}/b\n" in told
    assert told.count("cp a ${HOME:-/root}/b") == 2 and "$$" not in told


@pytest.mark.parametrize(
    ("snippet", "told", "words"),
    [
        ("cp a\n${HOME:-/root}", "cp a\n${HOME:-/root}", "line 2: '${HOME:-/root}' is no variable"),
        ("cp a ${NOBODY}", "cp a ${NOBODY}", "line 1: the environment variable 'NOBODY' is not"),
        ("cp a ${env.NOBODY}", "cp a ", "line 1: the environment variable 'NOBODY' is not set"),
        ("${user.name} ${}", "${user.name} ${}", "line 1: '${user.name}' is no variable"),
        ("${tools.ls()}", "${tools.ls()}", "line 1: '${tools.ls()}' is no variable"),
    ],
)
def test_what_docker_agent_would_not_fill_in_is_told_as_it_stands(
    tmp_path: Path, snippet: str, told: str, words: str
) -> None:
    (tmp_path / "told.md").write_text(snippet)
    file = read(in_agent("instruction_file: told.md"), directory=tmp_path)
    assert file.agents[0].surroundings == (told,)
    assert f"told.md, {words}" in str(file.warnings[0])


@pytest.mark.parametrize(
    "expression", ["1 + 1", "env.A ? 'a' : 'b'", "new Date()", "Math.PI", "`a`", "'a'", "[1]", "!A"]
)
def test_what_it_would_evaluate_is_refused_with_the_way_out(
    tmp_path: Path, expression: str
) -> None:
    (tmp_path / "told.md").write_text(f"a\nb ${{{expression}}}")
    with pytest.raises(SourceUnusable) as raised:
        read(in_agent("instruction_file: told.md"), directory=tmp_path)
    assert "told.md, line 2: only a variable's name can stand in" in str(raised.value)
    assert "write $${ for the characters" in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "field", "value"),
    [
        ("description: 42", "description", "42"),
        ("description: 1.10", "description", "1.10"),
        ("description: true", "description", "true"),
        ("max_iterations: '7'", "max_iterations", 7),
        ("compaction_threshold: '0.5'", "compaction_threshold", 0.5),
        ("sub_agents: [a, a]\n", "sub_agents", ("a", "a")),
        ("x-note: {any: thing}", "x", None),
    ],
)
def test_what_people_write_is_read_as_docker_agent_reads_it(
    fields: str, field: str, value: object
) -> None:
    file = read(in_agent(fields) + "\n  a: {model: b/c}\nx-own: [&a {b: c}]\n")
    assert getattr(file.agents[0].shape, field, None) == value
    assert file.warnings == ()
    assert file.agents[0].sub_agents in ((), ("a",))


@pytest.mark.parametrize("field", ["add_date: 'true'", "add_date: yes", "max_iterations: seven"])
def test_a_word_is_no_number_and_no_truth_value(field: str) -> None:
    assert "expected" in problems(in_agent(field))[0]


@pytest.mark.parametrize(
    ("model", "effort", "tokens"),
    [
        ("{provider: anthropic, model: m, thinking_budget: 4096}", None, 4096),
        ("{provider: anthropic, model: m, thinking_budget: -1}", None, -1),
        ("{provider: anthropic, model: m, thinking_budget: 0}", "none", None),
        ("{provider: anthropic, model: m, thinking_budget: high}", "high", None),
        ("{provider: house, model: m, thinking_budget: 4096}", None, 4096),
        ("{provider: openai, model: m, thinking_budget: low}", "low", None),
        ("{provider: openai, model: m, thinking_budget: 0}", "none", None),
    ],
)
def test_a_budget_for_thinking_is_counted_or_put_in_words(
    model: str, effort: str | None, tokens: int | None
) -> None:
    file = read(
        f"agents: {{root: {{model: m}}}}\nmodels: {{m: {model}}}\n"
        "providers: {house: {base_url: 'http://127.0.0.1:9', api_type: anthropic}}"
    )
    config = file.agents[0].model
    assert (config.parameters.reasoning_effort, config.thinking_tokens) == (effort, tokens)
    assert not file.warnings


def test_a_cost_is_taken_by_its_digits() -> None:
    file = read(in_model("cost: {input: 3, output: 0.1, cache_read: 0.075}"))
    assert file.agents[0].model.price == Price(
        input=Decimal(3), output=Decimal("0.1"), cache_read=Decimal("0.075")
    )
    assert any("cost.input" in each for each in problems(in_model("cost: {input: -1}")))


async def test_the_smallest_file() -> None:
    team = await team_of(SMALL)
    agent = team.agents["root"]
    assert (team.entry, agent.model.name, agent.instruction) == ("root", "openai/gpt-5", "")
    assert agent.permissions == Permissions()
    assert agent.policy == Policy()


@pytest.mark.parametrize(
    ("names", "entry"),
    [(["root"], "root"), (["a", "root"], "root"), (["b", "a"], "b")],
)
async def test_who_answers_if_nobody_is_named(names: list[str], entry: str) -> None:
    agents = ", ".join(f"{name}: {{model: openai/gpt-5}}" for name in names)
    assert (await team_of(f"agents: {{{agents}}}")).entry == entry


async def test_agents_with_the_same_model_share_it_and_it_is_closed_once() -> None:
    factory = Factory()
    text = "agents: {a: {model: x/y}, b: {model: x/y}, c: {model: x/z}}"
    team = await assemble(read(text), factory)
    assert len(factory.made) == 2
    assert team.agents["a"].model is team.agents["b"].model
    await team.close()
    assert [model.closed for model in factory.made] == [1, 1]


def test_the_digest_is_that_of_the_content() -> None:
    assert read(SMALL).digest == read(SMALL).digest
    assert read(SMALL).digest != read(SMALL + "\n").digest


@pytest.mark.parametrize(
    "text",
    [
        SMALL,
        "version: '7'\n" + SMALL,
        # circles of sub-agents are bounded by their depth
        "agents: {a: {model: x/y, sub_agents: [b, a]}, b: {model: x/y, sub_agents: [a]}}",
        "agents: {a b: {model: x/y}, größe: {model: x/y}}",
        "agents: {root: {model: x/y/z, description: }}",
        in_agent("max_iterations: 0"),
        in_agent("fallback: {retries: -1, cooldown: 1h}"),
        in_agent("policy: {crash: resume}"),
        in_model("thinking_budget: 0"),
        in_model("base_url: http://localhost:1234/v1"),
        in_model("base_url: ${HOUSE_URL}"),
        in_model("base_url: $HOUSE_URL"),
        in_model("base_url: https://x/$SECRET/v1"),
        in_script("cmd: ls\ntimeout: 0.5"),
        "a: &a {model: x/y}\n".replace("a: ", "agents: {root: ").rstrip() + ", b: *a}",
    ],
)
def test_files_that_are_fine(text: str) -> None:
    assert read(text).warnings == ()


# ── what an agent is told, and what is told about it ──


async def test_commands_are_prompts_with_names() -> None:
    short = in_agent("commands:\n  fix: Fix it\n  plan: {description: Plans, instruction: Plan $1}")
    listed = in_agent(
        "commands: [{fix: Fix it}, {plan: {description: Plans, instruction: Plan $1}}]"
    )
    for text in (short, listed):
        assert (await team_of(text)).agents["root"].commands == (
            PromptCommand(name="fix", instruction="Fix it"),
            PromptCommand(name="plan", description="Plans", instruction="Plan $1"),
        )


async def test_the_form_of_answers_is_asked_for_as_clients_would() -> None:
    text = in_agent(
        "structured_output: {name: weather, strict: true, schema: {type: object, properties: {t: {type: number}}}}"
    )
    asked = (await team_of(text)).agents["root"].parameters.output_schema
    assert read_schema(asked) == OutputSchema(
        name="weather",
        schema=b'{"type":"object","properties":{"t":{"type":"number"}}}',
        strict=True,
    )


async def test_a_model_that_cannot_be_asked_for_a_form_is_told_of() -> None:
    text = in_agent("structured_output: {name: a, schema: {type: object}}")
    (told,) = (await team_of(text)).warnings
    assert told == (
        "shop.yaml:4:5: agents.root.structured_output: its model cannot be asked for a form; left out"
    )


async def test_hooks_run_where_the_file_is_and_see_what_scripts_see(tmp_path: Path) -> None:
    text = in_agent(
        """\
        hooks:
          pre_tool_use:
            - matcher: shell|edit_.*
              hooks: [{type: command, command: ./guard.sh, timeout: 5}]
          on_user_input: [{type: command, command: ./call.sh}]
        """
    )
    hooks = read(text, directory=tmp_path).agents[0].hooks
    assert hooks.every["pre_tool_use"] == (
        Hook(command="./guard.sh", matcher="shell|edit_.*", timeout_s=5.0),
    )
    assert hooks.every["on_user_input"] == (Hook(command="./call.sh"),)
    assert hooks.directory == tmp_path
    assert "SECRET" not in hooks.environment


async def test_options_of_providers_that_are_known_have_an_effect() -> None:
    text = in_model("provider_opts: {context_size: 8192, service_tier: flex}\ntrack_usage: true")
    root = (await team_of(text)).agents["root"]
    assert root.context_window == 8192
    assert root.parameters.others == (("service_tier", '"flex"'),)
    for said, counts in (("true", True), ("false", False)):
        factory = Factory()
        await assemble(read(in_model(f"provider_opts: {{counts_tokens: {said}}}")), factory)
        assert factory.made[0].config.counts_tokens is counts


async def test_prompt_files_and_the_environment_are_part_of_the_instruction(tmp_path: Path) -> None:
    (tmp_path / "rules.md").write_text("Be brief.\n")
    text = in_agent(
        "instruction: You help.\nadd_prompt_files: [rules.md]\nadd_environment_info: true"
    )
    file = read(text, directory=tmp_path)
    told = (await assemble(file, Factory())).agents["root"].instruction
    assert told.startswith("You help.\n\nYour environment:\n")
    assert f"Working directory: {tmp_path}" in told
    assert told.endswith("\n\nBe brief.")
    (tmp_path / "rules.md").write_text("Be long.\n")
    assert read(text, directory=tmp_path).digest != file.digest


def test_prompt_files_stay_below_the_directory_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    inside = tmp_path / "agents"
    inside.mkdir()
    (inside / "link.md").symlink_to("../secret")
    (inside / "large.md").write_text("x" * (limits.prompt_file_bytes_max + 1))
    (inside / "bytes.md").write_bytes(b"\xff")
    for name, words in (
        ("../secret", "leads out of"),
        ("link.md", "leads out of"),
        ("large.md", "at most 65536"),
        ("bytes.md", "it is not UTF-8 text"),
    ):
        with pytest.raises(SourceUnusable) as raised:
            read(in_agent(f"add_prompt_files: [{name}]"), directory=inside)
        assert words in str(raised.value), name
        assert "s3cret" not in str(raised.value)


# ── mistakes ──

WRONG = [
    # the document
    ("", "shop.yaml:1:1: there is nothing in it"),
    ("agents: [\n]]", "shop.yaml:2:2: this is not YAML"),
    ("just text", "shop.yaml:1:1: expected a mapping, got text"),
    ("[]", "shop.yaml:1:1: expected a mapping, got a list"),
    ("version: 7", "shop.yaml:1:1: 'agents' is missing"),
    ("agents: {}", "shop.yaml:1:1: agents: there has to be at least one agent"),
    ("agents:", "shop.yaml:1:1: 'agents' is missing"),
    ("agents: []", "shop.yaml:1:1: agents: expected a mapping, got a list"),
    ("agents: {root: }", "shop.yaml:1:10: agents.root: expected a mapping, got nothing"),
    ("agent: {}\n" + SMALL, "shop.yaml:1:1: agent: unknown field; did you mean 'agents'?"),
    ("zzz: 1\n" + SMALL, "unknown field; there are: agents, version, models"),
    ("version: new\n" + SMALL, "shop.yaml:1:1: version: expected a version of the format"),
    ("version: 1.5\n" + SMALL, "version: expected a version of the format"),
    ("agents: {a/b: {model: x/y}}", "agents.a/b: a name has 1–64 printable characters, and no '/'"),
    ("agents: {'': {model: x/y}}", "a name has 1–64"),
    ("agents: {' a': {model: x/y}}", "a name has 1–64"),
    (f"agents: {{{'a' * 65}: {{model: x/y}}}}", "a name has 1–64"),
    # agents
    (in_agent("modle: x"), "shop.yaml:4:5: agents.root.modle: unknown field; did you mean 'model'?"),
    (in_agent("instruction: [a]"), "shop.yaml:4:5: agents.root.instruction: expected text, got a list"),
    (in_agent("max_iterations: many"), "expected a whole number, got text"),
    (in_agent("max_iterations: -1"), "max_iterations: expected a whole number >= 0"),
    (in_agent("max_iterations: yes"), "expected a whole number, got text"),
    (in_agent("sub_agents: root"), "sub_agents: expected a list, got text"),
    (in_agent("sub_agents:\n  - rot"), "shop.yaml:5:9: agents.root.sub_agents[0]: no such agent; did you mean 'root'?"),
    (in_agent("handoffs: [root]"), "an agent cannot hand over to itself"),
    (in_agent("handoffs: [nobody]"), "handoffs[0]: no such agent; there are: root"),
    (in_agent("policy: {cancel: resume}"), "policy.cancel: has to be one of: keep, discard, auto"),
    (in_agent("policy: {cancel: kep}"), "policy.cancel: has to be one of: keep, discard, auto, finish"),
    (in_agent("policy: {cancle: keep}"), "policy.cancle: unknown field; did you mean 'cancel'?"),
    (in_agent("limits: {steps_max: 0}"), "limits.steps_max: expected a whole number >= 1"),
    (in_agent("max_iterations: 3\nlimits: {steps_max: 4}"), "says the same as 'max_iterations'"),
    (in_agent("fallback: {models: [nobody]}"), "fallback.models[0]: no such model"),
    (in_agent("fallback: {retries: 99}"), "fallback.retries: expected a whole number <= 10"),
    (in_agent("fallback: {cooldown: soon}"), "fallback.cooldown: expected a duration"),
    (in_agent("fallback: {cooldown: 60}"), "fallback.cooldown: expected a duration, such as '30s'"),
    ("agents: {root: {model: smrt}}\nmodels: {smart: {provider: a, model: b}}", "no such model; did you mean 'smart'?"),
    ("agents: {root: {model: gpt-5}}", "no such model; there are: none, or write 'provider/model'"),
    ("agents: {root: {model: /gpt-5}}", "no such model"),
    ("agents: {root: {model: openai/}}", "no such model"),
    (in_agent("commands: [a]"), "commands[0]: expected a mapping, got text"),
    (in_agent("commands: text"), "commands: expected a mapping, got text"),
    (in_agent("commands: {fix: {prompt: x}}"), "commands.fix.prompt: unknown field; there are: description, instruction"),
    (in_agent("commands: {two words: x}"), "commands: a command's name has 1–64 characters, and no spaces"),
    (in_agent("commands: [{fix: a}, {fix: b}]"), "commands: the command 'fix' is there 2 times"),
    (in_agent("structured_output: {name: a}"), "structured_output: 'schema' is missing"),
    (in_agent("structured_output: {name: a b, schema: {type: object}}"), "structured_output.name: expected text matching"),
    (in_agent("structured_output: {name: a, schema: {type: array}}"), "structured_output.schema: has to be the schema of an object"),
    (in_agent("structured_output: {name: a, schema: {type: object, required: 3}}"), "structured_output.schema: this is not a JSON Schema"),
    (in_agent("instruction_file: nothing-is-here.md"), "instruction_file: it cannot be read: No such file"),
    (in_agent("instruction: a\ninstruction_file: [b.md]"), "instruction_file: the instruction is there already"),
    (in_agent("use_toolsets: [x]"), "use_toolsets[0]: no such toolset; there are: none"),
    (in_agent("use_commands: [x]"), "use_commands[0]: no such group of commands; there are: none"),
    (in_agent("commands: {fix: {agent: nobody}}"), "agents.root.commands: 'fix' is for an agent that is not there"),
    (in_agent("use_skills: [x]"), "agents.root.use_skills[0]: no such group of skills"),
    (in_agent("skills: [{name: a, description: b, instructions: c, toolsets: [x]}]"), "skills[0].toolsets: a skill has its agent's tools"),
    (in_agent("skills: [{name: a/b, description: b, instructions: c, context: fork}]"), "agents.root.skills: a name has 1–64 printable characters"),
    (in_agent("harness: {type: codex}"), "agents.root.harness: agents of other programs are not run here; give the agent a 'model'"),
    (in_agent("force_handoff: docker.io/agents/x"), "force_handoff: no such agent"),
    (in_agent("toolsets: [{type: think, model: nope}]"), "toolsets[0].model: no such model"),
    (in_model("routing: [{model: nope, examples: [c]}]"), "models.m.routing[0]: no such model"),
    ("agents: {root: {model: a/b, fallback: {models: [m]}}}\nmodels: {m: {provider: a, model: b, routing: [{model: a/c, examples: [d]}]}}", "fallback.models[0]: 'm' sends requests on to other models"),
    (in_agent("toolsets: [{type: model_picker, models: [nope]}]"), "toolsets[0].models[0]: no such model"),
    (in_agent("toolsets: [{type: model_picker, models: []}]"), "toolsets[0].models: there has to be at least one model"),
    ("agents: {root: {model: a/b, fallback: {models: [m]}}}\nmodels: {m: {model: 'a/b,a/c'}}", "fallback.models[0]: 'm' stands for models that take turns"),
    (in_agent("force_handoff: nobody"), "agents.root.force_handoff: no such agent; there are: root"),
    (in_agent("force_handoff: root"), "agents.root.force_handoff: leads in a circle: root → root"),
    ("agents: {a: {model: x/y, force_handoff: b}, b: {model: x/y, force_handoff: a}}", "agents.a.force_handoff: leads in a circle: a → b → a"),
    ("agents: {a: {model: x/y, sub_agents: [b]}, b: {model: x/y, force_handoff: a}}", "agents.b.force_handoff: an agent that is given tasks answers"),
    (in_agent("budgets: [x]"), "agents.root.budgets[0]: no such budget; there are: none"),
    ("budget: {max_cost: 1}\n" + SMALL, "budget.max_cost: what "),
    ("budget: {max_time: soon}\n" + SMALL, "budget.max_time: expected a duration"),
    (in_agent("hooks: {stop: [{type: model, model: a/b, prompt: '{{ if .X }}'}]}"), "hooks.stop[0].prompt: {{ if .X }} is not filled in here"),
    (in_agent("hooks: {stop: [{type: model, model: a/b, prompt: b, schema: pre_tool_use_decision}]}"), "hooks.stop[0].schema: a decision is about a call"),
    (in_agent("hooks: {session_end: [{type: model, model: a/b, prompt: b}]}"), "hooks.session_end[0]: no model is asked after a session has gone"),
    (in_agent("hooks: {stop: [{type: model, model: nope, prompt: b}]}"), "hooks.stop: no such model"),
    (in_agent("hooks: {stop: [{type: command, command: a, prompt: b}]}"), "hooks.stop[0].prompt: is for hooks of type 'model'"),
    (in_agent("hooks: {stop: [{type: command}]}"), "hooks.stop[0].command: there is no command"),
    ("agents: {root: {model: m}}\nmodels: {m: {model: a}}", "models.m: 'provider' is missing"),
    ("agents: {root: {model: m}}\nmodels: {m: {provider: a}}", "models.m: 'model' is missing"),
    ("agents: {root: {model: m}}\nmodels: {m: {first_available: [a/b], model: c}}", "first_available: chooses among other models"),
    ("agents: {root: {model: m}}\nmodels: {m: {first_available: [x]}}", "first_available[0]: no such model"),
    ("agents: {root: {model: 'a/b, c'}}", "agents.root.model: no such model"),
    ("agents: {root: {model: 'a/b, c/d', fallback: {models: [e/f]}}}", "fallback: models that take turns stand in"),
    ("providers: {a: {provider: opnai}}\n" + SMALL, "providers.a.provider: no such provider; did you mean 'openai'?"),
    ("providers: {a: {}}\n" + SMALL, "providers.a: 'base_url' is missing"),
    (in_agent("hooks: {pre_tool_use: [{matcher: '(', hooks: [{type: command, command: a}]}]}"), "hooks.pre_tool_use[0].matcher: this is not a regular expression"),
    (in_agent("hooks: {pre_tool_use: [{matcher: a}]}"), "hooks.pre_tool_use[0]: 'hooks' is missing"),
    (in_agent("hooks: {session_start: [{type: evaluator, command: a}]}"), "hooks.session_start[0].type: has to be one of: command, builtin, model"),
    (in_agent("hooks: {session_start: [{type: model, model: a/b}]}"), "hooks.session_start[0]: 'prompt' is missing"),
    (in_agent("hooks: {session_start: [{type: builtin, command: add_dates}]}"), "hooks.session_start[0].command: no such thing is built in; did you mean 'add_date'?"),
    (in_agent("hooks: {before_llm_call: [{type: builtin, command: max_iterations, args: [many]}]}"), "before_llm_call[0].args: expected how many model calls"),
    (in_agent("hooks: {session_start: [{type: command, command: ' '}]}"), "hooks.session_start[0].command: there is no command"),
    (in_agent("hooks: {before_lm_call: []}"), "hooks.before_lm_call: unknown field"),
    (in_agent("hooks: {stop: [{type: command, command: a, working_dir: /nowhere}]}"), "stop[0].working_dir: there is no such directory"),
    (in_agent("add_date: 3"), "add_date: expected true or false, got a number"),
    # models
    (in_model("provider_opts: {context_size: many}"), "provider_opts.context_size: expected a whole number"),
    (in_model("provider_opts: {counts_tokens: 3}"), "provider_opts.counts_tokens: expected true or false"),
    ("models: {m: {provider: x}}\n" + SMALL, "shop.yaml:1:10: models.m: 'model' is missing"),
    (in_model("temperature: hot"), "shop.yaml:6:5: models.m.temperature: expected a number, got text"),
    (in_model("temperature: -1"), "temperature: expected a number >= 0"),
    (in_model("top_p: 2"), "top_p: expected a number <= 1"),
    (in_model("max_tokens: 0"), "max_tokens: expected a whole number >= 1"),
    (in_model("thinking_budget: lots"), "thinking_budget: has to be one of: none, minimal"),
    (in_model("base_url: not a url"), "base_url: expected the address of a server"),
    (in_model("base_url: file:///etc/passwd"), "base_url: expected the address of a server"),
    (in_model("provider_opts: {fallbacks: [a]}"), "models.m.provider_opts.fallbacks: only Anthropic's API has them; name other"),
    (in_agent("instruction: 'Say ${1 + 1}'"), "instruction: only a variable's name can stand in ${…}, not '1 + 1'"),
    ("agents: {root: {model: 'openai/${NOBODY}'}}", "agents.root.model: the environment variable 'NOBODY' is not set"),
    ("agents: {root: {model: m}}\nmodels: {m: {provider: openai, model: '${env.NOBODY}'}}", "models.m.model: the environment variable 'NOBODY' is not set"),
    (in_model("token_key: sk-abc-def"), "token_key: expected the name of an environment variable"),
    (in_model("token_key: ${env.KEY}"), "token_key: expected the name of an environment variable"),
    ("providers: {p: {token_key: A}}\n" + SMALL, "providers.p: 'base_url' is missing"),
    ("providers: {p: {base_url: 'http://a', api_type: soap}}\n" + SMALL, "has to be one of: "),
    # permissions
    (in_agent("toolsets: [{type: shell}]\npermissions: {deny: ['shell:command=rm*']}"), "permissions.deny[0]: no such argument of shell; did you mean 'cmd'?"),
    ("permissions: {allow: all}\n" + SMALL, "permissions.allow: expected a list, got text"),
    # tools
    (in_agent("toolsets: {}"), "toolsets: expected a list, got a mapping"),
    (in_agent("toolsets: [{}]"), "toolsets[0]: 'type' is missing"),
    (in_agent("toolsets: [{type: scrpt}]"), "toolsets[0].type: has to be one of: script"),
    (in_agent("toolsets: [{type: script}]"), "toolsets[0]: 'shell' is missing"),
    (in_agent(f"toolsets: [{', '.join(['{type: think}'] * 33)}]"), "toolsets: has 33 entries, at most 32"),
    (in_script("description: a"), "shop.yaml:7:11: agents.root.toolsets[0].shell.look: 'cmd' is missing"),
    (in_script("cmd: ''"), "shell.look: 'look' has no command"),
    (in_script("cmd: a\ncommand: b"), "shop.yaml:9:13: agents.root.toolsets[0].shell.look.command: unknown field"),
    (in_script("cmd: a\nargs: {x: string}"), "args.x: expected a mapping, got text"),
    (in_script("cmd: a\nargs: {x: {type: texd}}"), "the schema of 'look' is not a JSON Schema"),
    (in_script("cmd: a\nargs: {a-b: {}}"), "the argument 'a-b' of 'look' becomes an environment variable"),
    (in_script("cmd: a\nargs: {PATH: {}}"), "take another name"),
    (in_script("cmd: a\nrequired: [x]"), "'look' requires the argument 'x'"),
    (in_script("cmd: a\nenv: {A: $SECRET}"), "env.A: say which variable of the server is meant: ${env.NAME}, or list the name in 'pass_env'"),
    (in_script("cmd: a\nenv: {A: '${SECRET}'}"), "list the name in 'pass_env'"),
    (in_script("cmd: a\nread_only: 1"), "expected true or false, got a number"),
    (in_script("cmd: a\ntimeout: 0"), "timeout: expected a number > 0"),
    (in_agent("toolsets: [{type: script, shell: {two words: {cmd: a}}}]"), "cannot be a tool's name"),
    (in_agent("toolsets: [{type: script, shell: {handoff: {cmd: a}}}]"), "another tool of this agent has that name"),
    (in_agent("toolsets: [{type: script, shell: {a: {cmd: a}}}, {type: script, shell: {a: {cmd: b}}}]"), "toolsets[1].shell.a: another tool"),
    (in_agent("toolsets: [{type: script, tools: [b], shell: {a: {cmd: a}}}]"), "tools[0]: no such command; there are: a"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"), WRONG, ids=[f"{n} {each[1][:60]}" for n, each in enumerate(WRONG)]
)
def test_a_mistake_is_told_with_its_place(text: str, told: str) -> None:
    found = problems(text)
    assert any(told in each for each in found), found
    assert all(each.startswith("shop.yaml:") for each in found)


def test_all_mistakes_are_told_at_once_in_order() -> None:
    found = problems(in_agent("max_iterations: many\nmodle: x\nsub_agents: 3"))
    assert [each.split(":")[1] for each in found] == ["4", "5", "6"]


def test_not_more_mistakes_than_anybody_reads() -> None:
    found = problems(in_agent("\n".join(f"field{n}: 1" for n in range(100))))
    assert len(found) == limits.agent_file_problems_max + 1
    assert found[-1] == "shop.yaml: … and 80 more"


def test_too_many_agents_are_refused() -> None:
    agents = "".join(f"  a{n}: {{model: x/y}}\n" for n in range(65))
    assert problems(f"agents:\n{agents}") == ["shop.yaml:1:1: agents: has 65 entries, at most 64"]


def test_a_command_that_works_beside_its_agent_file_is_told_that_it_can_make_no_files_there(
    tmp_path: Path,
) -> None:
    def told(more: str) -> list[str]:
        found = read(in_script(f"cmd: a\n{more}"), directory=tmp_path).warnings
        return [str(each) for each in found]

    for place in (".", "./", str(tmp_path)):
        (words,) = told(f"working_dir: {place}")
        assert "working_dir: in a sandbox a command can add and remove no files" in words
    assert told("") == told("working_dir: till") == told("working_dir: .\nread_only: true") == []


def test_a_relative_directory_does_not_lead_out_of_that_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(SourceUnusable, match="leads out of"):
        read(in_script("cmd: a\nworking_dir: ../.."), directory=tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        in_model("token_key: s3cret-key"),
        in_model("base_url: ftp://s3cret"),
        in_model("base_url: ftp://$SECRET"),
        in_model("temperature: s3cret"),
        in_model("thinking_budget: s3cret"),
        in_agent("max_iterations: s3cret"),
        in_agent("policy: {cancel: s3cret}"),
        in_agent("toolsets: [{type: s3cret}]"),
        in_agent("fallback: {cooldown: s3cret}"),
        in_script("cmd: a\nenv: {A: [s3cret]}"),
        "version: s3cret\n" + SMALL,
        "token: 's3cret",
        "token: s3cret: b",
    ],
)
def test_no_complaint_repeats_a_value(text: str) -> None:
    """Somebody will put the key itself where its name belongs, and the log is read by others."""
    assert "s3cret" not in " ".join(problems(text))


# ── what is left out with a warning ──

WARNED = [
    (in_model("thinking_budget: 1024"), "models.m.thinking_budget: this model takes no budget in tokens"),
    (in_model("provider_opts: {runtime_flags: [a]}"), "models.m.provider_opts.runtime_flags: left out: they are for the program"),
    (in_model("provider_opts: {colour: blue}"), "models.m.provider_opts.colour: is not known here; left out"),
    (in_agent("add_prompt_files: [nothing-is-here.md]"), "add_prompt_files[0]: it cannot be read: No such file"),
    (in_agent("hooks: {worktree_create: [{type: command, command: a}]}"), "hooks.worktree_create: left out: no worktree is made here"),
    (in_agent("hooks: {on_agent_switch: [{type: builtin, command: unload}]}"), "on_agent_switch[0].command: left out: models stay loaded"),
    (in_agent("commands: {fix: 'Fix !`git status`'}"), "agents.root.commands: '!`git status`' in 'fix' is not run here"),
    (in_agent("commands: {fix: 'Fix ${shell({cmd: 1})}'}"), "'${shell({cmd: 1}' in 'fix' is not run here"),
    (in_agent("commands: {fix: 'Fix !shell(cmd=1)'}"), "'!shell(cmd=1)' in 'fix' is not run here"),
    (in_agent("commands: {fix: 'Ask $USER'}"), "'$USER' in 'fix' is not run here"),
    (in_agent("commands: {fix: 'Ask ${env.UNSET_HERE}'}"), "'fix' has nothing for the environment variable 'UNSET_HERE'"),
    (in_agent("toolsets: [{type: mcp, command: no-such-program, version: owner/repo}]"), "version: no-such-program is not on the PATH"),
    (in_agent("skills: [nowhere]"), "agents.root.skills: there is no such skill beside the file; there are: none"),
    (in_model("track_usage: false"), "models.m.track_usage: usage is counted always"),
    (in_agent("toolsets: [{type: think, toon: a}]"), "toolsets[0].toon: left out: models are shown results as"),
    (in_agent("toolsets: [{type: think, url: a}]"), "toolsets[0].url: left out: has no meaning for a toolset of type 'think'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), WARNED, ids=[each[1][:60] for each in WARNED])
def test_what_cannot_matter_is_left_out_with_a_warning(text: str, told: str) -> None:
    (found,) = warnings(text)
    assert told in found


def test_what_asks_for_nothing_is_not_told() -> None:
    assert warnings(in_agent("skills: false\nredact_secrets: false\nrag: []\ncache: {}")) == []


@pytest.mark.parametrize(
    ("said", "found"),
    [("", []), (", local", ["sow"]), (", sow", ["sow"]), (", {name: cut, description: a, instructions: b}", ["cut"])],
)  # fmt: skip
def test_skills_that_lie_elsewhere_are_missing_and_bring_no_others(
    tmp_path: Path, said: str, found: list[str]
) -> None:
    """A list with an address alone means none of those beside the file."""
    folder = tmp_path / ".agents/skills/sow"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: sow\ndescription: When.\n---\nNow.")
    text = in_agent(f"skills: ['https://a.example/1', 'https://a.example/2'{said}]")
    file = read(text, directory=tmp_path)
    assert [each.field for each in file.warnings] == ["agents.root.skills"] * 2
    assert all("is not fetched" in each.words for each in file.warnings)
    told = "".join(map(instruction_of, file.agents[0].tools.toolsets))
    assert [name for name in ("sow", "cut") if f"- {name}: " in told] == found


@pytest.mark.parametrize("kind", TOOLSETS_REFUSED)
async def test_a_toolset_that_is_not_run_is_refused_and_its_file_is_not(kind: str) -> None:
    """docker-agent goes on without a toolset that cannot be started, too; the model is told."""
    words = TOOLSETS_REFUSED[kind]
    text = in_agent(f"toolsets:\n  - type: {kind}\n    command: x\n")
    (told,) = warnings(text)
    assert f"shop.yaml:5:9: agents.root.toolsets[0].type: {kind}: refused" in told and words in told
    (toolset,) = read(text).agents[0].tools.toolsets
    assert await toolset.tools() == ()
    why = words.partition(";")[0]
    assert instruction_of(toolset) == (
        f"The tools of a toolset of type {kind!r} cannot be used now: {why}"
    )


@pytest.mark.parametrize(
    "field", ["required: true", "lifecycle: {profile: strict, required: true}"]
)
@pytest.mark.parametrize("kind", TOOLSETS_REFUSED)
def test_a_file_that_cannot_do_without_it_is_refused_with_the_way_out(
    kind: str, field: str
) -> None:
    (found,) = problems(in_agent(f"toolsets: [{{type: {kind}, {field}}}]"))
    assert f"agents.root.toolsets[0].type: {kind}: {TOOLSETS_REFUSED[kind]}" in found


def test_a_field_has_one_disposition() -> None:
    for table in (REFUSED, CANNOT_MATTER):
        for shape, fields in table.items():
            assert not fields.keys() & set(shape.__struct_fields__), shape
    for shape, fields in REFUSED.items():
        assert not fields.keys() & CANNOT_MATTER.get(shape, {}).keys(), shape


# ── rules for tools ──

SHELL = "toolsets: [{type: shell}]\n"


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ("allow: [shel]", "permissions.allow[0]: no tool has that name; did you mean 'shell'?"),
        ("deny: [shel]", "permissions.deny[0]: no tool has that name; did you mean 'shell'?"),
        ("allow: ['x*']", "permissions.allow[0]: no tool has that name; there are: shell"),
        ("allow: ['shell:command=ls*']", "it allows nothing: no such argument of shell; did you mean 'cmd'?"),
    ],
)  # fmt: skip
def test_a_rule_for_a_tool_that_is_not_there_is_warned_about(rules: str, told: str) -> None:
    for text in (in_agent(f"{SHELL}permissions: {{{rules}}}"), f"permissions: {{{rules}}}\n" + in_agent(SHELL)):  # fmt: skip
        (found,) = warnings(text)
        assert told in found


GITHUB = "toolsets: [{type: mcp, command: gh, name: github}, {type: mcp, command: jira}]\n"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("allow: ['mcp:github:get_*']", Permissions(allow=("github_get_*",))),
        ("allow: ['mcp:git*:*', shell]", Permissions(allow=("github_*", "shell"))),
        ("ask: ['mcp:github:*:repo=a/b']", Permissions(ask=("github_*:repo=a/b",))),
        ("deny: ['mcp:github:delete_*', 'mcp:jira:delete_*']", Permissions(deny=("github_delete_*", "delete_*"))),
        ("allow: ['mcp:jira:get_*']", Permissions()),
        ("deny: ['mcp:gitlab:*']", Permissions()),
    ],
)  # fmt: skip
def test_a_rule_may_be_about_the_tools_of_a_server(said: str, meant: Permissions) -> None:
    """docker-agent's form. What allows never reaches a tool of another server."""
    for text in (in_agent(f"{GITHUB}permissions: {{{said}}}"), f"permissions: {{{said}}}\n" + in_agent(GITHUB)):  # fmt: skip
        assert read(text).agents[0].permissions == meant


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("allow: ['mcp:github:get_*']", ""),
        ("deny: ['mcp:jira:get_*']", ""),
        ("allow: ['mcp:gihub:*']", "permissions.allow[0]: it allows nothing: no server has that name; did you mean 'github'?"),
        ("deny: ['mcp:gihub:*']", "permissions.deny[0]: it names nothing: no server has that name; did you mean 'github'?"),
        ("allow: ['mcp:jira:*']", "it allows nothing: the tools of 'jira' cannot be told from others: give its toolset a 'name'"),
    ],
)  # fmt: skip
def test_a_rule_about_a_server_that_holds_for_nothing_is_warned_about(rule: str, told: str) -> None:
    found = warnings(in_agent(f"{GITHUB}permissions: {{{rule}}}"))
    assert len(found) == bool(told) and all(told in each for each in found)


@pytest.mark.parametrize(
    "rules",
    ["allow: ['*']", "allow: [shell]", "deny: ['delete_*']", "deny: ['*']", "ask: [transfer_task]", "allow: ['shell:cmd=git *']"],
)  # fmt: skip
def test_a_rule_that_means_a_tool_or_tools_to_come_is_not(rules: str) -> None:
    assert warnings(in_agent(f"{SHELL}permissions: {{{rules}}}")) == []


def test_a_server_may_have_any_tools() -> None:
    text = in_agent("toolsets: [{type: mcp, command: a}]\npermissions: {allow: [look, 'x:y=z']}")
    assert warnings(text) == []


async def test_only_the_tools_that_are_listed() -> None:
    text = in_agent("toolsets: [{type: script, tools: [b], shell: {a: {cmd: a}, b: {cmd: b}}}]")
    (toolset,) = (await team_of(text)).agents["root"].toolsets
    assert [tool.spec.name for tool in await toolset.tools()] == ["b"]


# ── files that somebody else serves ──


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (in_script("cmd: rm -rf /"), "toolsets[0]: is not accepted from a URL: it would let the owner of that server run commands"),
        (in_model("base_url: https://evil.example/v1"), "base_url: is not accepted from a URL"),
        (in_model("base_url: https://evil.example/$SECRET"), "base_url: is not accepted from a URL"),
        (in_model("token_key: AWS_SECRET_ACCESS_KEY"), "token_key: is not accepted from a URL"),
        ("providers: {p: {base_url: 'https://evil.example'}}\n" + SMALL, "providers.p.base_url: is not accepted"),
        (in_agent("add_prompt_files: [/etc/passwd]"), "add_prompt_files: is not accepted from a URL"),
        (in_agent("hooks: {on_user_input: [{type: command, command: a}]}"), "hooks: is not accepted from a URL"),
        (in_agent("add_environment_info: true"), "add_environment_info: is not accepted from a URL"),
        (in_agent("instruction: At ${HOME}."), "let the owner of that server read our variables"),
        ("agents: {root: {model: 'openai/${HOME}'}}", "let the owner of that server read our variables"),
    ],
)  # fmt: skip
def test_a_remote_file_is_not_trusted_with_this_machine(text: str, told: str) -> None:
    assert any(told in each for each in problems(text, trusted=False))


def test_a_remote_file_may_name_models() -> None:
    assert read(SMALL, trusted=False).agents[0].model.name == "openai/gpt-5"


# ── making a team ──


async def test_a_model_that_cannot_be_made_is_told_with_its_place() -> None:
    factory = Factory()
    text = "agents:\n  root: {model: openai/gpt-5}\n  b:\n    model: bad/one\n"
    with pytest.raises(SourceUnusable) as raised:
        await assemble(read(text), factory)
    assert str(raised.value) == "shop.yaml:4:5: agents.b.model: no such provider; use openai"
    assert [model.closed for model in factory.made] == [1]


# ── anything at all ──

leaves = st.sampled_from(
    [None, True, 0, -1, 3, 1.5, "", "x", "root", "script", "mcp", "openai/gpt-5", "$HOME", "keep"]
)
FIELDS = sorted(
    {
        *FileShape.__struct_fields__,
        *AgentShape.__struct_fields__,
        *ModelShape.__struct_fields__,
        *(
            "type",
            "shell",
            "cmd",
            "args",
            "env",
            "root",
            "a",
            "allow",
            "models",
            "retries",
            "cancel",
        ),
    }
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
    ),
    max_leaves=25,
)


def complaints(tree: object, *, trusted: bool) -> tuple[str, ...]:
    try:
        read(yaml.safe_dump(tree), trusted=trusted)
    except SourceUnusable as error:
        return error.problems or ("nothing was told",)
    return ()


@given(st.dictionaries(st.sampled_from(FIELDS), trees, max_size=4), st.booleans())
def test_any_tree_is_read_or_told(tree: dict[str, object], trusted: bool) -> None:
    assert all(each.startswith("shop.yaml:") for each in complaints(tree, trusted=trusted))


@given(trees)
def test_any_agent_is_read_or_told(tree: object) -> None:
    file = {"agents": {"root": tree}, "models": {"m": tree}}
    assert all(each.startswith("shop.yaml:") for each in complaints(file, trusted=True))
