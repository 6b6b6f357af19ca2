"""The commands on the pages: those that are marked are run and judged by what they print, the others are at least ours.

A block that is marked ```console run belongs to a story that its page tells: all of them are run in order, in a
folder of their own. A line that begins with `$ ` is a command; what follows has to be in what it prints, in order,
and `…` stands for anything. `holdfast serve … &` is a server that is there until the page ends. The port of the pages
is replaced by a free one.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import util
from pathlib import Path

import click
import pytest

from holdfast.cli import main
from tests import markdown, repository
from tests.postgres import free_port
from tests.test_docs import PAGES, name

PORT = "8484"
PROGRAMS = Path(sys.executable).parent
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Said:
    """A command of a page, and what the page says that it prints."""

    command: str
    prints: tuple[str, ...]


def story(page: str) -> list[Said]:
    """The commands of a page that are to be run, in order."""
    found: list[Said] = []
    for block in markdown.blocks(page):
        if block.info[:2] != ("console", "run"):
            continue
        for line in block.text.splitlines():
            if line.startswith("$ "):
                found.append(Said(line[2:], ()))
            elif line.strip():
                found[-1] = Said(found[-1].command, (*found[-1].prints, line))
    return found


STORIES = [page for page in PAGES if story(page.read_text(encoding="utf-8"))]


@pytest.mark.slow
@pytest.mark.parametrize("page", STORIES, ids=name)
def test_what_a_page_tells_happens(page: Path, tmp_path: Path) -> None:
    port = str(free_port())
    environ = {
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "HOLDFAST_LISTEN": f"127.0.0.1:{port}",
    }
    with servers(tmp_path, environ) as serve:
        for each in story(page.read_text(encoding="utf-8")):
            command = each.command.replace(PORT, port)
            if command.endswith(" &"):
                serve(command.removesuffix(" &"), f"http://127.0.0.1:{port}/readyz")
                continue
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=tmp_path,
                env=environ,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE_S,
            )
            told = done.stdout + done.stderr
            assert done.returncode == 0, f"{each.command}\n{told}"
            assert missing(each.prints, told) is None, f"{each.command}\n{told}"


@contextmanager
def servers(here: Path, environ: dict[str, str]) -> Iterator[Callable[[str, str], None]]:
    """Starts servers, and stops them at the end."""
    running: list[subprocess.Popen[bytes]] = []

    def serve(command: str, ready: str) -> None:
        log = (here / "server.log").open("wb")
        running.append(
            subprocess.Popen(shlex.split(command), cwd=here, env=environ, stdout=log, stderr=log)
        )
        log.close()
        until = time.monotonic() + PATIENCE_S
        while not is_up(ready):
            assert running[-1].poll() is None, (here / "server.log").read_text()
            assert time.monotonic() < until, "the server does not come up"
            time.sleep(0.05)  # there is nothing to wait for but the server itself

    try:
        yield serve
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:  # nobody is there, or nobody who answers in time
        return False


def missing(lines: tuple[str, ...], told: str) -> str | None:
    """The first of these lines that is not there, or not after the one before."""
    at = 0
    for line in lines:
        pattern = ".*?".join(re.escape(part) for part in line.split("…"))
        found = re.compile(pattern, re.DOTALL).search(told, at)
        if found is None:
            return line
        at = found.end()
    return None


# ── commands that nobody runs here ───────────────────────────────────────────────────────────


def commands(page: str) -> list[list[str]]:
    """The words of every `holdfast …` that a page shows, up to a pipe or the like."""
    shown = [
        line[2:]
        for block in markdown.blocks(page)
        if block.info[:1] == ("console",)
        for line in block.text.splitlines()
        if line.startswith("$ holdfast")
    ]
    return [_words(line) for line in shown]


def _words(line: str) -> list[str]:
    """A command without what the shell does around it."""
    plain = re.sub(r"\$\([^)]*\)", "X", line)
    plain = re.split(r"\s(?:\||\|\||&&|>|&|#)(?:\s|$)", plain)[0]
    return shlex.split(plain)[1:]


def demand_known(words: list[str]) -> None:
    """Parse a command as the program would, and do nothing. Raises click.UsageError."""
    command: click.Command = main
    parent: click.Context | None = None
    label, rest = "holdfast", words
    while True:
        try:
            parent = command.make_context(label, list(rest), parent=parent)
        except click.exceptions.Exit:
            return  # --help and --version
        except click.FileError:
            return  # a file that is somebody else's
        except click.BadParameter as error:
            if "No such file" in str(error) or "does not exist" in str(error):
                return
            raise
        if not isinstance(command, click.Group):
            return
        words = [*parent._protected_args, *parent.args]
        known, found, rest = command.resolve_command(parent, words)
        assert found is not None and known is not None
        command, label = found, known


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_a_page_shows_exist(page: Path) -> None:
    for words in commands(page.read_text(encoding="utf-8")):
        try:
            demand_known(words)
        except click.UsageError as error:
            raise AssertionError(f"holdfast {' '.join(words)}: {error.message}") from error


def test_a_command_that_does_not_exist_is_seen() -> None:
    with pytest.raises(click.UsageError):
        demand_known(["db", "verfy"])
    with pytest.raises(click.UsageError):
        demand_known(["serve", "--lsten", "x"])


def test_what_is_not_printed_is_seen() -> None:
    assert missing(("one", "…three"), "one two three") is None
    assert missing(("three", "one"), "one two three") == "one"


# ── pages that are made of the code ──────────────────────────────────────────────────────────


def made_pages() -> dict[str, str]:
    found = util.spec_from_file_location("reference", repository.ROOT / "scripts" / "reference.py")
    assert found is not None and found.loader is not None
    module = util.module_from_spec(found)
    found.loader.exec_module(module)
    return {page: module.rendered(page) for page in module.PAGES}


def test_pages_of_the_reference_say_what_the_code_says() -> None:
    for page, text in made_pages().items():
        path = repository.ROOT / "docs" / "reference" / page
        assert path.read_text(encoding="utf-8") == text, "run `make reference`"
