"""The command line: `holdfast COMMAND …`.

Start-up time is a feature, so this table is all that is loaded at first: a command's module comes when the command is
called, and with it the store, SQLite and rich. The table has a sentence for each, so that `--help` needs none of them.

Exit codes, for every command: 0 all is well, 1 the command found what it looks for (`db verify`, `agents check`,
`doctor`, `demo`), 2 it was called wrongly or cannot do its work here, 70 a bug of ours, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import gc
import sys
import traceback
from contextlib import AbstractContextManager
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

import click
from click.shell_completion import CompletionItem

from holdfast.cli import output
from holdfast.errors import HoldfastError
from holdfast.printable import printable
from holdfast.version import VERSION

COMMANDS = {
    "demo": ("holdfast.cli.commands.demo", "See in two minutes what makes it different."),
    "chat": ("holdfast.cli.commands.chat", "Talk to an agent."),
    "agents": ("holdfast.cli.commands.agents", "Look at agent files: check, list, schema."),
    "doctor": (
        "holdfast.cli.commands.doctor",
        "See whether all is well here, and what to do if not.",
    ),
    "run": ("holdfast.cli.commands.run", "Run one turn, for scripts."),
    "serve": ("holdfast.cli.commands.serve", "Serve agents over the OpenAI API."),
    "keys": ("holdfast.cli.commands.keys", "Make, list and revoke API keys."),
    "approvals": ("holdfast.cli.commands.approvals", "Decide on calls that wait for a person."),
    "sessions": (
        "holdfast.cli.commands.sessions",
        "Look after conversations: list, search, show, move, fork, rewind, delete.",
    ),
    "turns": ("holdfast.cli.commands.turns", "See what became of turns, and stop one."),
    "completion": (
        "holdfast.cli.commands.completion",
        "Print what lets a shell complete commands.",
    ),
    "db": (
        "holdfast.cli.commands.db",
        "Look after a database: migrate, verify, back up, move, count, prune.",
    ),
}
"""Name → the module that has a command of that name, and what it is for."""


class CommandFailure(click.ClickException):
    """What ends a command, in one sentence; with `--debug`, preceded by where it came from."""

    def __init__(self, message: str, *, debug: bool) -> None:
        super().__init__(message)
        self.debug = debug

    def show(self, file: object = None) -> None:
        if self.debug and self.__cause__ is not None:
            shown = "".join(traceback.format_exception(self.__cause__))
            output.say_lines(shown, err=True, nl=False)
        output.say_lines(f"holdfast: {self.message}", err=True)


class CommandRefused(CommandFailure):
    exit_code = 2


class Bug(CommandFailure):
    exit_code = 70


class Stopped(CommandFailure):
    exit_code = 130


class CommandTable(click.Group):
    """Imports a command's module when the command is called, and says how it ended."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(_loaded(COMMANDS[name][0]), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:  # click knows of no commands but those that are loaded
            near = get_close_matches(args[0], COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # From the table: click's own would load every command to see whether it is hidden.
        found = [
            CompletionItem(name, help=COMMANDS[name][1])
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.ClickException as error:
            raise _harmless(error) from None

    def invoke(self, ctx: click.Context) -> object:
        debug = bool(ctx.params.get("debug"))
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            raise CommandRefused(str(error), debug=debug) from error
        except KeyboardInterrupt as error:
            raise Stopped("stopped", debug=debug) from error
        except click.ClickException as error:
            raise _harmless(error) from None
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click's own ways to end
        except Exception as error:
            told = f"a bug of ours ({type(error).__name__}: {error})"
            if not debug:
                told += "; run it again as `holdfast --debug …` and report what it says"
            raise Bug(told, debug=debug) from error


def _harmless(error: click.ClickException) -> click.ClickException:
    """The same error; click quotes what it was given as it is."""
    if not isinstance(error, CommandFailure):  # which sees to it itself
        vars(error)["message"] = printable(error.message)
    return error


def _loaded(module: str) -> ModuleType:
    """A module, imported while the garbage collector rests, and frozen: what modules are made of is no garbage, and
    the collector would look through all of it as soon as it is back."""
    if module in sys.modules:
        return sys.modules[module]
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.freeze()
        if collects:
            gc.enable()


@click.command(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, message="holdfast %(version)s")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
def main(debug: bool) -> None:
    """AI agents over the OpenAI API, with conversations that hold: every turn is a transaction."""


def own_server(sources: tuple[str, ...], store: str) -> AbstractContextManager[str]:
    """The address of a server of this command's own; see `private`.

    Loaded when it is wanted, since with it comes all of a server: who talks to one that runs does without.
    """
    from holdfast.cli.private_server import private_server

    return private_server(sources, store)
