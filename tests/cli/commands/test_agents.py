"""`holdfast agents`: what people who write agent files see, and what a script can rely on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

GOOD = "agents:\n  root:\n    model: openai/gpt-5\n    description: Knows it.\n"
BAD = "agents:\n  root:\n    modle: openai/gpt-5\n    toolsets: [{type: think, toon: a}]\n"
UNKNOWN = "unknown field; did you mean 'model'?"


@pytest.fixture(autouse=True)
def some_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")


def test_a_good_file_has_nothing_to_say(run: Run, elsewhere: Path) -> None:
    (elsewhere / "good.yaml").write_text(GOOD)
    told = run("agents", "check", "good.yaml")
    assert (told.exit_code, told.stdout) == (0, "")
    assert told.stderr == "1 file checked: 0 errors, 0 warnings\n"


def test_what_is_wrong_is_told_with_its_place_and_the_way_out(run: Run, elsewhere: Path) -> None:
    (elsewhere / "bad.yaml").write_text(BAD)
    told = run("agents", "check", "bad.yaml")
    assert told.exit_code == 1
    assert told.stdout.splitlines() == [
        "bad.yaml:3:5: error: agents.root.modle: unknown field; did you mean 'model'?",
        "bad.yaml:4:30: warning: agents.root.toolsets[0].toon: left out: models are shown results as their tools give them",
    ]
    assert told.stderr == "1 file checked: 1 error, 1 warning\n"


def test_warnings_alone_are_no_error(run: Run, elsewhere: Path) -> None:
    (elsewhere / "a.yaml").write_text(GOOD + "    toolsets: [{type: think, toon: a}]\n")
    told = run("agents", "check", "a.yaml")
    assert told.exit_code == 0
    assert "warning: agents.root.toolsets[0]" in told.stdout


def test_no_key_is_needed_and_its_absence_is_told(
    run: Run, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a file is right does not depend on who looks at it."""
    monkeypatch.delenv("OPENAI_API_KEY")
    (elsewhere / "a.yaml").write_text(GOOD)
    told = run("agents", "check", "a.yaml")
    assert told.exit_code == 0
    assert told.stdout == (
        "a.yaml:3:5: warning: agents.root.model: the API key is missing: "
        "set the environment variable OPENAI_API_KEY\n"
    )


def test_programs_are_told_in_json(run: Run, elsewhere: Path) -> None:
    (elsewhere / "bad.yaml").write_text(BAD)
    (elsewhere / "good.yaml").write_text(GOOD)
    told = run("agents", "check", "--json", ".", "missing.yaml")
    assert told.exit_code == 2
    bad, good, missing = json.loads(told.stdout)["files"]
    assert bad["file"] == "bad.yaml"
    assert bad["errors"][0] == {
        "line": 3,
        "column": 5,
        "field": "agents.root.modle",
        "message": UNKNOWN,
    }
    assert len(bad["warnings"]) == 1
    assert good == {
        "file": "good.yaml",
        "agents": ["root"],
        "errors": [],
        "warnings": [],
        "unreadable": [],
    }
    assert "it cannot be read" in missing["unreadable"][0]


def test_every_file_of_a_directory_is_checked(run: Run, elsewhere: Path) -> None:
    for name in ("a.yaml", "b.yml", ".hidden.yaml", "notes.txt"):
        (elsewhere / name).write_text(BAD)
    told = run("agents", "check", str(elsewhere))
    assert told.exit_code == 1
    assert {line.partition(":")[0] for line in told.stdout.splitlines()} == {"a.yaml", "b.yml"}


def test_a_model_that_nobody_serves_is_wrong(run: Run, elsewhere: Path) -> None:
    (elsewhere / "a.yaml").write_text("agents: {root: {model: nobody/x}}\n")
    told = run("agents", "check", "a.yaml")
    assert told.exit_code == 1
    assert told.stdout.startswith(
        "a.yaml:1:17: error: agents.root.model: there is no provider 'nobody'"
    )


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("missing.yaml", "missing.yaml: it cannot be read: No such file"),
        ("http://127.0.0.1:1/team.yaml", "http://127.0.0.1:1/team.yaml: "),
        ("empty", "empty: no agent files are there"),
        ("shop.agents:team", "'shop.agents:team' is not an agent file, and nothing is executed"),
        ("???", "'???' names no agents"),
    ],
)
def test_what_cannot_be_read_ends_with_2(
    reference: str, words: str, run: Run, elsewhere: Path
) -> None:
    (elsewhere / "empty").mkdir()
    told = run("agents", "check", reference)
    assert told.exit_code == 2
    assert words in told.stderr
    assert told.stdout == ""


def test_the_demo_agent_is_a_source_here_as_it_is_for_serve(run: Run) -> None:
    told = run("agents", "check", "demo", "--json")
    assert told.exit_code == 0, told.output
    (checked,) = json.loads(told.stdout)["files"]
    assert (checked["file"], checked["agents"], checked["errors"]) == ("demo", ["demo"], [])


def test_nothing_in_a_file_is_executed(run: Run, elsewhere: Path) -> None:
    """Whoever checks a file may have it from anywhere."""
    touch = f"touch {elsewhere}/ran"
    (elsewhere / "a.yaml").write_text(
        GOOD + "    toolsets:\n"
        f"      - {{type: script, shell: {{look: {{cmd: '{touch}'}}}}}}\n"
        f"      - {{type: mcp, command: sh, args: [-c, '{touch}']}}\n"
        f"      - {{type: shell, env: {{A: '$({touch})'}}}}\n"
    )
    assert run("agents", "check", "a.yaml").exit_code == 0
    assert not (elsewhere / "ran").exists()


# ── list ──


def test_agents_are_listed_under_the_names_that_clients_use(run: Run, elsewhere: Path) -> None:
    (elsewhere / "a.yaml").write_text(GOOD)
    (elsewhere / "b.yaml").write_text(GOOD + "  clerk: {model: openai/gpt-5}\n")
    told = run("agents", "list", "a.yaml", "b.yaml", "demo")
    assert told.exit_code == 0
    assert [line.split("\t")[0] for line in told.stdout.splitlines()] == [
        "a/root",
        "b/root",
        "clerk",
        "demo",
    ]
    listed = json.loads(run("agents", "list", "--json", "a.yaml").stdout)["agents"]
    assert listed == [
        {
            "id": "root",
            "agent": "root",
            "source": "a",
            "source_key": str(elsewhere / "a.yaml"),
            "description": "Knows it.",
            "is_entry": True,
        }
    ]


def test_what_cannot_be_loaded_is_told_beside_the_others(run: Run, elsewhere: Path) -> None:
    (elsewhere / "a.yaml").write_text(GOOD)
    (elsewhere / "b.yaml").write_text(BAD)
    told = run("agents", "list", ".")
    assert told.exit_code == 1
    assert told.stdout == "root\ta\tKnows it.\n"
    assert "b.yaml:3:5: agents.root.modle: unknown field" in told.stderr


# ── schema ──


def test_the_schema_is_the_one_that_is_published(run: Run) -> None:
    told = run("agents", "schema")
    assert told.exit_code == 0
    assert json.loads(told.stdout)["title"] == "Holdfast's agent file"
