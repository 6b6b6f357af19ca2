"""The register of connections: how many there may be, in all and from one address, and which are closed for new ones.

1. Half of the files that the process may open are for connections. The other half is a reserve: a turn needs a
   connection to its model, tools need pipes and files, and a store that cannot open a file stops.
2. One address has a quarter of them at most, so that no client can take all. A proxy that the operator has named
   speaks for many clients and has no such bound.
3. When there is no room, the register closes a resting connection for the new one: one that is between two requests, or
   whose request head is not complete. It closes the one that has rested longest. Clients send a head at once, so
   half-sent heads, however many, keep no client out. If every connection has a request, the new one is refused.
4. A full register is logged once in a while for each cause, not for each connection.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import defaultdict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from math import inf
from typing import Literal, TypeAlias

from holdfast import limits
from holdfast.environment import variable
from holdfast.observe.events import warn

Cause: TypeAlias = Literal["total", "address"]


def raise_files_limit() -> None:
    """Raise this process's limit of open files to the operator's hard limit, or to the most that we ever need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    granted = limits.files_wanted if hard == resource.RLIM_INFINITY else hard
    wanted = min(granted, limits.files_wanted)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class ConnectionRegister:
    """The connections of a server."""

    def __init__(
        self,
        most: float = inf,
        *,
        most_of_address: float = inf,
        proxies: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._most_of_address = most_of_address
        self._proxies = proxies
        self._clock = clock
        self._address: dict[asyncio.Transport, str] = {}
        self._of: defaultdict[str, int] = defaultdict(int)
        self._resting: dict[asyncio.Transport, None] = {}
        self._resting_of: defaultdict[str, dict[asyncio.Transport, None]] = defaultdict(dict)
        """Connections that can be closed for new ones, of all and of each address; the longest resting one first."""
        self._quiet_until: dict[Cause, float] = {}

    @classmethod
    def of_files(cls, proxies: frozenset[str] = frozenset()) -> ConnectionRegister:
        """A register whose bounds follow from how many files this process may open."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = limits.files_wanted if soft == resource.RLIM_INFINITY else soft
        most = max(1, files // 2)
        return cls(most, most_of_address=max(1, most // 4), proxies=proxies)

    @property
    def count(self) -> int:
        """How many connections there are."""
        return len(self._address)

    def enter(self, connection: asyncio.Transport) -> bool:
        """Add a new connection, as resting. False if there is no room for it."""
        address = self._address_of(connection)
        if self._of[address] >= self._most_of_address and address not in self._proxies:
            cause: Cause = "address"
            longest = next(iter(self._resting_of[address]), None)
        elif self.count >= self._most:
            cause = "total"
            longest = next(iter(self._resting), None)
        else:
            self._put(connection, address)
            return True
        self._warn(cause, address)
        if longest is None:
            return False
        self.leave(longest)
        longest.close()
        self._put(connection, address)
        return True

    def _put(self, connection: asyncio.Transport, address: str) -> None:
        self._address[connection] = address
        self._of[address] += 1
        self.rest(connection)

    def work(self, connection: asyncio.Transport) -> None:
        """A request has arrived on this connection: it rests no longer."""
        if connection in self._resting:
            del self._resting[connection]
            del self._resting_of[self._address[connection]][connection]

    def rest(self, connection: asyncio.Transport) -> None:
        """Every request on this connection was answered: it rests."""
        address = self._address.get(connection)
        if address is not None:
            self._resting[connection] = self._resting_of[address][connection] = None

    def leave(self, connection: asyncio.Transport) -> None:
        """Forget a connection that has ended. Calling it again does nothing."""
        self.work(connection)
        address = self._address.pop(connection, None)
        if address is not None:
            self._of[address] -= 1
            if not self._of[address]:
                del self._of[address], self._resting_of[address]

    def _address_of(self, connection: asyncio.Transport) -> str:
        """The client's IPv4 address, or its IPv6 network, since an IPv6 client has as many addresses as it likes."""
        peer = connection.get_extra_info("peername")
        if not isinstance(peer, tuple):
            return ""
        host: str = peer[0]
        if host in self._proxies or ":" not in host:
            return host
        address = ip_address(host.partition("%")[0])
        if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
            return str(IPv6Address(int(address) >> 64 << 64))
        return host

    def _warn(self, cause: Cause, address: str) -> None:
        now = self._clock()
        if now < self._quiet_until.get(cause, -inf):
            return
        self._quiet_until[cause] = now + limits.notice_s
        warn(
            "connections.bounded",
            cause=cause,
            address=address,
            connections=self._of[address] if cause == "address" else self.count,
            hint=f"if this is a proxy of yours, name it in {variable('trusted_proxies')}"
            if cause == "address"
            else "raise the limit of open files (ulimit -n)",
        )
