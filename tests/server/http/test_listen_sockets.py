"""An address that several processes accept on."""

from __future__ import annotations

import socket

import pytest

from holdfast.errors import InvalidValue
from holdfast.server.http.listen_sockets import BALANCED, SharedPort, listen

LOOPBACK = "127.0.0.1"


def ask(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=10)


@pytest.mark.skipif(not BALANCED, reason="the kernel spreads no connections here")
def test_connections_are_spread_over_the_sockets_of_a_port() -> None:
    port = SharedPort(LOOPBACK, 0)
    # One process stands for several: `listener` closes what the parent keeps, so that is made anew.
    one = port.listener()
    other = listen(*one.getsockname(), shared=True)
    for each in (one, other):
        each.listen(64)
        each.setblocking(False)
    clients = [ask(one.getsockname()) for _ in range(64)]
    accepted = []
    for listener in (one, other):
        found = []
        while True:
            try:
                found.append(listener.accept()[0])
            except BlockingIOError:
                break
        accepted.append(found)
    assert sum(map(len, accepted)) == 64
    assert min(map(len, accepted)) > 8  # fewer is less likely than one in 10 ** 9
    for each in (*clients, *accepted[0], *accepted[1], one, other):
        each.close()


@pytest.mark.parametrize(
    "balanced",
    [False, pytest.param(True, marks=pytest.mark.skipif(not BALANCED, reason="not here"))],
)
def test_a_port_that_somebody_else_serves_is_refused(balanced: bool) -> None:
    """Also if that one would share it: two servers on one port would each get half of the requests."""
    first = SharedPort(LOOPBACK, 0, balanced=balanced)
    listener = first.listener()
    listener.listen()
    with pytest.raises(InvalidValue, match=r"is taken; .* --listen .*:0, or HOLDFAST_LISTEN=.*:0 "):
        SharedPort(LOOPBACK, listener.getsockname()[1], balanced=balanced)
    listener.close()
    first.close()


def test_without_a_kernel_that_balances_there_is_one_socket_for_all() -> None:
    port = SharedPort(LOOPBACK, 0, balanced=False)
    assert port.listener() is port.listener()
    port.close()
    port.close()
