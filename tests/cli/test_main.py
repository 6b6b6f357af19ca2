"""The front door: what it says, how it ends, and how little it loads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from holdfast import cli
from holdfast.errors import StorePoisoned
from holdfast.help_text import HELP
from tests.cli.conftest import SOURCES, Run

Spawn = Callable[..., subprocess.CompletedProcess[str]]


def test_help_lists_the_commands_and_loads_none() -> None:
    """Start-up time is a feature: what a command needs comes when it is called."""
    code = (
        "import sys\n"
        "from holdfast.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as ended: assert not ended.code\n"
        "print(*sorted(sys.modules), file=sys.stderr)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(SOURCES)},
    )
    assert "Look after a database" in told.stdout
    loaded = set(told.stderr.split())
    assert "holdfast.cli" in loaded
    heavy = {"apsw", "rich", "msgspec", "asyncio", "holdfast.store", "holdfast.core"}
    assert loaded & heavy == set()


def test_the_help_that_is_kept_ready_is_what_the_command_line_says() -> None:
    # Click leaves two of 80 columns empty.
    context = cli.main.make_context(
        "holdfast", ["--debug"], terminal_width=78, resilient_parsing=True
    )
    assert f"{cli.main.get_help(context)}\n" == HELP
    assert HELP.isascii(), "every terminal can show it"


def test_the_help_that_is_kept_ready_needs_nothing_but_python() -> None:
    """`holdfast --help` takes half as long again as an interpreter that does nothing."""
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "holdfast", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={name: each for name, each in os.environ.items() if name != "COLUMNS"}
        | {"PYTHONPATH": str(SOURCES)},
    )
    assert told.stdout == HELP
    loaded = set(told.stderr.split())
    assert "holdfast.help_text" in loaded
    assert loaded & {"holdfast.cli", "click", "typing", "re"} == set()


def test_help_is_narrower_on_a_narrow_terminal(spawn: Spawn) -> None:
    told = spawn("--help", COLUMNS="60").stdout
    assert told.split() == HELP.split()
    assert max(map(len, told.splitlines())) < 60


def test_every_command_of_the_table_is_there(run: Run) -> None:
    for name in cli.COMMANDS:
        assert run(name, "--help").exit_code == 0


def test_python_m_holdfast_is_holdfast(spawn: Spawn) -> None:
    told = spawn("--version")
    assert told.returncode == 0
    assert told.stdout.startswith("holdfast 0.")
    assert spawn("--help").stdout.startswith("Usage: holdfast ")


def test_a_command_that_is_misspelt_is_told_which_is_meant(run: Run) -> None:
    told = run("sesions", "list")
    assert told.exit_code == 2
    assert "No such command 'sesions'. Did you mean 'sessions'?" in told.stderr
    assert "Did you mean" not in run("nope").stderr


@pytest.mark.parametrize("arguments", [("nope",), ("--nope",), ("db", "nope"), ("db", "backup")])
def test_calling_it_wrongly_ends_with_2(arguments: tuple[str, ...], run: Run) -> None:
    told = run(*arguments)
    assert told.exit_code == 2
    assert "Usage:" in told.stderr


FAILURES: dict[str, tuple[BaseException, int, str]] = {
    "a store that stopped": (
        StorePoisoned("the store stopped after a failure that it cannot judge; restart"),
        70,
        "holdfast: the store stopped after a failure",
    ),
    "a person who stops it": (KeyboardInterrupt(), 130, "holdfast: stopped"),
    "a bug": (LookupError("nothing"), 70, "holdfast: a bug of ours (LookupError: nothing)"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("debug", [False, True])
def test_how_a_command_ends(
    name: str, debug: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each end has a sentence and an exit code of its own; the traceback is for those who ask for it."""
    error, exit_code, sentence = FAILURES[name]

    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(cli.CommandTable, "get_command", lambda *_: failing)
    told = run(*["--debug"] * debug, "db")
    assert told.exit_code == exit_code
    assert sentence in told.stderr.splitlines()[-1]
    assert ("Traceback" in told.stderr) == debug
    assert told.stdout == ""


def test_a_command_that_is_asked_to_exit_does(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.pass_context
    def ending(ctx: click.Context) -> None:
        ctx.exit(1)

    monkeypatch.setattr(cli.CommandTable, "get_command", lambda *_: ending)
    told = run("db")
    assert (told.exit_code, told.output) == (1, "")
