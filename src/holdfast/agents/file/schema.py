"""The JSON Schema of an agent file, for editors: made from the shapes that files are read into.

It also has the fields of docker-agent that cannot matter here, marked as deprecated: such a file is served, with a
warning. Fields that are refused are not in it. `holdfast agents check` checks the rest, such as whether a sub-agent exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from holdfast.agents.file.dispositions import CANNOT_MATTER
from holdfast.agents.file.shape_base import Shape
from holdfast.agents.file.shape_checks import EXTENSION
from holdfast.agents.file.shapes import FileShape

Schema: TypeAlias = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_LEFT_OUT = "docker-agent's, and left out here with a warning: {why}."

DESCRIPTIONS: Mapping[str, str] = {
    # a whole file
    "File.agents": "The agents, by name; `root`, or else the first, answers if a request names none.",
    "File.version": "The version of docker-agent's format: 0 to 15, which it is if left out.",
    "File.models": "Models, by the name that agents refer to them by.",
    "File.providers": "Servers of your own, by the name that models refer to them by.",
    "File.permissions": "Rules about tools, for every agent of the file.",
    "File.mcps": "MCP servers, by the name that toolsets refer to them by.",
    "File.toolsets": "Toolsets, by the name that agents use them by.",
    "File.commands": "Groups of commands, by the name that agents use them by.",
    "skills": "Instructions that its model reads when it needs them: `true` for those beside the file, or a list.",
    "InlineSkill.name": "What it is called.",
    "InlineSkill.description": "When it is of use.",
    "InlineSkill.instructions": "What it says.",
    "InlineSkill.context": "`fork`: an agent of its own follows it, with the tools of the agent that has it.",
    "InlineSkill.model": "That agent's model.",
    "InlineSkill.allowed_tools": "Of those tools, the only ones that it has: names, with `*`.",
    "Agent.use_skills": "Names from `skills` of the file.",
    "File.budget": "What all agents of a conversation may use together.",
    "File.budgets": "What some agents may use in a conversation, by the name that agents refer to it by.",
    "Budget.max_cost": "In the currency of the models' `cost`; every model has to have one.",
    "Budget.max_tokens": "Input and output together.",
    "Budget.max_time": "Of models and tools at work: `10m`, `1h30m`.",
    "Agent.budgets": "Names from `budgets` of the file; agents with the same name share it.",
    "Agent.force_handoff": "The agent that takes over whenever this one has given its last answer.",
    "Agent.max_consecutive_tool_calls": "How many steps in a row may make exactly the same calls; 0 is any number.",
    "Model.routing": "Other models, with examples of requests that go to them; this one gets all others.",
    "RoutingRule.model": "A name from `models`, or `provider/model`.",
    "RoutingRule.examples": "Requests that are for it.",
    "Hook.model": "The model that a hook of type `model` asks.",
    "Hook.prompt": "What it is asked; `{{ .ToolName }}` stands for a fact of the event.",
    "Hook.schema": "`pre_tool_use_decision`: the answer decides about a call. Else it is words for the agent's model.",
    "Hooks.on_session_resume": "Before a turn goes on that had reached a limit.",
    "Hooks.on_tool_approval_decision": "Before a call runs, and when it is refused.",
    "Hooks.user_followup_submit": "Before the first step of a turn that was queued; may stop it, and add words.",
    "BackgroundJobsToolset.recall": "Whether the agent may ask to be told when a job has ended.",
    "FilesystemToolset.post_edit": "Commands that run after a file was written.",
    "PostEdit.path": "A pattern for names of files: `*.go`.",
    "PostEdit.cmd": "The command, for /bin/sh; `$path` is the file.",
    "TasksToolset.path": "Agents with the same path have the same tasks.",
    "ModelPickerToolset.models": "The models that the agent may choose from.",
    "A2aToolset.url": "The server's address, or that of the agent's card.",
    "WebhookToolset.webhook_config": "Where messages go.",
    "WebhookToolset.allow_private_ips": "Ours: whether it may be a private address.",
    "WebhookConfig.url": "The address; `${env.NAME}` is filled in.",
    "WebhookConfig.provider": "The kind of server: slack, discord, telegram, teams, generic …",
    "WebhookConfig.chat_id": "For Telegram.",
    "File.runtime": "How the agents of the file are run.",
    "Runtime.sandbox": "Commands have to run in a sandbox: the file is refused where there is none.",
    "File.metadata": "About the file itself; it has no effect.",
    "Metadata.author": "Who wrote it.",
    "Metadata.license": "Under which licence.",
    "Metadata.readme": "What to know about it.",
    "Metadata.description": "What it is.",
    "Metadata.version": "Which edition of it this is.",
    "Metadata.tags": "What it is about.",
    "safety": "What becomes of calls that no rule names: `strict` asks about all, `balanced` about those that change "
    "things, `restricted` refuses those, `autonomous` runs all.",
    # agents
    "Agent.name": "Has no effect: an agent has the name that it is listed under.",
    "Hook.name": "For people; it has no effect.",
    "Agent.model": "A name from `models`, `provider/model`, several with commas that take turns, or `auto`.",
    "Agent.instruction_file": "Files, in the directory of this one or below it, whose words are the instruction.",
    "Agent.use_toolsets": "Names from `toolsets` of the file.",
    "Agent.use_commands": "Names from `commands` of the file.",
    "Agent.redact_secrets": "Take secrets of well-known forms out of its calls, their results and its prompts.",
    "Agent.readonly": "Only tools that change nothing.",
    "Agent.max_tool_result_tokens": "The longest result of a tool that is kept; 0 is the server's own bound.",
    "Agent.session_compaction": "Whether older turns are summed up when a prompt does not fit.",
    "compaction_threshold": "The share of the model's window at which older turns are summed up.",
    "compaction_model": "The model that writes these summaries.",
    "Agent.description": "What the agent is for; other agents and clients see it.",
    "Agent.instruction": "The system prompt of its model; `${NAME}` is filled in from the environment, `$${` stands for `${`.",
    "Agent.welcome_message": "A greeting that clients show to people.",
    "Agent.toolsets": "The tools that it can use.",
    "Agent.sub_agents": "Agents that it can give a task.",
    "Agent.handoffs": "Agents that can take over the conversation.",
    "Agent.fallback": "The models that are asked when its model fails.",
    "Agent.max_iterations": "Model calls in one turn; 0 is the server's own bound.",
    "Agent.num_history_items": "How many items of the past its model sees at most; 0 is all of them.",
    "Agent.add_date": "Tell its model the day on which the turn began.",
    "Agent.add_environment_info": "Tell its model about the directory and the system.",
    "Agent.add_prompt_files_depth": "How many levels below are searched for more files of these names; the agent is told their paths.",
    "Agent.add_prompt_files": "Files, in the directory of this one or below it, whose words are added to the instruction.",
    "Agent.commands": "Prompts with names, for clients to offer.",
    "Agent.structured_output": "The form that its answers have.",
    "Agent.hooks": "Commands that are run when something happens in a turn.",
    "Agent.policy": "Ours: what becomes of a turn that does not complete.",
    "Agent.limits": "Ours: how far a turn may go.",
    "Agent.permissions": "Ours: rules for this agent, beside those of the file.",
    "Fallback.models": "The models, in the order in which they are asked.",
    "Fallback.retries": "How often each is asked again; 0: as usual, -1: never.",
    "Fallback.cooldown": "How long one that failed is asked last: `30s`, `2m30s`.",
    "Command.description": "What people are told about it.",
    "Command.instruction": "The prompt.",
    "Command.agent": "The agent that it is for.",
    "Command.url": "An address to open in place of a prompt.",
    "StructuredOutput.name": "What the form is called.",
    "StructuredOutput.schema": "The JSON Schema of an object.",
    "StructuredOutput.description": "What the form is for.",
    "StructuredOutput.strict": "Whether a provider is to hold to it by force.",
    "Policy.cancel": "When a client or an operator cancels it.",
    "Policy.disconnect": "When the client goes away.",
    "Policy.deadline": "When its time is up.",
    "Policy.error": "When a model or a tool fails it.",
    "Policy.limit": "When it reaches a limit.",
    "Policy.crash": "When the server dies.",
    "Limits.steps_max": "Model calls.",
    "Limits.calls_max": "Tool calls.",
    "Limits.output_chars_max": "Characters that models say.",
    "Limits.cost_micros_max": "Cost, in millionths of your currency.",
    "Permissions.allow": "Tools that may run, by name; `*`, `?` and `[a-z]` stand for others. `shell:cmd=git *` is about an "
    "argument.",
    "Permissions.ask": "Tools that a person is asked about. Wins over `allow`.",
    "Permissions.deny": "Tools that never run. Wins over both.",
    # hooks
    "Hooks.tool_input_transform": "With those of `pre_tool_use`, before them.",
    "Hooks.tool_guard": "With those of `pre_tool_use`, before them and after `tool_input_transform`.",
    "Hooks.pre_tool_use": "Before a call is recorded; may refuse it, change its arguments, or have a person asked.",
    "Hooks.post_tool_use": "After a call has run; may end the turn.",
    "Hooks.permission_request": "Before a call waits for a person; may refuse it.",
    "Hooks.tool_response_transform": "Before a tool's result is recorded; may change its text.",
    "Hooks.user_prompt_submit": "Before the first step of a turn; may stop it, and add words for the model.",
    "Hooks.user_steering_messages_submit": "When messages were steered into a turn; may stop it, and add words.",
    "Hooks.turn_start": "Before each step; may add words for the model.",
    "Hooks.before_llm_call": "Before each step; may stop the turn.",
    "Hooks.after_llm_call": "After each step.",
    "Hooks.turn_end": "After each step, also after one that failed.",
    "Hooks.pre_compact": "Before older turns are summed up; may forbid it, and add words for the writer.",
    "Hooks.before_compaction": "Before older turns are summed up; may forbid it, or give the summary.",
    "Hooks.after_compaction": "After older turns were summed up.",
    "Hooks.subagent_stop": "When a colleague has done a task.",
    "Hooks.on_agent_switch": "When a colleague gets a task, or the conversation.",
    "Hooks.on_error": "When a step fails.",
    "Hooks.on_max_iterations": "When a turn reaches a limit.",
    "Hooks.notification": "With the two above.",
    "Hooks.session_start": "Before the first step of a session.",
    "Hooks.on_user_input": "When a turn ends with calls that a person has to approve.",
    "Hooks.stop": "When a turn ends with an agent's last word.",
    "Hooks.session_end": "After a session was deleted.",
    "HookMatcher.hooks": "What is run.",
    "HookMatcher.matcher": "A regular expression for whole names of tools; `*` is every tool.",
    "Hook.type": "What kind of hook it is.",
    "Hook.command": "The command, for /bin/sh; it reads JSON from its standard input.",
    "Hook.args": "Of something built in.",
    "Hook.timeout": "In seconds.",
    "Hook.env": "Variables for it alone; `${env.NAME}` is filled in.",
    "Hook.strict_output": "Has no effect: before a call, an answer that is not understood always refuses.",
    "Hook.on_error": "`block`: if it breaks after a call, the turn ends. Before a call it always refuses.",
    # models
    "Model.provider": "The provider that serves it.",
    "Model.model": "Its name at the provider.",
    "temperature": "As the provider has it.",
    "top_p": "As the provider has it.",
    "max_tokens": "The longest answer, in tokens.",
    "frequency_penalty": "As the provider has it.",
    "presence_penalty": "As the provider has it.",
    "parallel_tool_calls": "Whether it may ask for several calls at once.",
    "thinking_budget": "`none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`, or a number of tokens; -1 for as many as it likes.",
    "provider_opts": "`context_size`, `counts_tokens`, or what else a provider takes.",
    "task_budget": "For Claude: how many tokens a whole task may take, as the model is told.",
    "TaskBudget.total": "In tokens.",
    "track_usage": "Usage is counted always.",
    "Model.cost": "What it costs.",
    "Model.description": "For people; it has no effect.",
    "Model.first_available": "Models, of which the first is taken that there is a key for.",
    "Model.capabilities": "What it takes besides text.",
    "Capabilities.image": "Pictures.",
    "Capabilities.pdf": "PDF files.",
    "Capabilities.audio": "Sound.",
    "Capabilities.video": "Films.",
    "Provider.provider": "The known provider that it is, with settings of its own; without one, `base_url` is needed.",
    "Cost.input": "A million tokens that it reads.",
    "Cost.output": "A million tokens that it writes.",
    "Cost.cache_read": "A million tokens that it reads from its cache; as `input` if left out.",
    "Cost.cache_write": "A million tokens that it puts into its cache; as `input` if left out.",
    "base_url": "The address of the server; `${env.NAME}` is filled in.",
    "token_key": "The name of the environment variable that holds the API key.",
    "api_type": "The API that the server speaks.",
    # toolsets
    "type": "What kind of toolset it is.",
    "tools": "Only these of its tools.",
    "model": "The model of the step that reads the results of these tools; the agent's own if left out.",
    "instruction": "What the model is told about the tools; `{ORIGINAL_INSTRUCTIONS}` stands for the toolset's own words.",
    "defer": "Tools that a model has to look for before it can call them: these, or all.",
    "env": "Variables for the commands.",
    "timeout": "In seconds.",
    "headers": "Headers of every request; `${env.NAME}` is filled in.",
    "working_dir": "Where it runs: relative to the file and below it, or absolute.",
    "network": "Ours: whether it may use the network in a sandbox.",
    "roots": "Ours: more directories that it may change in a sandbox.",
    "read_roots": "Ours: more directories that it may read in a sandbox.",
    "readonly": "Only its tools that change nothing.",
    "required": "Ours: without its tools there is no answer.",
    "sandbox": "Ours: `off` lets Docker's gateway use Docker's socket.",
    "config": "For Docker's gateway.",
    "lifecycle": "How the server is started.",
    "Lifecycle.profile": "`strict`: without its tools there is no answer.",
    "Lifecycle.required": "Without its tools there is no answer.",
    "Lifecycle.startup_timeout": "How long a start may take: `30s`.",
    "Lifecycle.call_timeout": "How long a call may take: `2m`.",
    "ShellToolset.safer": "Has no effect: rules decide which commands run.",
    "shared": "Has no effect: all agents of a conversation share it.",
    "MemoryToolset.path": "Agents with the same path share their memories, which are in the server's store.",
    "OpenUrlToolset.url": "The address.",
    "ApiToolset.api_config": "The request.",
    "ApiConfig.name": "The name of its tool.",
    "ApiConfig.endpoint": "The address; `${argument}` stands for an argument.",
    "ApiConfig.method": "GET reads; the others need a permission, and send the arguments as JSON.",
    "ApiConfig.instruction": "What the model is told about it.",
    "ApiConfig.args": "Argument name → its JSON Schema.",
    "ApiConfig.required": "The arguments that have to be given.",
    "ApiConfig.output_schema": "Has no effect.",
    "allow_private_ips": "Also private and loopback addresses.",
    "ScriptToolset.shell": "The commands, by the name of their tool.",
    "FilesystemToolset.roots": "Ours: the directories whose files can be reached; left out, that of this file.",
    "FilesystemToolset.allow_list": "The same, in docker-agent's word; `~` is the home directory.",
    "FilesystemToolset.deny_list": "Directories and files that are never reached.",
    "FilesystemToolset.ignore_vcs": "Leave `.git` and its like out of trees and searches.",
    "FetchToolset.allowed_domains": "Only these domains, each with those below it.",
    "FetchToolset.blocked_domains": "Not these domains, nor those below them.",
    "OpenapiToolset.url": "The document: its address, or its path.",
    "PythonToolset.file": "Ours: a Python file; its functions run in the server itself.",
    "OpenapiToolset.base_url": "Ours: where requests go, in place of what the document says.",
    "command": "A program that speaks MCP over its standard input and output.",
    "McpToolset.args": "Arguments of the program.",
    "Mcp.args": "Arguments of the program.",
    "remote": "A server over HTTP.",
    "ref": "The name of a server under `mcps`.",
    "name": "Its tools are called `name_tool`.",
    "trust_hints": "Ours: believe the server that a tool only reads, or may be repeated.",
    "Remote.url": "The server's address.",
    "Remote.transport_type": "`streamable`, or `sse` for the older transport.",
    "File.flavors": "Changes of this file by name. None is chosen here.",
    "HookMatcher.preempt_yolo": "Has no effect: these hooks are asked always.",
    "Model.bypass_models_gateway": "Has no effect: there is no gateway.",
    "Mcp.version": "The package of the command. Nothing is installed here.",
    "McpToolset.version": "The package of the command. Nothing is installed here.",
    "Mcp.allow_private_ips": "Has no effect: the server may be at any address.",
    "McpToolset.allow_private_ips": "Has no effect: the server may be at any address.",
    "Remote.oauth": "How a person logs in there: `holdfast agents login`.",
    "Oauth.clientId": "The client that was registered by hand; left out, one is registered.",
    "Oauth.clientSecret": "The secret of that client.",
    "Oauth.scopes": "What to ask for; left out, what the server asks for.",
    "Oauth.callbackPort": "The port of the callback on this machine; left out, any free one.",
    "Oauth.callbackRedirectURL": "An address that sends the browser on to the callback; `${callbackPort}` is its port.",
    "Script.cmd": "The command, for /bin/sh; arguments reach it as environment variables.",
    "Script.description": "What the model is told about it.",
    "Script.args": "Argument name → its JSON Schema.",
    "Script.required": "The arguments that have to be given; all of them if this is left out.",
    "Script.pass_env": "Ours: names of the server's variables that it may see.",
    "Script.read_only": "Ours: it changes nothing, so it needs no permission.",
    "Script.idempotent": "Ours: it may be run again under the same call key.",
}
"""`Kind.field`, or a field that means the same in every kind → its description. A test checks that none is missing."""


def agent_file_schema() -> bytes:
    """The JSON Schema of an agent file: the same bytes every time."""
    (root,), found = msgspec.json.schema_components((FileShape,), ref_template="#/$defs/{name}")
    shapes = {_kind(shape): shape for shape in _shapes(Shape)}
    kinds = {name.removesuffix("Shape"): _plain(each) for name, each in sorted(found.items())}
    for kind, schema in kinds.items():
        _describe(kind, schema)
        for field, why in sorted(CANNOT_MATTER.get(shapes[kind], {}).items()):
            words = _LEFT_OUT.format(why=why)
            schema["properties"][field] = {"deprecated": True, "description": words}
    schema = {
        "$schema": DIALECT,
        "title": "Holdfast's agent file",
        "description": "Who the agents of a team are, in the shape that docker-agent's users have.",
        **_plain(root),
        "$defs": kinds,
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def _kind(shape: type[Shape]) -> str:
    return shape.__name__.removesuffix("Shape")


def _shapes(shape: type[Shape]) -> list[type[Shape]]:
    below = [each for sub in shape.__subclasses__() for each in _shapes(sub)]
    return [shape, *below]


def _describe(kind: str, schema: Schema) -> None:
    schema["title"] = kind
    schema["patternProperties"] = {f"^{EXTENSION}": {"description": "The author's own."}}
    for field, each in schema["properties"].items():
        words = DESCRIPTIONS.get(f"{kind}.{field}") or DESCRIPTIONS.get(field)
        if words is not None:
            each["description"] = words


def _plain(schema: Any) -> Any:
    """The same schema, with the names of kinds without `Shape`, and without keywords that JSON Schema does not have."""
    match schema:
        case dict():
            return {
                name: each.removesuffix("Shape") if name == "$ref" else _plain(each)
                for name, each in schema.items()
                if name != "discriminator"
            }
        case list():
            return [_plain(each) for each in schema]
        case _:
            return schema
