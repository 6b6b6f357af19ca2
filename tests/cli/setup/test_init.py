"""`holdfast init`: from nothing to an agent that answers."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from aiohttp import web
from anthropic.types.model import Model as AnthropicNames
from openai.types.shared.chat_model import ChatModel

from holdfast.cli.agent_checks import check_sources
from holdfast.cli.setup import init as init_command
from holdfast.cli.setup.model_search import (
    HOSTED,
    LOCAL,
    FoundModel,
    LocalServer,
    keyed_models,
    local_models,
)
from holdfast.cli.setup.starter_files import starter_files
from holdfast.models.servers import SERVERS
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is set and no local server runs, whatever this machine has."""
    for server in SERVERS.values():
        for key in server.token_keys:
            monkeypatch.delenv(key, raising=False)

    async def none() -> list[object]:
        return []

    monkeypatch.setattr(init_command, "local_models", none)


def test_a_new_agent_answers_with_its_tool(run: Run, elsewhere: Path) -> None:
    told = run("init")
    assert told.exit_code == 0, told.stderr
    assert "the model is demo/parrot" in told.stdout
    asked = 'call days_between with {"start": "2028-01-01", "end": "2028-03-01"}'
    assert asked in told.stdout
    answered = run("run", "assistant.yaml", asked, "--store", "memory:")
    assert answered.exit_code == 0, answered.stderr
    assert "60 days" in answered.stdout
    assert (
        run("agents", "check", "assistant.yaml").stderr == "1 file checked: 0 errors, 0 warnings\n"
    )


def test_the_test_of_a_new_tool_passes(run: Run, elsewhere: Path) -> None:
    run("init", "butler", "--name", "butler")
    done = subprocess.run(
        [sys.executable, "test_tools.py"],
        check=False,
        cwd=elsewhere / "butler",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_no_file_is_overwritten_and_then_none_is_written(run: Run, elsewhere: Path) -> None:
    (elsewhere / "tools.py").write_text("mine = 1\n")
    told = run("init")
    assert told.exit_code == 2
    assert "tools.py is there already" in told.stderr
    assert [each.name for each in elsewhere.iterdir()] == ["tools.py"]
    assert (elsewhere / "tools.py").read_text() == "mine = 1\n"


@pytest.mark.parametrize("wrong", [("--name", "../x"), ("--name", "A"), ("--model", "gpt-5")])
def test_what_cannot_be_written_is_refused(
    run: Run, elsewhere: Path, wrong: tuple[str, str]
) -> None:
    assert run("init", *wrong).exit_code == 2
    assert not list(elsewhere.iterdir())


def test_a_key_that_is_set_chooses_the_model(
    run: Run, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "secret-words")
    told = run("init")
    assert f"google/{HOSTED['google']}: GEMINI_API_KEY is set" in told.stdout
    assert "secret-words" not in told.stdout + (elsewhere / "assistant.yaml").read_text()


def test_what_to_try_can_be_pasted_and_other_models_are_named(
    run: Run, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "secret-words")
    told = run("init", "my agents/it's")
    assert told.exit_code == 0, told.stderr
    assert f"others, too, for --model: anthropic/{HOSTED['anthropic']}\n" in told.stdout
    commands = [shlex.split(each) for each in told.stdout.splitlines() if each.startswith("  ")]
    assert [each[:2] for each in commands][:3] == [
        ["holdfast", x] for x in ("run", "chat", "serve")
    ]
    assert all(Path(each[2]).is_file() for each in commands[:3])
    assert Path(commands[3][1]).is_file()
    assert "others" not in run("init", "plain", "--model", "demo/parrot").stdout


def test_hosted_models_are_in_a_fixed_order_and_known_to_their_vendors() -> None:
    found = keyed_models({"ANTHROPIC_API_KEY": "x", "OPENAI_API_KEY": "y", "GOOGLE_API_KEY": " "})
    assert [each.provider for each in found] == ["openai", "anthropic"]
    assert HOSTED["openai"] in get_args(ChatModel)
    assert HOSTED["anthropic"] in get_args(get_args(AnthropicNames)[0])


async def test_a_local_server_is_asked_for_its_models_and_sent_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    asked: list[dict[str, str]] = []

    async def models(request: web.Request) -> web.Response:
        asked.append(dict(request.headers))
        named = "text-embedding-nomic-embed-text-v1.5", "bge-reranker", "qwen3:4b", "llama"
        return web.json_response({"data": [{"id": each} for each in named]})

    async def silent(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "nomic-embed-text:latest"}, {"id": ""}]})

    async def another(request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_get("/other/models", another)
    app.router.add_get("/silent/models", silent)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        at = f"http://{host}:{port}"
        servers = [
            LocalServer(title="One", provider="lmstudio", base_url=f"{at}/v1"),
            LocalServer(title="Two", provider="llamacpp", base_url=f"{at}/other"),
            LocalServer(title="Three", provider="ollama", base_url=f"{at}/silent"),
        ]
        found = await local_models(servers)
    finally:
        await runner.cleanup()
    assert [each.name for each in found] == ["lmstudio/qwen3:4b"]
    assert "Authorization" not in asked[0]


@pytest.mark.parametrize("server", LOCAL, ids=lambda server: str(server.provider))
async def test_an_agent_with_a_local_model_asks_it_there_and_sends_it_no_key_of_another(
    server: LocalServer, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`openai` with another address would be sent the key of OpenAI, to whatever program has that port."""
    model = FoundModel(provider=server.provider, model="org/qwen3:4b", because="it answers")
    for name, text in starter_files("assistant", model).items():
        (elsewhere / name).write_text(text)
    assert SERVERS[server.provider].base_url == server.base_url
    assert SERVERS[server.provider].token_keys == ()
    (report,) = await check_sources(("assistant.yaml",))
    assert [*report.unreadable, *map(str, report.problems)] == []
    assert "org/qwen3:4b" in (elsewhere / "assistant.yaml").read_text()
