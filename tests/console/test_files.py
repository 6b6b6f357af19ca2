"""The console's files: what a browser is told about them, and that they are all there, small and plain."""

from __future__ import annotations

import gzip
import re

import pytest

from holdfast.console import HERE, MEDIA_TYPES, load
from holdfast.testing import ScriptedModel
from tests.server.stubs import agent, serving

BYTES_MAX = 150_000
"""All of it, squeezed."""

GZIP = {"Accept-Encoding": "gzip"}
SCRIPTS = sorted(HERE.rglob("*.js"))


async def test_the_page_may_run_its_own_scripts_and_nothing_else() -> None:
    async with serving(agent(ScriptedModel())) as server:
        page = await server.get("/")
    assert page.status == 200
    rules = page.headers["content-security-policy"].split("; ")
    policy = {name: value for name, _, value in (rule.partition(" ") for rule in rules)}
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'" and policy["trusted-types"] == "'none'"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"


async def test_what_the_page_names_is_there_and_need_never_be_asked_for_again() -> None:
    async with serving(agent(ScriptedModel())) as server:
        page = (await server.get("/")).body.decode()
        named = re.findall(r'(?:href|src)="([^"]+)"', page)
        assert len(named) > 20
        for path in named:
            answer = await server.get(path)
            assert answer.status == 200, path
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["content-type"].startswith(tuple(MEDIA_TYPES.values()))


async def test_a_file_that_is_known_is_not_sent_again() -> None:
    async with serving(agent(ScriptedModel())) as server:
        first = await server.get("/")
        again = await server.request("GET", "/", headers={"If-None-Match": first.headers["etag"]})
    assert first.headers["cache-control"] == "no-cache"
    assert (again.status, again.body) == (304, b"")


async def test_a_file_comes_squeezed_to_who_understands_it() -> None:
    async with serving(agent(ScriptedModel())) as server:
        async with server.http.get(server.url + "/", headers=GZIP) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            squeezed = await answer.read()  # aiohttp opens it
        plain = await server.request("GET", "/", headers={"Accept-Encoding": "identity"})
    assert squeezed == plain.body and "content-encoding" not in plain.headers


async def test_a_page_of_another_version_gets_our_file_and_does_not_keep_it() -> None:
    async with serving(agent(ScriptedModel())) as server:
        answer = await server.get("/console/0123456789abcdef/main.js")
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-cache")


@pytest.mark.parametrize(
    "path", ["__init__.py", "index.html", "../__init__.py", "%2e%2e/api.py", "views", "views/"]
)
async def test_what_is_no_file_of_the_console_is_not_sent(path: str) -> None:
    build = load().build
    async with serving(agent(ScriptedModel())) as server:
        answer = await server.get(f"/console/{build}/{path}")
    assert answer.status == 404


def test_all_of_it_is_small() -> None:
    files = load()
    sizes = {each.name: len(each.squeezed) for each in (files.page, *files.others.values())}
    assert sum(sizes.values()) < BYTES_MAX, sizes
    assert all(
        gzip.decompress(each.squeezed) == each.plain
        for each in (files.page, *files.others.values())
    )


def test_the_page_names_every_module_so_that_they_come_at_once() -> None:
    page = (HERE / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r"/console/build/([\w/.-]+)", page))
    there = {
        path.relative_to(HERE).as_posix() for path in HERE.rglob("*") if path.suffix in MEDIA_TYPES
    }
    assert named == there - {"index.html"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_has_a_way_from_a_string_to_markup_or_code(path: str) -> None:
    """The browser would refuse it; here it is seen before anybody runs it."""
    text = HERE.joinpath(path).read_text(encoding="utf-8")
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|setHTML|DOMParser|createContextualFragment"
    assert not re.findall(ways, text)
    assert len(text.splitlines()) < 400
