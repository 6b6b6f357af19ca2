"""`holdfast demo`: what makes Holdfast different, shown on a real server in two minutes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click
from rich.console import Console

from holdfast.cli import output
from holdfast.cli.tour.demo_server import ServerHost, launched
from holdfast.cli.tour.narration import TourNarration
from holdfast.cli.tour.scenes import SCENES


@click.command()
@click.option("--no-wait", is_flag=True, help="Go on without waiting for Enter between the scenes.")
def demo(no_wait: bool) -> None:
    """A guided tour: six things that go wrong elsewhere, tried on a real server.

    It starts a server of its own, in a directory that is removed afterwards, and needs no key and no network.
    Each claim is read back through the public API; if one does not hold, the exit code is 1.

    \b
    Examples:
      holdfast demo                 scene by scene
      holdfast demo --no-wait       in one go, for scripts
    """
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
    is_guided = not no_wait and sys.stdin.isatty() and console.is_terminal
    console.print("Starting a server …")
    with launched() as host:
        console.print(f"It listens on {host.url}; its conversations lie in {host.here}.")
        if not give_tour(
            host, TourNarration(console), pause=_wait_for_enter if is_guided else _go_on
        ):
            raise click.exceptions.Exit(1)


def give_tour(host: ServerHost, teller: TourNarration, *, pause: Callable[[], None]) -> bool:
    """Play every scene. True if all claims hold."""
    began = time.monotonic()
    held = broken = 0
    for number, scene in enumerate(SCENES, start=1):
        teller.open(scene, number, len(SCENES))
        shown = scene.play(host, teller.tell)
        teller.show(shown)
        holding = sum(claim.holds for claim in shown.claims)
        held, broken = held + holding, broken + len(shown.claims) - holding
        if number < len(SCENES):
            pause()
    teller.close(held, broken, time.monotonic() - began)
    return not broken


def _wait_for_enter() -> None:
    output.say_lines("\n  Enter goes on …", nl=False)
    sys.stdin.readline()


def _go_on() -> None:
    pass
