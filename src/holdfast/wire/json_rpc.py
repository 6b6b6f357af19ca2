"""JSON-RPC 2.0, as far as the protocols that are built on it agree: the Model Context Protocol, the Agent Client Protocol
and Agent2Agent."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Raw

from holdfast.core.codec import Value

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
SERVER_ERROR: Final = -32000

RpcId: TypeAlias = int | str


class RpcRequest(Value):
    """The other side wants an answer under this id."""

    id: RpcId
    method: str
    params: Raw


class RpcNotification(Value):
    """The other side tells us something."""

    method: str
    params: Raw
