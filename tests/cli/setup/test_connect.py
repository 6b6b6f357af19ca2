"""`holdfast connect`: the settings of a client, for a server that answers."""

from __future__ import annotations

import json
import tomllib

import pytest
import yaml

from holdfast.cli import own_server
from holdfast.cli.setup.client_snippets import SNIPPETS, ConnectedServer
from tests.cli.conftest import Run

SERVER = ConnectedServer(url="http://127.0.0.1:8484", models=("butler", "shop/clerk"), key="local")


@pytest.mark.parametrize("client", sorted(SNIPPETS))
def test_a_snippet_names_the_server_and_its_first_model(client: str) -> None:
    text = SNIPPETS[client].text(SERVER)
    is_editor = client in ("avante", "jetbrains", "zed")  # they start `holdfast acp` for the server
    adds_v1 = client == "claude-code"
    whole = is_editor or adds_v1
    assert ("http://127.0.0.1:8484" if whole else "http://127.0.0.1:8484/v1") in text
    assert "butler" in text or client == "open-webui"  # it asks the server for its models


def test_snippets_are_in_the_form_of_their_files() -> None:
    text = {name: each.text(SERVER) for name, each in SNIPPETS.items()}
    assert set(json.loads(text["opencode"])["provider"]["holdfast"]["models"]) == set(SERVER.models)
    started = ["acp", "butler", "--server", "http://127.0.0.1:8484"]
    for name in ("jetbrains", "zed"):
        agent = json.loads(text[name])["agent_servers"]["Holdfast"]
        assert (agent["command"], agent["args"], agent["env"]) == ("holdfast", started, {})
    assert tomllib.loads(text["codex"])["model_providers"]["holdfast"]["wire_api"] == "responses"
    assert [each["model"] for each in yaml.safe_load(text["continue"])["models"]] == list(
        SERVER.models
    )
    assert json.loads(text["claude-code"])["env"]["ANTHROPIC_MODEL"] == "butler"
    (librechat,) = yaml.safe_load(text["librechat"])["endpoints"]["custom"]
    assert librechat["name"] == "Holdfast" and librechat["headers"]["X-History"] == "follow"
    assert json.loads(text["opencode"])["model"] == "holdfast/butler"
    compile(text["openai"], "snippet", "exec")


def test_codex_is_told_of_a_variable_only_if_there_is_a_key() -> None:
    """It refuses to start if the variable is named and not set."""
    codex = SNIPPETS["codex"].text
    with_key = ConnectedServer(url=SERVER.url, models=SERVER.models, key="YOUR", needs_key=True)
    provider = {
        "name": "Holdfast",
        "base_url": "http://127.0.0.1:8484/v1",
        "wire_api": "responses",
        "supports_websockets": True,
    }
    assert tomllib.loads(codex(SERVER))["model_providers"]["holdfast"] == provider
    keyed = {**provider, "env_key": "HOLDFAST_API_KEY"}
    assert tomllib.loads(codex(with_key))["model_providers"]["holdfast"] == keyed


def test_a_server_is_asked_and_the_key_is_not_shown(run: Run) -> None:
    with own_server(("demo",), "memory:") as address:
        told = run("connect", "aider", "--server", address, "--key", "hf-secret", "--try")
        assert told.exit_code == 0, told.stderr
        assert "aider --model openai/demo" in told.stdout and "YOUR-API-KEY" in told.stdout
        assert "hf-secret" not in told.stdout + told.stderr
        assert "has answered a question; models: demo" in told.stderr
        refused = run("connect", "aider", "--server", address, "--model", "other")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "has no 'other'; it has demo" in refused.stderr


def test_a_server_that_does_not_answer_is_an_error(run: Run) -> None:
    told = run("connect", "zed", "--server", "http://127.0.0.1:1")
    assert (told.exit_code, told.stdout) == (2, "")
