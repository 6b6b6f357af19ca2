"""`holdfast doctor`: checks everything that a server needs on this machine, and says how to fix problems."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import apsw
import click

from holdfast.cli import checkup, display, output
from holdfast.cli.agent_checks import Report, check_sources, server_trouble
from holdfast.cli.checkup import CheckupFinding, ok, problem, skipped, warning
from holdfast.cli.options import json_option, store_option
from holdfast.config import load_config
from holdfast.core.codec import Value, encode
from holdfast.errors import StoreError, StoreUnusable
from holdfast.models.model import KeyMissing
from holdfast.models.servers import SERVERS, ProviderServer
from holdfast.store.sqlite.location_checks import check_library
from holdfast.store.store_url import InFile, InMemory, InPostgres, examine_store, parse_url
from holdfast.tools.sandbox.backend import find_backend

FOUND = 1
"""The exit code if there is a problem."""

REACH_S = 5.0
MARKS = {"ok": "✓", "warning": "!", "problem": "✗", "skipped": "-"}
STYLES = {"ok": "green", "warning": "yellow", "problem": "red", "skipped": "bright_black"}


@click.command(
    short_help="Check this machine, the store and the agents, and say how to fix problems."
)
@click.argument("sources", metavar="[SOURCE]…", nargs=-1)
@click.option("--offline", is_flag=True, help="Ask no provider and no MCP server.")
@json_option
@store_option
@click.pass_context
def doctor(
    ctx: click.Context, sources: tuple[str, ...], offline: bool, as_json: bool, url: str
) -> None:
    """Look at what a server here needs: versions, the store, leases and clocks, disk, limits, and providers.

    SOURCES are agent files, directories, URLs or `demo`: they are checked, the providers that they use are asked
    whether they can be reached, and their MCP servers for their tools. Nothing is changed, and keys are never shown or sent.
    Ends with 0 if nothing is a problem, and with 1 otherwise; warnings alone are none.

    \b
    Examples:
      holdfast doctor
      holdfast doctor butler.yaml --store postgresql://holdfast@db.example/holdfast
      holdfast doctor --json | jq '.findings[] | select(.state != "ok")'
    """
    findings = asyncio.run(_examine(sources, url, offline=offline, shown=not as_json))
    problems = sum(each.state == "problem" for each in findings)
    warnings = sum(each.state == "warning" for each in findings)
    if as_json:
        output.give(
            b'{"healthy":%b,"findings":%b}' % (b"false" if problems else b"true", encode(findings))
        )
    else:
        told = f"{display.counted(problems, 'problem')}, {display.counted(warnings, 'warning')}"
        output.say("all is well" if not problems and not warnings else told, err=True)
    ctx.exit(FOUND if problems else 0)


async def _examine(
    sources: tuple[str, ...], url: str, *, offline: bool, shown: bool
) -> list[CheckupFinding]:
    """All findings; each is printed as soon as it is found, if `shown`."""
    findings: list[CheckupFinding] = []
    async for finding in _all(sources, url, offline=offline):
        findings.append(finding)
        if shown:
            _show(finding)
    return findings


def _show(finding: CheckupFinding) -> None:
    mark = click.style(MARKS[finding.state], fg=STYLES[finding.state])
    output.say(f" {finding.check:<14} {finding.what}", mark=mark)
    if finding.todo:
        output.say(f"  {'':<14} → {finding.todo}")


async def _all(
    sources: tuple[str, ...], url: str, *, offline: bool
) -> AsyncIterator[CheckupFinding]:
    yield checkup.judge_python(sys.version_info[:3])
    yield _library()
    yield checkup.judge_descriptors(_descriptors())
    yield checkup.judge_sandbox(load_config({}, os.environ, ()).sandbox, find_backend())
    async for finding in _store(url):
        yield finding
    reports = await check_sources(sources) if sources else []
    for report in reports:
        yield _judge_file(report)
    for finding in await _providers(reports, offline=offline):
        yield finding
    for finding in await _servers(reports, offline=offline):
        yield finding


# ── this machine, and the store ──────────────────────────────────────────────────────────────


def _library() -> CheckupFinding:
    version = apsw.sqlite_lib_version()
    try:
        check_library(version)
    except StoreUnusable as error:
        return problem("sqlite", f"SQLite {version}", str(error))
    return ok("sqlite", f"SQLite {version}")


def _descriptors() -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # a server asks for it at start
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


async def _store(url: str) -> AsyncIterator[CheckupFinding]:
    try:
        address = parse_url(url)
        if isinstance(address, InMemory):
            yield skipped("store", "a memory store ends with its process")
            return
        condition = await examine_store(url)
    except StoreError as error:
        what, _, way_out = str(error).partition("; ")
        yield problem("store", what, way_out or "see that it runs, and --store")
        return
    match address:
        case InFile(path=path):
            for finding in _place(path.resolve()):
                yield finding
        case InPostgres():
            yield ok("store", "PostgreSQL answers")
    if condition is not None:
        for finding in checkup.judge_store(condition):
            yield finding


def _place(path: Path) -> list[CheckupFinding]:
    folder = path.parent
    if not folder.is_dir():
        return [problem("store", f"the directory {folder} does not exist", "create it")]
    disk = checkup.judge_disk(str(folder), shutil.disk_usage(folder).free)
    if not path.exists():
        todo = "the first start makes one; --store names another"
        return [warning("store", f"there is no database at {path} yet", todo), disk]
    return [ok("store", f"{path} opens"), checkup.judge_mode(str(path), path.stat().st_mode), disk]


# ── agents, and their model providers ────────────────────────────────────────────────────────


def _judge_file(report: Report) -> CheckupFinding:
    if report.unreadable:
        return problem("agents", report.unreadable[0], "see the path, or that the server answers")
    if report.problems:
        first = report.problems[0]
        more = f" (and {len(report.problems) - 1} more)" if len(report.problems) > 1 else ""
        what = f"{report.file}:{first.mark.line}: {first.what}{more}"
        return problem("agents", what, f"holdfast agents check {report.file}")
    if report.warnings:
        told = f"{report.file}: {display.counted(len(report.warnings), 'warning')}"
        return warning("agents", told, f"holdfast agents check {report.file}")
    return ok("agents", f"{report.file}: {', '.join(report.agents)}")


class Provider(Value):
    """The server of a model."""

    name: str
    base_url: str
    key: str
    """The variable with the API key; empty if none is needed."""


def used_providers(reports: Sequence[Report], environ: Mapping[str, str]) -> list[Provider]:
    """The providers of the checked agents; without agents, all providers whose keys are set."""
    found: dict[tuple[str, str], Provider] = {}
    for report in reports:
        for model in report.models:
            if model.provider != "demo" or model.base_url:
                server = _located(
                    SERVERS.get(model.kind or model.provider, ProviderServer()), environ
                )
                at = model.base_url or server.base_url
                key = model.token_key or (server.token_key(environ) if server.is_at(at) else "")
                found[model.provider, at] = Provider(name=model.provider, base_url=at, key=key)
    if reports:
        return list(found.values())
    return [
        Provider(name=name, base_url=here.base_url, key=server.token_key(environ))
        for name, server in SERVERS.items()
        if (here := _located(server, environ)).base_url
        and any(environ.get(each, "").strip() for each in server.token_keys)
    ]


def _located(server: ProviderServer, environ: Mapping[str, str]) -> ProviderServer:
    """The server at its address; at none if the environment does not tell it."""
    try:
        return server.located(environ)
    except KeyMissing:
        return ProviderServer()


async def _servers(reports: Sequence[Report], *, offline: bool) -> list[CheckupFinding]:
    """Whether the MCP servers of these agents say their tools."""
    servers = [each for report in reports for each in report.servers]
    if offline:
        return [skipped("mcp", f"{each.server.shown}; not asked") for each in servers]
    told = await asyncio.gather(*map(server_trouble, servers))
    todo = "see that its program is installed, or that its address answers"
    return [
        problem("mcp", f"{each.server.shown}: {why}", todo)
        if why
        else ok("mcp", f"{each.server.shown} says its tools")
        for each, why in zip(servers, told, strict=True)
    ]


async def _providers(reports: Sequence[Report], *, offline: bool) -> list[CheckupFinding]:
    providers = used_providers(reports, os.environ)
    if not providers:
        told = "these agents have none to ask" if reports else "none to check; name agent files"
        return [skipped("providers", told)]
    timeout = aiohttp.ClientTimeout(total=REACH_S)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        return await asyncio.gather(
            *(_provider(each, None if offline else http) for each in providers)
        )


async def _provider(provider: Provider, http: aiohttp.ClientSession | None) -> CheckupFinding:
    # The host alone: the rest of a URL may contain secrets.
    check, place = "providers", f"{provider.name} at {urlsplit(provider.base_url).hostname}"
    if provider.key and not os.environ.get(provider.key, "").strip():
        return problem(check, f"{place}: {provider.key} is not set", f"export {provider.key}=…")
    has_key = f", {provider.key} is set" if provider.key else ""
    if http is None:
        return skipped(check, f"{place}{has_key}; not asked")
    try:
        # Any answer will do. No key is sent: the first turn shows whether it is valid.
        async with http.get(provider.base_url, allow_redirects=False) as response:
            return ok(check, f"{place} answers ({response.status}){has_key}")
    except aiohttp.InvalidURL:
        return problem(check, f"{place}: its base_url is no URL", "correct it in the agent file")
    except (aiohttp.ClientError, TimeoutError) as error:
        why = str(error) or f"no answer in {REACH_S:g} s"
        return problem(
            check, f"{place} cannot be reached: {why}", "see the network, proxies, and base_url"
        )
