"""`holdfast agents`: look at agent files without serving them."""

from __future__ import annotations

import asyncio
import json
from typing import Literal, TypeAlias

import click

from holdfast.agents.file.schema import agent_file_schema
from holdfast.agents.file.shape_checks import FileProblem
from holdfast.agents.registry import Broken, Listed, Registry
from holdfast.agents.sources import parse_source
from holdfast.cli import display, output
from holdfast.cli.agent_checks import Report, check_sources, server_trouble, source_supplies
from holdfast.cli.options import json_option
from holdfast.cli.setup.agent_logins import login, logout

FOUND, UNREADABLE = 1, 2
"""The exit codes: something is wrong in a file; a file could not be read at all."""

Weight: TypeAlias = Literal["error", "warning"]


@click.group()
def agents() -> None:
    """Look at agents without serving them."""


agents.add_command(login)
agents.add_command(logout)


# ── check ────────────────────────────────────────────────────────────────────────────────────


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
    else:
        rows = ((each.id, each.source, each.description) for each in listed)
        display.rows(("model", "source", "description"), rows)
    for line in problems:
        output.say(line, err=True)
    ctx.exit(FOUND if problems else 0)


async def _list(references: tuple[str, ...]) -> tuple[tuple[Listed, ...], list[str]]:
    async with source_supplies() as supplies:
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
