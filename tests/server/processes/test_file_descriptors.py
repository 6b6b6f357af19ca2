"""A server that is out of files says so, once, and says when it has some again."""

from __future__ import annotations

import errno
import os
import resource
from collections import Counter

import pytest

from holdfast.server.processes.file_descriptors import FileDescriptors


class Files:
    """What is opened next."""

    def __init__(self) -> None:
        self.next: int | OSError = 5

    def __call__(self) -> int:
        if isinstance(self.next, OSError):
            raise self.next
        return self.next

    def run_out(self, number: int) -> None:
        self.next = OSError(number, os.strerror(number))


@pytest.mark.parametrize(("number", "cause"), [(errno.EMFILE, "process"), (errno.ENFILE, "system")])
def test_it_is_told_once_that_they_have_run_out_and_once_that_there_are_some(
    number: int, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    files, exhausted = Files(), Counter[str]()
    watch = FileDescriptors(exhausted, probe=files)
    watch.look()
    files.run_out(number)
    for _ in range(3):
        watch.look()
    files.next = 5
    watch.look()
    assert [each.message for each in caplog.records] == ["files.exhausted", "files.available"]
    assert all(each.fields["cause"] == cause for each in caplog.records)  # type: ignore[attr-defined]
    files.run_out(number)
    watch.look()
    assert exhausted == {cause: 2}


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EACCES, errno.ENOENT, errno.EIO])
def test_an_error_that_says_nothing_about_files_changes_nothing(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The server looks once a second: an error that left the watch would end it."""
    files, exhausted = Files(), Counter[str]()
    watch = FileDescriptors(exhausted, probe=files)
    files.run_out(number)
    watch.look()
    assert not exhausted
    files.run_out(errno.EMFILE)
    watch.look()
    files.run_out(number)
    watch.look()
    assert exhausted == {"process": 1}
    assert [each.message for each in caplog.records] == ["files.exhausted"]


def test_the_last_ones_count_as_none() -> None:
    """The event loop takes a connection by one that it keeps, and closes it at once: there is no error to wait for."""
    files, exhausted = Files(), Counter[str]()
    files.next = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1
    FileDescriptors(exhausted, probe=files).look()
    assert exhausted == {"process": 1}


def test_by_itself_it_opens_a_file_and_leaves_none_behind() -> None:
    watch, before = FileDescriptors(Counter()), os.listdir("/dev/fd")
    watch.look()
    assert os.listdir("/dev/fd") == before
