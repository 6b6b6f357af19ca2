"""Fetching a file never leads into the private network, and never waits, reads or follows without bound.

`tests/tools/toolsets/test_fetch.py` has the addresses that lead inside, in every notation, for whoever fetches something.
"""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.agents.remote_files import Fetched, Fetcher
from holdfast.tools.web.address_guard import AddressGuard, FetchFailed, is_public, shown
from holdfast.tools.web.web_client import WebAnswer
from holdfast.tools.web.web_client import WebClient as Asking
from tests.agents.web import Web, serving

PUBLIC = """
8.8.8.8 1.1.1.1 93.184.216.34 172.15.255.255 172.32.0.1 192.167.255.255 11.0.0.1 100.63.255.255 100.128.0.1
2606:4700:4700::1111 2a00:1450:4001::200e ::ffff:8.8.8.8 64:ff9b::808:808
""".split()

SPECIAL = """
127.0.0.1 127.1.2.3 127.255.255.255 0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255
192.168.0.1 192.168.255.255 169.254.0.1 169.254.169.254 100.64.0.1 100.100.100.200 100.127.255.255
192.0.0.1 192.0.0.192 192.0.2.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 192.88.99.1
224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 ::2 fe80::1 fe80::1%eth0 febf::1 fc00::1 fd00::1 fd00:ec2::254 fec0::1 ff02::1 ff0e::1
::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:0 ::127.0.0.1 ::10.0.0.1
64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::10.0.0.1 64:ff9b:1::1
2002:7f00:1:: 2002:a00:1:: 2002:a9fe:a9fe:: 2002:808:808:: 2001::1 2001:0:7f00:1::
2001:db8::1 100::1 3fff::1 5f00::1 2001:10::1
""".split()


@pytest.mark.parametrize("text", PUBLIC)
def test_addresses_of_the_open_internet(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", SPECIAL)
def test_addresses_that_are_not(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@given(st.ip_addresses(v=4))
def test_an_address_is_judged_alike_however_it_is_wrapped(address: ipaddress.IPv4Address) -> None:
    for wrapped in (f"::ffff:{address}", f"64:ff9b::{address}", f"::{address}"):
        assert is_public(ipaddress.ip_address(wrapped)) == is_public(address)


async def test_who_names_no_guard_has_the_strict_one() -> None:
    with pytest.raises(FetchFailed, match="private or special"):
        await Fetcher().fetch("http://127.0.0.1/a")


def naming(**hosts: list[str]) -> Fetcher:
    """A fetcher for whom these names stand for these numbers, and nobody else is there."""

    async def resolve(host: str, port: int) -> list[str]:
        name = host.replace(".", "_")
        if name not in hosts:
            raise socket.gaierror("no such host")
        return hosts[name]

    return Fetcher(AddressGuard(resolve=resolve))


@pytest.mark.parametrize("numbers", [[], None])
async def test_a_name_that_leads_nowhere_is_told(numbers: list[str] | None) -> None:
    hosts = {} if numbers is None else {"example_org": numbers}
    with pytest.raises(FetchFailed, match="its host cannot be found") as raised:
        await naming(**hosts).fetch("http://example.org/a")
    assert raised.value.transient


# ── with a server ──


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    async with serving() as made:
        yield made


inside = Fetcher(AddressGuard(allow_private=True))


async def test_what_is_there_is_fetched_and_asked_for_only_once(site: Web) -> None:
    site.files["/a.yaml"] = b"agents: {}"
    first = await inside.fetch(site.url("/a.yaml"))
    assert first.body == b"agents: {}"
    assert first.etag
    again = await inside.fetch(site.url("/a.yaml"), etag=first.etag)
    assert again == Fetched(body=None, etag=first.etag)
    assert site.requests[-1].headers["If-None-Match"] == first.etag


async def test_exactly_the_checked_numbers_are_connected_to(site: Web) -> None:
    """A name that means something else a moment later (rebinding) changes nothing: it is asked once."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    site.files["/a.yaml"] = b"x"
    fetcher = Fetcher(AddressGuard(allow_private=True, resolve=resolve))
    fetched = await fetcher.fetch(site.url("/a.yaml", host="team.invalid"))
    assert fetched.body == b"x"
    assert asked == ["team.invalid"]
    assert site.requests[0].headers["Host"] == f"team.invalid:{site.port}"


def redirect(target: str, status: int = 302) -> web.Response:
    return web.Response(status=status, headers={"Location": target})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed(site: Web, status: int) -> None:
    async def moved(request: web.Request) -> web.Response:
        return redirect("/b.yaml", status)

    site.handlers["/a.yaml"] = moved
    site.files["/b.yaml"] = b"x"
    assert (await inside.fetch(site.url("/a.yaml"))).body == b"x"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("http://169.254.169.254/latest", "private or special"),
        ("http://localhost/a", "private or special"),
        ("//10.0.0.1/a", "private or special"),
        ("http://[::1]/a", "private or special"),
        ("file:///etc/passwd", "only http and https"),
        ("ftp://example.org/a", "only http and https"),
        ("http://a b/c", "it is not an address"),
    ],
)
async def test_a_redirect_is_checked_like_the_first_address(
    site: Web, target: str, why: str
) -> None:
    async def moved(request: web.Request) -> web.Response:
        return redirect(target)

    async def resolve(host: str, port: int) -> list[str]:
        return {"start.invalid": ["127.0.0.1"], "localhost": ["127.0.0.1"]}.get(host, [host])

    class OnlyTheFirst(AddressGuard):
        """Lets the test's own server through, and nobody else."""

        async def addresses(self, url: str) -> list[str]:
            return ["127.0.0.1"] if "start.invalid" in url else await super().addresses(url)

    site.handlers["/a.yaml"] = moved
    with pytest.raises(FetchFailed, match=why):
        await Fetcher(OnlyTheFirst(resolve=resolve)).fetch(
            site.url("/a.yaml", host="start.invalid")
        )


async def test_redirects_do_not_go_on_for_ever(site: Web) -> None:
    async def moved(request: web.Request) -> web.Response:
        return redirect("/a.yaml")

    site.handlers["/a.yaml"] = moved
    with pytest.raises(FetchFailed, match="more than 5 redirects"):
        await inside.fetch(site.url("/a.yaml"))
    assert len(site.requests) == limits.fetch_redirects_max + 1


async def test_a_redirect_to_nowhere_is_told(site: Web) -> None:
    async def moved(request: web.Request) -> web.Response:
        return web.Response(status=302)

    site.handlers["/a.yaml"] = moved
    with pytest.raises(FetchFailed, match="it redirects nowhere"):
        await inside.fetch(site.url("/a.yaml"))


async def test_credentials_go_to_their_own_server_only(site: Web) -> None:
    async def moved(request: web.Request) -> web.Response:
        return redirect(site.url("/b.yaml", host="localhost"))

    site.handlers["/a.yaml"] = moved
    site.files["/b.yaml"] = b"x"
    await inside.fetch(site.url("/a.yaml", user="ada:pw@"))
    assert "Authorization" in site.requests[0].headers
    assert "Authorization" not in site.requests[1].headers


async def test_nothing_else_is_sent_along(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    async def setting(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/b.yaml", "Set-Cookie": "a=b"})

    site.handlers["/a.yaml"] = setting
    site.files["/b.yaml"] = b"x"
    await inside.fetch(site.url("/a.yaml"))
    assert "Cookie" not in site.requests[1].headers
    assert site.requests[1].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("lies", [False, True])
async def test_a_file_that_is_too_large_is_not_read_to_its_end(site: Web, lies: bool) -> None:
    async def large(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if not lies:
            response.content_length = 100 * limits.agent_file_bytes_max
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
        except ConnectionError:
            return response

    site.handlers["/a.yaml"] = large
    with pytest.raises(FetchFailed, match="more than 1048576 bytes"):
        await inside.fetch(site.url("/a.yaml"))


async def test_nothing_is_unpacked(site: Web) -> None:
    async def packed(request: web.Request) -> web.Response:
        bomb = gzip.compress(b"x" * 10_000_000)
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    site.handlers["/a.yaml"] = packed
    with pytest.raises(FetchFailed, match="compressed"):
        await inside.fetch(site.url("/a.yaml"))


async def test_a_server_that_does_not_answer_is_not_waited_for(site: Web) -> None:
    async def silent(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    site.handlers["/a.yaml"] = silent
    with pytest.raises(FetchFailed, match=r"no answer within 0.1 s") as raised:
        await Fetcher(AddressGuard(allow_private=True), timeout_s=0.1).fetch(site.url("/a.yaml"))
    assert raised.value.transient


@pytest.mark.parametrize(
    ("status", "transient"),
    [(404, False), (401, False), (410, False), (204, False), (500, True), (503, True), (429, True)],
)
async def test_which_answers_can_pass(site: Web, status: int, transient: bool) -> None:
    site.status = status
    with pytest.raises(FetchFailed, match=f"it answers {status}") as raised:
        await inside.fetch(site.url("/a.yaml"))
    assert raised.value.transient is transient


async def test_a_closed_port_can_pass() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(FetchFailed, match="cannot be connected to") as raised:
        await inside.fetch(f"http://127.0.0.1:{port}/a")
    assert raised.value.transient


async def test_a_server_that_does_not_speak_http_is_told() -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(FetchFailed):
            await inside.fetch(f"http://127.0.0.1:{port}/a")
    finally:
        server.close()


async def test_nobody_is_led_from_https_to_http(monkeypatch: pytest.MonkeyPatch) -> None:
    async def moved(*args: object, **kwargs: object) -> WebAnswer:
        headers = {"location": "http://example.org/a"}
        return WebAnswer(url="https://example.org/a", status=302, headers=headers, body=b"")

    monkeypatch.setattr(Asking, "_ask_once", moved)
    with pytest.raises(FetchFailed, match="from https to something else"):
        await inside.fetch("https://example.org/a")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://ada:pw@example.org:8443/a/b?token=s3cret#x", "https://example.org:8443/a/b?…"),
        ("https://example.org/a", "https://example.org/a"),
        ("http://[::1]:80/a", "http://[::1]:80/a"),
        ("http://[::1", "a broken address"),
        ("http://a:99999/", "a broken address"),
    ],
)
def test_an_address_is_shown_without_what_is_secret_in_it(url: str, told: str) -> None:
    assert shown(url) == told


@pytest.mark.parametrize("path", ["/gone.yaml?token=s3cret", "/a.yaml?token=s3cret"])
async def test_no_error_tells_a_secret(site: Web, path: str) -> None:
    with pytest.raises(FetchFailed) as raised:
        await inside.fetch(site.url(path, user="ada:s3cret@"))
    assert "s3cret" not in str(raised.value)
