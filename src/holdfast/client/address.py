"""The address of a server: `http://HOST:PORT`, `https://…`, or a socket in the file system, `unix:PATH`."""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast.core.codec import Value
from holdfast.errors import InvalidValue

PORTS = {"http": 80, "https": 443}


class ServerAddress(Value):
    url: str
    """The text that was parsed."""
    host: str = "localhost"
    port: int = 0
    tls: bool = False
    base: str = ""
    """The beginning of every path on that server."""
    socket: str = ""
    """The path of a Unix socket; empty for TCP."""

    @property
    def origin(self) -> str:
        """The URL of the server without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}" + (
            f":{self.port}" if self.port else ""
        )


def parse_address(text: str) -> ServerAddress:
    """Parse the value of `--server`. Raises InvalidValue."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path:
            raise _refused(text)
        return ServerAddress(url=text, socket=path)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise _refused(text) from error
    if parts.scheme not in PORTS or not parts.hostname or parts.query or parts.fragment:
        raise _refused(text)
    return ServerAddress(
        url=text,
        host=parts.hostname,
        port=PORTS[parts.scheme] if port is None else port,
        tls=parts.scheme == "https",
        base=parts.path.rstrip("/"),
    )


def _refused(text: str) -> InvalidValue:
    return InvalidValue(
        f"{text!r} is not the address of a server; use http://HOST:PORT, https://HOST or unix:PATH"
    )
