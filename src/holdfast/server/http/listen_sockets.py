"""Listening sockets: one for a single process, or one address on which several processes accept."""

from __future__ import annotations

import errno
import socket
import sys

from holdfast.environment import variable
from holdfast.errors import InvalidValue

BALANCED = sys.platform == "linux"
"""Whether the kernel spreads connections over the sockets of one address. Elsewhere processes share one socket,
and the process that wakes first accepts."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket; with `shared`, one of several on this address. Raises InvalidValue if it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # IPPROTO_TCP is named because asyncio else does not take this for TCP, and leaves Nagle's 40 ms in every answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            at = f"[{host}]" if ":" in host else host
            raise InvalidValue(
                f"port {port} on {host} is taken; stop what uses it, or choose another: "
                f"--listen {at}:0, or {variable('listen')}={at}:0 in the environment (0 is any that is free)"
            ) from error
        raise InvalidValue(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.set_inheritable(False)
    return listener


def shown(listener: socket.socket, *, tls: bool) -> str:
    """The URL at which clients reach this socket."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port, *_ = listener.getsockname()
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class SharedPort:
    """An address on which several child processes accept. The parent makes it, and then forks."""

    def __init__(self, host: str, port: int, *, balanced: bool = BALANCED) -> None:
        """Raises InvalidValue if the address is taken, even by a process that would share it."""
        self._host = host
        self._balanced = balanced
        if balanced and port:
            listen(host, port).close()
        # Kept by the parent, which accepts nothing on it: the address stays ours while workers come and go.
        self._kept = listen(host, port, shared=balanced)

    def listener(self) -> socket.socket:
        """In a child process: the socket that it accepts on."""
        if not self._balanced:
            return self._kept
        listener = listen(self._host, self._kept.getsockname()[1], shared=True)
        self._kept.close()
        return listener

    def close(self) -> None:
        """Release the address. Closing again does nothing."""
        self._kept.close()
