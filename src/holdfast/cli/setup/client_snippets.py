"""The settings of well-known clients for one server. Pure: a server's address and models in, text out.

docs/guides/clients.md says of each client how its settings were checked; tests hold the form of each file only. A
client that refuses its settings is a mistake of this table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from holdfast.core.codec import Value
from holdfast.environment import API_KEY


class ConnectedServer(Value):
    """A server, as a client's settings name it."""

    url: str
    """Without a slash at the end."""
    models: tuple[str, ...]
    key: str
    """A stand-in for the API key: a snippet never holds a real one."""
    needs_key: bool = False
    program: str = "holdfast"
    """The path of our own command, for a client that starts it."""

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def model(self) -> str:
        return self.models[0]


class ClientSnippet(Value):
    """How one client is told about a server."""

    title: str
    where: str
    """The file, or the place in the client, where `text` belongs."""
    text: Callable[[ConnectedServer], str]
    note: str = ""
    """What its user should know beside the settings."""


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _open_webui(server: ConnectedServer) -> str:
    return (
        f"OPENAI_API_BASE_URL={server.base_url}\n"
        f"OPENAI_API_KEY={server.key}\n"
        "ENABLE_FORWARD_USER_INFO_HEADERS=true"
    )


def _opencode(server: ConnectedServer) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Holdfast",
        "options": {"baseURL": server.base_url, "apiKey": server.key},
        "models": {each: {"name": each} for each in server.models},
    }
    return _json(
        {
            "$schema": "https://opencode.ai/config.json",
            "model": f"holdfast/{server.model}",
            "provider": {"holdfast": provider},
        }
    )


def _editor_agent(server: ConnectedServer) -> dict[str, object]:
    """How an editor starts `holdfast acp` for a server."""
    env = {API_KEY: server.key} if server.needs_key else {}
    return {
        "command": server.program,
        "args": ["acp", server.model, "--server", server.url],
        "env": env,
    }


def _zed(server: ConnectedServer) -> str:
    return _json({"agent_servers": {"Holdfast": {"type": "custom", **_editor_agent(server)}}})


def _jetbrains(server: ConnectedServer) -> str:
    return _json({"agent_servers": {"Holdfast": _editor_agent(server)}})


def _avante(server: ConnectedServer) -> str:
    args = ", ".join(_lua(each) for each in ("acp", server.model, "--server", server.url))
    env = f"{API_KEY} = {_lua(server.key)}" if server.needs_key else ""
    return (
        '{\n  provider = "holdfast",\n  acp_providers = {\n    holdfast = {\n'
        f"      command = {_lua(server.program)},\n      args = {{ {args} }},\n      env = {{ {env} }},\n"
        "    },\n  },\n}"
    )


def _lua(text: str) -> str:
    return json.dumps(
        text, ensure_ascii=False
    )  # a JSON string is one in Lua, too, without \u escapes


def _cursor(server: ConnectedServer) -> str:
    return f"OpenAI API Key: {server.key}\nOverride OpenAI Base URL: {server.base_url}\nAdd model: {server.model}"


def _continue(server: ConnectedServer) -> str:
    models = "".join(
        f"  - name: {each}\n    provider: openai\n    model: {each}\n    apiBase: {server.base_url}\n"
        f"    apiKey: {server.key}\n    roles: [chat, edit]\n"
        for each in server.models
    )
    return f"name: Holdfast\nversion: 1.0.0\nschema: v1\nmodels:\n{models}".rstrip()


def _cline(server: ConnectedServer) -> str:
    return (
        f"API Provider: OpenAI Compatible\nBase URL: {server.base_url}\nAPI Key: {server.key}\n"
        f"Model ID: {server.model}"
    )


def _codex(server: ConnectedServer) -> str:
    # Without the variable that `env_key` names, Codex asks nothing.
    key = f'env_key = "{API_KEY}"  # the variable with the key\n' if server.needs_key else ""
    return (
        f'model = "{server.model}"\nmodel_provider = "holdfast"\n\n[model_providers.holdfast]\n'
        f'name = "Holdfast"\nbase_url = "{server.base_url}"\n{key}'
        'wire_api = "responses"\nsupports_websockets = true'
    )


def _aider(server: ConnectedServer) -> str:
    return (
        f"export OPENAI_API_BASE={server.base_url}\nexport OPENAI_API_KEY={server.key}\n"
        f"aider --model openai/{server.model}"
    )


def _claude_code(server: ConnectedServer) -> str:
    names = ("MODEL", *(f"DEFAULT_{each}_MODEL" for each in ("OPUS", "SONNET", "HAIKU")))
    settings = {
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_AUTH_TOKEN": server.key,
        **{f"ANTHROPIC_{each}": server.model for each in names},
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    }
    return _json({"env": settings})


def _librechat(server: ConnectedServer) -> str:
    models = ", ".join(json.dumps(each) for each in server.models)
    return (
        "endpoints:\n  custom:\n    - name: Holdfast\n"
        f"      apiKey: {server.key}\n      baseURL: {server.base_url}\n"
        f"      models:\n        default: [{models}]\n        fetch: true\n"
        "      headers:\n        X-Conversation-Id: '{{LIBRECHAT_BODY_CONVERSATIONID}}'\n"
        "        X-History: follow"
    )


def _openai_python(server: ConnectedServer) -> str:
    return (
        "from openai import OpenAI\n\n"
        f'client = OpenAI(base_url="{server.base_url}", api_key="{server.key}")\n'
        "answer = client.chat.completions.create(\n"
        f'    model="{server.model}",\n'
        '    messages=[{"role": "user", "content": "Hello"}],\n'
        '    extra_headers={"X-Conversation-Id": "my-first"},\n'
        ")\nprint(answer.choices[0].message.content)"
    )


_CONTAINER = "In a container 127.0.0.1 is the container itself: name this machine's address, and let the server listen there."

SNIPPETS: Mapping[str, ClientSnippet] = {
    "aider": ClientSnippet(title="aider", where="your shell", text=_aider),
    "avante": ClientSnippet(
        title="avante.nvim", where="the options of its setup, in Neovim", text=_avante
    ),
    "claude-code": ClientSnippet(
        title="Claude Code",
        where="~/.claude/settings.json",
        text=_claude_code,
        note="Each of its sessions is a conversation here, under the session's id; sub-agents have their own. The last "
        "line keeps a text out of its instructions that changes with every session, and defeats caches of prompts.",
    ),
    "cline": ClientSnippet(
        title="Cline", where="its settings, under API Configuration", text=_cline
    ),
    "codex": ClientSnippet(title="Codex", where="~/.codex/config.toml", text=_codex),
    "continue": ClientSnippet(title="Continue", where="~/.continue/config.yaml", text=_continue),
    "cursor": ClientSnippet(
        title="Cursor",
        where="Settings, Models",
        text=_cursor,
        note="Cursor's own servers send the requests: the address must be reachable from outside, with https and a key.",
    ),
    "jetbrains": ClientSnippet(
        title="JetBrains AI Assistant",
        where="~/.jetbrains/acp.json (AI Chat, Add Custom Agent)",
        text=_jetbrains,
    ),
    "librechat": ClientSnippet(
        title="LibreChat",
        where="librechat.yaml",
        text=_librechat,
        note=f"The last lines give each chat its conversation, with its edits and branches. {_CONTAINER}",
    ),
    "open-webui": ClientSnippet(
        title="Open WebUI",
        where="its environment, before it is started",
        text=_open_webui,
        note="The last line makes it name its chats, so that each is a conversation here. Of an address it keeps what it "
        "was first started with: later, change it under Admin Panel, Settings, Connections. "
        + _CONTAINER,
    ),
    "openai": ClientSnippet(title="OpenAI for Python", where="your program", text=_openai_python),
    "opencode": ClientSnippet(
        title="opencode", where="opencode.json in your project", text=_opencode
    ),
    "zed": ClientSnippet(
        title="Zed",
        where="settings.json (zed: open settings file)",
        text=_zed,
        note="Its agent panel then has Holdfast among the agents of a new thread; see the guide about editors.",
    ),
}
"""Name on the command line → the client."""
