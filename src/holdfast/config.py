"""Settings: from flags, the environment and defaults, into one frozen value, once.

Each setting is a field of `Config`, and its row says everything about it: flags, variables, `--print-config`, errors
and docs/reference/settings.md are made of these rows.

The nearer to the person who starts the server, the stronger: a flag beats the environment, the environment
beats a default. Where each value came from is kept, so that `--print-config` can say. A variable that is empty means
its default; a variable of ours that no setting has is kept to be told, with the name that was probably meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, get_args

from msgspec import Struct

from holdfast.core.codec import Value
from holdfast.core.policy import Policy, parse_policy
from holdfast.environment import COMMANDS, MARKS, PREFIX, variable
from holdfast.errors import InvalidValue
from holdfast.limits import background_turns_max, lease_ttl_s, turn_deadline_s, workers_max
from holdfast.observe.events import LogFormat
from holdfast.store.store_url import DEFAULT_URL, without_password
from holdfast.tools.mcp.logins import DIRECTORY
from holdfast.tools.sandbox.sandbox import Mode
from holdfast.wire.headers import CONVERSATION_ID
from holdfast.wire.problems import BusyStatus

T = TypeVar("T")

Auth: TypeAlias = Literal["auto", "required", "off"]
ApproveInChat: TypeAlias = Literal["auto", "on", "off"]
McpResources: TypeAlias = Literal["own", "all"]
RemoteSources: TypeAlias = Literal["guarded", "trusted"]


class Setting(Struct, Generic[T], frozen=True):
    """What can be set, and all that is told of it."""

    read: Callable[[str], T]
    """Raises WrongValue, or InvalidValue with words of its own."""
    default: str
    words: str
    """What it is. A flag's help has what comes before the first semicolon, the page of settings has all of it."""
    flag: str
    """The flag's placeholder. Empty: there is no flag."""
    beyond: str
    """The default where others than this machine can reach the server, if it is another one."""


class WrongValue(ValueError):
    """A text that a setting does not take. The message says what it takes."""


def setting(
    read: Callable[[str], T], default: str, words: str, *, flag: str = "", beyond: str = ""
) -> T:
    """A row, in the place of a field's default; `load_config` fills every field with a value."""
    return cast("T", Setting(read, default, words, flag, beyond))


# ── values ───────────────────────────────────────────────────────────────────────────────────


class ListenAddress(Value):
    """Where a server listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


class Quota(Value):
    """The bounds of one tenant, or of one key, at one server, all its workers together. None: there is none."""

    requests_per_minute: int | None = None
    turns: int | None = None
    streams: int | None = None
    watchers: int | None = None


class TenantAgents(Value):
    """Which agents tenants may use. A tenant that nothing is said about, also not by `*`, may use every agent."""

    rules: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """A tenant, or `*` for all that are not named, and patterns of model ids."""

    def bounds(self, tenant: str) -> bool:
        """Whether something is said about this tenant."""
        return any(name in (tenant, "*") for name, _ in self.rules)

    def allows(self, tenant: str, model: str) -> bool:
        rules = dict(self.rules)
        patterns = rules.get(tenant, rules.get("*"))
        return patterns is None or any(fnmatchcase(model, each) for each in patterns)


class Origin(Value):
    """A setting, and who said it."""

    name: str
    value: str
    origin: str


class Unknown(Value):
    """A variable with our prefix that no setting has."""

    variable: str
    nearest: str
    """The setting's variable that was probably meant; empty if none is near."""


# ── how texts become values ──────────────────────────────────────────────────────────────────


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _one_of(known: tuple[Any, ...]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        for each in known:
            if str(each) == text:
                return each
        *others, last = map(str, known)
        raise WrongValue(f"{', '.join(others)} or {last}")

    return read


def _number(most: int = 10**9) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
            raise WrongValue(f"a number from 1 to {most}")
        return int(text)

    return read


def _bound(text: str) -> int | None:
    return _number()(text) if text else None


def _seconds(least_s: float = 0.001, most_s: float = 86_400.0) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not least_s <= seconds <= most_s:
            raise WrongValue(f"seconds, at least {least_s:g} and at most {most_s:g}")
        return seconds

    return read


def _expiry(text: str) -> float | None:
    return None if text == "never" else _seconds(most_s=1e9)(text)


def _address(text: str) -> ListenAddress:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise WrongValue(f"HOST:PORT, such as {SETTINGS['listen'].default}")
    return ListenAddress(host=host.strip("[]") or "127.0.0.1", port=int(port))


def _hosts(text: str) -> frozenset[str]:
    return frozenset(_words(text.lower()))


_ORIGIN = re.compile(r"https?://[^/\s?#@]+")


def _origins(text: str) -> frozenset[str]:
    given = [each.rstrip("/") for each in _words(text.lower())]
    if not all(each == "*" or _ORIGIN.fullmatch(each) for each in given):
        raise WrongValue("origins such as https://app.example, or *")
    return frozenset(given)


def _proxies(text: str) -> frozenset[str]:
    try:
        return frozenset(str(ip_address(each)) for each in _words(text))
    except ValueError as error:
        raise WrongValue("addresses such as 10.0.0.1") from error


def _header_names(text: str) -> tuple[str, ...]:
    others = _words(text.lower())
    if not all(re.fullmatch(r"[a-z0-9!#$%&'*+.^_`|~-]+", each) for each in others):
        raise WrongValue("names of headers")
    return tuple(dict.fromkeys((CONVERSATION_ID.name, *others)))


def _aliases(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [each.partition("=") for each in _words(text)]
    if not all(name and equals and agent for name, equals, agent in pairs):
        raise WrongValue("NAME=AGENT pairs, such as gpt-4o=butler")
    return tuple((name, agent) for name, _, agent in pairs)


def _tenant_agents(text: str) -> TenantAgents:
    pairs = [each.partition("=") for each in text.split()]
    rules = tuple((tenant, tuple(filter(None, agents.split(",")))) for tenant, _, agents in pairs)
    if not all(tenant and agents for tenant, agents in rules) or len(dict(rules)) < len(rules):
        raise WrongValue(
            "TENANT=AGENT[,AGENT…] once for each tenant, with spaces between them, "
            "such as 'acme=support,shop/* *=demo'"
        )
    return TenantAgents(rules=rules)


def _sources(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# ── the table ────────────────────────────────────────────────────────────────────────────────


class Config(Value):
    """Everything that can be set, each with its row. Made by `load_config` alone."""

    listen: ListenAddress = setting(_address, "127.0.0.1:8484", "where to listen", flag="HOST:PORT")
    workers: int = setting(
        _number(workers_max),
        "1",
        "how many processes serve that port; see [one machine](../guides/one-machine.md)",
        flag="N",
    )
    store: str = setting(str, DEFAULT_URL, "where conversations live", flag="URL")
    auth: Auth = setting(
        _one_of(get_args(Auth)),
        "auto",
        "which clients have to show a key: auto, required or off; `auto` is every client as soon as there is an [API key](cli.md#holdfast-keys), `required` every "
        "client, `off` none",
        flag="WHEN",
    )
    allowed_hosts: frozenset[str] = setting(
        _hosts, "", "more names that requests may be addressed to"
    )
    cors_origins: frozenset[str] = setting(
        _origins,
        "",
        "pages that may use the server from a browser: `https://app.example`, or `*` for all",
    )
    trusted_proxies: frozenset[str] = setting(
        _proxies,
        "",
        "addresses of proxies whose `X-Forwarded-For` and `X-Forwarded-Host` are believed",
    )
    tls_cert: str = setting(str, "", "a PEM file: the certificate to serve HTTPS with", flag="FILE")
    tls_key: str = setting(str, "", "a PEM file: the certificate's key", flag="FILE")
    tenant_requests_per_minute: int | None = setting(
        _bound, "", "how many requests each tenant may make in a minute"
    )
    tenant_turns: int | None = setting(
        _bound,
        "",
        "how many turns each tenant may have at once; those in the background count",
    )
    tenant_streams: int | None = setting(_bound, "", "how many of these may stream")
    tenant_watchers: int | None = setting(
        _bound, "", "how many turns each tenant may watch at once"
    )
    key_requests_per_minute: int | None = setting(
        _bound, "", "how many requests each API key may make in a minute"
    )
    key_turns: int | None = setting(_bound, "", "how many turns each API key may have at once")
    key_streams: int | None = setting(_bound, "", "how many of these may stream")
    key_watchers: int | None = setting(_bound, "", "how many turns each API key may watch at once")
    approve_in_chat: ApproveInChat = setting(
        _one_of(get_args(ApproveInChat)),
        "auto",
        "whether a yes or no in the chat [decides](../guides/approvals.md#deciding-in-the-chat) about a call that waits for approval: auto, on or off; `auto` is on "
        "for this machine while no API key is needed, `on` is for the key that was asked",
    )
    mcp_resources: McpResources = setting(
        _one_of(get_args(McpResources)),
        "own",
        "which conversations [MCP clients](../guides/mcp-server.md#conversations-as-resources) can read: `own` are those "
        "that their key began there, `all` are all of the tenant, for keys with the scope `read`",
    )
    conversation_headers: tuple[str, ...] = setting(
        _header_names,
        " ".join(CONVERSATION_ID.aliases),
        f"headers that name a conversation, besides `{CONVERSATION_ID.title}`",
    )
    turn_policy: Policy = setting(
        parse_policy,
        "",
        "how turns end where neither agent nor request says: `disconnect=keep, cancel=discard`",
    )
    turn_deadline_s: float = setting(_seconds(), f"{turn_deadline_s:g}", "how long a turn may take")
    lease_ttl_s: float = setting(
        _seconds(least_s=1.0, most_s=300.0),
        f"{lease_ttl_s:g}",
        "how long the other servers on a store wait for one that says nothing before they end or finish its turns; 1 to 300, renewed three times in between",
    )
    background_turns: int = setting(
        _number(),
        str(background_turns_max),
        "responses in the background that this server plays at a time; others wait in the store for a server that has room",
    )
    expire_after_s: float | None = setting(
        _expiry, "never", "how long a conversation may rest before it answers 410 until it is reset"
    )
    busy_status: BusyStatus = setting(
        _one_of(get_args(BusyStatus)),
        "409",
        "what a busy conversation answers: 409, or 400; every SDK retries 409; 400 has the words of the hosted service, which the Agents SDK retries on its own "
        "account",
        flag="STATUS",
    )
    currency: str = setting(
        str, "", "the currency of your agents' `cost`, such as `USD`: the console shows it"
    )
    log_format: LogFormat = setting(
        _one_of(get_args(LogFormat)),
        "text",
        "how the log is written: text, or json with an event for each decision; `text` is for people, on stderr; `json` goes to stdout",
        flag="FORMAT",
    )
    login_key: str = setting(
        str,
        "",
        "a file with the key that seals [logins at MCP servers](../guides/tools.md#logging-in); without one there are none",
    )
    logins: str = setting(str, DIRECTORY, "the directory that has these logins")
    sandbox: Mode = setting(
        _one_of(get_args(Mode)),
        "auto",
        "whether commands run in a sandbox: required, auto or off; `auto` is where [there is one](../guides/sandbox.md), and the default is `required` also with keys of "
        "several tenants",
        flag="WHEN",
        beyond="required",
    )
    remote_sources: RemoteSources = setting(
        _one_of(get_args(RemoteSources)),
        "guarded",
        "`trusted`: agent files from URLs come from any address, and may do what files on this machine may",
    )
    model_aliases: tuple[tuple[str, str], ...] = setting(
        _aliases,
        "",
        "for clients with hard-wired names: `gpt-4o=butler`; a name may be a pattern, `claude-*=butler`, and the first that fits counts",
    )
    tenant_agents: TenantAgents = setting(
        _tenant_agents,
        "",
        "which agents a tenant may use, by model ids and patterns of them: `acme=support,shop/* *=demo`; `*` is every tenant that is not named; a tenant without a rule may use every agent",
    )
    a2a_agents: tuple[str, ...] = setting(
        _sources,
        "",
        "agents that the server [tells other agents of](../guides/a2a.md#publish-an-agent), without a key: model ids and patterns of them, such as `support shop/*`; the first one has the card at `/.well-known/agent-card.json`",
    )
    sources: tuple[str, ...] = setting(_sources, "demo", "what to serve; the arguments of `serve`")
    origins: tuple[Origin, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    """Variables that look like settings, and are none."""

    @property
    def hosts(self) -> frozenset[str] | None:
        """The names that requests may be addressed to; None: any. Beyond loopback only the operator knows them."""
        if self.listen.is_loopback:
            near = {"localhost", "127.0.0.1", "::1", self.listen.host.lower()}
            return self.allowed_hosts | near
        return self.allowed_hosts or None

    @property
    def tls(self) -> tuple[str, str] | None:
        """The files with a certificate and its key. None: plain HTTP."""
        return (self.tls_cert, self.tls_key) if self.tls_cert else None

    @property
    def trust_remote(self) -> bool:
        """Whether agent files from URLs are trusted like those on this machine."""
        return self.remote_sources == "trusted"

    def quota(self, whose: Literal["tenant", "key"]) -> Quota:
        """What each tenant, or each API key, may ask for."""
        bounds = Quota.__struct_fields__
        return Quota(**{each: getattr(self, f"{whose}_{each}") for each in bounds})


SETTINGS: dict[str, Setting[Any]] = {
    name: row
    for name, row in zip(Config.__struct_fields__, Config.__struct_defaults__, strict=True)
    if isinstance(row, Setting)
}


# ── putting them together ────────────────────────────────────────────────────────────────────


def load_config(
    flags: Mapping[str, str], environment: Mapping[str, str], sources: tuple[str, ...]
) -> Config:
    """Put the settings together. Raises InvalidValue, with the way out."""
    values: dict[str, Any] = {}
    origins = []
    for name, row in SETTINGS.items():
        if name == "sources" and sources:
            text, origin = " ".join(sources), "arguments"
        elif name in flags:
            text, origin = flags[name], flag_of(name)
        elif environment.get(variable(name)):
            text, origin = environment[variable(name)], variable(name)
        else:
            far = row.beyond and not values["listen"].is_loopback
            text, origin = row.beyond if far else row.default, "default"
        origins.append(Origin(name=name, value=without_password(text), origin=origin))
        try:
            values[name] = row.read(text)
        except WrongValue as error:
            raise InvalidValue(f"{origin} takes {error}, not {text!r}") from error
    values["sources"] = sources or values["sources"]
    config = Config(**values, origins=tuple(origins), unknown=tuple(_unknown(environment)))
    _refuse_contradictions(config)
    return config


def flag_of(name: str) -> str:
    """The flag of a setting."""
    return f"--{name.replace('_', '-')}"


def _refuse_contradictions(config: Config) -> None:
    if config.workers > 1 and config.store == "memory:":
        raise InvalidValue(
            "a memory store belongs to one process; with --workers use sqlite:///PATH or postgresql://…"
        )
    if bool(config.tls_cert) != bool(config.tls_key):
        raise InvalidValue(
            "TLS needs both: --tls-cert with a certificate and --tls-key with its key"
        )


_OF_KUBERNETES = re.compile(r"\w+_SERVICE_(HOST|PORT\w*)|\w+_PORT_\d+_(TCP|UDP|SCTP)\w*", re.ASCII)


def _unknown(environment: Mapping[str, str]) -> Iterator[Unknown]:
    """The variables that are probably mistyped. Those that Kubernetes makes of a Service with our name are not."""
    known = {name.upper(): variable(name) for name in sorted(SETTINGS)}
    for name, value in sorted(environment.items()):
        if (
            name.startswith(PREFIX)
            and name not in {*known.values(), *COMMANDS, *MARKS}
            and not _OF_KUBERNETES.fullmatch(name)
            and not re.match(r"(tcp|udp|sctp)://", value)
        ):
            near = get_close_matches(name.removeprefix(PREFIX), known, n=1)
            yield Unknown(variable=name, nearest="".join(known[each] for each in near))
