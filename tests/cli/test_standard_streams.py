"""Commands whose streams are closed or full, or hold bytes that are not UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOLDFAST = [sys.executable, "-m", "holdfast"]


def told(
    command: str, home: Path, *, stdin: bytes = b"", shell: str = ""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -m holdfast {command} {shell}', sys.executable],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOME": str(home), "LC_ALL": "C.UTF-8"},
    )


@pytest.mark.parametrize("command", ["--version", "--help", "agents schema"])
@pytest.mark.parametrize(
    ("shell", "why"), [(">/dev/full", "No space left"), (">&-", "Bad file descriptor")]
)
def test_an_output_that_cannot_be_written_is_said_in_one_sentence(
    tmp_path: Path, command: str, shell: str, why: str
) -> None:
    ended = told(command, tmp_path, shell=shell)
    assert ended.returncode == 74, ended.stderr
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith(f"holdfast: the output cannot be written: {why}")


def test_a_closed_stdin_has_nothing_to_say(tmp_path: Path) -> None:
    ended = told("completion bash", tmp_path, shell="<&-")
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_an_argument_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    ended = told("run demo \"$(printf 'caf\\351')\"", tmp_path)
    assert ended.returncode == 2
    assert "is not UTF-8" in ended.stderr.decode()


@pytest.mark.slow
def test_input_that_is_not_utf_8_is_read_as_far_as_it_is(tmp_path: Path) -> None:
    """The turn runs: a diff with one letter in another encoding is still a diff."""
    ended = told("run demo -", tmp_path, stdin=b"caf\xe9")
    assert ended.returncode == 0, ended.stderr
    assert "stdin is not UTF-8" in ended.stderr.decode()
    full = told("run demo hello", tmp_path, shell=">/dev/full")
    assert (full.returncode, b"a bug of ours" in full.stderr) == (74, False), full.stderr
