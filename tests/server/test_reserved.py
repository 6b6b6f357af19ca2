"""No tool reaches what the server reads, reloads or runs: under no name, and not before it is there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest

from holdfast.agents.agent import ModelConfig
from holdfast.agents.registry import Registry
from holdfast.agents.sources import Supplies, parse_source
from holdfast.config import load_config
from holdfast.models.model import Model
from holdfast.server.agents.source_directory import load_directory
from holdfast.server.processes.server_process import files_of
from holdfast.store.store_url import open_store
from holdfast.testing import ScriptedModel, says
from holdfast.tools.execution import execute
from holdfast.tools.files.reserved_files import (
    NamePattern,
    ReservedFiles,
    ReservedState,
    data_named_by,
    of_process,
)
from holdfast.tools.files.rooted_paths import read_in
from holdfast.tools.sandbox.backend import Kind
from holdfast.tools.sandbox.sandbox import Sandbox, cache_home
from holdfast.tools.tool import Json
from holdfast.tools.toolsets.filesystem import FilesystemToolset
from holdfast.tools.toolsets.script import passed_on
from tests.server.stubs import serving
from tests.tools.sandboxes import run, sandbox
from tests.tools.tool_calls import Blobs, call_of, said

AGENT = """
permissions: {allow: [write_file, edit_file, create_directory]}
agents:
  root:
    model: openai/gpt-5
    add_prompt_files: [house.md]
    toolsets:
      - {type: filesystem, roots: [.]}
      - {type: script, shell: {deploy: {cmd: "sh ./deploy.sh now"}}}
      - {type: mcp, command: node, args: [tools/server.js, --rules=rules.json]}
      - {type: openapi, url: shop.yaml}
      - {type: python, file: tricks.py}
    hooks:
      pre_tool_use: [{hooks: [{type: command, command: "./guard.sh --list allowed.txt"}]}]
      stop: [{type: command, command: python3 later.py}]
"""
SECRET = "plum jam"
READABLE = (
    "house.md deploy.sh tools/server.js rules.json shop.yaml tricks.py guard.sh allowed.txt tls/cert.pem"
).split()
"""A command runs some of these, and may read all of them."""
FILES = [
    *("agent.yaml", ".env", "served/other.yaml", "served/.env", "tls/key.pem"),
    *("login.key", *READABLE),
]
ABSENT = "later.py served/new.yaml served/NEW.YML logins/acme data/holdfast.db-journal data/HOLDFAST.db-x".split()
STORE = ["data/holdfast.db", "data/holdfast.db-wal"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory that an agent may write to, in which everything of the server lies as well."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {SECRET}\n")
    (tmp_path / "agent.yaml").write_text(f"# {SECRET}\n{AGENT}")
    (tmp_path / "data").mkdir()
    (tmp_path / "logins").mkdir()
    (tmp_path / "notes.txt").write_text("everybody's")
    return tmp_path


@pytest.fixture
async def reserved(home: Path) -> AsyncIterator[ReservedFiles]:
    """What a server with such settings reserves, while it runs."""
    flags = {
        "store": f"sqlite:///{home}/data/holdfast.db",
        "tls_cert": str(home / "tls" / "cert.pem"),
        "tls_key": str(home / "tls" / "key.pem"),
    }
    logins = {
        "HOLDFAST_LOGIN_KEY": str(home / "login.key"),
        "HOLDFAST_LOGINS": str(home / "logins"),
    }
    config = load_config(flags, logins, (str(home / "agent.yaml"),))
    supplies = Supplies(make_model=lambda config: ScriptedModel(), environment={})
    origins = [parse_source(str(home / name), supplies) for name in ("agent.yaml", "served")]
    registry = Registry(origins, reserved=files_of(config))
    store = await open_store(config.store)
    await registry.refresh()
    assert [each.agent for each in registry.listing()] == ["root"]
    yield registry.reserved()
    await registry.close()
    await store.close()


async def use(home: Path, reserved: ReservedFiles, tool: str, **arguments: Json) -> str:
    tools = {each.spec.name: each for each in await FilesystemToolset(home).tools()}
    run = call_of(arguments, reserved=reserved)
    output = await execute(tools[tool], run, Blobs())
    return f"{output.outcome}: {said(output)}"


def names_of(home: Path, name: str) -> Iterator[str]:
    """Ways to say a file: plainly, around, absolutely, through links, and by a hard link."""
    path = home / name
    yield name
    yield f"data/../{name}"
    yield f"./tls/.././{name}"
    yield str(path)
    (home / "links").mkdir(exist_ok=True)
    (home / "links" / "direct").symlink_to(path)
    (home / "links" / "relative").symlink_to(f"../{name}")
    (home / "links" / "twice").symlink_to("direct")
    (home / "links" / "folder").symlink_to(path.parent)
    yield "links/direct"
    yield "links/relative"
    yield "links/twice"
    yield f"links/folder/{path.name}"
    if path.exists():
        os.link(path, home / "links" / "hard")
        yield "links/hard"


def arguments_for(tool: str, path: str) -> dict[str, Json]:
    match tool:
        case "write_file":
            return {"path": path, "content": "agents: {root: {model: evil/one}}"}
        case "edit_file":
            return {"path": path, "edits": [{"oldText": SECRET, "newText": "evil"}]}
        case "read_multiple_files":
            return {"paths": [path]}
        case "search_files_content":
            return {"path": path, "query": "jam"}
    return {"path": path}


@pytest.mark.parametrize("name", [*FILES, *STORE, *ABSENT])
async def test_no_tool_reaches_a_file_of_the_server_under_any_name(
    home: Path, reserved: ReservedFiles, name: str
) -> None:
    path = home / name
    before = looks(path)
    tools = ("read_file", "read_multiple_files", "write_file", "edit_file", "create_directory")
    for way, tool in product(list(names_of(home, name)), tools):
        told = await use(home, reserved, tool, **arguments_for(tool, way))
        assert SECRET not in told, (way, tool)
        if not (before is None and tool in ("read_file", "read_multiple_files", "edit_file")):
            assert "server's own" in told, (way, tool, told)
    assert looks(path) == before


def looks(path: Path) -> tuple[int, ...] | None:
    """What tells one state of a file from another. It is not opened: closing it again would take a store's locks."""
    if not path.exists():
        return None
    there = path.stat()
    return there.st_ino, there.st_size, there.st_mtime_ns


# ── commands ──

READ = "cat {name}"
CHANGES: dict[str, str] = {
    "write": "echo evil >>{name}",
    "write in place": "echo evil 1<>{name}",
    "replace": "echo evil >sub/new && mv -f sub/new {name}",
    "make a directory of it": "mkdir {name}",
    "remove": "rm {name}",
    "move": "mv {name} sub/taken",
    "move its directory": "mv {directory} moved",
    "mode": "chmod 777 {name}",
    "link to it, and write": "ln {name} sub/hard && echo evil >>sub/hard",
    "link in its place": "ln -sf ../notes.txt {name}",
    "a symbolic link to it": "ln -sfn ../{name} sub/soft && echo evil >>sub/soft",
    "another name that it has": "test -e links/{number} && echo evil >>links/{number}",
}


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("kind", ["landlock", "bubblewrap"])
async def test_no_command_changes_a_file_of_the_server_or_reads_a_secret_one(
    home: Path, reserved: ReservedFiles, kind: Kind, linked: bool
) -> None:
    """Everything of the server lies in a directory that the command may write to, maybe under other names as well."""
    box, names = sandbox(kind), [*FILES, *STORE, *ABSENT]
    (home / "sub").mkdir()
    (home / "links").mkdir()
    for number, name in enumerate(names):
        if linked and (home / name).exists():
            os.link(home / name, home / "links" / str(number))
    box.reserved = lambda: reserved
    before = {name: looks(home / name) for name in names}
    attacks = {
        (name, how): attack.format(name=name, directory=os.path.dirname(name) or ".", number=number)
        for number, name in enumerate(names)
        for how, attack in {
            "read": READ,
            "read by another name": "cat links/{number}",
            **CHANGES,
        }.items()
        if before[name]
        or how in ("write", "replace", "make a directory of it", "link in its place")
    }
    done = await succeeded(attacks, home, box)
    ways = ("read", "read by another name") if linked else ("read",)
    reading = {(name, how) for name in READABLE for how in ways}
    assert done == reading
    assert {name: looks(home / name) for name in names} == before
    mine = {
        ("notes", "write"): "echo mine >>notes.txt",
        (
            "new",
            "write",
        ): "echo mine >sub/new.yaml && mkdir -p sub/er && mv sub/new.yaml sub/er/agent.yaml",
    }
    assert await succeeded(mine, home, box) == set(mine)


async def succeeded(
    attacks: Mapping[tuple[str, str], str], home: Path, box: Sandbox
) -> set[tuple[str, str]]:
    """Those that ended well, of these commands, run one after the other as one."""
    lines = [f"({each}) >/dev/null 2>&1 && echo {n}" for n, each in enumerate(attacks.values())]
    ended = await run("\n".join([*lines, "echo end"]), home, box.cell(home))
    *well, end = ended.output.decode().split()
    assert end == "end", ended.output
    every = list(attacks)
    return {every[int(each)] for each in well}


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
async def test_no_command_changes_what_runs_us(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages, and modules that would be imported in their place."""
    (home / "mcp").mkdir()
    (home / "json.py").write_text("")
    (home / "sub").mkdir()
    monkeypatch.syspath_prepend(str(home))  # as `python -m holdfast` does
    attacks = {
        (name, "write"): f"echo evil >>{name}"
        for name in ("mcp.py", "mcp/__init__.py", "json.py", "__pycache__")
    }
    attacks["a package", "move"] = "mv sub yaml"
    box = sandbox("landlock")
    assert await succeeded(attacks, home, box) == set()
    fine = {("sub", "write"): "echo fine >sub/json.py", ("notes", "write"): "echo >>notes.txt"}
    assert await succeeded(fine, home, box) == set(fine)
    package = Path(sys.modules["holdfast"].__file__ or "").parent
    opened = {("package", "write"): ": >>errors.py", ("package", "read"): "cat errors.py"}
    assert await succeeded(opened, package, box) == {("package", "read")}


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
async def test_no_command_moves_a_link_on_the_way_to_a_file(home: Path) -> None:
    """The file itself is nowhere near; but who moves the link says which file it is."""
    (home / "releases").mkdir()
    (home / "releases" / "agent.yaml").write_text("agents: {}")
    work = home / "work"
    (work / "sub").mkdir(parents=True)
    (work / "current").symlink_to("../releases")
    box = sandbox("landlock")
    for mine in (
        ReservedFiles(files=frozenset({f"{work}/current/agent.yaml"})),
        ReservedFiles(names=frozenset({NamePattern(directory=f"{work}/current", end=".yaml")})),
        ReservedFiles(trees=frozenset({f"{work}/current"})),
    ):
        box.reserved = lambda mine=mine: mine  # type: ignore[misc]
        attacks = {
            ("link", "replace"): "ln -sfn sub current",
            ("link", "remove"): "rm current",
            ("link", "move"): "mv current sub",
            ("link", "read"): "cat current/agent.yaml",
        }
        assert await succeeded(attacks, work, box) == set()
        assert os.readlink(work / "current") == "../releases"


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
async def test_a_command_changes_the_data_that_its_own_words_name(
    home: Path, reserved: ReservedFiles
) -> None:
    """An MCP server with a database as its argument works on it; the agent's shell does not."""
    box, words = sandbox("landlock"), ["node", "tools/server.js", "--rules=rules.json"]
    box.reserved = lambda: reserved
    own = data_named_by(words, home)
    command = "echo more >>rules.json; echo evil >>tools/server.js; echo evil >>agent.yaml"
    await run(command, home, box.cell(home, own=own))
    assert (home / "rules.json").read_text() == f"# {SECRET}\nmore\n"
    assert (home / "tools" / "server.js").read_text() == f"# {SECRET}\n"
    assert "evil" not in (home / "agent.yaml").read_text()


@pytest.fixture
def search_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of programs that lies where an agent may write, and another that is not there yet."""
    folder = home / "project" / "bin"
    folder.mkdir(parents=True)
    entries = [str(folder), str(home / "project" / "later"), "relative", "", os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(entries))
    of_process.cache_clear()
    yield folder
    of_process.cache_clear()


@pytest.mark.parametrize("folder", ["bin", "later"])
async def test_no_file_tool_puts_a_program_where_commands_are_looked_for(
    home: Path, search_path: Path, folder: str
) -> None:
    path = f"project/{folder}/jq"
    told = await use(home, ReservedFiles(), "write_file", path=path, content="#!/bin/sh")
    assert "server's own" in told
    assert not (home / path).exists()
    (search_path / "below").mkdir()
    for name in ("bin/below/jq", "other/jq"):
        told = await use(
            home, ReservedFiles(), "write_file", path=f"project/{name}", content="fine"
        )
        assert told.startswith("ok"), "nothing is looked for there"


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize("kind", ["landlock", "bubblewrap"])
async def test_no_command_puts_a_program_where_commands_are_looked_for(
    home: Path, search_path: Path, kind: Kind
) -> None:
    """A hook that runs `jq` would run that one, and a guard would say what the guarded wants."""
    (search_path / "own").write_text("echo fine")
    (home / "project" / "sub").mkdir()
    attacks = {
        ("program", "write"): "echo evil >project/bin/jq",
        ("program", "change"): "echo evil >>project/bin/own",
        ("directory", "make"): "mkdir project/later",
        ("directory", "move"): "mv project moved",
        ("directory", "replace"): "mv project/sub project/later",
    }
    (search_path / "below").mkdir()
    (home / "links").mkdir()
    os.link(search_path / "own", home / "links" / "other")
    attacks["other name", "change"] = "echo evil >>links/other"
    fine = {
        ("program", "run"): "sh project/bin/own",
        ("sub", "write"): "echo >project/sub/jq",
        ("below", "write"): "echo >project/bin/below/jq",
    }
    assert await succeeded(attacks | fine, home, sandbox(kind)) == set(fine)


def test_programs_are_not_looked_for_where_a_command_happens_to_run(search_path: Path) -> None:
    entries = passed_on(os.environ)["PATH"].split(os.pathsep)
    assert str(search_path) in entries
    assert all(map(os.path.isabs, entries))


async def test_the_home_of_an_mcp_server_is_its_own(home: Path) -> None:
    """It runs what it has fetched into its home, with the network and the credentials that it was given."""
    environment = {"XDG_CACHE_HOME": str(home / "cache")}
    supplies = Supplies(make_model=lambda config: ScriptedModel(), environment=environment)
    registry = Registry([parse_source(str(home / "agent.yaml"), supplies)])
    await registry.refresh()
    own = cache_home(["node", "tools/server.js", "--rules=rules.json"], environment)
    assert own in registry.reserved().readable
    told = await use(home, registry.reserved(), "write_file", path=f"{own}/x.js", content="evil")
    assert "server's own" in told
    await registry.close()


# ── searches, and what is not the server's ──


async def test_searches_leave_them_out(home: Path, reserved: ReservedFiles) -> None:
    os.link(home / "tls" / "key.pem", home / "innocent.txt")
    (home / "mine.txt").write_text("my jam\n")
    told = await use(home, reserved, "search_files_content", path=".", query="jam")
    assert told == "ok: mine.txt:1: my jam"


def save(folder: Path) -> None:
    (folder / "v2" / "agent.yaml").replace(folder / "v1" / "agent.yaml")


def move_link(folder: Path) -> None:
    (folder / "next").symlink_to("v2")
    (folder / "next").replace(folder / "current")


@pytest.mark.parametrize("deploy", [save, move_link])
async def test_what_becomes_the_servers_during_a_search_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deploy: Callable[[Path], None]
) -> None:
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "agent.yaml").write_text(f"# {SECRET}")
    (tmp_path / "current").symlink_to("v1")
    os.link(tmp_path / "v2" / "agent.yaml", tmp_path / "other name")
    (tmp_path / "first").write_text("my jam")
    (tmp_path / "zzz").write_text("more jam")
    mine = ReservedFiles(files=frozenset({str(tmp_path / "current" / "agent.yaml")}))
    read: list[str] = []

    def while_it_is_deployed(directory: int, name: str, held: ReservedState) -> bytes:
        if not read:
            deploy(tmp_path)
        read.append(name)
        return read_in(directory, name, held)

    monkeypatch.setattr("holdfast.tools.files.file_operations.read_in", while_it_is_deployed)
    told = await use(tmp_path, mine, "search_files_content", path=".", query="jam")
    assert told == "ok: first:1: my jam\nzzz:1: more jam"
    assert read[0] == "first"


async def test_a_search_reads_no_more_than_a_reader_may(tmp_path: Path) -> None:
    """Where programs are looked for, a file is refused by its name; what lies deeper is not."""
    (tmp_path / "deeper").mkdir()
    for name in ("program", "deeper/notes"):
        (tmp_path / name).write_text("jam")
    mine = ReservedFiles(searched=frozenset({str(tmp_path)}))
    assert "server's own" in await use(tmp_path, mine, "read_file", path="program")
    assert await use(tmp_path, mine, "read_file", path="deeper/notes") == "ok: jam"
    told = await use(tmp_path, mine, "search_files_content", path=".", query="jam")
    assert told == "ok: deeper/notes:1: jam"


async def test_what_is_not_the_servers_is_read_and_written(
    home: Path, reserved: ReservedFiles
) -> None:
    assert await use(home, reserved, "read_file", path="notes.txt") == "ok: everybody's"
    for name in ("notes.txt", "new.yaml", "deep/er/agent.yaml", "data/mine.db"):
        told = await use(home, reserved, "write_file", path=name, content="mine")
        assert told.startswith("ok"), told


async def test_a_file_that_a_deploy_puts_in_its_place_is_reserved_too(
    home: Path, reserved: ReservedFiles
) -> None:
    """By what it is now, not by what it was when the server began."""
    (home / "next.yaml").write_text(f"# {SECRET}")
    (home / "next.yaml").replace(home / "agent.yaml")
    os.link(home / "agent.yaml", home / "other.txt")
    assert "server's own" in await use(home, reserved, "read_file", path="other.txt")


async def test_a_link_on_the_way_to_a_file_is_reserved_too(home: Path) -> None:
    (home / "releases" / "v1").mkdir(parents=True)
    (home / "releases" / "v1" / "agent.yaml").write_text("agents: {}")
    (home / "current").symlink_to("releases/v1")
    mine = ReservedFiles(files=frozenset({str(home / "current" / "agent.yaml")}))
    for path in ("current/agent.yaml", "releases/v1/agent.yaml"):
        told = await use(home, mine, "write_file", path=path, content="evil")
        assert "server's own" in told
    (home / "current").unlink()
    (home / "current").symlink_to("releases/v2")  # nowhere yet
    told = await use(home, mine, "write_file", path="releases/v2/agent.yaml", content="evil")
    assert "server's own" in told


async def test_a_name_is_no_pattern(home: Path) -> None:
    mine = ReservedFiles(files=frozenset({str(home / "agent[1].yaml")}))
    told = await use(home, mine, "write_file", path="agent[1].yaml", content="evil")
    assert "server's own" in told
    told = await use(home, mine, "write_file", path="agent1.yaml", content="mine")
    assert told.startswith("ok")


async def test_what_runs_us_is_reserved_wherever_an_agent_may_write(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path(sys.modules["holdfast"].__file__ or "").parent
    told = await use(
        package.parent, ReservedFiles(), "write_file", path="holdfast/x.py", content=""
    )
    assert "server's own" in told
    told = await use(package / "server", ReservedFiles(), "read_file", path="app.py")
    assert "server's own" in told
    told = await use(Path("/"), ReservedFiles(), "read_file", path="proc/self/environ")
    assert "server's own" in told
    monkeypatch.syspath_prepend(str(home))  # as `python -m holdfast` does
    for path in ("mcp.py", "mcp/__init__.py", "json.py", "JSON.py"):
        told = await use(home, ReservedFiles(), "write_file", path=path, content="evil()")
        assert "in place of its own" in told, path
    for path in ("shop.py", "mcp/readme.txt", "shop/__init__.py", "shop/json.py"):
        told = await use(home, ReservedFiles(), "write_file", path=path, content="fine")
        assert told.startswith("ok"), path


async def test_a_python_source_is_reserved_with_what_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orchard_helpers.py").write_text("NAME = 'root'\n")
    (tmp_path / "orchard.py").write_text(
        "from orchard_helpers import NAME\n"
        "from holdfast.agents.agent import Agent\n"
        "from holdfast.testing import ScriptedModel\n"
        "agent = Agent(NAME, ScriptedModel())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    supplies = Supplies(make_model=lambda config: ScriptedModel())
    registry = Registry([parse_source("orchard:agent", supplies)])
    await registry.refresh()
    assert registry.listing(), registry.broken()
    for name in ("orchard.py", "orchard_helpers.py"):
        told = await use(tmp_path, registry.reserved(), "write_file", path=name, content="evil()")
        assert "server's own" in told
    assert (
        await use(tmp_path, registry.reserved(), "write_file", path="a.txt", content="")
    ).startswith("ok")
    await registry.close()


# ── a whole server ───────────────────────────────────────────────────────────────────────────

MINE = """
permissions: {allow: [write_file, edit_file], deny: [shell]}
agents:
  root:
    model: openai/gpt-5
    toolsets: [{type: filesystem, roots: [.]}, {type: shell}]
"""


async def test_an_agent_cannot_rewrite_its_own_file(tmp_path: Path) -> None:
    """`allow: [write_file], deny: [shell]` once became a shell within seconds."""
    path = tmp_path / "agent.yaml"
    path.write_text(MINE)
    widened = MINE.replace("deny: [shell]", "deny: []").replace(
        "[write_file,", "[shell, write_file,"
    )
    edits: list[Json] = [{"oldText": "deny: [shell]", "newText": "deny: []"}]
    model = ScriptedModel(
        says(calls=[call("write_file", path="agent.yaml", content=widened)]),
        says(calls=[call("edit_file", path="agent.yaml", edits=edits)]),
        says(calls=[call("write_file", path="notes.txt", content="mine")]),
        otherwise=lambda _: "Done.",
    )

    def make_model(config: ModelConfig) -> Model:
        return model

    directory = await load_directory([str(path)], make_model=make_model)
    try:
        async with serving(directory=directory) as server:
            await server.chat("Widen yourself", to="trip")
            items = await server.items("trip")
    finally:
        await directory.close()
    assert path.read_text() == MINE
    assert (tmp_path / "notes.txt").read_text() == "mine"
    outcomes = [each["outcome"] for each in items if each["type"] == "result"]
    assert outcomes == ["error", "error", "ok"]


def call(name: str, **arguments: Json) -> tuple[str, str]:
    return name, json.dumps(arguments)
