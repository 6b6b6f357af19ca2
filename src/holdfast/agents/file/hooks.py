"""The hooks of an agent file: checked, but not run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import msgspec

from holdfast.agents.file.document import Where
from holdfast.agents.file.models import UNTRUSTED
from holdfast.agents.file.shape_checks import suggest
from holdfast.agents.file.shapes import AgentShape, HookMatcherShape, HookShape, HooksShape
from holdfast.agents.file.toolsets.file_context import FileContext
from holdfast.agents.file.variables import filled_in
from holdfast.agents.hook_prompts import UnfitPrompt, check_prompt
from holdfast.tools.hooks import EVERY_TOOL, Hook, HookEvent, Hooks
from holdfast.tools.toolsets.script import passed_on

FIELDS = (
    "add_date",
    "add_environment_info",
    "add_prompt_files",
    "max_iterations",
    "redact_secrets",
)
"""Built-in hooks that say what fields of an agent say, too."""

FACTS: Mapping[str, str] = {
    "add_git_status": "git status --short --branch 2>/dev/null | head -c 4000",
    "add_git_diff": "git diff --stat 2>/dev/null | head -c 4000",
    "add_recent_commits": "git log --oneline -n {n} 2>/dev/null | head -c 4000",
    "add_directory_listing": "ls -1 | head -n 100",
    "add_user_info": "id -un; uname -n",
}
"""Built-in hooks that tell the model something, and the command that finds it out."""

ALWAYS_DONE = ("limit_large_tool_results",)
"""Built-in hooks for something that Holdfast does with or without them."""

NO_EFFECT: Mapping[str, str] = {
    "snapshot": "files are not kept in a shadow repository here",
    "unload": "models stay loaded",
    "elide_repeated_tool_results": "results are shown as often as tools give them",
    "safer_shell": "commands are not sorted by what they look like; rules and 'safety' say which may run",
}
"""Built-in hooks that cannot matter to an answer."""

BEFORE_A_TOOL = ("tool_input_transform", "tool_guard", "pre_tool_use")
"""The events before a call, in docker-agent's order. Here they are one: every hook before a call may change its
arguments, and forbid it."""


def built_in_fields(shape: AgentShape) -> AgentShape:
    """An agent with those of its built-in hooks that are fields of agents as such fields."""
    lists = (getattr(shape.hooks, name) for name in HooksShape.__struct_fields__)
    plain = [
        inner
        for hooks in lists
        for each in hooks
        for inner in (each.hooks if isinstance(each, HookMatcherShape) else (each,))
    ]
    found = [each for each in plain if each.type == "builtin"]
    named = {each.command: each for each in found}
    if not named.keys() & set(FIELDS):
        return shape
    files = named["add_prompt_files"].args if "add_prompt_files" in named else ()
    calls = _number(named["max_iterations"]) if "max_iterations" in named else None
    return msgspec.structs.replace(
        shape,
        add_date=shape.add_date or "add_date" in named,
        add_environment_info=shape.add_environment_info or "add_environment_info" in named,
        add_prompt_files=(*shape.add_prompt_files, *files),
        redact_secrets=shape.redact_secrets or "redact_secrets" in named,
        max_iterations=min(filter(None, (shape.max_iterations, calls)), default=0),
    )


def _number(shape: HookShape) -> int | None:
    """The number that a built-in hook has as its argument."""
    is_one = len(shape.args) == 1 and re.fullmatch(r"[1-9][0-9]{0,5}", shape.args[0], re.ASCII)
    return int(shape.args[0]) if is_one else None


def _fact(shape: HookShape) -> str | None:
    command = FACTS.get(shape.command)
    if shape.command == "add_git_diff" and shape.args == ("full",):
        return "git diff 2>/dev/null | head -c 4000"
    return None if command is None else command.format(n=_number(shape) or 10)


def _with_facts_first(
    every: Mapping[HookEvent, tuple[Hook, ...]],
) -> dict[HookEvent, tuple[Hook, ...]]:
    """The same hooks. Hooks that only tell facts are asked once a turn, before its first step, also if they name another
    event."""
    facts = tuple(hook for hooks in every.values() for hook in hooks if hook.is_plain)
    rest = {
        event: kept
        for event, hooks in every.items()
        if (kept := tuple(hook for hook in hooks if not hook.is_plain))
    }
    asked: HookEvent = "user_prompt_submit"
    return {**rest, asked: (*facts, *rest.get(asked, ()))} if facts else rest


class FileHooks:
    """The hooks of the agents of one file. They run in the file's directory, with the environment of script tools."""

    def __init__(self, context: FileContext) -> None:
        self._found = context.found
        self._sandbox = context.sandbox
        self._directory = context.directory
        self._given = context.environment
        self._environment = passed_on(context.environment)
        self._trusted = context.trusted

    def of_agent(self, shape: HooksShape, where: Where) -> Hooks:
        """An agent's hooks. Their problems are added to the findings."""
        if shape == HooksShape():
            return Hooks()
        if not self._trusted:
            self._found.wrong(where, UNTRUSTED.format(what="run commands on this machine"))
            return Hooks()
        if refused := self._sandbox.refusal():
            self._found.wrong(where, refused)
            return Hooks()
        every: dict[HookEvent, tuple[Hook, ...]] = {}
        for event in get_args(HookEvent):
            hooks: list[Hook] = []
            for field in BEFORE_A_TOOL if event == "pre_tool_use" else (event,):
                said: tuple[HookMatcherShape | HookShape, ...] = getattr(shape, field)
                for n, each in enumerate(said):
                    at = (*where, field, n)
                    hooks += (
                        self._matched(each, event, at)
                        if isinstance(each, HookMatcherShape)
                        else self._hook_of(each, event, at)
                    )
            if hooks:
                every[event] = tuple(hooks)
        return Hooks(
            every=_with_facts_first(every),
            directory=self._directory,
            environment=self._environment,
            sandbox=self._sandbox,
        )

    def _matched(self, shape: HookMatcherShape, event: HookEvent, where: Where) -> list[Hook]:
        try:
            if shape.matcher not in EVERY_TOOL:
                re.compile(shape.matcher)
        except (re.error, OverflowError, RecursionError) as error:
            words = f"this is not a regular expression: {error}"
            self._found.wrong((*where, "matcher"), words)
        hooks: list[Hook] = []
        for n, each in enumerate(shape.hooks):
            at = (*where, "hooks", n)
            hooks += self._hook_of(each, event, at, matcher=shape.matcher)
        return hooks

    def _hook_of(
        self, shape: HookShape, event: HookEvent, where: Where, *, matcher: str = "*"
    ) -> list[Hook]:
        """The hook of a shape; none for what a field of the agent says by now (`built_in_fields`)."""
        if shape.type == "model":
            return self._model_hook(shape, event, where, matcher=matcher)
        for field in ("model", "prompt", "schema"):
            if getattr(shape, field):
                self._found.wrong((*where, field), "is for hooks of type 'model'")
        if shape.type == "command":
            return [self._hook(shape, where, matcher=matcher)]
        if shape.command == "add_context":
            self._check_prompts(shape.args, (*where, "args"))
            return [Hook(command="", prompt="\n".join(shape.args), matcher=matcher)]
        if (command := _fact(shape)) is not None:
            return [Hook(command=command, timeout_s=min(shape.timeout, 10), is_plain=True)]
        if shape.command in ALWAYS_DONE:
            return []
        if shape.command in NO_EFFECT:
            self._found.warn((*where, "command"), f"left out: {NO_EFFECT[shape.command]}")
        elif shape.command not in FIELDS:
            words = f"no such thing is built in; {suggest(shape.command, (*FIELDS, *FACTS))}"
            self._found.wrong((*where, "command"), words)
        elif shape.command == "max_iterations" and _number(shape) is None:
            self._found.wrong((*where, "args"), "expected how many model calls a turn may have")
        return []

    def _model_hook(
        self, shape: HookShape, event: HookEvent, where: Where, *, matcher: str
    ) -> list[Hook]:
        for field in ("model", "prompt"):
            if not getattr(shape, field).strip():
                self._found.wrong(where, f"{field!r} is missing")
        if shape.command:
            self._found.wrong((*where, "command"), "a hook of type 'model' runs no command")
        if event == "session_end":
            self._found.wrong(where, "no model is asked after a session has gone; run a command")
        if shape.schema and event not in ("pre_tool_use", "permission_request"):
            words = (
                "a decision is about a call: before it, in 'pre_tool_use' or 'permission_request'"
            )
            self._found.wrong((*where, "schema"), words)
        self._check_prompts((shape.prompt,), (*where, "prompt"))
        return [
            Hook(
                command="",
                matcher=matcher,
                timeout_s=shape.timeout,
                blocks_if_broken=shape.on_error == "block",
                model=shape.model,
                prompt=shape.prompt,
                decides=bool(shape.schema),
            )
        ]

    def _check_prompts(self, texts: tuple[str, ...], where: Where) -> None:
        for text in texts:
            try:
                check_prompt(text)
            except UnfitPrompt as error:
                self._found.wrong(where, str(error))

    def _hook(self, shape: HookShape, where: Where, *, matcher: str) -> Hook:
        if not shape.command.strip() or "\0" in shape.command:
            self._found.wrong((*where, "command"), "there is no command")
        env = {
            name: filled_in(value, self._given, self._found, (*where, "env", name)).text
            for name, value in shape.env.items()
        }
        directory = Path(os.path.realpath(self._directory / shape.working_dir))
        if shape.working_dir and not directory.is_dir():
            self._found.missing((*where, "working_dir"), "there is no such directory")
        return Hook(
            command=shape.command,
            matcher=matcher,
            timeout_s=shape.timeout,
            env=env,
            directory=str(directory) if shape.working_dir else "",
            blocks_if_broken=shape.on_error == "block",
            network=shape.network,
            roots=tuple(os.path.realpath(self._directory / each) for each in shape.roots),
        )
