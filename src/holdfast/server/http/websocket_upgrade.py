"""What a connection becomes that is asked to be a WebSocket, brought in when the first one is: most servers never
see one.

This is one of the few places with a late import; the architecture test names them.
"""

from __future__ import annotations

import asyncio

from holdfast.server.http.connection_register import ConnectionRegister


def socket_protocol(register: ConnectionRegister) -> type[asyncio.Protocol]:
    """Speaks WebSocket, on a connection that is in this register."""
    from holdfast.server.http.websocket_connection import SocketConnection  # noqa: PLC0415

    return type("SocketConnection", (SocketConnection,), {"register": register})
