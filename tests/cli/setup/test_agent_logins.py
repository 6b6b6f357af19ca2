"""`holdfast agents login`: what a person sees who has to log in."""

from __future__ import annotations

import asyncio
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Run
from tests.tools.oauth_server import OauthServer, oauth_server, visit

FILE = "agents:\n  root:\n    model: openai/gpt-5\n    toolsets: [{type: mcp, name: vault, remote: {url: URL}}]\n"


@pytest.fixture
def there() -> Iterator[OauthServer]:
    """The servers, in a thread: commands have event loops of their own."""
    started: list[OauthServer] = []
    ready, end = threading.Event(), threading.Event()

    async def serve() -> None:
        async with oauth_server() as server:
            started.append(server)
            ready.set()
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    yield started[0]
    end.set()
    thread.join()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    (elsewhere / "login.key").write_text("5e" * 32)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("HOLDFAST_LOGIN_KEY", "login.key")


def test_a_person_logs_in_and_out(
    run: Run, elsewhere: Path, there: OauthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = elsewhere / "shop.yaml"
    file.write_text(FILE.replace("URL", f"{there.url}/mcp"))

    def browse(address: str) -> bool:
        """A browser in the terminal: it ends after the callback was answered."""
        return asyncio.run(visit(there.agreed(address))) == 200

    monkeypatch.setattr(webbrowser, "open", browse)
    refused = run("agents", "check", "--servers", "shop.yaml")
    assert f"it needs a login: run `holdfast agents login {file}`" in refused.stderr
    told = run("agents", "login", "shop.yaml")
    assert (told.exit_code, told.stdout) == (
        0,
        f"vault ({there.url}/mcp): logged in for 'local' at {there.url}/as\n",
    )
    assert run("agents", "check", "--servers", "shop.yaml").exit_code == 0
    assert "logged out" in run("agents", "logout", "shop.yaml").stdout
    assert "there was no login" in run("agents", "logout", "shop.yaml").stdout


def test_a_browser_elsewhere_is_told_by_its_address(
    run: Run, elsewhere: Path, there: OauthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "shop.yaml").write_text(FILE.replace("URL", f"{there.url}/mcp"))
    monkeypatch.setattr(click, "prompt", lambda *_, **__: "http://127.0.0.1/callback?state=x")
    told = run("agents", "login", "shop.yaml", "--paste")
    assert told.exit_code != 0
    assert "no login: the answer is not for this login" in told.stderr


def test_a_login_that_cannot_be_kept_is_refused(
    run: Run, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "shop.yaml").write_text("agents:\n  root:\n    model: openai/gpt-5\n")
    assert "has no remote MCP server" in run("agents", "login", "shop.yaml").stderr
    monkeypatch.delenv("HOLDFAST_LOGIN_KEY")
    assert "openssl rand -hex 32" in run("agents", "login", "shop.yaml").stderr
    monkeypatch.setenv("HOLDFAST_LOGIN_KEY", "none.key")
    assert "none.key: No such file" in run("agents", "logout", "shop.yaml").stderr
