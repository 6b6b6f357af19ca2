"""The MCP servers of an agent file: checked, but not started."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping

import msgspec

from holdfast import limits
from holdfast.agents.file.document import Where
from holdfast.agents.file.shape_base import filled_up
from holdfast.agents.file.shape_checks import suggest
from holdfast.agents.file.toolsets.file_context import TOOL_PREFIX, FileContext
from holdfast.agents.file.toolsets.toolset_shapes import (
    McpShape,
    McpToolsetShape,
    OauthShape,
    RemoteShape,
    deferred_names,
)
from holdfast.core.codec import encode
from holdfast.environment import variable
from holdfast.tools.mcp.config import McpServer, OauthClient, Remote, Stdio
from holdfast.tools.mcp.logins import KeyUnusable, Logins, kept_logins
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.sandbox.sandbox import Sandbox, cache_home
from holdfast.tools.schema import TOOL_NAME, InvalidTool
from holdfast.tools.tool import Toolset
from holdfast.tools.toolset_choice import ChosenToolset
from holdfast.tools.toolsets.absent import AbsentToolset
from holdfast.tools.toolsets.script import passed_on
from holdfast.tools.web.address_guard import FetchFailed, host_of

_STREAMABLE = ("", "streamable", "streamable-http", "streamable_http", "http")
_EVENTS = ("sse",)
_GATEWAY = "docker:"
_WITH_CONFIG = """\
umask 077
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 143' HUP INT TERM
printf %s "$1" > "$dir/config.yaml"
docker mcp gateway run "--servers=$0" "--config=$dir/config.yaml"
"""
"""Runs Docker's gateway with the settings of a server in a file: `$0` is the server, `$1` the settings. JSON is YAML."""


class FileServers:
    """The MCP servers of one file. Its agents share servers with the same settings."""

    def __init__(self, context: FileContext, mcps: Mapping[str, McpShape]) -> None:
        self._context = context
        self._found = context.found
        self._environment = context.environment
        self._sandbox = context.sandbox
        self._mcps = mcps
        self._servers: dict[bytes, McpToolset] = {}

    @property
    def every(self) -> tuple[McpToolset, ...]:
        """The servers of the agents that were read."""
        return tuple(self._servers.values())

    def toolset(self, shape: McpToolsetShape, at: Where) -> Toolset | None:
        merged = self._referred(shape, at)
        if merged is None:
            return None
        is_gateway = merged.ref.startswith(_GATEWAY)
        if is_gateway and (why := self._no_gateway(merged, at)):
            self._found.warn((*at, "ref"), why)
            return AbsentToolset(merged.ref, why)
        server = self._server(_through_gateway(merged) if is_gateway else merged, at)
        if server is None:
            return None
        inner = self._shared(server, at, Sandbox("off") if is_gateway else self._sandbox)
        if inner is None:
            return None
        if merged.instruction is None and not merged.defer:
            return inner
        names = deferred_names(merged.defer)
        if names and merged.name:
            names = [each for own in names for each in (own, f"{merged.name}_{own}")]
        return ChosenToolset(inner, instruction=merged.instruction, deferred=names)

    def _no_gateway(self, shape: McpShape, at: Where) -> str:
        """Why Docker's gateway cannot be run for this toolset; empty if it can. A required toolset is a problem then."""
        why = ""
        if shutil.which("docker", path=self._environment.get("PATH", "")) is None:
            why = "Docker's MCP gateway is not installed: there is no `docker` on the PATH"
        elif self._sandbox.mode == "required" or (self._sandbox.mode, shape.sandbox) == (
            "auto",
            "",
        ):
            why = (
                "Docker's MCP gateway needs Docker's socket, which is root on this machine, and this server runs "
                f"programs in a sandbox: say 'sandbox: off' at this toolset, where {variable('sandbox')} is not 'required'"
            )
        if why and is_required(shape):
            self._found.missing((*at, "ref"), why)
        return why

    def _shared(self, server: McpServer, at: Where, sandbox: Sandbox) -> McpToolset | None:
        """The toolset of a server; servers with equal settings share one."""
        key = encode(server)
        if key not in self._servers:
            try:
                self._servers[key] = McpToolset(
                    server, sandbox=sandbox, logins=self._logins(server)
                )
            except (InvalidTool, KeyUnusable) as error:
                self._found.wrong(at, str(error))
                return None
        return self._servers[key]

    def _logins(self, server: McpServer) -> Logins | None:
        """The logins that sign requests to a server. Raises KeyUnusable."""
        remote = server.transport
        is_signed = isinstance(remote, Remote) and remote.takes_login
        return kept_logins(self._environment) if is_signed else None

    def _referred(self, shape: McpToolsetShape, at: Where) -> McpShape | None:
        """A toolset merged with the definition that it refers to; its own fields win."""
        if not shape.ref or shape.ref.startswith(_GATEWAY):
            return filled_up(McpShape, shape, McpShape())
        if shape.ref not in self._mcps:
            words = f"no such server; {suggest(shape.ref, self._mcps)}"
            self._found.wrong((*at, "ref"), words)
            return None
        if shape.command or shape.remote is not None:
            self._found.wrong(at, "'ref' names a server; leave out 'command' and 'remote'")
            return None
        there = self._mcps[shape.ref]
        env = {**there.env, **shape.env}
        return filled_up(McpShape, shape, there, ref=there.ref, env=env)

    def _server(self, shape: McpShape, at: Where) -> McpServer | None:
        if bool(shape.command) == (shape.remote is not None):
            self._found.wrong(at, "give one of 'command', 'remote' and 'ref'")
            return None
        if shape.name and TOOL_NAME.fullmatch(shape.name) is None:
            self._found.wrong((*at, "name"), TOOL_PREFIX)
        env, secrets = self._context.filled(shape.env, (*at, "env"))
        transport: Stdio | Remote | None
        if shape.remote is not None:
            transport, more = self._remote(shape.remote, (*at, "remote"))
        else:
            transport, more = self._program(shape, env, at), ()
        if transport is None:
            return None
        return McpServer(
            transport=transport,
            name=shape.name,
            only=shape.tools or None,
            only_readers=shape.readonly,
            trust_hints=shape.trust_hints,
            required=is_required(shape),
            timeout_s=self._context.seconds(
                shape.lifecycle.call_timeout, (*at, "lifecycle", "call_timeout")
            )
            or shape.timeout,
            start_s=self._context.seconds(
                shape.lifecycle.startup_timeout, (*at, "lifecycle", "startup_timeout")
            )
            or limits.mcp_start_s,
            secrets=secrets + more,
        )

    def _program(self, shape: McpShape, env: Mapping[str, str], at: Where) -> Stdio:
        directory = self._context.below(shape.working_dir, (*at, "working_dir"))
        path = env.get("PATH", self._environment.get("PATH", ""))
        if shape.version and shutil.which(shape.command, path=path) is None:
            words = f"{shape.command} is not on the PATH, and nothing is installed here: install {shape.version} yourself"
            self._found.warn((*at, "version"), words)
        return Stdio(
            command=shape.command,
            args=shape.args,
            env={**passed_on(self._environment), **env},
            directory=str(directory),
            network=shape.network,
            roots=self._context.placed(shape.roots),
            read_roots=self._context.placed(shape.read_roots),
            home=cache_home([shape.command, *shape.args], self._environment),
        )

    def _remote(self, shape: RemoteShape, at: Where) -> tuple[Remote | None, tuple[str, ...]]:
        if shape.transport_type not in (*_STREAMABLE, *_EVENTS):
            words = f"has to be one of: {', '.join((*_STREAMABLE[1:], *_EVENTS))}"
            self._found.wrong((*at, "transport_type"), words)
            return None, ()
        url, secrets = self._context.filled_one(shape.url, (*at, "url"))
        headers, more = self._context.filled(shape.headers, (*at, "headers"))
        if self._context.unset:
            return None, ()  # the toolset has no tools then
        try:
            host_of(url)
        except FetchFailed as error:
            self._found.wrong((*at, "url"), error.why)
            return None, ()
        client, own = self._client(shape.oauth, (*at, "oauth"))
        remote = Remote(
            url=url,
            headers=headers,
            events=shape.transport_type in _EVENTS,
            oauth=client,
            login=f"holdfast agents login {shlex.quote(self._found.place)}",
        )
        return remote, secrets + more + own

    def _client(
        self, shape: OauthShape | None, at: Where
    ) -> tuple[OauthClient | None, tuple[str, ...]]:
        if shape is None:
            return None, ()
        name, _ = self._context.filled_one(shape.clientId, (*at, "clientId"))
        secret, secrets = self._context.filled_one(shape.clientSecret, (*at, "clientSecret"))
        if secret and not name:
            self._found.wrong((*at, "clientSecret"), "is of a client: give its 'clientId', too")
        client = OauthClient(
            client_id=name,
            client_secret=secret,
            scopes=shape.scopes,
            port=shape.callbackPort or 0,
            redirect=shape.callbackRedirectURL,
        )
        return client, (*secrets, *filter(None, (secret,)))


def is_required(shape: McpShape) -> bool:
    """Whether a turn without this server's tools fails."""
    said = shape.lifecycle.required
    return shape.required or (shape.lifecycle.profile == "strict" if said is None else said)


def _through_gateway(shape: McpShape) -> McpShape:
    """The program that runs a server of Docker's catalogue."""
    server = shape.ref.removeprefix(_GATEWAY)
    if shape.config is not None:
        config = encode({server: shape.config}).decode()
        return msgspec.structs.replace(
            shape, ref="", command="/bin/sh", args=("-c", _WITH_CONFIG, server, config)
        )
    return msgspec.structs.replace(
        shape, ref="", command="docker", args=("mcp", "gateway", "run", f"--servers={server}")
    )
