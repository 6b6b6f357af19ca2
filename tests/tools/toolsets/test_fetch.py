"""Reading the web: never a way into the network, always bounded, readable for a model."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
from aiohttp import web

from holdfast import limits
from holdfast.agents.remote_files import Fetcher
from holdfast.tools.execution import execute
from holdfast.tools.schema import parse_arguments
from holdfast.tools.tool import Json, ToolOutput
from holdfast.tools.toolsets.fetch import FetchToolset
from holdfast.tools.web.address_guard import WEB_PORTS, AddressGuard, Domains, FetchFailed
from tests.agents.web import Web, serving
from tests.tools.tool_calls import Blobs, call_of, said


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    async with serving() as made:
        yield made


def put(site: Web, path: str, body: bytes, kind: str = "text/plain") -> None:
    async def page(request: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": kind})

    site.handlers[path] = page


async def fetched(*urls: str, guard: AddressGuard | None = None, **arguments: Json) -> ToolOutput:
    (tool,) = await FetchToolset(guard, timeout_s=5.0).tools()
    given: dict[str, Json] = {"urls": list(urls), **arguments}
    return await execute(tool, call_of(given), Blobs())


inside = AddressGuard(allow_private=True)

# ── where it does not go ──

INNER = """
127.0.0.1 127.0.0.2 127.1.2.3 127.255.255.254 0.0.0.0 0.0.0.1 10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255
192.168.0.1 192.168.1.254 169.254.0.1 169.254.169.254 169.254.170.2 100.64.0.1 100.100.100.200 100.127.255.255
192.0.0.192 192.0.2.7 198.18.0.1 198.51.100.9 203.0.113.5 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
""".split()

INNER_V6 = """
::1 :: 0:0:0:0:0:0:0:1 fe80::1 febf::ffff fc00::1 fd00::1 fd00:ec2::254 fec0::1 ff02::1 ff0e::1 2001:db8::1
2001::1 64:ff9b:1::1 100::1 3fff::1 5f00::1 2002::1
""".split()


def notations(text: str) -> Iterator[str]:
    """An IPv4 address in every way in which somebody may try to write it."""
    number = int(ipaddress.IPv4Address(text))
    a, b, c, d = text.split(".")
    high, low = number >> 16, number & 0xFFFF
    yield text
    yield f"{text}."
    yield str(number)
    yield hex(number)
    yield f"0{number:o}"
    yield ".".join(f"0{int(each):o}" for each in (a, b, c, d))
    yield ".".join(hex(int(each)) for each in (a, b, c, d))
    yield f"{a}.{int(b) << 16 | int(c) << 8 | int(d)}"
    yield f"[::ffff:{text}]"
    yield f"[::ffff:{high:x}:{low:x}]"
    yield f"[::{text}]"
    yield f"[64:ff9b::{high:x}:{low:x}]"
    yield f"[2002:{high:x}:{low:x}::1]"


def inner_urls(port: int) -> list[str]:
    hosts = [written for each in INNER for written in notations(each)]
    hosts += [f"[{each}]" for each in INNER_V6]
    hosts += ["localhost", "LOCALHOST", "user:pw@127.0.0.1", "example.org@127.0.0.1", "0", "127.1"]
    hosts += [f"{each}.invalid" for each in "metadata rebinding mixed mapped zone nonsense".split()]
    urls = [f"{scheme}://{host}:{port}/secret" for host in hosts for scheme in ("http", "https")]
    return list(dict.fromkeys(urls))


async def names(host: str, port: int) -> list[str]:
    """DNS, in somebody else's hands; numbers are read by the system."""
    theirs = {
        "metadata.invalid": ["169.254.169.254"],
        "rebinding.invalid": ["127.0.0.1"],
        "mixed.invalid": ["8.8.8.8", "127.0.0.1"],
        "mapped.invalid": ["::ffff:127.0.0.1"],
        "zone.invalid": ["fe80::1%eth0"],
        "nonsense.invalid": ["nonsense"],
        "localhost": ["127.0.0.1"],
    }
    if host in theirs:
        return theirs[host]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return [str(each[4][0]) for each in found]


REFUSED = ("private or special", "unusual form", "user name")


async def test_no_notation_of_an_inner_address_is_a_way_in(site: Web) -> None:
    put(site, "/secret", b"the crown jewels")
    urls = inner_urls(site.port)
    assert len(urls) >= 700
    for url in urls:
        output = await fetched(url, guard=AddressGuard(resolve=names))
        assert output.outcome == "error", url
        assert any(why in said(output) for why in REFUSED), url
        with pytest.raises(FetchFailed):
            await Fetcher(AddressGuard(resolve=names)).fetch(url)
    assert site.requests == []
    # The server is there, and one who may go there is let in: nothing above was refused by accident.
    assert said(await fetched(site.url("/secret"), guard=inside)) == "the crown jewels"


ODD = """
file:///etc/passwd ftp://example.org/a gopher://example.org/a data:text/plain,a javascript:1 //example.org example.org
http:// http:///a http://[::1 http://[::1%25eth0]/ http://a@b@c/ http://example.org:99999/ http://example.org:port/
http://example.org:22/ http://example.org:25/ http://example.org:6379/ http://example.org:11211/ http://①②⑦.⓪.⓪.①/
http://example。org/ http://127.0.0.1%2eexample.org/ unix:///var/run/docker.sock dict://example.org:11211/stat
""".split()
SPACED = [
    "http://exam ple.org/",
    "http://a\\@127.0.0.1/",
    "http://a\r\nHost: evil/",
    "http://a\t/",
    "",
]


async def nobody(host: str, port: int) -> list[str]:
    raise AssertionError("nobody should be looked for")


@pytest.mark.parametrize("url", [*ODD, *SPACED])
async def test_nobody_is_looked_for_behind_an_odd_address(url: str) -> None:
    guard = AddressGuard(allow_private=True, resolve=nobody, ports=WEB_PORTS)
    assert (await fetched(url, guard=guard)).outcome == "error"
    with pytest.raises(FetchFailed) as raised:
        await Fetcher(guard).fetch(url)
    assert not raised.value.transient


async def test_a_model_gives_no_names_and_passwords_in_an_address() -> None:
    output = await fetched("http://user:pw@example.org/", guard=AddressGuard(resolve=nobody))
    assert output.outcome == "error"
    assert "pw" not in said(output)


class OnlyTheFirst(AddressGuard):
    """Lets the test's own server through, and nobody else."""

    async def addresses(self, url: str) -> list[str]:
        return ["127.0.0.1"] if "start.invalid" in url else await super().addresses(url)


async def test_no_redirect_is_a_way_in(site: Web) -> None:
    targets = [
        url for url in inner_urls(site.port) if url.startswith("http://") and "@" not in url
    ][::5]
    put(site, "/secret", b"the crown jewels")
    where = ""

    async def moved(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": where})

    site.handlers["/start"] = moved
    for where in targets:
        output = await fetched(
            site.url("/start", host="start.invalid"), guard=OnlyTheFirst(resolve=names)
        )
        assert output.outcome == "error", where
        assert any(why in said(output) for why in REFUSED), where
    assert len(targets) > 60
    assert {each.path for each in site.requests} == {"/start"}


@pytest.mark.parametrize(
    ("domains", "host", "may"),
    [
        (Domains(), "example.org", True),
        (Domains(allowed=("example.org",)), "example.org", True),
        (Domains(allowed=("example.org",)), "docs.example.org", True),
        (Domains(allowed=("example.org",)), "EXAMPLE.org.", True),
        (Domains(allowed=("example.org",)), "badexample.org", False),
        (Domains(allowed=("example.org",)), "example.org.evil.net", False),
        (Domains(blocked=("example.org",)), "docs.example.org", False),
        (Domains(blocked=("*.example.org",)), "docs.example.org", False),
        (Domains(blocked=("*.Example.org ",)), "a.docs.example.org.", False),
        (Domains(blocked=(".example.org",)), "docs.example.org", False),
        (Domains(blocked=("*.example.org",)), "example.org", True),
        (Domains(blocked=("10.0.0.0/8",)), "10.1.2.3", False),
        (Domains(blocked=("10.0.0.0/8",)), "11.1.2.3", True),
        (Domains(blocked=("::1/128",)), "[::1]", False),
        (Domains(allowed=("*.example.org",)), "docs.example.org", True),
        (Domains(allowed=("*.example.org",)), "example.org", False),
        (Domains(allowed=("192.0.2.0/24",)), "192.0.2.7", True),
        (Domains(allowed=("192.0.2.0/24",)), "example.org", False),
        (Domains(blocked=("example.org",)), "example.net", True),
        (Domains(allowed=("example.org",), blocked=("x.example.org",)), "x.example.org", False),
        (Domains(allowed=(".example.org",)), "docs.example.org", True),
    ],
)
def test_which_domains_may_be_asked(domains: Domains, host: str, may: bool) -> None:
    assert (domains.refuse(host) == "") is may


async def test_a_redirect_to_another_domain_is_refused_too(site: Web) -> None:
    async def moved(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": site.url("/b", host="evil.invalid")})

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    site.handlers["/a"] = moved
    guard = AddressGuard(
        allow_private=True, resolve=here, domains=Domains(allowed=("good.invalid",))
    )
    output = await fetched(site.url("/a", host="good.invalid"), guard=guard)
    assert output.outcome == "error"
    assert "only these domains are allowed: good.invalid" in said(output)


# ── what comes back ──


async def test_it_only_reads_and_says_so() -> None:
    (tool,) = await FetchToolset().tools()
    assert (tool.spec.name, tool.spec.read_only, tool.spec.idempotent) == ("fetch", True, True)
    assert parse_arguments(tool.spec, '{"urls": ["http://a/"], "format": "text"}')


PAGE = b"""<!doctype html><html><head><title>T</title><style>p {}</style></head><body>
<script>alert('no')</script><h1>Parcels &amp; post</h1><p>See   <a href="/lost">the <b>list</b></a>.
<ul><li>one<li>two</ul><pre>  a
    b</pre><table><tr><td>1</td><td>2</td></tr></table><a href="#top">up</a><noscript>x</noscript></body>"""


@pytest.mark.parametrize(
    ("style", "shown"),
    [
        ("markdown", "# Parcels & post\n\nSee [the **list**](/lost)."),
        ("text", "Parcels & post\n\nSee the list."),
        ("html", "<!doctype html>"),
    ],
)
async def test_a_page_is_shown_as_asked_for(site: Web, style: str, shown: str) -> None:
    put(site, "/a", PAGE, "text/html")
    output = await fetched(site.url("/a"), guard=inside, format=style)
    assert output.outcome == "ok"
    assert said(output).startswith(shown)
    assert ("alert" in said(output)) is (style == "html")


async def test_an_address_may_have_any_characters(site: Web) -> None:
    """People write addresses as they read them; they are sent as ASCII."""

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host == "xn--mnchen-3ya.invalid" else []

    put(site, "/straße", b"Servus")
    guard = AddressGuard(allow_private=True, resolve=here)
    output = await fetched(site.url("/straße?q=ö", host="münchen.invalid"), guard=guard)
    assert (output.outcome, said(output)) == ("ok", "Servus")


@pytest.mark.parametrize("url", ["http://\u2488.invalid\u3002/", "http://[é]/", "http://é:x/"])
async def test_what_has_no_form_in_ascii_is_no_address(url: str) -> None:
    output = await fetched(url, guard=inside)
    assert output.outcome == "error"


async def test_a_page_that_cannot_be_converted_is_an_error(site: Web) -> None:
    """Nothing in place of a page that has something would be taken for the page."""
    put(site, "/a", b"<div>" * 5_000 + b"words", "text/html")
    output = await fetched(site.url("/a"), guard=inside)
    assert output.outcome == "error"
    assert "its text lies too deep; ask for it as html" in said(output)
    put(site, "/b", b"<script>var words;</script>", "text/html")
    assert said(await fetched(site.url("/b"), guard=inside)) == "[nothing is there]"


async def test_several_pages_are_shown_with_their_addresses(site: Web) -> None:
    put(site, "/a", b"first")
    output = await fetched(site.url("/a?token=s3cret"), site.url("/gone"), guard=inside)
    assert output.outcome == "ok"
    assert "first" in said(output)
    assert "it answers 404" in said(output)
    assert "s3cret" not in said(output)


async def test_of_a_long_page_the_beginning_is_read(site: Web) -> None:
    put(site, "/a", b"x" * (limits.web_body_bytes_max + 10))
    (tool,) = await FetchToolset(inside).tools()
    blobs = Blobs()
    await execute(tool, call_of({"urls": [site.url("/a")]}), blobs)
    (kept,) = blobs.kept.values()
    assert kept.endswith(f"only the first {limits.web_body_bytes_max} bytes were read …]".encode())


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    [
        ("image/png", b"\x89PNG", "it is not text but image/png"),
        ("text/plain", b"a\0b", "it is not text"),
        ("application/octet-stream", b"x", "it is not text"),
    ],
)
async def test_what_is_not_text_is_not_shown(site: Web, kind: str, body: bytes, told: str) -> None:
    put(site, "/a", body, kind)
    output = await fetched(site.url("/a"), guard=inside)
    assert output.outcome == "error"
    assert told in said(output)


@pytest.mark.parametrize(
    ("charset", "body"),
    [("iso-8859-1", b"gr\xfc\xdfe"), ("hex", "grüße".encode()), ("utf-8", "grüße".encode())],
)
async def test_a_page_is_read_in_its_own_encoding(site: Web, charset: str, body: bytes) -> None:
    put(site, "/a", body, f"text/plain; charset={charset}")
    assert said(await fetched(site.url("/a"), guard=inside)) == "grüße"
