"""The late import of WebSocket connections, when the first client opens one: most servers never see one.

This is one of the few places with a late import; the architecture test names them.
"""

from __future__ import annotations

import asyncio

from holdfast.server.http.connection_register import ConnectionRegister


def socket_protocol(register: ConnectionRegister) -> type[asyncio.Protocol]:
    """The protocol class for WebSockets whose connections are counted in this register."""
    from holdfast.server.http.websocket_connection import SocketConnection  # noqa: PLC0415

    return type("SocketConnection", (SocketConnection,), {"register": register})
