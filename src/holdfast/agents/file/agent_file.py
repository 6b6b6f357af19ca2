"""The agent file: YAML in docker-agent's format.

Reading one takes two steps. `check_agent_file` checks everything and makes a plan; it needs no key and executes
nothing, so that a file can be checked on every machine. `assemble` makes a team from the plan.

A file from a URL is not trusted with this machine: it may name models, but neither declare commands nor decide where
the server's API keys are sent, unless the operator trusts remote files.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from copy import copy
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.agents.agent import (
    Agent,
    Budget,
    ModelConfig,
    ModelFactory,
    PromptCommand,
    SummaryRules,
    Team,
    close_all,
)
from holdfast.agents.file import versions
from holdfast.agents.file.dispositions import REFUSED
from holdfast.agents.file.document import Plain, UnreadableDocument, Where, read_document
from holdfast.agents.file.hooks import FileHooks, built_in_fields
from holdfast.agents.file.models import UNTRUSTED, FileModels
from holdfast.agents.file.permissions import FilePermissions
from holdfast.agents.file.reserved_files import files_of
from holdfast.agents.file.shape_checks import FileProblem, Findings, Problems, suggest
from holdfast.agents.file.shapes import (
    AgentShape,
    BudgetShape,
    Commands,
    FileShape,
    LimitsShape,
    StructuredOutputShape,
)
from holdfast.agents.file.toolsets.agent_tools import AgentTools, FileTools
from holdfast.agents.file.toolsets.file_context import FileContext
from holdfast.agents.file.variables import filled, filled_prose, seconds_in
from holdfast.agents.model_routes import ModelRoute
from holdfast.agents.surroundings import NoPrompt, environment_info, prompt_file, prompt_files_below
from holdfast.core.codec import Value
from holdfast.core.items import Permissions, TurnLimits
from holdfast.core.policy import Policy, allowed
from holdfast.core.turns.events import Parameters
from holdfast.environment import variable
from holdfast.errors import HoldfastError, SourceUnusable
from holdfast.libraries import jsonschema_rs
from holdfast.models.model import KeyMissing, Model
from holdfast.models.servers import UnknownProvider
from holdfast.tools.files.reserved_files import ReservedFiles
from holdfast.tools.hooks import Hooks
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.permissions import Safety
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.toolsets.skills import Skill

ENTRY = "root"
_EVALUATED = re.compile(r"!`[^`]+`|!\w+\([^)]*\)|\$\{[^}]*\}|\$[A-Z_][A-Z0-9_]+\b")
"""What docker-agent runs or fills in when a command is sent, or did in some version."""
_BARE = re.compile(r"\$([A-Z_][A-Z0-9_]+)\b")
"""A variable as older versions of docker-agent take it in commands."""
CHARS_PER_TOKEN = 4
"""As docker-agent counts the tokens of a result."""


UNKNOWN = ModelConfig(provider="", model="")
"""The model of an agent whose model could not be found; its file has a problem."""


class AgentPlan(msgspec.Struct, eq=False):
    """An agent of a file, checked, before its model is made."""

    name: str
    shape: AgentShape
    model: ModelConfig
    tools: AgentTools
    commands: tuple[PromptCommand, ...]
    sub_agents: tuple[str, ...]
    handoffs: tuple[str, ...]
    permissions: Permissions
    safety: Safety
    instruction: str
    """The file's, with its variables filled in."""
    surroundings: tuple[str, ...]
    """Texts that are added to its instruction, read together with the file."""
    hooks: Hooks
    summary_model: ModelConfig | None
    compaction_share: float | None
    other_models: Mapping[str, ModelConfig]
    """Models that it may choose, or that its routes name, by their names in the file."""
    routes: tuple[ModelRoute, ...]
    budgets: tuple[Budget, ...]
    hook_models: Mapping[str, ModelConfig]
    """The models that its hooks ask, by their names in the file."""


class AgentFile:
    """A checked file, before anything is made from it."""

    def __init__(
        self,
        agents: tuple[AgentPlan, ...],
        findings: Findings,
        *,
        digest: str,
        files: ReservedFiles,
        providers: tuple[str, ...] = (),
        servers: tuple[McpToolset, ...] = (),
        beside: tuple[str, ...] = (),
    ) -> None:
        names = [plan.name for plan in agents]
        self.agents = agents
        self.providers = providers
        """The names of the providers that it defines."""
        self.servers = servers
        """Its MCP servers; none is started yet."""
        self.beside = beside
        """The files whose content is a part of it: prompts, instructions, and Python files of tools."""
        self.files = files
        """The files that it makes the server read or run."""
        self.entry = ENTRY if ENTRY in names else names[0]
        self.digest = digest
        self.findings = findings
        """Gives errors of the model factory their line in the file."""

    @property
    def warnings(self) -> Problems:
        return tuple(self.findings.warnings)


class Checked(Value):
    """The problems and warnings of a file, in the order of its lines. Without problems there is a `file`."""

    problems: Problems
    warnings: Problems = ()
    file: AgentFile | None = None

    @property
    def may_pass(self) -> bool:
        """Whether the same file could be usable later, without a change."""
        return bool(self.problems) and all(each.elsewhere for each in self.problems)

    def usable(self) -> AgentFile:
        """The file. Raises SourceUnusable, with its problems line by line, if it has any."""
        if self.file is None:
            raise _unusable(self.problems)
        return self.file


def check_agent_file(
    data: bytes,
    *,
    place: str,
    directory: Path,
    environment: Mapping[str, str],
    trusted: bool = True,
    sandbox: Sandbox | None = None,
) -> Checked:
    """Read and check an agent file. Problems are returned, never raised, and nothing is executed.

    `sandbox` is the sandbox that its commands will run in.
    """
    try:
        document = read_document(data)
    except UnreadableDocument as error:
        return Checked(
            problems=(FileProblem(place=place, mark=error.mark, field="", words=error.words),)
        )
    upgraded = versions.current(document)
    if isinstance(upgraded, versions.NotRead):
        findings = Findings(place, document)
        return Checked(problems=(findings.problem(("version",), upgraded.words),))
    findings = Findings(place, upgraded)
    reading = _Reading(
        FileContext(findings, directory, environment, trusted=trusted, sandbox=sandbox or Sandbox())
    )
    plans = reading.plans(upgraded.value)
    findings.sort()
    if findings.problems:
        return Checked(problems=tuple(findings.problems), warnings=tuple(findings.warnings))
    file = AgentFile(
        plans,
        findings,
        digest=_digest(data, plans),
        files=reading.files,
        providers=reading.providers,
        servers=reading.servers,
        beside=tuple(sorted(reading.beside)),
    )
    return Checked(problems=(), warnings=file.warnings, file=file)


def _digest(data: bytes, plans: tuple[AgentPlan, ...]) -> str:
    """The digest of an agent file, together with the texts that its agents get from prompt files and the machine."""
    digest = hashlib.sha256(data)
    for text in (text for plan in plans for text in (*plan.surroundings, *plan.tools.texts)):
        digest.update(b"\0" + text.encode(errors="surrogateescape"))
    return digest.hexdigest()


async def assemble(file: AgentFile, make_model: ModelFactory) -> Team:
    """Make the team of a file. Agents with the same model share it. Raises SourceUnusable."""
    made = _make_models(file, make_model)
    if problems := (*made.problems, *made.keyless):
        await close_all(made.models.values())
        raise _unusable(problems)
    agents = {plan.name: _agent(plan, made.models) for plan in file.agents}
    warnings = tuple(str(each) for each in (*file.warnings, *made.warnings))
    return Team(agents, entry=file.entry, digest=file.digest, warnings=warnings, files=file.files)


async def check_models(checked: Checked, make_model: ModelFactory) -> Checked:
    """The same result, with the model factory's problems added; the models that it makes are closed again.

    A missing API key is a warning: it is a problem of this machine, not of the file.
    """
    if checked.file is None:
        return checked
    made = _make_models(checked.file, make_model)
    await close_all(made.models.values())
    return Checked(
        problems=made.problems,
        warnings=(*checked.warnings, *made.warnings, *made.keyless),
        file=None if made.problems else checked.file,
    )


class _Made(Value):
    """The models of a file, and the problems of models that cannot be made."""

    models: dict[ModelConfig, Model]
    problems: Problems
    keyless: Problems
    warnings: Problems


def _make_models(file: AgentFile, make_model: ModelFactory) -> _Made:
    models: dict[ModelConfig, Model] = {}
    problems: list[FileProblem] = []
    keyless: list[FileProblem] = []
    warnings: list[FileProblem] = []
    wanted = [
        (plan, config)
        for plan in file.agents
        for config in (
            plan.summary_model,
            plan.model,
            *plan.other_models.values(),
            *plan.hook_models.values(),
        )
        if config is not None
    ]
    for plan, config in wanted:
        if config.unset:
            words = f"the environment variable {config.unset[0]!r} is not set"
            keyless.append(file.findings.problem(("agents", plan.name, "model"), words))
            continue
        try:
            if config not in models:
                models[config] = make_model(config)
        except HoldfastError as error:
            if isinstance(error, UnknownProvider):
                error = UnknownProvider(error.name, own=file.providers)
            told = keyless if isinstance(error, KeyMissing) else problems
            told.append(file.findings.problem(("agents", plan.name, "model"), str(error)))
    for plan in (plan for plan in file.agents if plan.model in models):
        if plan.shape.structured_output and "output_schema" not in models[plan.model].knows:
            where = ("agents", plan.name, "structured_output")
            words = "its model cannot be asked for a form; left out"
            warnings.append(file.findings.problem(where, words))
    return _Made(
        models=models,
        problems=tuple(problems),
        keyless=tuple(keyless),
        warnings=tuple(warnings),
    )


def _unusable(problems: Problems) -> SourceUnusable:
    """The error with the first problems; a longer list does not help."""
    place = problems[0].place
    told = [str(each) for each in problems[: limits.agent_file_problems_max]]
    more = len(problems) - len(told)
    return SourceUnusable(place, *told, *([f"{place}: … and {more} more"] if more else []))


def _agent(plan: AgentPlan, models: Mapping[ModelConfig, Model]) -> Agent:
    shape = plan.shape
    agent = Agent(
        plan.name,
        models[plan.model],
        description=shape.description,
        instruction="\n\n".join(filter(None, (plan.instruction, *plan.surroundings))),
        welcome_message=shape.welcome_message,
        commands=plan.commands,
        add_date=shape.add_date,
        toolsets=plan.tools.toolsets,
        origins=plan.tools.origins,
        sub_agents=plan.sub_agents,
        handoffs=plan.handoffs,
        parameters=_parameters(plan.model.parameters, shape.structured_output),
        context_window=plan.model.context_window,
        history_items_max=shape.num_history_items or None,
        hooks=plan.hooks,
        limits=_limits(shape.limits, shape.max_iterations),
        permissions=plan.permissions,
        safety=plan.safety,
        redacts=shape.redact_secrets,
        result_chars_max=max(0, shape.max_tool_result_tokens) * CHARS_PER_TOKEN or None,
        compaction=SummaryRules(
            by_itself=shape.session_compaction,
            at_share=plan.compaction_share,
            model=models[plan.summary_model] if plan.summary_model else None,
        ),
        policy=Policy(**{end: getattr(shape.policy, end) for end in allowed}),
        routes=plan.routes,
        force_handoff=shape.force_handoff,
        same_calls_max=shape.max_consecutive_tool_calls or None,
        budgets=plan.budgets,
    )
    agent.other_models = {
        name: agent.on(
            models[config],
            _parameters(config.parameters, shape.structured_output),
            config.context_window,
        )
        for name, config in plan.other_models.items()
    }
    agent.result_models = plan.tools.result_models
    agent.hook_models = {name: models[config] for name, config in plan.hook_models.items()}
    return agent


def _commands(said: Commands | tuple[Commands, ...]) -> tuple[PromptCommand, ...]:
    return tuple(
        PromptCommand(name=name, instruction=each)
        if isinstance(each, str)
        else PromptCommand(
            name=name,
            description=each.description,
            instruction=each.instruction,
            agent=each.agent,
            url=each.url,
        )
        for part in (said if isinstance(said, tuple) else (said,))
        for name, each in part.items()
    )


def _parameters(own: Parameters, output: StructuredOutputShape | None) -> Parameters:
    """An agent's parameters: those of its model, and the `response_format` of its structured output."""
    if output is None:
        return own
    form = {"name": output.name, "schema": output.schema, "strict": output.strict}
    if output.description:
        form["description"] = output.description
    asked = msgspec.json.encode({"type": "json_schema", "json_schema": form})
    return msgspec.structs.replace(own, output_schema=asked.decode())


def _limits(shape: LimitsShape, max_iterations: int) -> TurnLimits:
    return TurnLimits(
        steps_max=shape.steps_max or max_iterations or None,
        calls_max=shape.calls_max,
        output_chars_max=shape.output_chars_max,
        cost_micros_max=shape.cost_micros_max,
    )


# ── checks that the shapes cannot express ────────────────────────────────────────────────────


class _Reading:
    """Reads one file."""

    def __init__(self, context: FileContext) -> None:
        self._context = context
        self._found = context.found
        self._directory = context.directory
        self._environment = context.environment
        self._trusted = context.trusted
        self._hooks = FileHooks(context)
        self._permissions = FilePermissions(context.found)
        self.files = ReservedFiles()
        self.providers: tuple[str, ...] = ()
        self.servers: tuple[McpToolset, ...] = ()
        self.beside: set[str] = set()
        self._absent: dict[str, str] = {}
        """Agents that the file names and that are not run here, with the reason."""

    def plans(self, value: Plain) -> tuple[AgentPlan, ...]:
        found = self._found
        file = found.shaped(self._without_harnesses(value), FileShape, ())
        if file is None:
            return ()
        if not file.agents:
            found.wrong(("agents",), "there has to be at least one agent")
        for section, known, most in (
            ("agents", file.agents, limits.agents_max),
            ("models", file.models, limits.agent_models_max),
        ):
            if len(known) > most:
                found.wrong((section,), f"has {len(known)} entries, at most {most}")
            for name in known:
                self._check_name(name, (section, name), slash=section == "models")
        if found.problems:
            return ()
        self.files = files_of(file, self._directory, self._environment)
        self.providers = tuple(file.providers)
        self._check_runtime(file)
        models = FileModels(self._found, file, self._environment, trusted=self._trusted)
        tools = FileTools(self._context, file)
        plans = [
            self._plan(name, shape, file, models, tools) for name, shape in file.agents.items()
        ]
        self.servers = tools.servers
        self.beside |= tools.beside
        self._permissions.check_tools(file, {plan.name: plan.tools for plan in plans})
        plans += [
            self._follower(plan, skill, file, models)
            for plan in tuple(plans)
            for skill in plan.tools.apart
            if plan.model is not UNKNOWN
        ]
        for plan in plans:
            self._check_prices(plan)
        return tuple(plan for plan in plans if plan.model is not UNKNOWN)

    def _follower(
        self, plan: AgentPlan, skill: Skill, file: FileShape, models: FileModels
    ) -> AgentPlan:
        """The agent that follows a skill which runs apart: a sub-agent with the tools and the rules of its own agent."""
        where: Where = ("agents", plan.name, "skills")
        name = f"{plan.name}.{skill.name}"
        self._check_name(name, where, slash=False)
        if name in file.agents:
            self._found.wrong(where, f"there is an agent {name!r} already; give one another name")
        made = copy(plan)
        made.name = name
        made.shape = msgspec.structs.replace(
            plan.shape,
            description=skill.description,
            welcome_message="",
            structured_output=None,
            force_handoff="",
            model=skill.model or plan.shape.model,
        )
        if skill.model:
            made.model = models.of_agent(made.shape, where) or UNKNOWN
            made.routes = ()
        made.tools = plan.tools.for_skill(skill)
        made.instruction = skill.instructions
        made.commands = ()
        made.sub_agents = made.handoffs = ()
        plan.sub_agents = (*plan.sub_agents, name)
        return made

    def _without_harnesses(self, value: Plain) -> Plain:
        """The file without agents that are other programs: they are refused, and their colleagues told so. The agent
        that answers has to be there."""
        agents = value.get("agents") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(agents, dict):
            return value
        entry = ENTRY if ENTRY in agents else next(iter(agents), "")
        for name, each in agents.items():
            if name != entry and isinstance(each, dict) and each.get("harness"):
                words = REFUSED[AgentShape]["harness"]
                self._absent[name] = words.partition(";")[0]
                told = f"refused, so it is not here, and its colleagues are told so: {words}"
                self._found.warn(("agents", name, "harness"), told)
        here = {name: each for name, each in agents.items() if name not in self._absent}
        return {**value, "agents": here} if self._absent else value

    def _check_prices(self, plan: AgentPlan) -> None:
        """A budget on cost needs the price of each model that its agents use."""
        costly = [each for each in plan.budgets if each.cost_micros_max is not None]
        used = (plan.model, *plan.model.fallbacks, *plan.other_models.values())
        unknown = [each.name for each in used if each.price is None and each is not UNKNOWN]
        for budget in costly if unknown else ():
            words = f"what {unknown[0]} costs is not known: give it a 'cost', under 'models'"
            self._found.wrong((*budget.name.split("."), "max_cost"), words)

    def _plan(
        self,
        name: str,
        shape: AgentShape,
        file: FileShape,
        models: FileModels,
        tools: FileTools,
    ) -> AgentPlan:
        where: Where = ("agents", name)
        shape = built_in_fields(shape)
        self._check_policy(shape, where)
        if shape.max_iterations and shape.limits.steps_max:
            words = "says the same as 'max_iterations'; give one of them"
            self._found.wrong((*where, "limits", "steps_max"), words)
        self._check_output(shape.structured_output, (*where, "structured_output", "schema"))
        model = models.of_agent(shape, where)
        safety = self._safety(shape, file, where)
        permissions = self._permissions.of_agent(shape, file, where)
        sub_agents = self._colleagues(shape.sub_agents, file, (*where, "sub_agents"))
        handoffs = self._colleagues(shape.handoffs, file, (*where, "handoffs"))
        self._check_force_handoff(name, file, (*where, "force_handoff"))
        if name in handoffs:
            self._found.wrong((*where, "handoffs"), "an agent cannot hand over to itself")
        hooks = self._hooks.of_agent(shape.hooks, (*where, "hooks"))
        agent_tools = tools.of_agent(shape, where)
        absent = [each for each in (*shape.sub_agents, *shape.handoffs) if each in self._absent]
        agent_tools.add_words(
            tuple(f"{each} is not here: {self._absent[each]}" for each in dict.fromkeys(absent))
        )
        return AgentPlan(
            name,
            shape,
            model or UNKNOWN,
            tools=agent_tools,
            commands=self._commands(shape, file, where),
            sub_agents=sub_agents,
            handoffs=handoffs,
            instruction=self._prose(shape.instruction, (*where, "instruction")),
            surroundings=self._surroundings(shape, where),
            hooks=hooks,
            hook_models=models.of_hooks(hooks, (*where, "hooks")),
            permissions=permissions,
            safety=safety,
            summary_model=models.of_summaries(shape, where),
            compaction_share=models.compaction_share(shape),
            other_models=models.others_of(shape, agent_tools.models, where),
            routes=models.routes_of(shape),
            budgets=self._budgets(shape, file, where),
        )

    def _check_runtime(self, file: FileShape) -> None:
        if file.runtime.sandbox and self._context.sandbox.mode == "off":
            words = f"the file asks for a sandbox, and this server runs commands without one: {variable('sandbox')} is off"
            self._found.wrong(("runtime", "sandbox"), words)

    def _check_force_handoff(self, name: str, file: FileShape, where: Where) -> None:
        """The agent that always takes over has to be there, and no agent may come back to itself this way."""
        target = file.agents[name].force_handoff
        if not target:
            return
        if target not in file.agents:
            self._found.wrong(where, f"no such agent; {suggest(target, file.agents)}")
            return
        if any(name in each.sub_agents for each in file.agents.values()):
            words = "an agent that is given tasks answers to the agent that gave it; it cannot hand over"
            self._found.wrong(where, words)
        seen = [name]
        while target in file.agents and target not in seen:
            seen.append(target)
            target = file.agents[target].force_handoff
        if target in seen:
            self._found.wrong(where, f"leads in a circle: {' → '.join((*seen, target))}")

    def _budgets(self, shape: AgentShape, file: FileShape, where: Where) -> tuple[Budget, ...]:
        """The budgets that an agent's steps are paid from: its own, and that of the file."""
        made: list[Budget] = []
        for n, name in enumerate(shape.budgets):
            if name in file.budgets:
                made.append(self._budget(f"budgets.{name}", file.budgets[name]))
            else:
                words = f"no such budget; {suggest(name, file.budgets)}"
                self._found.wrong((*where, "budgets", n), words)
        if file.budget != BudgetShape():
            made.append(self._budget("budget", file.budget))
        return tuple(made)

    def _budget(self, name: str, shape: BudgetShape) -> Budget:
        seconds = seconds_in(shape.max_time)
        if seconds is None:
            words = "expected a duration, such as '30s' or '2m30s'"
            self._found.wrong((*name.split("."), "max_time"), words)
        return Budget(
            name=name,
            cost_micros_max=round(shape.max_cost * 1_000_000) or None,
            tokens_max=shape.max_tokens or None,
            time_ms_max=round((seconds or 0) * 1000) or None,
        )

    def _safety(self, shape: AgentShape, file: FileShape, where: Where) -> Safety:
        """What becomes of an agent's calls that no rule names; by default those that change things are refused."""
        chosen, at = shape.safety, (*where, "safety")
        if chosen is None:
            chosen, at = file.runtime.safety, ("runtime", "safety")
        if chosen == "autonomous" and not self._trusted:
            self._found.wrong(at, UNTRUSTED.format(what="run every tool without a question"))
        return chosen or "restricted"

    def _prose(self, text: str, where: Where, *, file: str = "") -> str:
        refusal = "" if self._trusted else UNTRUSTED.format(what="read our variables")
        return filled_prose(text, self._environment, self._found, where, refusal=refusal, file=file)

    def _surroundings(self, shape: AgentShape, where: Where) -> tuple[str, ...]:
        """The texts about this machine and from prompt files that are added to an agent's instruction."""
        asked = {
            "add_environment_info": shape.add_environment_info,
            "add_prompt_files": bool(shape.add_prompt_files),
            "instruction_file": bool(shape.instruction_file),
        }
        if not self._trusted:
            for field in (field for field, is_asked in asked.items() if is_asked):
                self._found.wrong((*where, field), UNTRUSTED.format(what="read from this machine"))
            return ()
        told = self._instruction_files(shape, (*where, "instruction_file"))
        if shape.add_environment_info:
            told.append(environment_info(self._directory))
        for n, name in enumerate(shape.add_prompt_files):
            try:
                self.beside.add(str(self._directory / name))
                told.append(prompt_file(self._directory, name))
            except NoPrompt as error:
                told_of = self._found.warn if error.absent else self._found.missing
                told_of((*where, "add_prompt_files", n), str(error))
        depth = shape.add_prompt_files_depth
        if depth and (below := prompt_files_below(self._directory, shape.add_prompt_files, depth)):
            told.append(below)
        return tuple(told)

    def _instruction_files(self, shape: AgentShape, where: Where) -> list[str]:
        names = shape.instruction_file
        if shape.instruction and names:
            self._found.wrong(where, "the instruction is there already; leave out one of the two")
        told: list[str] = []
        for name in (names,) if isinstance(names, str) else names:
            try:
                self.beside.add(str(self._directory / name))
                told.append(self._prose(prompt_file(self._directory, name), where, file=name))
            except NoPrompt as error:
                self._found.missing(where, str(error))
        return told

    def _check_output(self, shape: StructuredOutputShape | None, where: Where) -> None:
        if shape is None:
            return
        if shape.schema.get("type") != "object":
            self._found.wrong(where, "has to be the schema of an object: type: object")
        elif not jsonschema_rs.meta.is_valid(shape.schema):
            self._found.wrong(where, "this is not a JSON Schema")

    def _commands(
        self, shape: AgentShape, file: FileShape, where: Where
    ) -> tuple[PromptCommand, ...]:
        """An agent's commands: its own, and those of the groups that it uses, where it has none of that name."""
        own = self._filled_commands(_commands(shape.commands), (*where, "commands"))
        self._check_commands(own, file, (*where, "commands"))
        known = {each.name: each for each in own if each.agent not in self._absent}
        for n, name in enumerate(shape.use_commands):
            if name not in file.commands:
                words = f"no such group of commands; {suggest(name, file.commands)}"
                self._found.wrong((*where, "use_commands", n), words)
                continue
            group = self._filled_commands(_commands(file.commands[name]), ("commands", name))
            self._check_commands(group, file, ("commands", name))
            group = tuple(each for each in group if each.agent not in self._absent)
            known = {**{each.name: each for each in group}, **known}
        return tuple(known.values())

    def _filled_commands(
        self, commands: tuple[PromptCommand, ...], where: Where
    ) -> tuple[PromptCommand, ...]:
        """Commands with their variables filled in: empty, with a warning, where one is not set."""
        made: list[PromptCommand] = []
        environment = self._environment if self._trusted else {}
        for each in commands:
            known = filled(each.instruction, environment)
            text = _BARE.sub(lambda found: environment.get(found[1]) or found[0], known.text)
            for name in known.missing if self._trusted else ():
                words = f"{each.name!r} has nothing for the environment variable {name!r}: it is not set"
                self._found.warn(where, words)
                text = re.sub(rf"\$\{{\s*(env\.)?{name}\s*\}}", "", text)
            made.append(msgspec.structs.replace(each, instruction=text))
        return tuple(made)

    def _check_commands(
        self, commands: tuple[PromptCommand, ...], file: FileShape, where: Where
    ) -> None:
        for each in commands:
            if found := _EVALUATED.search(each.instruction):
                words = f"{found[0][:40]!r} in {each.name!r} is not run here; clients are told it as it stands"
                self._found.warn(where, words)
            if each.agent in self._absent:
                words = (
                    f"{each.name!r} is for an agent that is not here: {self._absent[each.agent]}"
                )
                self._found.warn(where, words)
            elif each.agent and each.agent not in file.agents:
                words = f"{each.name!r} is for an agent that is not there; {suggest(each.agent, file.agents)}"
                self._found.wrong(where, words)
        for name, times in Counter(each.name for each in commands).items():
            if times > 1:
                self._found.wrong(where, f"the command {name!r} is there {times} times")
            if re.fullmatch(r"\S{1,64}", name) is None:
                self._found.wrong(where, "a command's name has 1–64 characters, and no spaces")

    def _check_name(self, name: str, where: Where, *, slash: bool) -> None:
        fits = 1 <= len(name) <= limits.agent_name_chars_max
        is_plain = name.isprintable() and name == name.strip() and (slash or "/" not in name)
        if not fits or not is_plain:
            most = limits.agent_name_chars_max
            words = f"a name has 1–{most} printable characters"
            words += "" if slash else ", and no '/'"
            self._found.wrong(where, words)

    def _check_policy(self, shape: AgentShape, where: Where) -> None:
        for end, choices in allowed.items():
            chosen = getattr(shape.policy, end)
            if chosen is not None and chosen not in choices:
                self._found.wrong(
                    (*where, "policy", end), f"has to be one of: {', '.join(choices)}"
                )

    def _colleagues(self, names: tuple[str, ...], file: FileShape, where: Where) -> tuple[str, ...]:
        known: list[str] = []
        for n, name in enumerate(names):
            if name in known:
                continue
            if name in file.agents:
                known.append(name)
            elif name in self._absent:
                self._found.warn((*where, n), f"left out: {self._absent[name]}")
            elif re.search(r"[/:]", name):
                self._absent[name] = "agents of other files are not run here"
                words = "refused, so it is not here, and its colleague is told so: "
                words += f"{self._absent[name]}; copy the agent into this file, and name it"
                self._found.warn((*where, n), words)
            else:
                self._found.wrong((*where, n), f"no such agent; {suggest(name, file.agents)}")
        return tuple(known)
