"""From a `postgresql://` URL to how to connect. The password goes to the database and nowhere else.

    postgresql://user:password@host:5432/database?pgbouncer=true&pool_size=20

Ours, and taken out of what the driver is told:

  pgbouncer=true       a pooler in transaction mode is in between: nothing may outlive a transaction
  pool_size=10         connections of this process, at most
  timeout=10           seconds that a statement may take
  listen=URL-encoded   where to listen for hints, if not here; `off` for nowhere

Everything else (`sslmode`, `host` for a socket, …) is the driver's, as libpq spells it. So are several servers, of
which the one that takes writes is used: `postgresql://one:5432,two:5432/database?target_session_attrs=read-write`.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from holdfast.core.codec import Value
from holdfast.errors import StoreUnusable

POOL_SIZE = 10
TIMEOUT_S = 10.0


class DatabaseAddress(Value):
    """Where a database is, and how it is talked to."""

    dsn: str
    pgbouncer: bool = False
    pool_size: int = POOL_SIZE
    timeout_s: float = TIMEOUT_S
    listen: str | None = None
    """The DSN of a direct connection for hints; None: there is none."""

    @property
    def shown(self) -> str:
        """The URL as people may see it."""
        return without_password(self.dsn)

    def __repr__(self) -> str:
        return f"<Address {self.shown}>"


def parse_address(url: str) -> DatabaseAddress:
    """Raises StoreUnusable, without the password, for a URL that cannot be one."""
    shown = without_password(url)
    try:
        parts = urlsplit(url)
        _demand_ports(parts.netloc)
    except ValueError as error:
        raise StoreUnusable(f"{shown!r} is not a URL of PostgreSQL: {error}") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {
        name: options.pop(name, None) for name in ("pgbouncer", "pool_size", "timeout", "listen")
    }
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))
    pgbouncer = _flag(shown, "pgbouncer", ours["pgbouncer"])
    return DatabaseAddress(
        dsn=dsn,
        pgbouncer=pgbouncer,
        pool_size=round(_number(shown, "pool_size", ours["pool_size"], POOL_SIZE, 1, 1000)),
        timeout_s=_number(shown, "timeout", ours["timeout"], TIMEOUT_S, 0.1, 3600),
        listen=_listen(ours["listen"], dsn, pgbouncer=pgbouncer),
    )


def _demand_ports(netloc: str) -> None:
    """Raise ValueError if a port is none: asked now, of each server, since there may be several to choose from."""
    for server in netloc.rpartition("@")[2].split(","):
        port = urlsplit(f"//{server}").port
        assert port is None or port >= 0


def _listen(said: str | None, dsn: str, *, pgbouncer: bool) -> str | None:
    """A pooler in transaction mode hands no notifications on, so no process listens through one."""
    if said == "off" or (said is None and pgbouncer):
        return None
    if said and not said.startswith(("postgresql://", "postgres://")):
        raise StoreUnusable("`listen` in a store's URL is neither `off` nor a postgresql:// URL")
    return said or dsn


def without_password(url: str) -> str:
    """The URL with stars for its password, wherever one can be."""
    scheme, mark, rest = url.partition("://")
    place, question, query = rest.partition("?")
    # The last `@` before the path ends the credentials: a password may have one unescaped.
    netloc, slash, path = place.partition("/")
    if "@" in place and "@" not in netloc:
        netloc, slash, path = place.rpartition("@")[0] + "@", "", place.rpartition("@")[2]
    credentials, at, host = netloc.rpartition("@")
    user, colon, _ = credentials.partition(":")
    hidden = f"{user}:***" if colon else user
    options = "&".join(_hidden_option(each) for each in query.split("&")) if question else ""
    return f"{scheme}{mark}{hidden}{at}{host}{slash}{path}{question}{options}"


def _hidden_option(option: str) -> str:
    name, equals, value = option.partition("=")
    if unquote(name).lower() in ("password", "passfile", "sslpassword"):
        return f"{name}{equals}***"
    if unquote(name) == "listen" and "://" in unquote(value):
        return f"{name}{equals}***"
    return option


def _flag(shown: str, name: str, said: str | None) -> bool:
    match (said or "false").lower():
        case "true" | "1" | "yes" | "on":
            return True
        case "false" | "0" | "no" | "off":
            return False
    raise StoreUnusable(f"{name}={said!r} in {shown!r} is neither true nor false")


def _number(
    shown: str, name: str, said: str | None, default: float, least: float, most: float
) -> float:
    if said is None:
        return default
    try:
        number = float(said)
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise StoreUnusable(f"{name}={said!r} in {shown!r} is no number from {least:g} to {most:g}")
    return number
