"""`holdfast sessions` and `turns`: the same commands on a store and on a server, with the same answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from holdfast.cli.private_server import private_server
from holdfast.client.sync import Client
from holdfast.errors import ServerRefused
from tests.cli.conftest import Run

STORE = "sqlite:///holdfast.db"


class Place:
    """Somewhere with a conversation of two turns, `trip`, in which a third has failed."""

    def __init__(self, run: Run, *where: str) -> None:
        self._run = run
        self.where = where

    def told(self, *arguments: str) -> Result:
        return self._run(*arguments, *self.where)

    def __call__(self, *arguments: str) -> str:
        told = self.told(*arguments)
        assert told.exit_code == 0, told.output
        return told.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture(params=["store", "server"])
def place(request: pytest.FixtureRequest, run: Run, elsewhere: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        address = stack.enter_context(private_server((), STORE))
        client = Client(address)
        for said in ("my name is Ada", "what is my name?"):
            with client.ask("demo", said, session="trip") as answer:
                list(answer)
        with client.ask("demo", "break off", session="trip") as answer:
            with pytest.raises(ServerRefused):
                list(answer)
        if request.param == "store":
            stack.close()
            yield Place(run)
        else:
            yield Place(run, "--server", address)


def test_a_turn_that_broke_off_is_gone_on_with_on_a_server(
    place: Place, request: pytest.FixtureRequest
) -> None:
    """The demo model breaks off every time, and says so every time."""
    failed = place.json("turns", "list", "trip")["turns"][0]
    told = place.told("turns", "continue", failed["id"])
    if "[store]" in request.node.name:
        assert told.exit_code == 2 and "--server" in told.stderr
        return
    assert told.exit_code == 2 and "was not kept" in told.stderr
    client = Client(place.where[1])
    with client.ask("demo", "break off", session="kept", policy="error=keep") as answer:
        with pytest.raises(ServerRefused):
            list(answer)
    (kept,) = place.json("turns", "list", "kept")["turns"]
    told = place.told("turns", "continue", kept["id"], "--json")
    assert told.exit_code == 1, told.output
    assert json.loads(told.stdout)["continues"] == kept["id"]
    again = place.told("turns", "continue", json.loads(told.stdout)["id"]).stdout
    assert "model_error" in again and "I was going to tell you" in again


def test_conversations_are_listed_found_and_shown(place: Place) -> None:
    (trip,) = place.json("sessions", "list", "--agent", "demo", "--key-prefix", "tr")
    assert (trip["keys"], trip["title"], trip["version"]) == (["trip"], "my name is Ada", 2)
    (line,) = place("sessions", "list").splitlines()
    assert line.split("\t")[:4] == ["trip", "my name is Ada", "demo", "2"]
    (found,) = place.json("sessions", "search", "pleased", "meet")
    assert found["match"]["in"] == "message"
    assert any(piece["hit"] for piece in found["match"]["excerpt"])
    assert place.json("sessions", "search", "nobody", "said", "this") == []
    assert "[Pleased]" in place("sessions", "search", "pleased")
    shown = place("sessions", "show", "trip")
    assert "version" in shown and "   User: my name is Ada\n" in shown
    items = place.json("sessions", "show", "trip", "--view", "model")
    assert items["version"] == 2
    assert [each["type"] for each in items["items"]] == ["user", "assistant"] * 2


def test_a_conversation_without_a_turn_is_said_to_be_empty(place: Place) -> None:
    place("sessions", "rewind", "trip", "0")
    told = place.told("sessions", "show", "trip")
    assert (told.exit_code, told.stderr) == (0, "trip is empty\n")
    assert "User" not in told.stdout
    assert place.told("sessions", "show", "trip", "--json").stderr == ""


def test_turns_are_listed_and_shown_discarded_ones_with_their_journal(place: Place) -> None:
    failed, second, first = place.json("turns", "list", "trip")["turns"]
    assert [each["version"] for each in (first, second, failed)] == [1, 2, None]
    assert "discarded: model_error" in place("turns", "list", "trip")
    shown = place("turns", "show", failed["id"])
    assert "discarded: model_error" in shown
    assert "began, from version 2: User: break off" in shown
    assert shown.rstrip().endswith("ended: model_error, discarded")
    journal = place.json("turns", "show", failed["id"])["journal"]
    numbers = [each["n"] for each in journal]
    assert numbers[0] == 0 and numbers == sorted(set(numbers))
    plain = place("turns", "show", first["id"])
    assert "committed as version 1" in plain and "  step: ~" in plain
    assert "broken off" in shown, "the step that failed"
    assert place.json("turns", "show", first["id"])["trace"]["timed_by"] == "ids"


def test_a_turn_that_has_ended_cannot_be_stopped_and_says_what_it_became(place: Place) -> None:
    *_, first = place.json("turns", "list", "trip")["turns"]
    assert place("turns", "cancel", first["id"]) == "committed as version 1\n"
    assert place.json("turns", "cancel", first["id"])["id"] == first["id"]


def test_conversations_are_forked_rewound_and_annotated(place: Place) -> None:
    forked = place("sessions", "fork", "trip", "--version", "1").strip()
    assert place.json("sessions", "show", forked)["version"] == 1
    before = place.json("sessions", "list", "--key-prefix", "trip")[0]["id"]
    rewound = place.json("sessions", "rewind", "trip", "1")
    assert (rewound["version"], rewound["keys"]) == (1, ["trip"])
    assert place.json("sessions", "show", before)["version"] == 2, "nothing is lost"
    place("sessions", "annotate", "trip", "--title", "Oslo", "--set", "a=b", "--set", "c=d")
    changed = place.json("sessions", "annotate", "trip", "--unset", "a")
    assert (changed["title"], changed["attributes"]) == ("Oslo", {"c": "d"})


def test_a_conversation_is_moved(place: Place, run: Run, elsewhere: Path) -> None:
    place("sessions", "export", "trip", "-o", "trip.jsonl")
    assert place("sessions", "export", "trip") == (elsewhere / "trip.jsonl").read_text()
    assert (elsewhere / "trip.jsonl").stat().st_mode & 0o077 == 0
    before = sorted(elsewhere.iterdir())
    assert place.told("sessions", "export", "nobody", "-o", "none.jsonl").exit_code == 2
    assert sorted(elsewhere.iterdir()) == before, "no file is better than half a file"
    assert "name another" in place.told("sessions", "export", "trip", "-o", "no/where").stderr
    assert run("db", "migrate", "--store", "sqlite:///other.db").exit_code == 0
    other = Place(run, "--store", "sqlite:///other.db")
    (moved,) = other.json("sessions", "import", "trip.jsonl")["imported"]
    assert other.json("sessions", "show", "trip") == place.json("sessions", "show", "trip")
    again = place.told("sessions", "import", "trip.jsonl")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "1 there already" in again.stderr
    assert other("sessions", "show", moved)


def test_a_conversation_is_deleted_when_somebody_says_so(place: Place) -> None:
    asked = place.told("sessions", "delete", "trip")
    assert asked.exit_code == 2 and "--yes" in asked.stderr
    place("sessions", "delete", "trip", "--yes")
    assert place.told("sessions", "show", "trip").exit_code == 2


def test_who_deleted_a_conversation_of_a_store_is_audited(
    run: Run, furnished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server, the server does that."""
    monkeypatch.setenv("HOLDFAST_LOG_FORMAT", "json")
    told = run("sessions", "delete", "trip", "--tenant", "acme", "--yes")
    assert told.exit_code == 0, told.output
    (line,) = [json.loads(each) for each in told.stderr.splitlines() if each.startswith("{")]
    assert (line["log"], line["event"], line["tenant"]) == (
        "holdfast.audit",
        "session.delete",
        "acme",
    )
    assert f"{line['about']} is deleted" in told.stderr
    assert line["by"] and line["host"]


def test_what_cannot_be_is_said_in_one_sentence(place: Place) -> None:
    trip = place.json("sessions", "list")[0]["id"]
    for arguments, words in (
        (("sessions", "show", "nobody"), "nobody"),
        (("sessions", "fork", "nobody"), "nobody"),
        (("sessions", "fork", "trip", "--version", "9"), "9"),
        (("sessions", "rewind", trip, "1"), "about a key"),
        (("sessions", "annotate", "trip", "--set", "a=" + "x" * 600), "attributes"),
        (("turns", "show", "turn_x"), "turn_x"),
        (("turns", "cancel", "turn_" + "0" * 26), "turn_0"),
        (("sessions", "export", "nobody"), "nobody"),
    ):
        told = place.told(*arguments)
        assert (told.exit_code, told.stdout) == (2, ""), arguments
        assert words in told.stderr and told.stderr.count("\n") == 1, told.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("sessions", "annotate", "trip"),
        ("sessions", "annotate", "trip", "--set", "nothing"),
        ("sessions", "rewind", "trip", "-1"),
        ("sessions", "list", "--store", STORE, "--server", "http://127.0.0.1:1"),
    ],
)
def test_calling_one_wrongly_says_how_it_is_called(run: Run, arguments: tuple[str, ...]) -> None:
    told = run(*arguments)
    assert told.exit_code == 2 and "Usage:" in told.stderr


def test_the_command_line_beats_the_environment(
    run: Run, furnished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER", "http://127.0.0.1:1")
    assert run("sessions", "list").exit_code == 2
    assert run("sessions", "list", "--store", STORE).exit_code == 0
    told = run("sessions", "list", "--tenant", "acme")
    assert "leave --tenant out" in told.stderr


def test_a_turn_is_stopped_through_the_store_that_its_server_uses(run: Run) -> None:
    """A process that plays it hears of it by the store alone."""
    command = [sys.executable, "-m", "holdfast", "run", "demo", "stall", "--session", "a", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        turn_id = json.loads(process.stdout.readline())["turn_id"]
        told = run("turns", "cancel", turn_id)
        last = json.loads(list(process.stdout)[-1])
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("committed as version 1, cancelled")
    assert (process.returncode, last["code"]) == (4, "turn_cancelled")
