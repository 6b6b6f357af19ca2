"""Hooks: commands of an agent file that run on an event; some of them can block or change a tool call.

A hook gets a JSON object on its standard input. It answers by its exit code and, optionally, by a JSON object on its
standard output, as docker-agent's hooks do. It runs as script tools do: in a sandbox where there is one, with a
small part of our environment, a time limit, bounded output.

1. Hooks of the events in `GUARDS` can block. A hook never allows what the rules refuse.
2. Only `pre_tool_use` can change a call's arguments: all of them at once, as one JSON object.
3. A guard fails closed: a `pre_tool_use` hook that breaks or takes too long refuses the call, and an answer of either
   kind that is not understood as a whole (`hook_answers.py`) counts as a no.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.tools.execution import clean
from holdfast.tools.files.reserved_files import data_named_by
from holdfast.tools.hook_answers import WAY_OUT, HookAnswer, NotUnderstood, quoted, read_answer
from holdfast.tools.process import Exit, run_command
from holdfast.tools.sandbox.sandbox import ConfinedCommand, Sandbox, named_paths
from holdfast.tools.tool import Json

HookEvent: TypeAlias = Literal[
    "pre_tool_use",
    "post_tool_use",
    "permission_request",
    "tool_response_transform",
    "session_start",
    "user_prompt_submit",
    "user_steering_messages_submit",
    "turn_start",
    "before_llm_call",
    "after_llm_call",
    "turn_end",
    "pre_compact",
    "before_compaction",
    "after_compaction",
    "subagent_stop",
    "on_agent_switch",
    "on_error",
    "on_max_iterations",
    "notification",
    "on_user_input",
    "stop",
    "session_end",
    "on_session_resume",
    "on_tool_approval_decision",
    "user_followup_submit",
]

GUARDS: frozenset[HookEvent] = frozenset(
    {
        "pre_tool_use",
        "post_tool_use",
        "permission_request",
        "user_prompt_submit",
        "user_steering_messages_submit",
        "user_followup_submit",
        "before_llm_call",
        "pre_compact",
        "before_compaction",
    }
)
"""The events whose hooks have a say."""

EVERY_TOOL = ("", "*")
_BLOCKS = 2
"""The exit code by which a hook refuses."""


class Hook(Value):
    """One hook: a command, and the tools that it applies to."""

    command: str
    matcher: str = "*"
    """The tools that it applies to: a regular expression for the whole name. Events without a tool ignore it."""
    timeout_s: float = limits.hook_timeout_s
    env: Mapping[str, str] = {}
    """Variables for this hook alone; they may hold secrets."""
    directory: str = ""
    """Where it runs; empty: in the directory of the agent file."""
    blocks_if_broken: bool = False
    """A hook that breaks counts as a no, where a no counts."""
    network: bool = False
    roots: tuple[str, ...] = ()
    """Directories that the hook may write to in a sandbox, besides its own."""
    is_plain: bool = False
    """Its output is for the model."""
    model: str = ""
    """The model that is asked in place of a command, by its name in the agent file; empty: the command is run."""
    prompt: str = ""
    decides: bool = False
    """The model's answer is a decision about a call, and not words for the agent's model."""

    def is_about(self, tool: str) -> bool:
        return self.matcher in EVERY_TOOL or re.fullmatch(self.matcher, tool) is not None


class Hooks(Value):
    """An agent's hooks, in the order in which they run, with their directory and environment."""

    every: Mapping[HookEvent, tuple[Hook, ...]] = {}
    directory: Path = Path()
    environment: Mapping[str, str] = {}
    sandbox: Sandbox = Sandbox()

    def of(self, event: HookEvent, *, tool: str = "") -> tuple[Hook, ...]:
        """The hooks to run on this event, for this tool."""
        hooks = self.every.get(event)
        return tuple(each for each in hooks if each.is_about(tool)) if hooks else ()


class Verdict(HookAnswer):
    """The outcome of one hook."""

    trouble: str = ""
    """What went wrong with the hook, for the operator."""


def _cell(hooks: Hooks, hook: Hook) -> ConfinedCommand:
    """The files and network that a hook may use in a sandbox."""
    directory = Path(hook.directory or hooks.directory)
    return hooks.sandbox.cell(
        os.path.realpath(directory),  # its links are resolved: they are reserved
        *hook.roots,
        read_roots=named_paths(directory, hook.command).projects,
        own=data_named_by([hook.command], directory),
        network=hook.network,
    )


async def run_hook(
    hooks: Hooks, hook: Hook, event: HookEvent, facts: Mapping[str, Json], *, mark: str
) -> Verdict:
    """Run one hook. Never raises because of the command; cancelling this ends the command."""
    directory = Path(hook.directory or hooks.directory)
    given = {**facts, "hook_event_name": event, "cwd": str(directory)}
    try:
        ended = await run_command(
            hook.command,
            environment={**hooks.environment, **hook.env},
            directory=directory,
            mark=mark,
            timeout_s=hook.timeout_s,
            given=msgspec.json.encode(given),
            cell=_cell(hooks, hook),
        )
    except (OSError, ValueError) as error:
        return Verdict(trouble=f"could not be started: {error}")
    if hook.is_plain:
        return Verdict(context=clean(ended.output.decode(errors="replace")).strip())
    return judged(ended)


def judged(ended: Exit) -> Verdict:
    """The verdict of a hook that has exited. Pure."""
    if ended.code == _BLOCKS:
        return Verdict(blocks=_words(ended.errors) or _words(ended.output) or "it says no")
    if ended.why_stopped:
        return Verdict(trouble=ended.why_stopped)
    if ended.killed_by or ended.code:
        how = f"signal {ended.killed_by}" if ended.killed_by else f"exit code {ended.code}"
        return Verdict(trouble=f"ended with {how}: {_words(ended.errors)}".rstrip(": "))
    try:
        if ended.left_out:
            raise NotUnderstood(f"{ended.left_out} bytes in the middle of it were not kept")
        return Verdict(**msgspec.structs.asdict(read_answer(ended.output)))
    except NotUnderstood as error:
        words = f"was not understood: {error}; it answered: {quoted(ended.output)}; {WAY_OUT}"
        return Verdict(blocks=f"the answer of its hook {words}", trouble=words)


def _words(output: bytes) -> str:
    """The beginning of a hook's output, short enough to read."""
    return clean(output.decode(errors="replace")).strip()[: limits.hook_words_max]
