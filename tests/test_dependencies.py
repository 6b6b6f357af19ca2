"""What other packages have to be: no version with a hole that is known, and none without the parts that we lean on."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import tomllib
from itertools import chain

import pytest
import uvicorn
from aiohttp import StreamReader, TCPConnector
from aiohttp.client_proto import ResponseHandler
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from holdfast.errors import InvalidValue
from holdfast.server.http import connection, websocket_connection
from holdfast.server.http.base_connection import BaseConnection
from holdfast.server.processes import server_process
from holdfast.server.processes.dependency_parts import _parts_of, demand_parts
from tests import repository

FIXED: dict[str, tuple[int, ...]] = {
    "aiohttp": (3, 14, 1),
    "asyncpg": (0, 21),
    "cryptography": (46, 0, 7),
    "httptools": (0, 6, 3),
    "mcp": (1, 23),
    "pyyaml": (5, 4),
    "uvicorn": (0, 11, 7),
    "websockets": (9, 1),
}
"""The first version of each without a hole that is known."""


def said_of_packages() -> list[str]:
    project = tomllib.loads((repository.ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *chain(*project["optional-dependencies"].values())]


def floors() -> dict[str, tuple[int, ...]]:
    found = [re.match(r"([\w-]+)>=([\d.]+)", each) for each in said_of_packages()]
    return {each[1]: tuple(map(int, each[2].split("."))) for each in found if each}


@pytest.mark.parametrize("package", FIXED)
def test_no_version_with_a_known_hole_is_taken(package: str) -> None:
    assert floors()[package] >= FIXED[package]


@pytest.mark.parametrize("package", ["aiohttp", "uvicorn"])
def test_what_we_lean_on_without_a_promise_has_a_ceiling(package: str) -> None:
    (said,) = (each for each in said_of_packages() if each.startswith(package))
    assert re.search(r",<\d+$", said)


# ── parts ────────────────────────────────────────────────────────────────────────────────────


def used_names(*classes: type) -> set[str]:
    """What these classes use of themselves and of what they go on from."""
    found: set[str] = set()
    for each in classes:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(each)))
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name):
                    found.add(name)
                case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                    found.add(name)
    return found


@pytest.mark.parametrize(
    ("ours", "theirs", "demanded"),
    [
        ((connection.Connection, BaseConnection), HttpToolsProtocol, connection.UVICORN),
        (
            (websocket_connection.SocketConnection, BaseConnection),
            WebSocketsSansIOProtocol,
            websocket_connection.UVICORN,
        ),
        ((server_process.HttpServer,), uvicorn.Server, server_process.UVICORN),
    ],
)
def test_every_part_of_uvicorn_that_is_used_is_demanded_at_start(
    ours: tuple[type, ...], theirs: type, demanded: tuple[str, ...]
) -> None:
    """So that the list is not forgotten: whatever is used and not promised by asyncio is in it."""
    promised = set(dir(asyncio.Protocol)) | {"__init__"}
    leaned_on = (used_names(*ours) & _parts_of(theirs)) - promised
    assert leaned_on <= set(demanded)
    assert set(demanded) <= _parts_of(theirs)


def test_a_version_without_a_part_is_refused_by_name() -> None:
    demand_parts("uvicorn", HttpToolsProtocol, "flow", "transport", "data_received")
    with pytest.raises(InvalidValue, match=r"uvicorn \d.* has no flaw, flow_rate in its HttpTools"):
        demand_parts("uvicorn", HttpToolsProtocol, "flow", "flow_rate", "flaw")


async def test_aiohttp_makes_its_connections_as_we_tell_it() -> None:
    """Nothing breaks without these, but a chunk costs three tenths more: find their new names."""
    connector = TCPConnector()
    assert hasattr(connector, "_factory")
    handler = ResponseHandler(asyncio.get_running_loop())
    assert handler._reading_paused is False
    assert handler._payload is None
    answer = StreamReader(handler, 1 << 16)
    answer.feed_data(b"piece")
    assert list(answer._buffer) == [b"piece"] and answer._buffer_offset == 0
    await connector.close()
