"""Programs that write code at a command line, run as their users run them: on a task, in a directory of their own.

Each has an environment of its own, which only `make test-clients` installs. A program takes a base URL and no headers,
so that a conversation is named by the address.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.clients.environments import HERE, Environment

Write: TypeAlias = Callable[[Path, str, bool], Mapping[str, str]]
"""Writes a program's settings for a base URL into its home, streamed or not, and returns more of its environment."""


@dataclass(frozen=True)
class CodingAgent:
    """A program, how it is told where its model is, and its tool for commands."""

    name: str
    program: str
    """Its file, in the folder of its environment."""
    options: tuple[str, ...]
    """What it is run with, before the task."""
    settings: Write
    tool: str = ""
    """Its name for the tool that runs a command; empty if it has no tools."""
    more: Mapping[str, object] = field(default_factory=dict)
    """Arguments of that tool besides the command."""
    paces: tuple[str, ...] = ("streamed",)
    """Whether it can be told to stream, and not to."""
    names_itself: bool = False
    """Whether it names its conversation by a header, whatever the address says."""
    retries: bool = True
    """Whether it sends a request again if its connection is lost."""
    lock: str = "package-lock.json"

    def __str__(self) -> str:
        return self.name

    @property
    def environment(self) -> Environment:
        return Environment(self.name, HERE / self.name.replace("-", "_") / self.lock)

    @property
    def ways(self) -> list[str]:
        return [f"{pace}-{name}" for pace in self.paces for name in ("named", "unnamed")]

    def command(self, task: str) -> list[str]:
        """How it is run. Builds the environment if it has to; raises CannotInstall."""
        here = self.environment
        runner = here.runner()[:1] if self.program.endswith("js") else ()
        program = here.ready() / self.program
        return [*runner, str(program), *self.options, task]

    def call(self, command: str, call_id: str) -> tuple[str, str, str]:
        """The call by which the model runs a command."""
        return self.tool, json.dumps({"command": command, **self.more}), call_id


def _opencode(home: Path, base_url: str, streamed: bool) -> Mapping[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Holdfast",
        "options": {"baseURL": base_url, "apiKey": "any"},
        "models": {"root": {"name": "root"}},
    }
    settings = {
        "provider": {"holdfast": provider},
        "permission": {"*": "allow"},
        "autoupdate": False,
        "share": "disabled",
    }
    (home / "opencode.json").write_text(json.dumps(settings))
    return {
        "OPENCODE_CONFIG": str(home / "opencode.json"),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }


def _pi(home: Path, base_url: str, streamed: bool) -> Mapping[str, str]:
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True)
    provider = {
        "baseUrl": base_url,
        "api": "openai-completions",
        "apiKey": "any",
        "models": [{"id": "root"}],
    }
    (folder / "models.json").write_text(json.dumps({"providers": {"holdfast": provider}}))
    return {"PI_OFFLINE": "1"}


def _qwen(home: Path, base_url: str, streamed: bool) -> Mapping[str, str]:
    folder = home / ".qwen"
    folder.mkdir()
    settings = {
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "security": {"auth": {"selectedType": "openai"}},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return {"OPENAI_BASE_URL": base_url, "OPENAI_MODEL": "root"}


def _cn(home: Path, base_url: str, streamed: bool) -> Mapping[str, str]:
    (home / "config.yaml").write_text(
        "name: Holdfast\nversion: 1.0.0\nschema: v1\nmodels:\n"
        "  - name: root\n    provider: openai\n    model: root\n"
        f"    apiBase: {base_url}\n    apiKey: any\n    roles: [chat]\n"
        "    capabilities: [tool_use]\n"
    )
    return {"CONTINUE_CLI_ENABLE_TELEMETRY": "0", "CONTINUE_TELEMETRY_ENABLED": "0"}


def _aider(home: Path, base_url: str, streamed: bool) -> Mapping[str, str]:
    stream = "true" if streamed else "false"
    (home / ".aider.conf.yml").write_text(
        f"openai-api-base: {base_url}\nopenai-api-key: any\nmodel: openai/root\n"
        f"stream: {stream}\nedit-format: whole\nmap-tokens: 0\nyes-always: true\n"
        "git: false\nanalytics-disable: true\ncheck-update: false\nshow-model-warnings: false\n"
        "show-release-notes: false\ndetect-urls: false\npretty: false\nsuggest-shell-commands: false\n"
    )
    return {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}


CODING_AGENTS = (
    CodingAgent(
        "opencode",
        "node_modules/opencode-linux-x64/bin/opencode",
        ("run", "--model", "holdfast/root"),
        _opencode,
        tool="bash",
        more={"description": "Writes a file."},
        names_itself=True,
    ),
    CodingAgent(
        "pi",
        "node_modules/@mariozechner/pi-coding-agent/dist/cli.js",
        ("--provider", "holdfast", "--model", "root", "--print"),
        _pi,
        tool="bash",
    ),
    CodingAgent(
        "qwen-code",
        "node_modules/@qwen-code/qwen-code/cli-entry.js",
        ("--yolo", "--auth-type", "openai", "--prompt"),
        _qwen,
        tool="run_shell_command",
        more={"is_background": False, "description": "Writes a file."},
    ),
    CodingAgent(
        "cn",
        "node_modules/@continuedev/cli/dist/cn.js",
        ("--config", "../home/config.yaml", "--auto", "--print"),
        _cn,
        tool="Bash",
    ),
)

AIDER = CodingAgent(
    "aider",
    "bin/aider",
    ("--message",),
    _aider,
    paces=("streamed", "plain"),
    lock="requirements.txt",
)
"""It has no tools: the model answers with a file."""
