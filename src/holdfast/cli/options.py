"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from holdfast.store.open import DEFAULT_URL

F = TypeVar("F", bound=Callable[..., object])


def store_option(command: F) -> F:
    return click.option(
        "--store",
        "url",
        envvar="HOLDFAST_STORE",
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="Which store: sqlite:///PATH or postgresql://…",
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def tenant_option(command: F) -> F:
    return click.option(
        "--tenant", metavar="NAME", help="Whose sessions; needed if the store has several tenants."
    )(command)
