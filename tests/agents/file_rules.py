"""What has to be true of reading an agent file, whatever its bytes are. For tests that try any bytes at all."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from holdfast.agents.file.agent_file import Checked, check_agent_file
from holdfast.agents.file.shape_checks import FileProblem
from tests import markdown, repository

PLACE = "fuzzed.yaml"
ENVIRONMENT = {"HOUSE_URL": "http://127.0.0.1:9/v1", "GITHUB_TOKEN": "a", "ISSUES_TOKEN": "b"}
HERE = Path(tempfile.gettempdir()) / "holdfast-nothing-is-here"

_FORBIDDEN = (
    "subprocess.Popen os.system os.exec os.posix_spawn os.spawn os.fork os.forkpty pty.spawn socket.connect "
    "socket.getaddrinfo os.remove os.rename os.mkdir os.rmdir os.symlink os.link os.truncate"
).split()
_watching: ContextVar[bool] = ContextVar("watching", default=False)


def judge(data: bytes) -> Checked:
    """Read an agent file, trusted and not. It is used or told about; nothing in it is done."""
    with nothing_is_done():
        checked = _checked(data, trusted=True)
        remote = _checked(data, trusted=False)
    lines = data.count(b"\n") + data.count(b"\r") + data.count(b"\x85") + data.count(b"\xa8") + 2
    for each in (checked, remote):
        assert (each.file is None) == bool(each.problems), "it is usable, or something is wrong"
        for problem in (*each.problems, *each.warnings):
            assert_has_a_place(problem, lines=lines)
    assert checked.file is not None or remote.file is None, "who is trusted less may not do more"
    return checked


def _checked(data: bytes, *, trusted: bool) -> Checked:
    return check_agent_file(
        data, place=PLACE, directory=HERE, environment=ENVIRONMENT, trusted=trusted
    )


def assert_has_a_place(problem: FileProblem, *, lines: int) -> None:
    assert problem.place == PLACE
    assert 1 <= problem.mark.line <= lines, problem
    assert problem.mark.column >= 1
    assert problem.words
    assert str(problem).startswith(f"{PLACE}:{problem.mark.line}:{problem.mark.column}: ")


@contextmanager
def nothing_is_done() -> Iterator[None]:
    """Inside, running a program, reaching the network or changing a file is an error."""
    token = _watching.set(True)
    try:
        yield
    finally:
        _watching.reset(token)


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching.get():
        return
    writes = event == "open" and any(mode in str(arguments[1]) for mode in "wax+")
    assert event not in _FORBIDDEN and not writes, f"reading a file does {event}: {arguments!r}"


sys.addaudithook(_audit)


def real_files() -> list[str]:
    """Agent files as people write them: those of our pages and examples."""
    pages = [
        repository.ROOT / "docs" / each for each in ("reference/agent-file.md", "guides/tools.md")
    ]
    blocks = [
        block.text
        for page in pages
        for block in markdown.blocks(page.read_text(encoding="utf-8"))
        if "agent-file" in block.info
    ]
    examples = sorted(repository.ROOT.glob("examples/*/*.yaml"))
    return [*blocks, *(path.read_text(encoding="utf-8") for path in examples)]
