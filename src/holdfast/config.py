"""Settings: from flags, the environment and defaults, into one frozen value, once.

The nearer to the person who starts the server, the stronger: a flag beats the environment, the environment
beats a default. Where each value came from is kept, so that `--print-config` can say. A variable that is empty means
its default; a variable of ours that no setting has is kept to be told, with the name that was probably meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from difflib import get_close_matches
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Literal, TypeAlias

from holdfast.core.codec import Value
from holdfast.core.policy import Policy, parse_policy
from holdfast.errors import InvalidValue
from holdfast.limits import background_turns_max, lease_ttl_s, turn_deadline_s, workers_max
from holdfast.observe.events import LogFormat
from holdfast.store.open import DEFAULT_URL, without_password
from holdfast.tools.sandbox.sandbox import Mode
from holdfast.wire.headers import CONVERSATION_ID, NAMES
from holdfast.wire.problems import BusyStatus

DEFAULT_LISTEN = "127.0.0.1:8484"
DEFAULT_NAMES = " ".join(NAMES[1:])


Auth: TypeAlias = Literal["auto", "required", "off"]


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


class Config(Value):
    """Everything that can be set."""

    sources: tuple[str, ...]
    host: str
    port: int
    workers: int
    """Processes that serve this port."""
    store: str
    auth: Auth
    """Who has to show a key: everybody, nobody, or everybody as soon as there is one."""
    hosts: frozenset[str] | None
    """The names that requests may be addressed to. None: any."""
    cors_origins: frozenset[str]
    """The pages that may use this server from a browser, besides its own; `*` is all of them."""
    trusted_proxies: frozenset[str]
    """Addresses whose word we take for where a request comes from (`X-Forwarded-For`)."""
    tls: tuple[str, str] | None
    """The files with a certificate and its key. None: plain HTTP."""
    tenant_quota: Quota
    """What each tenant may ask for."""
    key_quota: Quota
    """What each API key may ask for."""
    names: tuple[str, ...]
    """The headers that name a conversation, in lower case; ours first, then what else clients may call it."""
    policy: Policy
    """How turns end, where neither an agent nor a request says otherwise."""
    turn_deadline_s: float
    """How long a turn may take."""
    background_turns: int
    """Turns that nobody waits for, played here at a time."""
    lease_ttl_s: float
    """How long a server that says nothing is taken for alive by the others on its store."""
    expire_after_s: float | None
    """How long a conversation may rest before it answers 410 until it is reset. None: for ever."""
    busy_status: BusyStatus
    """What a conversation answers that stays busy."""
    log_format: LogFormat
    """Lines for people, or every event as JSON."""
    sandbox: Mode
    """Whether commands of agents run in a sandbox: they have to, they do where there is one, they do not."""
    trust_remote: bool
    """Whether agent files from URLs are trusted like those on this machine."""
    model_aliases: tuple[tuple[str, str], ...]
    """For clients with hard-wired names: what they ask for, and the agent that they get."""
    tenant_agents: TenantAgents
    """Which agents each tenant may use."""
    origins: tuple[Origin, ...]
    unknown: tuple[Unknown, ...] = ()
    """Variables that look like settings, and are none."""

    @property
    def beyond_loopback(self) -> bool:
        """Whether others than this machine may reach us."""
        return not _is_loopback(self.host)


def load_config(
    flags: Mapping[str, str], environment: Mapping[str, str], sources: tuple[str, ...]
) -> Config:
    """Put the settings together. Raises InvalidValue, with the way out."""
    origins: list[Origin] = []

    def setting(name: str, default: str) -> str:
        variable = _variable(name)
        if name in flags:
            value, origin = flags[name], f"--{name.replace('_', '-')}"
        elif environment.get(variable):
            value, origin = environment[variable], variable
        else:
            value, origin = default, "default"
        origins.append(Origin(name=name, value=without_password(value), origin=origin))
        return value

    host, port = _address(setting("listen", DEFAULT_LISTEN))
    workers = _workers(setting("workers", "1"))
    store = setting("store", DEFAULT_URL)
    if workers > 1 and store == "memory:":
        raise InvalidValue(
            "a memory store belongs to one process; with --workers use sqlite:///PATH or postgresql://…"
        )
    auth = _auth(setting("auth", "auto"))
    hosts = _hosts(host, setting("allowed_hosts", ""))
    origins_allowed = _origins(setting("cors_origins", ""))
    proxies = _proxies(setting("trusted_proxies", ""))
    tls = _tls(setting("tls_cert", ""), setting("tls_key", ""))
    quotas = [
        Quota(
            **{each: _count(f"{whose}_{each}", setting(f"{whose}_{each}", "")) for each in _BOUNDS}
        )
        for whose in ("tenant", "key")
    ]
    names = _header_names(setting("conversation_headers", DEFAULT_NAMES))
    policy = parse_policy(setting("turn_policy", ""))
    deadline_s = _seconds("turn_deadline_s", setting("turn_deadline_s", f"{turn_deadline_s:g}"))
    lease_s = _seconds(
        "lease_ttl_s", setting("lease_ttl_s", f"{lease_ttl_s:g}"), least_s=1.0, most_s=300.0
    )
    background = _count("background_turns", setting("background_turns", str(background_turns_max)))
    expiry = setting("expire_after_s", "never")
    expire_after_s = None if expiry == "never" else _seconds("expire_after_s", expiry, most_s=1e9)
    busy_status = _busy_status(setting("busy_status", "409"))
    log_format = _log_format(setting("log_format", "text"))
    sandbox = _sandbox(setting("sandbox", "auto" if _is_loopback(host) else "required"))
    trust_remote = _trust_remote(setting("remote_sources", "guarded"))
    aliases = _aliases(setting("model_aliases", ""))
    tenant_agents = _tenant_agents(setting("tenant_agents", ""))
    from_environment = tuple(setting("sources", "demo").split())
    named = sources or from_environment
    if sources:
        origins[-1:] = [Origin(name="sources", value=" ".join(sources), origin="arguments")]
    return Config(
        sources=named,
        host=host,
        port=port,
        workers=workers,
        store=store,
        auth=auth,
        hosts=hosts,
        cors_origins=origins_allowed,
        trusted_proxies=proxies,
        tls=tls,
        tenant_quota=quotas[0],
        key_quota=quotas[1],
        names=names,
        policy=policy,
        turn_deadline_s=deadline_s,
        lease_ttl_s=lease_s,
        background_turns=background or background_turns_max,
        expire_after_s=expire_after_s,
        busy_status=busy_status,
        log_format=log_format,
        sandbox=sandbox,
        trust_remote=trust_remote,
        model_aliases=aliases,
        tenant_agents=tenant_agents,
        origins=tuple(origins),
        unknown=_unknown(environment, {_variable(each.name) for each in origins}),
    )


_PREFIX = "HOLDFAST_"

NOT_SETTINGS = frozenset({"HOLDFAST_SERVER", "HOLDFAST_API_KEY"})
"""Variables that commands read which talk to a server."""

MARKS = frozenset({"HOLDFAST_CALL_KEY", "HOLDFAST_MCP_SERVER"})
"""Variables that processes have which a server starts; one of them may start another server."""

_OF_KUBERNETES = re.compile(r"\w+_SERVICE_(HOST|PORT\w*)|\w+_PORT_\d+_(TCP|UDP|SCTP)\w*", re.ASCII)


def _variable(name: str) -> str:
    return f"{_PREFIX}{name.upper()}"


def _unknown(environment: Mapping[str, str], settings: Set[str]) -> tuple[Unknown, ...]:
    """The variables that are probably mistyped. Those that Kubernetes makes of a Service with our name are not."""
    known = {each.removeprefix(_PREFIX): each for each in sorted(settings)}

    def nearest(name: str) -> str:
        return "".join(
            known[each] for each in get_close_matches(name.removeprefix(_PREFIX), known, n=1)
        )

    return tuple(
        Unknown(variable=name, nearest=nearest(name))
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIX)
        and name not in {*settings, *NOT_SETTINGS, *MARKS}
        and not _OF_KUBERNETES.fullmatch(name)
        and not re.match(r"(tcp|udp|sctp)://", value)
    )


def _hosts(host: str, text: str) -> frozenset[str] | None:
    """Names for loopback are known; beyond it only the operator can know them."""
    others = {each.lower() for each in text.replace(",", " ").split()}
    if _is_loopback(host):
        return frozenset({"localhost", "127.0.0.1", "::1", host.lower(), *others})
    return frozenset(others) or None


def _origins(text: str) -> frozenset[str]:
    given = [each.rstrip("/").lower() for each in text.replace(",", " ").split()]
    wrong = [each for each in given if each != "*" and not _ORIGIN.fullmatch(each)]
    if wrong:
        raise InvalidValue(
            f"cors_origins takes origins such as https://app.example, or *, not {wrong[0]!r}"
        )
    return frozenset(given)


_ORIGIN = re.compile(r"https?://[^/\s?#@]+")


def _proxies(text: str) -> frozenset[str]:
    given = text.replace(",", " ").split()
    try:
        return frozenset(str(ip_address(each)) for each in given)
    except ValueError as error:
        raise InvalidValue(f"trusted_proxies takes addresses: {error}") from error


def _tls(cert: str, key: str) -> tuple[str, str] | None:
    if bool(cert) != bool(key):
        raise InvalidValue(
            "TLS needs both: --tls-cert with a certificate and --tls-key with its key"
        )
    return (cert, key) if cert else None


def _header_names(text: str) -> tuple[str, ...]:
    """Ours, and the other names in a list. Raises InvalidValue for what cannot be a header's name."""
    others = [each.lower() for each in text.replace(",", " ").split()]
    wrong = [each for each in others if not re.fullmatch(r"[a-z0-9!#$%&'*+.^_`|~-]+", each)]
    if wrong:
        raise InvalidValue(f"conversation_headers: {wrong[0]!r} is not the name of a header")
    return tuple(dict.fromkeys((CONVERSATION_ID.name, *others)))


def _seconds(name: str, text: str, *, least_s: float = 0.001, most_s: float = 86_400.0) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not least_s <= seconds <= most_s:
        raise InvalidValue(
            f"{name} takes seconds, at least {least_s:g} and at most {most_s:g}, not {text!r}"
        )
    return seconds


_BOUNDS = Quota.__struct_fields__


def _count(name: str, text: str) -> int | None:
    """A bound; nothing, if none is set."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10**9:
        raise InvalidValue(f"{name} is a number from 1, or empty for no bound, not {text!r}")
    return int(text)


def _workers(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= workers_max:
        raise InvalidValue(f"workers is a number from 1 to {workers_max}, not {text!r}")
    return int(text)


def _auth(text: str) -> Auth:
    match text:
        case "auto" | "required" | "off":
            return text
        case _:
            raise InvalidValue(
                f"auth is auto (keys are needed once there is one), required or off, not {text!r}"
            )


def _log_format(text: str) -> LogFormat:
    match text:
        case "text" | "json":
            return text
        case _:
            raise InvalidValue(f"log_format is text or json, not {text!r}")


def _sandbox(text: str) -> Mode:
    match text:
        case "required" | "auto" | "off":
            return text
        case _:
            raise InvalidValue(
                f"sandbox is required, auto (where there is one) or off, not {text!r}"
            )


def _trust_remote(text: str) -> bool:
    match text:
        case "guarded" | "trusted":
            return text == "trusted"
        case _:
            raise InvalidValue(f"remote_sources is guarded or trusted, not {text!r}")


def _busy_status(text: str) -> BusyStatus:
    match text:
        case "409":
            return 409
        case "400":
            return 400
        case _:
            raise InvalidValue(
                "busy_status is 409, which every SDK retries, or 400 as the hosted service has it, "
                f"not {text!r}"
            )


def _aliases(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [each.partition("=") for each in text.replace(",", " ").split()]
    if not all(name and equals and agent for name, equals, agent in pairs):
        raise InvalidValue("model_aliases takes NAME=AGENT pairs, such as gpt-4o=butler")
    return tuple((name, agent) for name, _, agent in pairs)


def _tenant_agents(text: str) -> TenantAgents:
    pairs = [each.partition("=") for each in text.split()]
    rules = tuple((tenant, tuple(filter(None, agents.split(",")))) for tenant, _, agents in pairs)
    if not all(tenant and agents for tenant, agents in rules) or len(dict(rules)) < len(rules):
        raise InvalidValue(
            "tenant_agents takes TENANT=AGENT[,AGENT…] once for each tenant, with spaces between them, "
            f"such as 'acme=support,shop/* *=demo', not {text!r}"
        )
    return TenantAgents(rules=rules)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise InvalidValue(f"--listen takes HOST:PORT, such as {DEFAULT_LISTEN}, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
