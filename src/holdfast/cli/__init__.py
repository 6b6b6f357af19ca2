"""The command line: `holdfast COMMAND …`.

Start-up time is a feature, so only this table is loaded at first: a command's module is imported when the command is
called, and with it the store, SQLite and rich. The table has a sentence for each command, for `--help`.

Exit codes of every command: 0 success, 1 the command found problems (`db verify`, `agents check`, `doctor`, `demo`),
2 wrong arguments, or the command cannot do its work here, 70 a bug in Holdfast, or a disk that has failed under its
store, 74 the output cannot be written, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import gc
import sys
import traceback
from contextlib import AbstractContextManager
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from holdfast.cli import output
from holdfast.cli.standard_streams import (
    UNWRITABLE,
    flush_output,
    give_up_output,
    hold_places,
    not_text,
)
from holdfast.errors import HoldfastError, StorePoisoned
from holdfast.printable import printable
from holdfast.version import VERSION

COMMANDS = {
    "demo": ("holdfast.cli.commands.demo", "See in two minutes what makes it different."),
    "init": ("holdfast.cli.setup.init", "Write a first agent, with a tool of its own."),
    "acp": ("holdfast.cli.acp.command", "Let an editor talk to an agent, over stdio."),
    "chat": ("holdfast.cli.commands.chat", "Talk to an agent."),
    "connect": ("holdfast.cli.setup.connect", "Print the settings of a client for a server."),
    "agents": (
        "holdfast.cli.commands.agents",
        "Look at agent files: check, list, schema, login.",
    ),
    "doctor": (
        "holdfast.cli.commands.doctor",
        "Check this machine, the store and the agents, and say how to fix problems.",
    ),
    "run": ("holdfast.cli.commands.run", "Run one turn, for scripts."),
    "serve": ("holdfast.cli.commands.serve", "Serve agents over the OpenAI API."),
    "keys": ("holdfast.cli.commands.keys", "Make, list and revoke API keys."),
    "approvals": ("holdfast.cli.commands.approvals", "Decide on calls that wait for a person."),
    "mcp": ("holdfast.cli.stdio.mcp", "Offer agents to an MCP host over stdin and stdout."),
    "sessions": (
        "holdfast.cli.commands.sessions",
        "Look after conversations: list, search, show, move, fork, rewind, delete.",
    ),
    "status": (
        "holdfast.cli.commands.status",
        "See what goes on: turns that run, wait for a person, broke off or failed.",
    ),
    "turns": ("holdfast.cli.commands.turns", "See the outcome of turns; stop or continue one."),
    "completion": (
        "holdfast.cli.commands.completion",
        "Print a script for shell completion.",
    ),
    "db": (
        "holdfast.cli.commands.db",
        "Look after a database: migrate, verify, back up, move, count, prune.",
    ),
}
"""Name → the module that has the command of that name, and its sentence in `--help`."""


class CommandFailure(click.ClickException):
    """Ends a command with a message of one sentence; with `--debug`, after the traceback of its cause."""

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


class FatalFailure(CommandFailure):
    exit_code = 70


class OutputFailed(CommandFailure):
    exit_code = 74


class Stopped(CommandFailure):
    exit_code = 130


class CommandTable(click.Group):
    """Imports a command's module when the command is called, and turns its errors into exit codes."""

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
        except click.UsageError as error:  # click itself suggests loaded commands only
            near = get_close_matches(args[0], COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # From the table: click's own method would load every command to see whether it is hidden.
        found = [
            CompletionItem(name, help=COMMANDS[name][1])
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command. Its output is written to the end, or that it cannot be is said once."""
        hold_places()
        try:
            super().main(*args, **options)
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            _end_unwritten(error)
        except SystemExit as ended:
            unflushed = flush_output()
            if unflushed is not None and unflushed.errno in UNWRITABLE:
                if ended.code == OutputFailed.exit_code:  # it was said already
                    give_up_output()
                else:
                    _end_unwritten(unflushed)
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        unreadable = not_text(args)
        if unreadable is not None:
            raise click.UsageError(f"the argument {printable(unreadable)!r} is not UTF-8", ctx)
        try:
            return super().parse_args(ctx, args)
        except click.ClickException as error:
            raise _harmless(error) from None

    def invoke(self, ctx: click.Context) -> object:
        debug = bool(ctx.params.get("debug"))
        try:
            return super().invoke(ctx)
        except StorePoisoned as error:
            raise FatalFailure(str(error), debug=debug) from error
        except HoldfastError as error:
            raise CommandRefused(str(error), debug=debug) from error
        except KeyboardInterrupt as error:
            raise Stopped("stopped", debug=debug) from error
        except click.ClickException as error:
            raise _harmless(error) from None
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click's own ways to end
        except Exception as error:
            if isinstance(error, OSError) and error.errno in UNWRITABLE:
                raise OutputFailed(_unwritten(error), debug=debug) from error
            told = f"a bug of ours ({type(error).__name__}: {error})"
            if not debug:
                told += "; run it again as `holdfast --debug …` and report what it says"
            raise FatalFailure(told, debug=debug) from error


def _unwritten(error: OSError) -> str:
    where = f" to {error.filename}" if error.filename else ""
    return f"the output cannot be written{where}: {error.strerror}"


def _end_unwritten(error: OSError) -> NoReturn:
    """End the process after an error that no command has seen: while click or Python wrote the output."""
    give_up_output()
    output.say(f"holdfast: {_unwritten(error)}", err=True)
    sys.exit(OutputFailed.exit_code)


def _harmless(error: click.ClickException) -> click.ClickException:
    """The same error with a printable message: click quotes arguments unchanged."""
    if not isinstance(error, CommandFailure):  # whose show() prints safely
        vars(error)["message"] = printable(error.message)
    return error


def _loaded(module: str) -> ModuleType:
    """Import a module with the garbage collector switched off, and freeze its objects: they are no garbage, and the
    collector would scan all of them at its next run."""
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
    """Start a server for this command alone, and return its address; see `private_server`.

    Imported late, since it loads a whole server: a command that uses a running server does not need it.
    """
    from holdfast.cli.private_server import private_server

    return private_server(sources, store)
