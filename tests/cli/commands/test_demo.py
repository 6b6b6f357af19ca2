"""The tour of `holdfast demo`: on our server every claim holds, on one that forgets keys the tour says so."""

from __future__ import annotations

import http.client
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.cli.commands import demo as demo_module
from holdfast.cli.tour import scenes
from holdfast.cli.tour.demo_server import ServerHost, launched
from holdfast.cli.tour.narration import BROKEN, HOLDS


@pytest.mark.slow
def test_every_claim_of_the_tour_holds_and_people_go_on_by_enter() -> None:
    """At a terminal, as a new user has it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "demo"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"COLUMNS": "100", "TERM": "xterm"},
    )
    os.close(theirs)
    shown = _watch(ours)
    assert process.wait() == 0, shown
    assert BROKEN not in shown
    assert f"{HOLDS} All 21 claims hold" in shown
    assert all(scene.title in shown for scene in scenes.SCENES)


def _watch(terminal: int) -> str:
    """Read until the program has ended, and press Enter whenever it is waited for."""
    shown, answered = b"", 0
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux says so when the other side is closed
            piece = b""
        if not piece:
            os.close(terminal)
            return shown.decode()
        shown += piece
        for _ in range(answered, shown.count(b"Enter goes on")):
            answered += 1
            os.write(terminal, b"\n")


def test_a_claim_that_does_not_hold_ends_the_tour_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server behind this one is ours; what reaches it has no idempotency key, as with most servers."""
    last = scenes.SCENES[-1]
    assert last.play is scenes.lost
    monkeypatch.setattr(demo_module, "SCENES", (last,))
    monkeypatch.setattr(demo_module, "launched", _forgetful)

    told = CliRunner().invoke(main, ["demo", "--no-wait"])

    assert told.exit_code == 1, told.output
    assert f"{BROKEN} letters sent to Bergen: 2" in told.output
    assert "claims do not hold" in told.output


class Forgetful:
    """A server before which somebody has put a proxy that drops a header that it does not know."""

    def __init__(self, host: ServerHost, url: str) -> None:
        self._host = host
        self.url = url
        self.here: Path = host.here

    def kill(self) -> None:
        self._host.kill()

    def start(self) -> None:
        self._host.start()


@contextmanager
def _forgetful() -> Iterator[ServerHost]:
    with launched() as host:
        proxy = ThreadingHTTPServer(("127.0.0.1", 0), _dropping_keys(urlsplit(host.url).netloc))
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Forgetful(host, f"http://127.0.0.1:{proxy.server_port}")
        finally:
            proxy.shutdown()
            proxy.server_close()
            thread.join()


def _dropping_keys(address: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            kept = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in ("idempotency-key", "host")
            }
            behind = http.client.HTTPConnection(address)
            behind.request(self.command, self.path, self.rfile.read(length) or None, kept)
            answer = behind.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.end_headers()
            for line in answer:
                self.wfile.write(line)
            behind.close()

        do_GET = do_POST

        def log_request(self, *told: object, **more: object) -> None:
            """Nobody wants to know."""

    return Handler
