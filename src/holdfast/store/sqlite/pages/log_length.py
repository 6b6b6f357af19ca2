"""Whether the log of a SQLite file was cut or damaged while no process had it open.

SQLite takes a damaged log to end before the damage. If a check-point had already copied more of the log into the database
than what is left, the two do not fit: pages of the log are older than pages of the database that they belong with.

The file of shared memory (`-shm`) says how long the log was, and how much of it was copied. A process that is killed leaves
it as it is, and a commit is in it only after its sync: so a shorter log has lost something, also after a crash of the
machine. SQLite makes the file anew when the first process opens the database, so it is read before that.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from struct import unpack_from

from msgspec import Struct

from holdfast.errors import StoreUnusable
from holdfast.observe.events import warn

LOG_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
"""What a log begins with, and what each page in it begins with, by SQLite's file format."""
SALT = slice(16, 24)
"""The bytes of a log's header that change when it starts over, and that each of its pages repeats."""

INDEX_BYTES = 136
"""Two copies of the state of the log, and how far check-points have come."""
BIG_ENDIAN = 0x377F0683
"""The first bytes of a log whose checksums are made of big-endian numbers; else of little-endian ones."""
READS = 3


class LogState(Struct, frozen=True):
    """What shared memory says of a log."""

    salt: bytes
    pages: int
    copied: int
    """How many of them were copied into the database, or were about to be."""


def check_log_whole(path: Path) -> None:
    """Note pages that are missing at the end of the log of this database. Raises StoreUnusable if what is left does not fit
    to the database. Call it while this process does not have the database open."""
    for _ in range(READS):
        state = _state_of(path)
        if state is None or not state.pages:
            return
        left = _pages_left(path.with_name(path.name + "-wal"), state)
        if left >= state.pages:
            return
        if state == _state_of(path):  # else another process uses the log, and has begun it anew
            break
    else:
        return
    if 0 < left < state.copied:
        raise StoreUnusable(
            f"the log {path.name}-wal was cut or damaged: {left} of its {state.pages} pages are left, and {state.copied} had "
            f"been copied into {path}, which is newer than what is left; move {path.name}-wal and {path.name}-shm away, and run "
            "`holdfast db verify`; its --help says more"
        )
    left = max(left, state.copied)
    if left < state.pages:
        warn("store.log_cut", path=str(path), pages=state.pages, left=left)
        with suppress(OSError):  # a disk that takes nothing any more
            _note_beside(path).write_text(
                f"the last {state.pages - left} of {state.pages} pages of its log were gone when it was opened, and with them "
                f"the last turns; delete {_note_beside(path).name} when you have looked after them"
            )


def lost_end(path: Path) -> str | None:
    """What was missing at the end of the log when the database was opened, until an operator deletes the note of it."""
    note = _note_beside(path)
    try:
        return note.read_text(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{note.name} tells what was missing at the end of its log, and cannot be read ({error.strerror})"


def _note_beside(path: Path) -> Path:
    """A file, since the first process that opens the database is the last one that can know."""
    return path.with_name(path.name + "-cut")


def _state_of(path: Path) -> LogState | None:
    """What shared memory says; None if there is none, or if it was not left whole."""
    try:
        with path.with_name(path.name + "-shm").open("rb") as file:
            found = file.read(INDEX_BYTES)
    except FileNotFoundError:
        return None
    if len(found) < INDEX_BYTES or found[:48] != found[48:96] or not found[12]:
        return None
    if _sums("=", found[:40], (0, 0)) != unpack_from("=II", found, 40):
        return None
    (pages,) = unpack_from("=I", found, 16)
    copied = max(*unpack_from("=I", found, 96), *unpack_from("=I", found, 128))
    return LogState(salt=found[32:40], pages=pages, copied=min(copied, pages))


def _pages_left(log: Path, state: LogState) -> int:
    """How many pages of the log are as they were written; all, if it is another one by now."""
    try:
        size = os.stat(log).st_size
    except FileNotFoundError:
        return 0
    if not size:
        return 0
    with log.open("rb") as file:
        header = file.read(LOG_HEADER_BYTES)
        if len(header) < LOG_HEADER_BYTES:
            return 0
        magic, _, page_bytes = unpack_from(">III", header)
        order = ">" if magic == BIG_ENDIAN else "<"
        if header[SALT] != state.salt:
            return state.pages
        sums = _sums(order, header[:24], (0, 0))
        if sums != unpack_from(">II", header, 24):
            return 0
        for left in range(state.pages):
            frame = file.read(FRAME_HEADER_BYTES + page_bytes)
            if len(frame) < FRAME_HEADER_BYTES + page_bytes or frame[8:16] != state.salt:
                return left
            sums = _sums(order, frame[:8] + frame[FRAME_HEADER_BYTES:], sums)
            if sums != unpack_from(">II", frame, 16):
                return left
    return state.pages


def _sums(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's checksum of a log, of pairs of numbers, on top of that of what comes before."""
    one, two = sums
    numbers = unpack_from(f"{order}{len(data) // 4}I", data)
    for first, second in zip(numbers[::2], numbers[1::2], strict=True):
        one = one + first + two & 0xFFFFFFFF
        two = two + second + one & 0xFFFFFFFF
    return one, two
