"""A log that was rotated goes on under its old name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.observe.log_files import LogFile, log_file


@pytest.fixture
def opened(tmp_path: Path) -> LogFile:
    fd = os.open(tmp_path / "server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    found = log_file(fd)
    assert found == LogFile(fd=fd, path=str(tmp_path / "server.log"))
    return found


def test_a_file_that_was_moved_away_is_replaced_by_one_of_its_name(
    opened: LogFile, tmp_path: Path
) -> None:
    os.write(opened.fd, b"before\n")
    (tmp_path / "server.log").rename(tmp_path / "server.log.1")
    os.write(opened.fd, b"meanwhile\n")
    assert opened.reopen()
    os.write(opened.fd, b"after\n")
    assert (tmp_path / "server.log.1").read_text() == "before\nmeanwhile\n"
    assert (tmp_path / "server.log").read_text() == "after\n"
    assert (tmp_path / "server.log").stat().st_mode & 0o777 == 0o640
    os.close(opened.fd)


def test_a_file_that_is_where_it_was_stays_open(opened: LogFile, tmp_path: Path) -> None:
    os.write(opened.fd, b"before\n")
    assert not opened.reopen()
    os.write(opened.fd, b"after\n")
    assert (tmp_path / "server.log").read_text() == "before\nafter\n"
    os.close(opened.fd)


def test_what_is_no_file_has_no_name() -> None:
    reading, writing = os.pipe()
    assert log_file(writing) is None
    os.close(reading)
    os.close(writing)
    assert log_file(writing) is None
