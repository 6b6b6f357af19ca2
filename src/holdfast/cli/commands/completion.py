"""`holdfast completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from holdfast.cli import output
from holdfast.environment import PREFIX

PROGRAM = "holdfast"
VARIABLE = f"_{PREFIX}COMPLETE"
"""The variable with which the shell asks for completions, in click's form."""


@click.command(short_help="Print a script for shell completion.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that lets SHELL complete the commands and options of holdfast.

    \b
    Examples, for the start-up file of your shell:
      eval "$(holdfast completion bash)"
      eval "$(holdfast completion zsh)"
      holdfast completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three"
    output.give(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
