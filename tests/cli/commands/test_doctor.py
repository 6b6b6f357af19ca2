"""`holdfast doctor`: looks, says what to do, and changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from holdfast.cli.private_server import private_server
from tests.cli.conftest import Run, damage
from tests.cli.test_main import Spawn
from tests.postgres import shared_database

SECRET = "sk-very-secret"

AGENT = """
models:
  m: {{provider: mine, model: x, base_url: "http://{host}:{port}/{secret}/v1", token_key: MINE}}
agents:
  root: {{model: m, instruction: Be brief.}}
"""


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_TOKEN")):
            monkeypatch.delenv(name)


@pytest.fixture
def provider() -> Iterator[tuple[str, int, list[dict[str, str]]]]:
    """A server that answers, and remembers what it was sent."""
    seen: list[dict[str, str]] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(dict(self.headers))
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever)
    thread.start()
    host, port = server.server_address[:2]
    yield str(host), port, seen
    server.shutdown()
    thread.join()
    server.server_close()


def states(told: str) -> dict[str, str]:
    return {each["check"]: each["state"] for each in json.loads(told)["findings"]}


def test_a_good_store_is_well_and_stays_as_it_is(run: Run, furnished: Path) -> None:
    before = furnished.read_bytes()
    told = run("doctor")
    assert told.exit_code == 0, told.output
    assert "✓ integrity" in told.stdout and "✓ tables" in told.stdout
    assert "turns were left by servers that are gone" in told.stdout
    assert "→ start a server" in told.stdout
    assert furnished.read_bytes() == before


def test_no_store_yet_is_a_warning_and_no_folder_a_problem(run: Run, elsewhere: Path) -> None:
    told = run("doctor", "--json")
    assert (told.exit_code, states(told.stdout)["store"]) == (0, "warning")
    assert not list(elsewhere.iterdir()), "nothing is made"
    told = run("doctor", "--json", "--store", "sqlite:///no/such/folder/x.db")
    assert (told.exit_code, states(told.stdout)["store"]) == (1, "problem")
    assert states(run("doctor", "--json", "--store", "memory:").stdout)["store"] == "skipped"
    assert run("doctor", "--store", "nonsense").exit_code == 1


def test_tables_of_another_version_and_damage_are_problems(run: Run, furnished: Path) -> None:
    damage(furnished, "pragma user_version = 1")
    told = run("doctor", "--json")
    assert told.exit_code == 1
    assert states(told.stdout)["tables"] == "problem"
    with furnished.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(4096))
    told = run("doctor")
    assert told.exit_code == 1
    assert "damage" in told.stdout or "✗ store" in told.stdout


def test_a_file_that_everybody_may_open_is_warned_of(run: Run, furnished: Path) -> None:
    furnished.chmod(0o644)
    told = run("doctor")
    assert "! permissions" in told.stdout and "chmod o-rwx" in told.stdout


def test_agents_are_checked_and_providers_asked_without_showing_a_key(
    run: Run,
    elsewhere: Path,
    provider: tuple[str, int, list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, port, seen = provider
    (elsewhere / "a.yaml").write_text(AGENT.format(secret=SECRET, host=host, port=port))
    told = run("doctor", "a.yaml")
    assert told.exit_code == 1
    assert f"✗ providers      mine at {host}: MINE is not set" in told.stdout
    monkeypatch.setenv("MINE", SECRET)
    told = run("doctor", "a.yaml")
    assert told.exit_code == 0, told.output
    assert f"mine at {host} answers (404), MINE is set" in told.stdout
    offline = run("doctor", "a.yaml", "--offline")
    assert "not asked" in offline.stdout
    (elsewhere / "b.yaml").write_text(AGENT.format(secret=SECRET, host=host, port=1))
    gone = run("doctor", "b.yaml", "--json")
    assert (gone.exit_code, states(gone.stdout)["providers"]) == (1, "problem")
    (elsewhere / "c.yaml").write_text("agents: {root: {modle: x}}")
    wrong = run("doctor", "c.yaml", "missing.yaml")
    assert "✗ agents" in wrong.stdout and "holdfast agents check c.yaml" in wrong.stdout
    for each in (told, offline, gone):
        assert SECRET not in each.output
    assert len(seen) == 1
    assert SECRET not in json.dumps(seen), "and none is sent"


def test_the_demo_agent_needs_nobody(run: Run, furnished: Path) -> None:
    told = run("doctor", "demo", "--json")
    assert told.exit_code == 0, told.output
    found = {each["check"]: each for each in json.loads(told.stdout)["findings"]}
    assert (found["agents"]["state"], found["agents"]["what"]) == ("ok", "demo: demo")
    assert found["providers"]["state"] == "skipped", "nobody is asked"


def test_servers_that_run_are_counted(spawn: Spawn) -> None:
    with private_server((), "sqlite:///holdfast.db"):
        told = spawn("doctor")
    assert "1 alive" in told.stdout


def test_a_postgresql_says_what_a_failover_can_lose(run: Run) -> None:
    url = shared_database()
    told = run("doctor", "--json", "--store", url)
    assert told.exit_code == 0, told.output
    assert states(told.stdout)["tables"] == "warning"
    assert run("db", "migrate", "--store", url).exit_code == 0
    told = run("doctor", "--json", "--store", url)
    found = states(told.stdout)
    assert found["tables"] == found["clocks"] == found["servers"] == found["version"] == "ok"
    assert found["replication"] == "ok"
    gone = run("doctor", "--store", "postgresql://nobody@127.0.0.1:1/nothing?timeout_s=1")
    assert gone.exit_code == 1 and "✗ store" in gone.stdout


def test_mcp_servers_are_asked_for_their_tools(run: Run, elsewhere: Path) -> None:
    (elsewhere / "a.yaml").write_text(
        "agents: {root: {model: demo/parrot, toolsets: [{type: mcp, name: shop, command: no-such-program}]}}"
    )
    told = run("doctor", "a.yaml", "--json")
    assert told.exit_code == 1 and states(told.stdout)["mcp"] == "problem"
    assert "shop (no-such-program): " in told.stdout
    assert states(run("doctor", "a.yaml", "--json", "--offline").stdout)["mcp"] == "skipped"
    asked = run("agents", "check", "a.yaml", "--servers")
    assert asked.exit_code == 1 and "shop (no-such-program)" in asked.stderr
    assert run("agents", "check", "a.yaml").exit_code == 0
