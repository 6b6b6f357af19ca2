"""`holdfast init`: writes a running agent with a tool of its own."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

import click

from holdfast.cli import output
from holdfast.cli.setup.model_search import DEMO, FoundModel, keyed_models, local_models
from holdfast.cli.setup.starter_files import first_question, starter_files
from holdfast.errors import InvalidValue
from holdfast.models.servers import SERVERS

NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


@click.command(short_help="Write a first agent, with a tool of its own.")
@click.argument("directory", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", default="assistant", show_default=True, help="The agent's name.")
@click.option(
    "--model",
    "wanted",
    metavar="PROVIDER/MODEL",
    help="Its model; without it, one that this machine can use.",
)
def init(directory: Path, name: str, wanted: str | None) -> None:
    """Write an agent file, a tool in Python and a test of the tool to DIRECTORY, and say what to try.

    Without --model, the agent gets a model that this machine can use: one whose API key is set (OpenAI, Anthropic,
    Gemini), or that a local server has (Ollama, LM Studio, llama.cpp), or else the demo model. If there are several,
    it asks; without a terminal it takes the first. No key is read or sent, and no file is overwritten.

    \b
    Examples:
      holdfast init
      holdfast init butler --name butler --model anthropic/claude-sonnet-5-5
    """
    if NAME.fullmatch(name) is None:
        raise InvalidValue(
            f"{name!r} is no name for an agent; take small letters, digits, '_' and '-'"
        )
    found = [_given(wanted)] if wanted else asyncio.run(_found())
    model = _chosen(found)
    files = starter_files(name, model)
    _write(directory, files)
    for each in files:
        output.say(f"wrote {directory / each}")
    output.say(f"the model is {model.name}: {model.because}")
    others = ", ".join(each.name for each in found if each not in (model, DEMO))
    if others:
        output.say(f"this machine has others, too, for --model: {others}")
    place, test = (quote(str(directory / each)) for each in (f"{name}.yaml", "test_tools.py"))
    output.say_lines(
        f"\ntry:\n  holdfast run {place} '{first_question(model)}'\n  holdfast chat {place}\n"
        f"  holdfast serve {place}\n  python {test}"
    )


async def _found() -> list[FoundModel]:
    return [*keyed_models(os.environ), *await local_models(), DEMO]


def _given(wanted: str) -> FoundModel:
    provider, slash, model = wanted.partition("/")
    if not slash or not model or not (provider in SERVERS or provider == "demo"):
        known = ", ".join(sorted({*SERVERS, "demo"}))
        raise InvalidValue(f"{wanted!r} is no model; say PROVIDER/MODEL, with one of {known}")
    return FoundModel(provider=provider, model=model, because="as you said")


def _chosen(found: list[FoundModel]) -> FoundModel:
    """The model that a person chooses; the first without a terminal, or if only the demo model is left."""
    if len(found) <= 2 or not sys.stdin.isatty():
        return found[0]
    options = [f"{each.name} ({each.because})" for each in found]
    return found[output.choose("which model", options)]


def _write(directory: Path, files: Mapping[str, str]) -> None:
    """Write all files, or none: raises InvalidValue if one of them is there already."""
    there = [each for each in files if os.path.lexists(directory / each)]
    if there:
        raise InvalidValue(
            f"{directory / there[0]} is there already, and nothing is overwritten; name another DIRECTORY"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (directory / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise InvalidValue(f"cannot write to {directory}: {error.strerror}") from error
