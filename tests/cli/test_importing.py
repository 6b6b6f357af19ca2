"""`holdfast sessions import --from`: what other programs have kept, in a store of ours, verified and gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.peers import files

WRITERS = {
    "docker-agent": (files.docker_agent, "trip"),
    "goose": (files.goose, "20260301_1"),
    "openai-agents": (files.openai_agents, "weather"),
    "openclaw": (files.openclaw, "agent:main:main"),
}
COUNTS = {"docker-agent": 5, "goose": 4, "openai-agents": 3, "openclaw": 3}


def file_of(peer: str) -> str:
    return "sessions.json" if peer == "openclaw" else "theirs.db"


@pytest.mark.parametrize("peer", WRITERS)
def test_their_conversations_verify_here_and_wherever_they_are_moved(run: Run, peer: str) -> None:
    write, _ = WRITERS[peer]
    write(Path(file_of(peer)))
    counted = "1 session" if COUNTS[peer] == 1 else f"{COUNTS[peer]} sessions"
    assert run("db", "migrate").exit_code == 0
    told = run("sessions", "import", "--from", peer, file_of(peer))
    assert told.exit_code == 0, told.output
    assert f"{counted} imported" in told.stderr
    assert run("db", "verify").exit_code == 0
    Path("out.jsonl").write_bytes(run("db", "export").stdout_bytes)
    elsewhere = "sqlite:///elsewhere.db"
    assert run("db", "migrate", "--store", elsewhere).exit_code == 0
    assert f"{counted} imported" in run("db", "import", "out.jsonl", "--store", elsewhere).stderr
    assert run("db", "verify", "--store", elsewhere).exit_code == 0
    assert run("db", "export", "--store", elsewhere).stdout_bytes == Path("out.jsonl").read_bytes()


def test_what_had_to_be_repaired_is_told_and_a_second_import_changes_nothing(run: Run) -> None:
    files.docker_agent(Path("theirs.db"))
    run("db", "migrate")
    first = run("sessions", "import", "--from", "docker-agent", "theirs.db")
    assert "torn: turn 1: 1 call had no result" in first.stderr
    again = run("sessions", "import", "--from", "docker-agent", "theirs.db", "--json")
    told = json.loads(again.stdout)
    assert (told["imported"], len(told["there_already"])) == ([], 5)


@pytest.mark.slow
@pytest.mark.parametrize("peer", WRITERS)
def test_a_conversation_goes_on_under_its_old_name(run: Run, peer: str) -> None:
    write, name = WRITERS[peer]
    write(Path(file_of(peer)))
    run("db", "migrate")
    run("sessions", "import", "--from", peer, file_of(peer))
    told = run("run", "demo", "What did I say?", "--session", name)
    assert told.exit_code == 0, told.output
    shown = run("sessions", "show", name, "--json")
    said = [each for each in json.loads(shown.stdout)["items"] if each["type"] == "user"]
    assert said[-1]["content"][0]["text"] == "What did I say?"
    assert said[-2]["content"][0]["text"] in told.stdout


def test_a_file_that_is_none_is_refused_with_a_sentence(run: Run) -> None:
    Path("theirs.db").write_bytes(b"nothing of the kind")
    run("db", "migrate")
    told = run("sessions", "import", "--from", "goose", "theirs.db")
    assert told.exit_code == 2
    assert "theirs.db" in told.stderr and "goose" in told.stderr
