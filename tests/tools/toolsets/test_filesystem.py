"""Files below given directories: everything a model needs there, and no way out, whatever a path says."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast import limits
from holdfast.core.items import Blob, Image, Permissions
from holdfast.tools.execution import execute
from holdfast.tools.files.reserved_files import ReservedState
from holdfast.tools.permissions import permission_for
from holdfast.tools.tool import Json, ToolOutput
from holdfast.tools.toolsets.filesystem import FilesystemToolset
from tests.tools.tool_calls import Blobs, call_of, said

SECRET = "the crown jewels"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a few files; beside it one that is nobody's business."""
    made = tmp_path / "home"
    (made / "src" / "deep").mkdir(parents=True)
    (made / "src" / "main.py").write_text("import os\nprint('hello')\n")
    (made / "src" / "deep" / "notes.md").write_text("Parcels\nare HERE\n")
    (made / ".git").mkdir()
    (made / ".git" / "config").write_text("hello from git")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    (made / "link-out").symlink_to(outside)
    (made / "link-file").symlink_to(outside / "secret.txt")
    (made / "link-up").symlink_to("../outside")
    (made / "link-in").symlink_to("src/deep")
    (made / "link-abs").symlink_to(made / "src" / "main.py")
    (made / "link-loop").symlink_to("link-loop")
    return made


async def ran(home: Path, name: str, *others: Path, **arguments: Json) -> ToolOutput:
    tools = {each.spec.name: each for each in await FilesystemToolset(home, *others).tools()}
    return await execute(tools[name], call_of(arguments), Blobs())


async def told(home: Path, name: str, **arguments: Json) -> str:
    output = await ran(home, name, **arguments)
    assert output.outcome == "ok", said(output)
    return said(output)


async def refused(home: Path, name: str, **arguments: Json) -> str:
    output = await ran(home, name, **arguments)
    assert output.outcome == "error"
    return said(output)


# ── the ways out that there are not ──


def ways_out(home: Path) -> Iterator[str]:
    """Paths to what lies outside, in every way in which somebody may try to write them."""
    outside = home.parent / "outside" / "secret.txt"
    up = ["../outside/secret.txt", "src/../../outside/secret.txt", "./../outside/secret.txt",
          "src/deep/../../../outside/secret.txt", "link-in/../../../outside/secret.txt",
          "../home/../outside/secret.txt", ".git/../../outside/secret.txt", "src//..//..//outside/secret.txt",
          "../" * 12 + str(outside)[1:], "link-in/../../" + "../" * 9 + "etc/passwd"]  # fmt: skip
    links = ["link-out/secret.txt", "link-file", "link-up/secret.txt", "src/../link-out/secret.txt",
             "link-out/../outside/secret.txt", "link-up/../outside/secret.txt", "src/deep/../../link-file"]  # fmt: skip
    absolute = [str(outside), f"/{outside}", f"{home}/../outside/secret.txt", "/etc/passwd", "/proc/self/environ",
                f"{home}/link-out/secret.txt", f"{home}/link-file", f"{home}-evil/secret.txt", "/", "/..",
                f"{home.parent}", "/dev/zero", "/proc/self/root/etc/passwd", "/proc/1/cwd/etc/passwd"]  # fmt: skip
    for path in (*up, *links, *absolute):
        yield from written(path)


def written(path: str) -> Iterator[str]:
    yield path
    yield f"{path}/"
    yield f"{path}/."
    yield f"./{path}"
    yield path.replace("/", "//")
    yield path.replace("/", "/./")
    yield path.replace("/", "\\")
    yield path.replace("..", "%2e%2e")
    yield path.replace("/", "%2f")
    yield quote(path, safe="")
    yield quote(quote(path, safe=""), safe="")
    yield path.replace("..", "..;")
    yield path.replace("..", "....//")
    yield path.replace("..", "\u2024\u2024")
    yield path.replace("..", ".\u200b.")
    yield path.replace("/", "\uff0f")
    yield path.replace("/", "\u2215")
    yield path.replace("..", "%c0%ae%c0%ae")
    yield f"{path}\0.md"
    yield f"\0{path}"
    yield f"file://{path}"
    yield f"~/{path}"
    yield f" {path}"
    yield f"{path}\n"


async def test_no_spelling_of_a_path_leads_outside(home: Path) -> None:
    paths = list(dict.fromkeys(ways_out(home)))
    assert len(paths) >= 600
    tools = {each.spec.name: each for each in await FilesystemToolset(home).tools()}
    for path in paths:
        for name in ("read_file", "list_directory", "search_files_content"):
            arguments: dict[str, Json] = {"path": path}
            if name == "search_files_content":
                arguments["query"] = SECRET
            output = await execute(tools[name], call_of(arguments), Blobs())
            words = said(output)
            assert SECRET not in words, path
            assert "root:" not in words, path
            assert "secret.txt (" not in words, path
            if name == "read_file":
                assert output.outcome == "error", path


async def test_nothing_outside_is_written(home: Path) -> None:
    paths = list(dict.fromkeys(ways_out(home)))
    outside = home.parent / "outside"
    tools = {each.spec.name: each for each in await FilesystemToolset(home).tools()}
    before = sorted(os.listdir(home.parent))
    for path in paths:
        if path.startswith("/dev"):
            continue
        await execute(tools["write_file"], call_of({"path": path, "content": "mine"}), Blobs())
        edit: Json = [{"oldText": SECRET, "newText": "mine"}]
        await execute(tools["edit_file"], call_of({"path": path, "edits": edit}), Blobs())
        await execute(tools["create_directory"], call_of({"path": f"{path}/new"}), Blobs())
    assert (outside / "secret.txt").read_text() == SECRET
    assert os.listdir(outside) == ["secret.txt"]
    assert sorted(os.listdir(home.parent)) == before
    assert (home / "link-file").is_symlink()


@pytest.mark.parametrize("path", ["src/swapped/secret.txt", "src/swapped"])
async def test_a_directory_that_becomes_a_link_on_the_way_leads_nowhere(
    home: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check and the use are one: after the look that says "not a link" it is made one."""
    swapped = home / "src" / "swapped"
    swapped.mkdir()
    real = os.readlink

    def readlink(name: str, *, dir_fd: int | None = None) -> str:
        try:
            return real(name, dir_fd=dir_fd)
        finally:
            if name == "swapped" and not swapped.is_symlink():
                swapped.rmdir()
                swapped.symlink_to(home.parent / "outside")

    monkeypatch.setattr(os, "readlink", readlink)
    tool = "read_file" if path.endswith("txt") else "list_directory"
    assert SECRET not in await refused(home, tool, path=path)
    assert swapped.is_symlink()


async def test_links_that_stay_inside_are_followed(home: Path) -> None:
    assert "Parcels" in await told(home, "read_file", path="link-in/notes.md")
    assert "import os" in await told(home, "read_file", path="link-abs")
    assert "notes.md" in await told(home, "list_directory", path="link-in")
    assert "import os" in await told(home, "read_file", path=f"{home}/src/main.py")
    assert "too many symbolic links" in await refused(home, "read_file", path="link-loop")
    await told(home, "write_file", path="link-abs", content="new")
    assert (home / "link-abs").is_symlink()
    assert (home / "src" / "main.py").read_text() == "new"


async def test_a_root_may_itself_be_a_link_and_there_may_be_several(home: Path) -> None:
    alias = home.parent / "alias"
    alias.symlink_to(home)
    assert "import os" in await told(alias, "read_file", path="src/main.py")
    assert "import os" in await told(alias, "read_file", path=f"{alias}/src/main.py")
    assert "import os" in await told(alias, "read_file", path=f"{home}/src/main.py")
    output = await ran(
        home, "read_file", home.parent / "outside", path=str(home.parent / "outside/secret.txt")
    )
    assert said(output) == SECRET


# ── reading ──


async def test_which_tools_there_are_and_which_of_them_change_things(home: Path) -> None:
    toolset = FilesystemToolset(home)
    tools = {each.spec.name: each.spec for each in await toolset.tools()}
    writers = {"write_file", "edit_file", "create_directory"}
    assert {name for name, spec in tools.items() if not spec.read_only} == writers
    assert {
        name
        for name, spec in tools.items()
        if permission_for(spec, Permissions(), arguments={}) == "deny"
    } == writers
    assert str(home) in toolset.instruction


async def test_a_file_is_read_whole_or_by_lines(home: Path) -> None:
    assert await told(home, "read_file", path="src/main.py") == "import os\nprint('hello')\n"
    assert await told(home, "read_file", path="src/main.py", line=2) == "print('hello')\n"
    assert await told(home, "read_file", path="src/main.py", line=1, lines=1) == "import os\n"
    assert "has 2 lines" in await told(home, "read_file", path="src/main.py", line=9)
    (home / "empty").touch()
    assert await told(home, "read_file", path="empty") == "[the file is empty]"


async def test_what_cannot_be_read_is_told(home: Path) -> None:
    (home / "bytes").write_bytes(b"a\0b")
    os.mkfifo(home / "pipe")
    (home / "huge").touch()
    os.truncate(home / "huge", limits.file_bytes_max + 1)
    assert "no such file" in await refused(home, "read_file", path="gone.txt")
    assert "not text (3 bytes)" in await refused(home, "read_file", path="bytes")
    assert "not a regular file" in await refused(home, "read_file", path="pipe")
    assert "not a regular file" in await refused(home, "read_file", path="src")
    assert f"at most {limits.file_bytes_max}" in await refused(home, "read_file", path="huge")
    assert "not a path" in await refused(home, "read_file", path="")
    assert "not a path" in await refused(home, "read_file", path="a" * 5000)
    assert "Not a directory" in await refused(home, "read_file", path="bytes/x")


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0", "image/png"),
        (b"\xff\xd8\xff\0", "image/jpeg"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
    ],
)
async def test_a_picture_is_shown(home: Path, start: bytes, kind: str) -> None:
    (home / "a.bin").write_bytes(start)
    (image,) = (await ran(home, "read_file", path="a.bin")).content
    assert isinstance(image, Image)
    assert getattr(image.source, "media_type", "") == kind
    (home / "a.bin").write_bytes(start + bytes(limits.inline_bytes_max))
    (large,) = (await ran(home, "read_file", path="a.bin")).content
    assert isinstance(large, Image) and isinstance(large.source, Blob)


async def test_several_files_are_read_and_one_that_is_not_there_spoils_nothing(home: Path) -> None:
    words = await told(
        home, "read_multiple_files", paths=["src/main.py", "gone", "../outside/secret.txt"]
    )
    assert "import os" in words
    assert "no such file" in words
    assert "leads out of" in words


async def test_directories_are_listed(home: Path) -> None:
    words = await told(home, "list_directory", path=".")
    assert words.endswith("src/")
    assert "link-out (link)" in words
    assert await told(home, "list_directory", path="src") == "deep/\nmain.py (25 bytes)"
    (home / "void").mkdir()
    assert await told(home, "list_directory", path="void") == "[void is empty]"


async def test_a_tree_shows_what_is_below_and_leaves_version_control_out(home: Path) -> None:
    words = await told(home, "directory_tree", path=".")
    assert "src/\n  deep/\n    notes.md (17 bytes)\n  main.py (25 bytes)" in words
    assert "config" not in words
    assert "notes" not in await told(home, "directory_tree", path=".", max_depth=2)
    tools = {
        t.spec.name: t for t in await FilesystemToolset(home, skip_version_control=False).tools()
    }
    whole = await execute(tools["directory_tree"], call_of({"path": "."}), Blobs())
    assert "config" in said(whole)


async def test_listings_are_bounded(home: Path) -> None:
    for n in range(limits.file_entries_max + 5):
        (home / f"f{n:05}").touch()
    words = await told(home, "list_directory", path=".")
    assert len(words.splitlines()) == limits.file_entries_max + 1
    assert "more" in words.splitlines()[-1]
    assert "only the first" in (await told(home, "directory_tree", path=".")).splitlines()[-1]
    found = await told(home, "search_files", path=".", pattern="f*")
    assert len(found.splitlines()) == limits.file_matches_max + 1


async def test_files_are_found_by_name_and_by_what_is_in_them(home: Path) -> None:
    assert await told(home, "search_files", path=".", pattern="*.md") == "src/deep/notes.md"
    assert await told(home, "search_files", path="src", pattern="deep/*") == "src/deep/notes.md"
    search = "search_files_content"
    assert await told(home, search, path=".", query="hello") == "src/main.py:2: print('hello')"
    assert await told(home, search, path=".", query="here") == "[nothing found]"
    found = await told(home, search, path=".", query="here", ignore_case=True)
    assert found == "src/deep/notes.md:2: are HERE"
    assert await told(home, search, path=".", query="hello", pattern="*.md") == "[nothing found]"
    assert await told(home, search, path=".", query=SECRET) == "[nothing found]"


async def test_a_search_that_nobody_waits_for_stops(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on, done = threading.Event(), threading.Event(), threading.Event()
    read: list[str] = []

    def slow(directory: int, name: str, held: ReservedState) -> bytes:
        read.append(name)
        reading.set()
        go_on.wait()
        done.set()
        return b""

    monkeypatch.setattr("holdfast.tools.files.file_operations.read_in", slow)
    task = asyncio.ensure_future(ran(home, "search_files_content", path=".", query="x"))
    await asyncio.to_thread(reading.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await asyncio.to_thread(done.wait)
    names = {thread.name for thread in threading.enumerate()}
    while "files" in names:
        await asyncio.sleep(0)
        names = {thread.name for thread in threading.enumerate()}
    assert len(read) == 1


# ── writing ──


async def test_a_file_is_written_whole_with_its_directories(home: Path) -> None:
    assert "Wrote new/a/b.txt (7 bytes)" in await told(
        home, "write_file", path="new/a/b.txt", content="größe"
    )
    assert (home / "new/a/b.txt").read_text() == "größe"
    os.chmod(home / "new/a/b.txt", 0o600)
    assert "Replaced" in await told(home, "write_file", path="new/a/b.txt", content="x")
    assert (home / "new/a/b.txt").stat().st_mode & 0o777 == 0o600
    assert os.listdir(home / "new/a") == ["b.txt"]


async def test_a_write_that_fails_leaves_the_old_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    words = await refused(home, "write_file", path="src/main.py", content="half")
    assert "No space left" in words
    assert (home / "src/main.py").read_text().startswith("import os")
    assert sorted(os.listdir(home / "src")) == ["deep", "main.py"]


async def test_what_cannot_be_written_is_told(home: Path) -> None:
    assert "not a regular file" in await refused(home, "write_file", path="src", content="x")
    too_long = "x" * (limits.file_bytes_max + 1)
    assert "at most" in await refused(home, "write_file", path="a", content=too_long)
    assert "not a directory" in await refused(home, "create_directory", path="src/main.py")


async def test_edits_are_made_all_or_none(home: Path) -> None:
    edits: Json = [{"oldText": "os", "newText": "sys"}, {"oldText": "hello", "newText": "bye"}]
    assert "2 changes" in await told(home, "edit_file", path="src/main.py", edits=edits)
    assert (home / "src/main.py").read_text() == "import sys\nprint('bye')\n"
    bad: Json = [{"oldText": "bye", "newText": "x"}, {"oldText": "gone", "newText": "y"}]
    assert "edit 2: the old text is in 'src/main.py' not at all" in await refused(
        home, "edit_file", path="src/main.py", edits=bad
    )
    twice: Json = [{"oldText": "p", "newText": "x"}]
    assert "2 times" in await refused(home, "edit_file", path="src/main.py", edits=twice)
    nothing: Json = [{"oldText": "", "newText": "x"}]
    assert "not at all" in await refused(home, "edit_file", path="src/main.py", edits=nothing)
    assert (home / "src/main.py").read_text() == "import sys\nprint('bye')\n"
    (home / "latin").write_bytes(b"gr\xfc\xdfe")
    assert "not UTF-8" in await refused(home, "edit_file", path="latin", edits=twice)


async def test_edits_side_by_side_keep_each_other(home: Path) -> None:
    words = [f"word{n:02}" for n in range(20)]
    (home / "list").write_text("\n".join(words))
    tools = {each.spec.name: each for each in await FilesystemToolset(home).tools()}

    async def edit(word: str) -> None:
        edits: Json = [{"oldText": word, "newText": word.upper()}]
        await execute(tools["edit_file"], call_of({"path": "list", "edits": edits}), Blobs())

    await asyncio.gather(*map(edit, words))
    assert (home / "list").read_text() == "\n".join(words).upper()


async def test_directories_are_made(home: Path) -> None:
    assert "was made" in await told(home, "create_directory", path="a/b/c")
    assert "there already" in await told(home, "create_directory", path="a/b/c")
    assert (home / "a/b/c").is_dir()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


async def test_no_file_stays_open(home: Path) -> None:
    await told(home, "directory_tree", path=".")
    before = open_files()
    for path in ("src/main.py", "src", "gone/x", "../x", "link-loop", "src/main.py/x"):
        await ran(home, "read_file", path=path)
        await ran(home, "write_file", path=f"{path}", content="x")
        await ran(home, "search_files", path=path, pattern="*")
    assert open_files() == before
