"""`holdfast agents`: look at agent files without serving them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import click
import msgspec

from holdfast import limits
from holdfast.agents import demo
from holdfast.agents.agent import ModelConfig
from holdfast.agents.file.agent_file import Checked
from holdfast.agents.file.schema import agent_file_schema
from holdfast.agents.file.shape_checks import FileProblem
from holdfast.agents.registry import Broken, Listed, Registry
from holdfast.agents.remote_files import Fetcher
from holdfast.agents.sources import (
    DemoSource,
    FileSource,
    InvalidSource,
    Origin,
    SourceFolder,
    Supplies,
    UrlSource,
    parse_source,
)
from holdfast.cli import display, output
from holdfast.cli.options import json_option
from holdfast.config import load_config
from holdfast.errors import SourceUnusable
from holdfast.server.agents.model_factory import ServerModels
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.web.address_guard import AddressGuard

FOUND, UNREADABLE = 1, 2
"""The exit codes: something is wrong in a file; a file could not be read at all."""

Weight: TypeAlias = Literal["error", "warning"]


@click.group()
def agents() -> None:
    """Look at agents without serving them."""


# ── check ────────────────────────────────────────────────────────────────────────────────────


class Report(msgspec.Struct):
    """The result of `check` for one file."""

    file: str
    agents: tuple[str, ...] = ()
    problems: tuple[FileProblem, ...] = ()
    warnings: tuple[FileProblem, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Why the file could not be read."""
    models: tuple[ModelConfig, ...] = ()
    """The models of its agents. Their URLs may contain secrets: not to be shown."""
    servers: tuple[McpToolset, ...] = ()
    """Its MCP servers."""


@agents.command(short_help="Say what is wrong with agent files.")
@click.argument("sources", metavar="FILE|DIRECTORY|URL|demo…", nargs=-1, required=True)
@click.option(
    "--servers", is_flag=True, help="Start or call their MCP servers, and say whether they answer."
)
@json_option
@click.pass_context
def check(ctx: click.Context, sources: tuple[str, ...], servers: bool, as_json: bool) -> None:
    """Read agent files as `serve` would, and say what is wrong with them, each with its place.

    Nothing in them is executed, no server is asked for anything but the file itself, and no key is needed; with
    --servers, their MCP servers are asked for their tools, as `doctor` does.
    A file from a URL is judged as one that is not trusted with this machine.
    Ends with 0 if they can be served, 1 if something is wrong in one, 2 if one could not be read.

    \b
    Example:
      holdfast agents check shop.yaml agents/ https://example.org/team.yaml
    """
    reports, absent = asyncio.run(_checked(sources, ask_servers=servers))
    if as_json:
        output.give(json.dumps({"files": [_plain(each) for each in reports]}, indent=2))
    else:
        _show(reports)
    if any(each.unreadable for each in reports):
        ctx.exit(UNREADABLE)
    for words in absent:
        output.say(words, err=True)
    ctx.exit(FOUND if absent or any(each.problems for each in reports) else 0)


async def _checked(
    references: tuple[str, ...], *, ask_servers: bool
) -> tuple[list[Report], list[str]]:
    """The reports of these files, and why MCP servers do not answer, if they are to be asked."""
    reports = await check_sources(references)
    asked = [each for report in reports if ask_servers for each in report.servers]
    return reports, [told for told in await asyncio.gather(*map(server_trouble, asked)) if told]


async def server_trouble(server: McpToolset) -> str:
    """Why an MCP server does not say its tools; empty if it does. It is stopped again."""
    try:
        async with asyncio.timeout(limits.mcp_start_s):
            await server.tools()
    except TimeoutError:
        return f"{server.server.shown} did not say its tools within {limits.mcp_start_s:g} s"
    finally:
        await server.close()
    return server.trouble


async def check_sources(references: tuple[str, ...]) -> list[Report]:
    """Check agent files, one report for each. Raises InvalidSource for a reference that names none."""
    async with _supplies() as supplies:
        origins = [parse_source(each, supplies) for each in references]
        return [await _report(each) for origin in origins for each in _files(origin)]


@asynccontextmanager
async def _supplies() -> AsyncIterator[Supplies]:
    models = ServerModels(os.environ)
    config = load_config({}, os.environ, ())
    try:
        yield Supplies(
            make_model=models,
            environment=os.environ,
            fetcher=Fetcher(AddressGuard(allow_private=config.trust_remote)),
            trust_remote=config.trust_remote,
            sandbox=Sandbox(config.sandbox),
        )
    finally:
        await models.close()


def _files(origin: Origin) -> Iterator[FileSource | UrlSource | Report]:
    """The agent files of an origin; or a report that says why there are none."""
    match origin:
        case FileSource() | UrlSource():
            yield origin
        case SourceFolder():
            try:
                found = origin.sources()
            except SourceUnusable as error:
                yield Report(file=_short(origin.key), unreadable=error.problems)
                return
            if not found:
                words = f"{_short(origin.key)}: no agent files are there: *.yaml, *.yml"
                yield Report(file=_short(origin.key), unreadable=(words,))
            yield from found
        case DemoSource():  # it is part of the program: there is no file that could be wrong
            yield Report(file=origin.key, agents=(demo.NAME,), models=(demo.MODEL,))
        case _:
            raise InvalidSource(
                f"{origin.key!r} is not an agent file, and nothing is executed to look at it: "
                "give a YAML file, a directory of them, an http(s) URL, or demo"
            )


async def _report(source: FileSource | UrlSource | Report) -> Report:
    if isinstance(source, Report):
        return source
    try:
        checked = await source.check()
    except SourceUnusable as error:
        return Report(file=_short(source.place), unreadable=error.problems)
    return _judged(_short(source.place), checked)


def _judged(file: str, checked: Checked) -> Report:
    return Report(
        file=file,
        agents=tuple(each.name for each in checked.file.agents) if checked.file else (),
        problems=checked.problems,
        warnings=checked.warnings,
        models=tuple(each.model for each in checked.file.agents) if checked.file else (),
        servers=checked.file.servers if checked.file else (),
    )


def _show(reports: list[Report]) -> None:
    for report in reports:
        for words in report.unreadable:
            output.say(words, err=True)
        for weight, problem in _in_order(report):
            line, column = problem.mark.line, problem.mark.column
            output.say(f"{report.file}:{line}:{column}: {weight}: {problem.what}")
    problems = sum(len(each.problems) for each in reports)
    warnings = sum(len(each.warnings) for each in reports)
    read = sum(not each.unreadable for each in reports)
    told = (display.counted(problems, "error"), display.counted(warnings, "warning"))
    output.say(f"{display.counted(read, 'file')} checked: {', '.join(told)}", err=True)


def _in_order(report: Report) -> list[tuple[Weight, FileProblem]]:
    found: list[tuple[Weight, FileProblem]] = [("error", each) for each in report.problems]
    found += [("warning", each) for each in report.warnings]
    return sorted(found, key=lambda each: (each[1].mark.line, each[1].mark.column))


def _plain(report: Report) -> dict[str, object]:
    return {
        "file": report.file,
        "agents": report.agents,
        "errors": [_plain_problem(each) for each in report.problems],
        "warnings": [_plain_problem(each) for each in report.warnings],
        "unreadable": report.unreadable,
    }


def _plain_problem(problem: FileProblem) -> dict[str, object]:
    return {
        "line": problem.mark.line,
        "column": problem.mark.column,
        "field": problem.field,
        "message": problem.words,
    }


def _short(place: str) -> str:
    """A path relative to the working directory, if it is below it."""
    here = Path.cwd()
    path = Path(place)
    is_below = path.is_absolute() and path.is_relative_to(here)
    return str(path.relative_to(here)) if is_below else place


# ── schema ───────────────────────────────────────────────────────────────────────────────────


@agents.command(short_help="Print the JSON Schema of agent files.")
def schema() -> None:
    """Print the JSON Schema of agent files, for editors that check while you type.

    \b
    Example:
      holdfast agents schema > agent-file.schema.json
    """
    output.give(agent_file_schema(), nl=False)


# ── list ─────────────────────────────────────────────────────────────────────────────────────


@agents.command("list", short_help="Say which agents there are.")
@click.argument("sources", metavar="SOURCE…", nargs=-1, required=True)
@json_option
@click.pass_context
def list_command(ctx: click.Context, sources: tuple[str, ...], as_json: bool) -> None:
    """The agents of these sources, under the names that clients ask for them by.

    Sources are what `serve` takes; a Python module is imported.
    Ends with 1 if a source cannot be loaded: the others are listed, and stderr says what is wrong.

    \b
    Example:
      holdfast agents list shop.yaml agents/ --json
    """
    listed, problems = asyncio.run(_list(sources))
    if as_json:
        output.give(json.dumps({"agents": [_plain_agent(each) for each in listed]}, indent=2))
    elif display.is_watched():
        rows = ((each.id, each.source, each.description) for each in listed)
        display.table(("model", "source", "description"), rows)
    else:
        for each in listed:
            output.say_row((each.id, each.source, each.description))
    for line in problems:
        output.say(line, err=True)
    ctx.exit(FOUND if problems else 0)


async def _list(references: tuple[str, ...]) -> tuple[tuple[Listed, ...], list[str]]:
    async with _supplies() as supplies:
        registry = Registry([parse_source(each, supplies) for each in references])
        try:
            told = await registry.refresh()
            problems = [line for each in told if isinstance(each, Broken) for line in each.problems]
            return registry.listing(), problems
        finally:
            await registry.close()


def _plain_agent(listed: Listed) -> dict[str, object]:
    return {
        "id": listed.id,
        "agent": listed.agent,
        "source": listed.source,
        "source_key": listed.source_key,
        "description": listed.description,
        "is_entry": listed.is_entry,
    }
