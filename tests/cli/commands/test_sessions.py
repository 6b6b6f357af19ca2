"""`holdfast sessions`: what is in a store, for people and for scripts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from holdfast.core.history.conversation import Summarized
from holdfast.core.items import Summary
from holdfast.ids import NoteId
from holdfast.store.sqlite import SqliteStore
from tests.cli.conftest import Run
from tests.core.builders import mint
from tests.store.builders import ACME


def sum_up(path: Path, key: str, *, version: int) -> None:
    """Let the model see a summary in place of the first versions of a session."""

    async def say() -> None:
        store = await SqliteStore.open(path)
        row = await store.resolve(ACME, key)  # type: ignore[arg-type]
        assert row is not None
        snapshot = await store.snapshot(ACME, row.session_id)
        assert snapshot is not None
        covers_to = snapshot.marks[version - 1].end
        made = Summary(id=mint(NoteId), text="They want to Oslo.", covers_to=covers_to)
        await store.annotate(ACME, row.session_id, [(None, Summarized(summary=made))])
        await store.close()

    asyncio.run(say())


def test_conversations_are_listed(run: Run, furnished: Path) -> None:
    told = run("sessions", "list")
    assert told.exit_code == 0, told.output
    assert "trip" in told.stdout and "A trip" in told.stdout
    assert "Nobody named me" not in told.stdout
    assert "Nobody named me" in run("sessions", "list", "--anonymous").stdout


def test_a_conversation_is_shown_turn_by_turn(run: Run, furnished: Path) -> None:
    told = run("sessions", "show", "trip")
    assert told.exit_code == 0, told.output
    assert "── version 1, " in told.stdout
    assert "   User: To Oslo" in told.stdout
    assert "   Assistant: When?" in told.stdout
    assert "[the file ticket]" in told.stdout
    assert "══" not in told.stdout, "the model sees all of it"


def test_showing_tells_what_the_model_still_sees(run: Run, furnished: Path) -> None:
    sum_up(furnished, "trip", version=1)
    people = run("sessions", "show", "trip").stdout
    above, below = people.split("══ what is above, the model knows by this summary:")
    assert "To Oslo" in above, "people see everything"
    assert "They want to Oslo." in below
    assert "── version 2" in below
    model = run("sessions", "show", "trip", "--view", "model").stdout
    assert "User: To Oslo" not in model
    assert "Summary of everything before: They want to Oslo." in model
    items = json.loads(run("sessions", "show", "trip", "--view", "model", "--json").stdout)["items"]
    assert items[0]["type"] == "summary"


def test_a_summary_of_everything_stands_at_the_end(run: Run, furnished: Path) -> None:
    whole = json.loads(run("sessions", "list", "--json", "--key-prefix", "trip").stdout)[0]
    sum_up(furnished, "trip", version=whole["version"])
    shown = run("sessions", "show", "trip").stdout.rstrip()
    assert shown.endswith("══ what is below, it sees in full")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("show", "conv_" + "0" * 26), "conv_"),
        (("show", "conv_x"), "conv_"),
        (("list", "--store", "sqlite:///none.db"), "there is no database"),
    ],
)
def test_what_is_not_there_is_said_in_one_sentence(
    arguments: tuple[str, ...], sentence: str, run: Run, furnished: Path
) -> None:
    told = run("sessions", *arguments)
    assert told.exit_code == 2
    assert told.stdout == ""
    assert sentence in told.stderr and told.stderr.count("\n") == 1


def test_conversations_are_moved_to_another_source(run: Run, furnished: Path) -> None:
    source = json.loads(run("sessions", "list", "--json", "--key-prefix", "trip").stdout)[0][
        "source"
    ]
    told = run("sessions", "rebind", "trip", "--to", "bot=https://agents.example/team.yaml")
    assert told.exit_code == 0, told.output
    assert "trip goes on with bot" in told.stderr and "session.rebind" in told.stderr
    every = run("sessions", "rebind", "--source", source, "--to", "other.yaml")
    assert every.exit_code == 0, every.output
    assert "sessions moved" in every.stderr
    sources = {each["source"] for each in json.loads(run("sessions", "list", "--json").stdout)}
    assert {"bot", "other.yaml"} <= sources
    for wrong in (("--to", "x"), ("trip", "--source", "a", "--to", "x")):
        assert run("sessions", "rebind", *wrong).exit_code == 2
