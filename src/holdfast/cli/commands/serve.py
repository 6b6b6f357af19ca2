"""`holdfast serve`: agents over the OpenAI API, from one command."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import uvloop

from holdfast.cli import output
from holdfast.config import SETTINGS, Config, Quota, flag_of, load_config
from holdfast.observe.events import configure, event, warn
from holdfast.observe.trace_export import tracing
from holdfast.server.http.connection_register import raise_files_limit
from holdfast.server.http.listen_sockets import SharedPort
from holdfast.server.processes.process_role import ProcessRole, ReadyServer, SoleProcess
from holdfast.server.processes.server_process import serve_sources
from holdfast.server.processes.worker_supervisor import WorkerSupervisor
from holdfast.store.store_url import without_password

GARBAGE = (10_000, 10, 10)
"""The garbage collector's thresholds: new objects before it scans the youngest generation, and scans of a generation
before it scans the next older one."""


def setting_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The flags of a command, one for each setting that has one."""
    for name, row in reversed(SETTINGS.items()):
        if row.flag:
            beyond = f", {row.beyond} beyond loopback" if row.beyond else ""
            default = f"; {row.default} by default{beyond}" if row.default else ""
            words = row.words.partition(";")[0]
            command = click.option(
                flag_of(name), metavar=row.flag, help=f"{words[:1].upper()}{words[1:]}{default}."
            )(command)
    return command


@click.command()
@click.argument("sources", nargs=-1)
@setting_flags
@click.option(
    "--print-config", is_flag=True, help="Show each setting and where it comes from, and stop."
)
def serve(sources: tuple[str, ...], print_config: bool, **flags: str | None) -> None:
    """Serve agents from SOURCES: agent files, directories, URLs, module:attribute, or `demo`.

    \b
    Examples:
      holdfast serve                         the demo agent
      holdfast serve butler.yaml             an agent file
      holdfast serve work=agents/ --store sqlite:////var/lib/holdfast/store.db
    """
    given = {name: value for name, value in flags.items() if value is not None}
    config = load_config(given, os.environ, sources)
    if print_config:
        for each in config.origins:
            output.say(f"{each.name:24} {each.value:40} {each.origin}")
        for unknown in config.unknown:
            meant = f", did you mean {unknown.nearest}?" if unknown.nearest else ""
            output.say(f"{unknown.variable} is no setting{meant}", err=True)
        return
    configure(config.log_format)
    for unknown in config.unknown:
        warn("config.unknown", variable=unknown.variable, nearest=unknown.nearest or None)
    raise_files_limit()  # before there are workers: they inherit it
    role = _process_role(config)
    if isinstance(role, int):
        raise click.exceptions.Exit(role)
    # The objects of the program stay until its end, and a turn's objects have few cycles: scanning all of them every
    # few hundred allocations would slow each turn down.
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    with tracing(os.environ):
        uvloop.run(serve_sources(config, role, cache=_cache_folder(os.environ)))


def _process_role(config: Config) -> ProcessRole | int:
    """The role of this process. With several workers this forks: each worker returns its own role, and the parent
    returns an exit code after all workers have ended."""

    def on_ready(ready: ReadyServer) -> None:
        _say_ready(ready, config)

    if config.workers == 1:
        return SoleProcess(config.listen.host, config.listen.port, on_ready=on_ready)
    port = SharedPort(config.listen.host, config.listen.port)
    bounded = any(config.quota(whose) != Quota() for whose in ("tenant", "key"))
    return WorkerSupervisor(config.workers, port, bounded=bounded, on_ready=on_ready).run()


def _say_ready(ready: ReadyServer, config: Config) -> None:
    store = without_password(config.store)
    if config.log_format == "json":  # stdout is for programs then
        event("server.ready", url=ready.url, store=store, workers=config.workers)
    else:
        output.say_lines(_welcome(ready, store, config.workers))


def _cache_folder(environ: Mapping[str, str]) -> Path:
    """The folder with copies of remote agent files, in the user's XDG cache folder."""
    base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "holdfast" / "sources"


def _welcome(ready: ReadyServer, store: str, workers: int) -> str:
    url, first = ready.url, ready.agents[0]
    broken = "".join(f"\n  not served  {each}" for each in ready.broken)
    processes = f"\n  workers     {workers}" if workers > 1 else ""
    ask = '{"model": "%s", "messages": [{"role": "user", "content": "%s"}]}'
    return f"""Holdfast is serving.

  listening   {url}{processes}
  agents      {", ".join(ready.agents)}{broken}
  store       {store}

Try:

  curl {url}/v1/chat/completions -H 'X-Conversation-Id: first' \\
    -d '{ask % (first, "Hello, who are you?")}'

  curl {url}/v1/chat/completions -H 'X-Conversation-Id: first' \\
    -d '{ask % (first, "What did I say before?")}'

  curl {url}/api/sessions

Or look at {url}/ in a browser.

Stop with Ctrl-C: turns that are running get time to finish."""
