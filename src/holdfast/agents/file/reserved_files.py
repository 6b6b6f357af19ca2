"""The files that an agent file makes the server read or run, besides the file itself: no tool may touch them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.agents.file.shapes import AgentShape, FileShape
from holdfast.agents.file.toolsets.toolset_shapes import (
    AnyToolset,
    BackgroundJobsToolsetShape,
    FilesystemToolsetShape,
    McpShape,
    McpToolsetShape,
    OpenapiToolsetShape,
    PythonToolsetShape,
    ScriptToolsetShape,
    ShellToolsetShape,
)
from holdfast.agents.surroundings import SKILL_PLACES
from holdfast.environment import variable
from holdfast.tools.files.reserved_files import ReservedFiles, files_run_by, search_path
from holdfast.tools.hooks import Hooks
from holdfast.tools.mcp.logins import login_files
from holdfast.tools.sandbox.sandbox import cache_home

_WITH_PATHS = (
    ScriptToolsetShape,
    ShellToolsetShape,
    BackgroundJobsToolsetShape,
    McpToolsetShape,
)
"""Toolsets whose programs are searched along a `PATH` of their own."""


def files_of(file: FileShape, directory: Path, environment: Mapping[str, str]) -> ReservedFiles:
    """Its prompt files, the programs of its MCP servers with their homes, the programs that its scripts run and the
    directories of its `PATH`, its OpenAPI documents, and its Python files."""
    found: set[str] = set()
    searched: set[str] = set()
    for agent in file.agents.values():
        texts = agent.instruction_file
        named = (*agent.add_prompt_files, *((texts,) if isinstance(texts, str) else texts))
        found.update(_joined(directory, name) for name in named)
        if agent.skills or agent.use_skills:
            found.update(_joined(directory, name) for name in SKILL_PLACES)
        for toolset in _toolsets(agent, file):
            if isinstance(toolset, _WITH_PATHS):
                searched |= search_path(toolset.env)
            match toolset:
                case ScriptToolsetShape():
                    for script in toolset.shell.values():
                        where = directory / script.working_dir
                        found |= files_run_by([script.cmd], where, all_named=False)
                case FilesystemToolsetShape():
                    for each in toolset.post_edit:
                        found |= files_run_by([each.cmd], directory, all_named=False)
                case OpenapiToolsetShape() if "://" not in toolset.url:
                    found.add(_joined(directory, toolset.url))
                case PythonToolsetShape():
                    found.add(_joined(directory, toolset.file))
    for server in _servers(file):
        words = [server.command, *server.args]
        found.add(cache_home(words, environment))
        searched |= search_path(server.env)
        found |= files_run_by(words, directory / server.working_dir, all_named=True)
    logins = login_files(*(environment.get(variable(each), "") for each in ("login_key", "logins")))
    return logins | ReservedFiles(readable=frozenset(found), searched=frozenset(searched))


def files_of_hooks(hooks: Hooks) -> ReservedFiles:
    """The programs that an agent's hooks run, and every file that their commands name: hooks are guards."""
    kinds = hooks.every.values()
    found: frozenset[str] = frozenset()
    for hook in (hook for kind in kinds for hook in kind):
        where = Path(hook.directory or hooks.directory)
        found |= files_run_by([hook.command], where, all_named=True)
    return ReservedFiles(readable=found)


def _servers(file: FileShape) -> Iterator[McpShape]:
    yield from (each for each in file.mcps.values() if each.command)
    for agent in file.agents.values():
        for toolset in _toolsets(agent, file):
            if isinstance(toolset, McpToolsetShape) and toolset.command:
                yield toolset


def _toolsets(agent: AgentShape, file: FileShape) -> Iterator[AnyToolset]:
    """An agent's own toolsets, and those of the file that it uses."""
    yield from agent.toolsets
    yield from (file.toolsets[name] for name in agent.use_toolsets if name in file.toolsets)


def _joined(directory: Path, name: str) -> str:
    return os.path.abspath(directory / name)
