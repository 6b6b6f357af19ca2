"""Sources: what they are called, how they are loaded, and how they notice that they have changed."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from holdfast.agents.agent import Source, Team
from holdfast.agents.file.agent_file import Checked
from holdfast.agents.remote_files import Fetcher
from holdfast.agents.sources import (
    DemoSource,
    FileSource,
    InvalidSource,
    ModuleSource,
    SourceFolder,
    Supplies,
    UrlSource,
    parse_source,
)
from holdfast.errors import SourceUnusable
from holdfast.tools.execution import execute
from holdfast.tools.web.address_guard import AddressGuard
from tests.agents.models import Factory
from tests.agents.web import Web, serving
from tests.tools.tool_calls import Blobs, call_of, said

SMALL = b"agents: {root: {model: openai/gpt-5}}\n"
OTHER = b"agents: {root: {model: openai/gpt-6}}\n"
WITH_COMMAND = (
    b"agents: {root: {model: a/b, toolsets: [{type: script, shell: {look: {cmd: ls}}}]}}\n"
)


def supplies(**changes: object) -> Supplies:
    return msgspec.structs.replace(
        Supplies(make_model=Factory(), fetcher=Fetcher(AddressGuard(allow_private=True))), **changes
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ── naming ──


@pytest.mark.parametrize(
    ("text", "kind", "key", "name"),
    [
        ("demo", DemoSource, "demo", "demo"),
        ("show=demo", DemoSource, "demo", "show"),
        ("team.yaml", FileSource, "{here}/team.yaml", "team"),
        ("./team.yaml", FileSource, "{here}/team.yaml", "team"),
        ("sub/../team.yml", FileSource, "{here}/team.yml", "team"),
        ("shop=team.yaml", FileSource, "{here}/team.yaml", "shop"),
        ("a/my team.yaml", FileSource, "{here}/a/my team.yaml", "my-team"),
        ("./a=b.yaml", FileSource, "{here}/a=b.yaml", "a-b"),
        ("plain", FileSource, "{here}/plain", "plain"),
        ("https://x.org/a/team.yaml", UrlSource, "https://x.org/a/team.yaml", "team"),
        ("https://x.org/a/team.yaml?v=1", UrlSource, "https://x.org/a/team.yaml?v=1", "team"),
        ("https://x.org/a/b/", UrlSource, "https://x.org/a/b/", "b"),
        ("https://x.org", UrlSource, "https://x.org", "x.org"),
        ("https://x.org/a%2Fb.yaml", UrlSource, "https://x.org/a%2Fb.yaml", "a-b"),
        ("http://[::1", UrlSource, "http://[::1", "url"),
        ("s=https://x.org/t?a=b", UrlSource, "https://x.org/t?a=b", "s"),
        ("shop.agents:team", ModuleSource, "shop.agents:team", "shop"),
        ("mine=shop:make.team", ModuleSource, "shop:make.team", "mine"),
    ],
)
def test_what_a_reference_names(here: Path, text: str, kind: type, key: str, name: str) -> None:
    (here / "plain").write_bytes(SMALL)
    source = parse_source(text, supplies())
    assert isinstance(source, kind)
    assert not isinstance(source, SourceFolder)
    assert (source.key, source.name) == (key.format(here=here), name)


def test_a_directory_is_one_source_for_each_file(here: Path) -> None:
    for name in ("b.yaml", "a.yml", "README.md", ".hidden.yaml", "c.yaml~"):
        (here / name).write_bytes(SMALL)
    directory = parse_source(".", supplies())
    assert isinstance(directory, SourceFolder)
    first = directory.sources()
    assert [(each.name, each.key) for each in first] == [
        ("a", f"{here}/a.yml"),
        ("b", f"{here}/b.yaml"),
    ]
    (here / "a.yml").unlink()
    (here / "d.yaml").write_bytes(SMALL)
    second = directory.sources()
    assert [each.name for each in second] == ["b", "d"]
    assert second[0] is first[1]


@pytest.mark.parametrize(
    "text", ["", "nowhere", "a b", "ftp://x/y", "name=", "=x", "a:b:c", "oci://x", "shop=nowhere"]
)
def test_what_names_nothing_is_refused(here: Path, text: str) -> None:
    with pytest.raises(InvalidSource, match="names no agents"):
        parse_source(text, supplies())


def test_a_directory_cannot_be_renamed(here: Path) -> None:
    with pytest.raises(InvalidSource, match="each file in it has its own name"):
        parse_source("shop=.", supplies())


def test_a_symbolic_link_stays_the_address(here: Path) -> None:
    """Deploys move it; sessions must not be lost to that."""
    (here / "v1").mkdir()
    (here / "v1" / "team.yaml").write_bytes(SMALL)
    (here / "current").symlink_to("v1")
    source = parse_source("current/team.yaml", supplies())
    assert source.key == f"{here}/current/team.yaml"


# ── files ──


async def test_a_file_is_loaded_and_looked_at(here: Path) -> None:
    path = here / "team.yaml"
    path.write_bytes(SMALL)
    source = FileSource(path, supplies())
    team = await source.load()
    assert team.agents["root"].model.name == "openai/gpt-5"
    assert not await source.changed()
    path.write_bytes(OTHER)
    assert await source.changed()
    assert await source.changed(), "until it is loaded"
    newer = await source.load()
    assert newer.digest != team.digest
    assert not await source.changed()


PYTHON = """
from holdfast import tool

@tool
def greet() -> str:
    "Greet."
    return {words!r}
"""

WITH_NEIGHBOURS = b"""
agents:
  root:
    model: openai/gpt-5
    add_prompt_files: [rules.md]
    toolsets: [{type: python, file: tools.py}]
    permissions: {allow: [greet]}
"""


async def greeting(team: Team) -> str:
    (toolset,) = team.agents["root"].toolsets
    (tool,) = await toolset.tools()
    return said(await execute(tool, call_of(), Blobs()))


async def test_what_lies_beside_a_file_and_is_a_part_of_it_is_looked_at_too(here: Path) -> None:
    path, tools, rules = here / "team.yaml", here / "tools.py", here / "rules.md"
    path.write_bytes(WITH_NEIGHBOURS)
    tools.write_text(PYTHON.format(words="Hello"))
    rules.write_text("Be kind.")
    source = FileSource(path, supplies())
    team = await source.load()
    assert not await source.changed()
    os.utime(tools, (1, 1))
    assert not await source.changed(), "touching is not changing"
    tools.write_text(PYTHON.format(words="Salve"))
    assert await source.changed()
    assert await greeting(team) == "Hello", "the old version is what it was"
    newer = await source.load()
    assert newer.digest != team.digest and not await source.changed()
    assert await greeting(newer) == "Salve"
    assert await greeting(team) == "Hello", "a turn finishes on the version that it began with"
    rules.write_text("Be brief.")
    assert await source.changed()
    assert "Be brief." in (await source.load()).agents["root"].instruction
    rules.unlink()
    assert await source.changed()


async def test_a_python_file_is_read_again_with_its_agent_file(here: Path) -> None:
    path, tools = here / "team.yaml", here / "tools.py"
    path.write_bytes(WITH_NEIGHBOURS)
    tools.write_text(PYTHON.format(words="Hello"))
    source = FileSource(path, supplies())
    assert await greeting(await source.load()) == "Hello"
    tools.write_text(PYTHON.format(words="Salve"))
    path.write_bytes(WITH_NEIGHBOURS + b"# again\n")
    assert await greeting(await source.load()) == "Salve"


async def test_touching_a_file_is_not_changing_it(here: Path) -> None:
    path = here / "team.yaml"
    path.write_bytes(SMALL)
    source = FileSource(path, supplies())
    await source.load()
    os.utime(path, (1, 1))
    assert not await source.changed()


async def test_the_same_size_and_time_hide_no_change(here: Path) -> None:
    path = here / "team.yaml"
    path.write_bytes(SMALL)
    source = FileSource(path, supplies())
    await source.load()
    before = path.stat()
    with path.open("r+b") as file:
        file.write(OTHER)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert await source.changed()


async def test_a_broken_file_is_told_once_and_then_remembered(here: Path) -> None:
    path = here / "team.yaml"
    path.write_bytes(SMALL)
    source = FileSource(path, supplies())
    await source.load()
    path.write_bytes(b"agents: [")
    assert await source.changed()
    with pytest.raises(SourceUnusable, match="not YAML"):
        await source.load()
    with pytest.raises(SourceUnusable, match="not YAML"):
        await source.changed()
    path.write_bytes(SMALL)
    assert await source.changed()
    await source.load()
    assert not await source.changed()


NEEDS = {
    "an instruction": b"agents: {root: {model: a/b, instruction_file: needed}}\n",
    "a root": b"agents: {root: {model: a/b, toolsets: [{type: filesystem, roots: [needed]}]}}\n",
}


@pytest.mark.parametrize("what", NEEDS)
async def test_what_a_file_needs_and_is_not_there_is_looked_for_again(
    here: Path, what: str
) -> None:
    """What the operator saved last counts as soon as all of it can be read, and needs no saving once more."""
    path = here / "team.yaml"
    path.write_bytes(SMALL)
    source = FileSource(path, supplies())
    await source.load()
    path.write_bytes(NEEDS[what])
    for _ in range(2):
        assert await source.changed()
        with pytest.raises(SourceUnusable, match=r"team.yaml:1:\d+: agents.root"):
            await source.load()
    (here / "needed").mkdir() if what == "a root" else (here / "needed").touch()
    assert await source.changed()
    assert (await source.load()).agents["root"].model.name == "a/b"
    assert not await source.changed()


async def test_a_version_whose_loading_broke_off_is_loaded_again(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = here / "team.yaml"
    path.write_bytes(SMALL)
    source = FileSource(path, supplies())
    await source.load()
    path.write_bytes(OTHER)

    def fails(data: bytes) -> Checked:
        raise OSError(errno.EIO, "the disk stumbled")

    with monkeypatch.context() as stumbling:
        stumbling.setattr(source, "_checked", fails)
        with pytest.raises(OSError, match="stumbled"):
            await source.load()
    assert await source.changed()
    assert (await source.load()).agents["root"].model.name == "openai/gpt-6"


@pytest.mark.parametrize("kind", ["nothing", "a directory", "a pipe", "a circle"])
async def test_what_cannot_be_read_is_told(here: Path, kind: str) -> None:
    path = here / "team.yaml"
    match kind:
        case "a directory":
            path.mkdir()
        case "a pipe":
            os.mkfifo(path)
        case "a circle":
            path.symlink_to(path)
    source = FileSource(path, supplies())
    with pytest.raises(SourceUnusable, match=f"{path}: it"):
        await source.load()
    with pytest.raises(SourceUnusable, match=f"{path}: it"):
        await source.changed()


async def test_commands_run_beside_their_file(here: Path) -> None:
    (here / "team.yaml").write_bytes(WITH_COMMAND)
    team = await FileSource(here / "team.yaml", supplies()).load()
    (toolset,) = team.agents["root"].toolsets
    assert [tool.spec.name for tool in await toolset.tools()] == ["look"]


# ── URLs ──


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    async with serving() as made:
        made.files["/team.yaml"] = SMALL
        yield made


async def test_a_url_is_loaded_and_asked_conditionally(site: Web) -> None:
    source = UrlSource(site.url("/team.yaml"), supplies())
    team = await source.load()
    assert team.agents["root"].model.name == "openai/gpt-5"
    assert team.warnings == ()
    assert not await source.changed()
    assert "If-None-Match" in site.requests[-1].headers
    site.files["/team.yaml"] = OTHER
    assert await source.changed()
    asked = len(site.requests)
    assert (await source.load()).agents["root"].model.name == "openai/gpt-6"
    assert len(site.requests) == asked, "what was fetched to compare is what is loaded"
    assert not await source.changed()


async def test_a_copy_serves_when_the_network_fails(site: Web, tmp_path: Path) -> None:
    with_cache = supplies(
        cache=tmp_path / "cache", now=lambda: datetime(2025, 6, 1, 12, tzinfo=UTC)
    )
    url = site.url("/team.yaml?token=s3cret")
    await UrlSource(url, with_cache).load()
    site.status = 503
    team = await UrlSource(url, with_cache).load()
    assert team.agents["root"].model.name == "openai/gpt-5"
    (warning,) = team.warnings
    assert "it answers 503; the copy of 2025-06-01T12:00:00+00:00 is served instead" in warning
    assert "s3cret" not in warning


async def test_after_a_restart_an_unchanged_file_is_not_sent_again(
    site: Web, tmp_path: Path
) -> None:
    with_cache = supplies(cache=tmp_path)
    await UrlSource(site.url("/team.yaml"), with_cache).load()
    team = await UrlSource(site.url("/team.yaml"), with_cache).load()
    assert site.requests[-1].headers["If-None-Match"]
    assert team.warnings == ()


async def test_a_copy_is_for_its_exact_address(site: Web, tmp_path: Path) -> None:
    with_cache = supplies(cache=tmp_path)
    await UrlSource(site.url("/team.yaml?v=1"), with_cache).load()
    site.status = 503
    with pytest.raises(SourceUnusable, match="it answers 503"):
        await UrlSource(site.url("/team.yaml?v=2"), with_cache).load()


@pytest.mark.parametrize("status", [404, 403, 410])
async def test_a_copy_does_not_serve_what_was_taken_away(
    site: Web, tmp_path: Path, status: int
) -> None:
    with_cache = supplies(cache=tmp_path)
    await UrlSource(site.url("/team.yaml"), with_cache).load()
    site.status = status
    with pytest.raises(SourceUnusable, match=f"it answers {status}"):
        await UrlSource(site.url("/team.yaml"), with_cache).load()


async def test_a_copy_is_only_for_its_owner_and_does_not_name_its_address(
    site: Web, tmp_path: Path
) -> None:
    await UrlSource(site.url("/team.yaml?token=s3cret"), supplies(cache=tmp_path / "c")).load()
    (copy,) = (tmp_path / "c").iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert b"s3cret" not in copy.read_bytes()


@pytest.mark.parametrize("damage", [b"", b"{", b'{"body": 3}', b"x" * 3_000_000])
async def test_a_damaged_copy_is_no_copy(site: Web, tmp_path: Path, damage: bytes) -> None:
    with_cache = supplies(cache=tmp_path)
    await UrlSource(site.url("/team.yaml"), with_cache).load()
    copy = tmp_path / os.listdir(tmp_path)[0]
    copy.write_bytes(damage)
    assert (await UrlSource(site.url("/team.yaml"), with_cache).load()).warnings == ()
    copy.write_bytes(damage)
    site.status = 500
    with pytest.raises(SourceUnusable):
        await UrlSource(site.url("/team.yaml"), with_cache).load()


async def test_a_disk_that_keeps_nothing_is_no_reason_not_to_serve(
    site: Web, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file, not a directory")
    await UrlSource(site.url("/team.yaml"), supplies(cache=tmp_path / "cache" / "x")).load()


async def test_a_broken_version_is_not_kept_as_a_copy(site: Web, tmp_path: Path) -> None:
    with_cache = supplies(cache=tmp_path)
    source = UrlSource(site.url("/team.yaml"), with_cache)
    await source.load()
    site.files["/team.yaml"] = b"agents: ["
    assert await source.changed()
    with pytest.raises(SourceUnusable, match="not YAML"):
        await source.load()
    with pytest.raises(SourceUnusable, match="not YAML"):
        await source.changed()
    site.status = 503
    assert (await UrlSource(site.url("/team.yaml"), with_cache).load()).agents
    site.status, site.files["/team.yaml"] = 0, SMALL
    assert not await source.changed(), "it is again what was loaded last"


async def test_what_a_trusted_remote_file_needs_is_looked_for_again(site: Web, here: Path) -> None:
    site.files["/team.yaml"] = NEEDS["an instruction"]
    source = UrlSource(site.url("/team.yaml"), supplies(trust_remote=True))
    with pytest.raises(SourceUnusable, match="cannot be read"):
        await source.load()
    (here / "needed").touch()
    assert await source.changed()
    assert (await source.load()).agents


async def test_a_private_address_is_refused_and_no_copy_helps(site: Web, tmp_path: Path) -> None:
    await UrlSource(site.url("/team.yaml"), supplies(cache=tmp_path)).load()
    careful = supplies(cache=tmp_path, fetcher=Fetcher())
    with pytest.raises(SourceUnusable, match="private or special"):
        await UrlSource(site.url("/team.yaml"), careful).load()


async def test_a_remote_file_runs_no_commands_unless_it_is_trusted(site: Web) -> None:
    site.files["/team.yaml"] = WITH_COMMAND
    with pytest.raises(SourceUnusable, match="is not accepted from a URL"):
        await UrlSource(site.url("/team.yaml"), supplies()).load()
    team = await UrlSource(site.url("/team.yaml"), supplies(trust_remote=True)).load()
    assert len(team.agents["root"].toolsets) == 1


async def test_no_complaint_about_a_url_tells_its_secrets(site: Web) -> None:
    site.files["/team.yaml"] = b"agents: ["
    source = UrlSource(site.url("/team.yaml?token=s3cret", user="ada:s3cret@"), supplies())
    with pytest.raises(SourceUnusable) as raised:
        await source.load()
    assert "s3cret" not in f"{raised.value} {raised.value.source} {source!r}"


async def test_a_server_that_says_not_modified_unasked_is_refused(site: Web) -> None:
    site.status = 304
    with pytest.raises(SourceUnusable, match="unasked"):
        await UrlSource(site.url("/team.yaml"), supplies()).load()


# ── modules ──

MODULE = """
from holdfast.agents.agent import (Agent, ModelConfig, Team)
from tests.agents.models import Mute

model = Mute(ModelConfig(provider="a", model="b"))
agent = Agent("ada", model)
team = Team({"ada": agent, "bob": Agent("bob", model)}, entry="bob", digest="mine")

def make():
    return agent

async def make_later():
    return team

class inner:
    team = team

def fail():
    raise RuntimeError("no luck")

def with_argument(x):
    return agent

number = 3
"""


@pytest.fixture
def module(here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(here)])
    (here / "shop_for_tests.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "shop_for_tests", raising=False)
    return "shop_for_tests"


@pytest.mark.parametrize(
    ("attribute", "names", "entry"),
    [
        ("agent", ["ada"], "ada"),
        ("team", ["ada", "bob"], "bob"),
        ("make", ["ada"], "ada"),
        ("make_later", ["ada", "bob"], "bob"),
        ("inner.team", ["ada", "bob"], "bob"),
    ],
)
async def test_a_module_has_a_team_an_agent_or_a_maker(
    module: str, attribute: str, names: list[str], entry: str
) -> None:
    source = ModuleSource(f"{module}:{attribute}")
    team = await source.load()
    assert (list(team.agents), team.entry) == (names, entry)
    assert team.digest
    assert not await source.changed()


async def test_the_same_code_is_the_same_version(module: str) -> None:
    digests = {(await ModuleSource(f"{module}:agent").load()).digest for _ in range(2)}
    assert len(digests) == 1
    assert (await ModuleSource(f"{module}:team").load()).digest == "mine"


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("{module}:nobody", "AttributeError"),
        ("{module}:number", "expected a Team, an Agent"),
        ("{module}:fail", "RuntimeError: no luck"),
        ("{module}:with_argument", "TypeError"),
        ("no_such_module_here:team", "ModuleNotFoundError"),
    ],
)
async def test_a_module_that_has_none_is_told(module: str, reference: str, told: str) -> None:
    with pytest.raises(SourceUnusable, match=told):
        await ModuleSource(reference.format(module=module)).load()


# ── all of them ──


def test_every_source_is_one(here: Path) -> None:
    sources: list[Source] = [
        FileSource(here / "a.yaml", supplies()),
        UrlSource("https://x/y", supplies()),
        ModuleSource("a:b"),
        DemoSource(supplies()),
    ]
    assert all(repr(each) and each.key and each.name for each in sources)


# ── checking ──


async def test_a_file_is_checked_and_nothing_of_it_is_kept(here: Path) -> None:
    factory = Factory()
    (here / "a.yaml").write_bytes(SMALL)
    source = FileSource(here / "a.yaml", supplies(make_model=factory))
    checked = await source.check()
    assert (checked.problems, checked.warnings) == ((), ())
    assert checked.file is not None and checked.file.entry == "root"
    assert [model.closed for model in factory.made] == [1]


async def test_a_remote_file_is_checked_as_one_that_is_not_trusted(site: Web) -> None:
    site.files["/team.yaml"] = WITH_COMMAND
    checked = await UrlSource(site.url("/team.yaml"), supplies()).check()
    (problem,) = checked.problems
    assert "is not accepted from a URL" in problem.words
    assert problem.place == site.url("/team.yaml")
