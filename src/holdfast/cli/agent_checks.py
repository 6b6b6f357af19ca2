"""Agent files, checked for commands: what is wrong with each, and whether its MCP servers answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.agents import demo
from holdfast.agents.agent import ModelConfig
from holdfast.agents.file.agent_file import Checked
from holdfast.agents.file.shape_checks import FileProblem
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
from holdfast.config import load_config
from holdfast.errors import SourceUnusable
from holdfast.server.agents.model_factory import ServerModels
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.web.address_guard import AddressGuard


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
    async with source_supplies() as supplies:
        origins = [parse_source(each, supplies) for each in references]
        return [await _report(each) for origin in origins for each in _files(origin)]


@asynccontextmanager
async def source_supplies() -> AsyncIterator[Supplies]:
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


def _short(place: str) -> str:
    """A path relative to the working directory, if it is below it."""
    here = Path.cwd()
    path = Path(place)
    is_below = path.is_absolute() and path.is_relative_to(here)
    return str(path.relative_to(here)) if is_below else place
