"""What becomes of docker-agent's fields that have no place in a shape: refused, with a way out, or left out with a warning.

1. A field that could change an answer, or was meant to protect, is refused: its author relies on it.
2. A field is left out only if leaving it out cannot matter to an answer: it is about a display, a cost or a speed.
3. `docs/reference/agent-file.md` has a row for every field of docker-agent's format, made of these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from holdfast.agents.file.shape_base import Shape
from holdfast.agents.file.shapes import (
    AgentShape,
    FileShape,
    HooksShape,
    InlineSkillShape,
    ModelShape,
    ProviderShape,
    RuntimeShape,
    StructuredOutputShape,
)
from holdfast.agents.file.toolsets.toolset_shapes import (
    AnyToolset,
    FetchToolsetShape,
    LifecycleShape,
    McpToolsetShape,
    ShellToolsetShape,
)

Words = Mapping[str, str]

TOOLSET_FIELDS = frozenset(
    """
    allow_list allow_private_ips allowed_domains allowed_servers api_config args blocked_domains blocked_servers command
    config defer deny_list env file_types headers ignore_vcs instruction lifecycle model models name path post_edit
    rag_config readonly recall ref remote safer shared shell sudo_askpass timeout tools toon url version webhook_config
    working_dir
    """.split()
)
"""The fields that docker-agent has on toolsets of every type; most have a meaning for some types only."""

_EVERY_TOOLSET: Words = {
    "toon": "models are shown results as their tools give them",
}
_FEDERATION = "keys come from environment variables here: name one under 'token_key'"


def _foreign_fields(shape: type[Shape]) -> Words:
    """The fields of other types of toolsets: docker-agent refuses or ignores them, too."""
    kind = shape.__struct_config__.tag
    refused = REFUSED.get(shape, {})
    others = TOOLSET_FIELDS - {*shape.__struct_fields__, *_EVERY_TOOLSET, *refused}
    return {field: f"has no meaning for a toolset of type {str(kind)!r}" for field in others}


REFUSED: Mapping[type[Shape], Words] = {
    FileShape: {
        "env": "was dropped by docker-agent after version 1; set variables where the server is started",
        "evaluators": "evaluators are not asked here; ask a model, with a hook of 'type: model'",
    },
    RuntimeShape: {
        "network_allowlist": "a sandbox here has the network or has it not: say 'network: true' at a toolset that "
        "needs it",
    },
    AgentShape: {
        "harness": "agents of other programs are not run here; give the agent a 'model'",
        "inject_memories": "memories are not looked up for an agent; say in its instruction when to look them up",
        "routing": "requests go to the agent that they name; let an agent hand over, with 'handoffs'",
        "tool_choice": "a request says which tool has to be called: 'tool_choice'",
        "rag": "documents are not indexed here; serve them through an MCP server, and name it under 'toolsets'",
    },
    InlineSkillShape: {
        "toolsets": "a skill has its agent's tools here; make it an agent, and name that under 'sub_agents'",
    },
    ModelShape: {
        "auth": _FEDERATION,
        "env": "was dropped by docker-agent after version 1; set variables where the server is started",
        "output_capabilities": "models answer in text here; leave this out",
    },
    ProviderShape: {"auth": _FEDERATION},
    ShellToolsetShape: {
        "sandbox": "was dropped by docker-agent after version 5, and nothing here would keep commands in; "
        "run the whole server in a container, and leave this out"
    },
    **{
        shape: {
            "env_file": "was dropped by docker-agent after version 1; name the variables under 'env'"
        }
        for shape in (McpToolsetShape,)
    },
}
"""Fields that could change an answer and are not run, or were meant to protect: why they are refused, and the way out."""

CANNOT_MATTER: Mapping[type[Shape], Words] = {
    FileShape: {
        "rag": "it is for toolsets of type 'rag', which are refused where they are",
    },
    AgentShape: {
        "add_description_parameter": "calls are shown with their arguments",
        "code_mode_tools": "tools are offered one by one",
        "max_old_tool_call_tokens": "old results stay whole as long as they fit",
        "cache": "the model is asked every time",
        "plan_persona": "there is no mode for plans here",
    },
    HooksShape: {
        "worktree_create": "no worktree is made here",
    },
    StructuredOutputShape: {
        "mode": "the model's server is asked for the form",
    },
    ModelShape: {
        "title_model": "titles are the first words of a conversation",
    },
    ProviderShape: {
        "unload_api": "models stay loaded",
    },
    LifecycleShape: dict.fromkeys(
        ("restart", "max_restarts", "backoff"),
        "a server that went away is started by the next call, and more and more seldom if it fails",
    ),
}
CANNOT_MATTER = {
    **CANNOT_MATTER,
    **{shape: {**_EVERY_TOOLSET, **_foreign_fields(shape)} for shape in get_args(AnyToolset)},
}
CANNOT_MATTER = {
    **CANNOT_MATTER,
    FetchToolsetShape: {
        **CANNOT_MATTER[FetchToolsetShape],
        "escape_html": "pages are told as text",
    },
    ShellToolsetShape: {
        **CANNOT_MATTER[ShellToolsetShape],
        "sudo_askpass": "no person can type a password here: sudo fails, as it does where docker-agent has no terminal",
    },
}
"""Fields that are left out with a warning, and why that cannot matter to an answer."""

TOOLSETS_REFUSED: Words = {
    "git": "its tools are not here; use 'shell', and allow 'shell:cmd=git log*' and what else it needs",
    "lsp": "language servers are not run here; use an MCP server that speaks to one",
    "mcp_catalog": "Docker's catalogue is not asked here; name the servers themselves, with 'type: mcp'",
    "rag": "documents are not indexed here; serve them through an MCP server, with 'type: mcp'",
    "scheduler": "nothing is run later here; let cron send a request to the server",
    "session_context": "other conversations are not read here; 'memory' carries words from one conversation to the next",
}
"""Types of toolsets that are not run, and the way out. Such a toolset is refused, and not its file: docker-agent goes on
without a toolset that cannot be started, too. With `required: true` the file is refused."""
