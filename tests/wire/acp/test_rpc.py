"""Lines of the protocol: whatever an editor writes, each line is a message or has an answer."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire import json_rpc
from holdfast.wire.acp import rpc
from holdfast.wire.acp.requests import Nothing


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}', json_rpc.RpcRequest),
        (b'{"jsonrpc":"2.0","id":"a","method":"initialize"}', json_rpc.RpcRequest),
        (b'{"jsonrpc":"2.0","method":"session/cancel","params":{}}', json_rpc.RpcNotification),
        (b'{"jsonrpc":"2.0","id":0,"result":null}', rpc.RpcAnswer),
        (b'{"jsonrpc":"2.0","id":0,"error":{"code":-1,"message":"no"}}', rpc.RpcAnswer),
    ],
)
def test_a_line_is_a_message(line: bytes, kind: type) -> None:
    assert isinstance(rpc.read_line(line), kind)


@pytest.mark.parametrize(
    ("line", "code", "given"),
    [
        (b"hello", json_rpc.PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":1', json_rpc.PARSE_ERROR, None),
        (b"[1,2]", json_rpc.INVALID_REQUEST, None),
        (b'{"id":7,"method":"x"}', json_rpc.INVALID_REQUEST, 7),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', json_rpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0"}', json_rpc.INVALID_REQUEST, None),
    ],
)
def test_a_line_that_is_no_message_says_what_to_answer(
    line: bytes, code: int, given: int | None
) -> None:
    bad = rpc.read_line(line)
    assert isinstance(bad, rpc.BadMessage)
    assert (bad.error.code, bad.id) == (code, given)


@given(st.binary())
def test_no_line_is_an_exception(line: bytes) -> None:
    rpc.read_line(line)


def test_what_we_write_is_one_line_each() -> None:
    for line in (
        rpc.request_line(1, "x", Nothing()),
        rpc.notification_line("x", Nothing()),
        rpc.result_line("a", Nothing()),
        rpc.error_line(None, rpc.RpcError(code=-1, message="two\nlines")),
    ):
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert msgspec.json.decode(line)["jsonrpc"] == "2.0"
