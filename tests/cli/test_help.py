"""Help: an example for every command, and a reference that leaves nothing out."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli import main
from tests.cli.conftest import SOURCES, Run

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def leaves(
    command: click.Command = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, and how it is called."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    ctx = click.Context(command)
    for name in command.list_commands(ctx):
        inner = command.get_command(ctx, name)
        assert inner is not None
        yield from leaves(inner, (*path, name))


COMMANDS = dict(leaves())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...], run: Run) -> None:
    told = run(*path, "--help")
    assert told.exit_code == 0
    assert "Example" in told.stdout
    assert f"holdfast {' '.join(path)}" in told.stdout.partition("Example")[2]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_option_is_in_the_reference(path: tuple[str, ...]) -> None:
    chapters = re.split(r"^## ", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    own = "".join(each for each in chapters if each.startswith(f"holdfast {path[0]}"))
    assert own, f"there is no chapter on holdfast {path[0]}"
    if path == ("serve",):
        own += REFERENCE.with_name("settings.md").read_text(encoding="utf-8")
    assert " ".join(path[1:]) in own
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option):
            name = max(parameter.opts, key=len)
            assert f"`{name}" in own or f" {name}" in own, f"{name} of {' '.join(path)}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_be_told_how_to_complete(shell: str, run: Run) -> None:
    told = run("completion", shell)
    assert told.exit_code == 0
    assert "_HOLDFAST_COMPLETE" in told.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("se", {"serve", "sessions"}),
        ("sessions ex", {"export"}),
        ("--d", {"--debug"}),
        ("run --js", {"--json"}),
    ],
)
def test_commands_and_options_are_completed(words: str, offered: set[str]) -> None:
    given = {"COMP_WORDS": f"holdfast {words}", "COMP_CWORD": str(len(words.split()))}
    told = subprocess.run(
        [sys.executable, "-m", "holdfast"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | {"PYTHONPATH": str(SOURCES), "_HOLDFAST_COMPLETE": "bash_complete"}
        | given,
    )
    assert {each.partition(",")[2] for each in told.stdout.split()} == offered


def test_help_costs_little_more_than_python_itself() -> None:
    """Counted in CPU time of several runs, in turns: a machine that is busy makes both slower."""
    spent = {"pass": 0.0, "help": 0.0}
    for _ in range(5):
        for name, arguments in (("pass", ["-c", "pass"]), ("help", ["-m", "holdfast", "--help"])):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, *arguments],
                stdout=subprocess.DEVNULL,
                check=True,
                env=os.environ | {"PYTHONPATH": str(SOURCES)},
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent[name] += after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert spent["help"] <= 12 * spent["pass"]
