"""Imports: sessions are read from a file line by line, one at a time, and each is stored whole or not at all.

1. A file that is cut off or damaged is refused at the line that shows it; the sessions before that line are
   stored whole. Importing the file again, or a better copy, does not change those.
2. A file names no tenant: every row gets the tenant that the caller names.
3. A session must pass the audit (`verification/session_audit.py`) together with the sessions in this store, its hash
   chain included, unless the caller allows it to be `damaged`.
4. One session is in memory at a time; lines and sessions have bounds (`limits.py`).
5. A file brings no permissions. Of a session's settings only `ask` and `deny` count, as everywhere
   (`tools/permissions.py`); further permissions are stored, because they are hashed, have no effect, and are reported.
6. A call that waits for an approval can only be approved in the store where it was made: an imported session shows
   it, a client cannot approve it, and the next message closes it (`Snapshot.asked`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.conversation import (
    SettingsChanged,
    SettingsMerged,
    patch_decoder,
    waiting_calls,
)
from holdfast.core.items import item_decoder
from holdfast.errors import ImportConflict, InvalidExport
from holdfast.ids import SessionId, Tenant
from holdfast.store.outcomes import Restored, SessionDump
from holdfast.store.rows import (
    SessionRow,
)
from holdfast.store.store import Store
from holdfast.store.transfer import export_lines
from holdfast.store.transfer.import_checks import without_leases
from holdfast.store.verification.session_audit import audit

OnConflict: TypeAlias = Literal["stop", "skip"]


class ImportedSession(Value):
    """A session of the file, and what became of it."""

    session_id: SessionId
    how: Literal["fresh", "same", "skipped"]
    """`same`: the store had it already. `skipped`: `why` gives the reason."""
    why: str = ""
    line: int = 0
    """The number of its last line."""
    dropped: tuple[str, ...] = ()
    """Its permissions, grants and open approvals, which have no effect here: `allow shell`, `granted pay`,
    `approval of pay`."""


async def take_in(
    store: Store,
    tenant: Tenant,
    file: Iterable[bytes],
    *,
    on_conflict: OnConflict = "stop",
    damaged: bool = False,
) -> AsyncIterator[ImportedSession]:
    """Import the sessions of a file, given as its lines. Raises InvalidExport or ImportConflict."""
    reader, rest = ImportReader(tenant), iter(file)
    skipped: set[SessionId] = set()
    # A session can have many lines. A thread reads them, so that the event loop can serve other tasks meanwhile.
    while (found := await asyncio.to_thread(reader.next_session, rest)) is not None:
        dump = without_leases(found)
        session_id, begun, before = dump.session.id, reader.begun_at, reader.sessions - 1
        why = _without_its_past(dump, skipped)
        if why is None:
            if not damaged:
                await _demand_sound(store, dump, line=begun, before=before)
            outcome = await store.restore(tenant, dump)
            if isinstance(outcome, Restored):
                how: Literal["fresh", "same"] = "fresh" if outcome.fresh else "same"
                dropped = permissions_in(dump)
                dropped += approvals_in(dump) if outcome.fresh else ()
                yield ImportedSession(
                    session_id=session_id, how=how, line=reader.line, dropped=dropped
                )
                continue
            if not outcome.conflict:
                raise InvalidExport(begun, outcome.why, sessions=before)
            if on_conflict == "stop":
                raise ImportConflict(session_id, outcome.why)
            why = outcome.why
        skipped.add(session_id)
        yield ImportedSession(session_id=session_id, how="skipped", why=why, line=reader.line)


def permissions_in(dump: SessionDump) -> tuple[str, ...]:
    """The permissions that a session's settings claim, each once. None of them has an effect."""
    patches = [patch_decoder.lenient(row.patch) for row in dump.annotations]
    settings = [dump.session.settings]
    settings += [each.settings for each in patches if isinstance(each, SettingsChanged)]
    allowed = {name for each in settings for name in each.permissions.allow}
    granted = {name for each in settings for name in each.permissions.granted}
    granted |= {
        name for each in patches if isinstance(each, SettingsMerged) for name in each.granted
    }
    return (
        *(f"allow {each}" for each in sorted(allowed)),
        *(f"granted {each}" for each in sorted(granted)),
    )


def approvals_in(dump: SessionDump) -> tuple[str, ...]:
    """The calls of a session that wait for an approval. No client of this store can give it."""
    head = next((each for each in dump.turns if each.seq == dump.session.head), None)
    if head is None:
        return ()
    bodies = (row.body for row in dump.items if row.turn_id == head.turn_id)
    waiting = waiting_calls(list(map(item_decoder.lenient, bodies)))
    return tuple(f"approval of {each.name}" for each in waiting if each.waits_for == "approval")


def _without_its_past(dump: SessionDump, skipped: set[SessionId]) -> str | None:
    for segment in dump.session.lineage:
        if segment.session_id in skipped:
            return f"it goes on from {segment.session_id}, which was skipped"
    return None


async def _demand_sound(store: Store, dump: SessionDump, *, line: int, before: int) -> None:
    session = dump.session
    past = [await store.dump(session.tenant, each.session_id) for each in session.lineage]
    if session.state == "live" and any(each is None for each in past):
        return  # `restore` names the missing session, with a better error
    found = await asyncio.to_thread(next, audit(dump, past), None)
    if found is not None:
        why = f"{session.id} is damaged ({found.code}: {found.what})"
        raise InvalidExport(line, why, sessions=before)


# ── putting sessions together ────────────────────────────────────────────────────────────────


class ImportReader:
    """Makes sessions from lines. It uses no file and no store."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._newer: tuple[int, int] | None = None
        """The version of the file, if it is newer than ours."""
        self._block: Block | None = None
        self._ended = False
        self.sessions = 0
        """How many sessions are complete."""
        self.line = 0
        """The number of the line that was read last."""
        self.begun_at = 0
        """The line that the last session began at."""

    def next_session(self, file: Iterator[bytes]) -> SessionDump | None:
        """Read lines until a session is complete; None at the end of the file. Raises InvalidExport."""
        for line in file:
            dump = self.feed(line)
            if dump is not None:
                return dump
        self.close()
        return None

    def feed(self, line: bytes) -> SessionDump | None:
        """Read one line, with its line end. Returns a session when it is complete. Raises InvalidExport."""
        self.line += 1
        if len(line) > limits.import_line_bytes_max:
            raise self._refused(f"it is longer than {limits.import_line_bytes_max} bytes")
        if self._ended:
            raise self._refused("something comes after the last line")
        if not line.endswith(b"\n"):
            raise self._refused("the file is cut off in the middle of this line")
        try:
            return self._read(line)
        except export_lines.UnfitLine as error:
            raise self._refused(str(error)) from error

    def close(self) -> None:
        """Note the end of the file. Raises InvalidExport if the file is cut off."""
        if not self._ended:
            self.line += 1
            inside = f" in the middle of {self._block.session.id}" if self._block else ""
            raise self._refused(f"the file is cut off{inside} before this line")

    def _read(self, line: bytes) -> SessionDump | None:
        if self.line == 1:
            version = export_lines.check_header(line)
            self._newer = version if version > export_lines.VERSION else None
            return None
        own = self._block.session.id if self._block else None
        row = export_lines.from_line(line, tenant=self._tenant, session_id=own)
        match row:
            case export_lines.FileEnd():
                self._finish(row)
            case export_lines.BlockEnd():
                return self._complete(row)
            case SessionRow():
                self._begin(row, line)
            case _ if self._block is None:
                raise export_lines.UnfitLine("it belongs to a session, and none has begun")
            case _:
                self._block.add(row, line)
        return None

    def _begin(self, row: SessionRow, line: bytes) -> None:
        if self._block is not None:
            raise export_lines.UnfitLine(
                f"another session begins, and {self._block.session.id} has no end"
            )
        self._block = Block(row, line)
        self.begun_at = self.line

    def _complete(self, end: export_lines.BlockEnd) -> SessionDump:
        block, self._block = self._block, None
        if block is None or block.session.id != end.id:
            raise export_lines.UnfitLine(f"{end.id} ends, and has not begun")
        dump = block.complete(end)
        self.sessions += 1
        return dump

    def _finish(self, last: export_lines.FileEnd) -> None:
        if self._block is not None:
            raise export_lines.UnfitLine(f"the file ends, and {self._block.session.id} does not")
        if last.sessions != self.sessions:
            raise export_lines.UnfitLine(
                f"the file has {self.sessions} sessions, and {last.sessions} were exported"
            )
        self._ended = True

    def _refused(self, why: str) -> InvalidExport:
        if self._newer is not None:
            newer, ours = (".".join(map(str, each)) for each in (self._newer, export_lines.VERSION))
            why += f" (the file's format is {newer}, this Holdfast knows {ours}: upgrade it)"
        return InvalidExport(self.line, why, sessions=self.sessions)


class Block:
    """The rows of one session that were read so far. They must come in order, each once."""

    def __init__(self, session: SessionRow, line: bytes) -> None:
        self.session = session
        self._rows: dict[str, list[export_lines.Row]] = {name: [] for name in export_lines.ORDER}
        self._blobs: dict[str, bytearray] = {}
        self._place: tuple[int, tuple[str | int, ...]] = (-1, ())
        self._digest = sha256(line)
        self._lines, self._bytes = 1, len(line)

    def add(self, row: export_lines.Row, line: bytes) -> None:
        """Add a row. Raises UnfitLine if it is out of order."""
        self._lines += 1
        self._bytes += len(line)
        if self._bytes > limits.import_session_bytes_max:
            bound = limits.import_session_bytes_max
            raise export_lines.UnfitLine(f"{self.session.id} is larger than {bound} bytes")
        self._digest.update(line)
        place = self._add(row)
        if place <= self._place:
            raise export_lines.UnfitLine(
                "it is not in its place: lines are sorted, and each is there once"
            )
        self._place = place

    def _add(self, row: export_lines.Row) -> tuple[int, tuple[str | int, ...]]:
        """Keep a row, and return its place in the block's order."""
        if isinstance(row, export_lines.BlobPiece):
            self._add_piece(row)
            return len(export_lines.ORDER), (row.digest, row.at)
        name, by = export_lines.PLACES[type(row)]
        self._rows[name].append(row)
        return export_lines.ORDER.index(name), by(row)

    def _add_piece(self, piece: export_lines.BlobPiece) -> None:
        held = self._blobs.setdefault(piece.digest, bytearray())
        whole_before = piece.at == len(held) and piece.at % export_lines.BLOB_PIECE_BYTES == 0
        if not whole_before or len(piece.data) > export_lines.BLOB_PIECE_BYTES:
            raise export_lines.UnfitLine("it is not the next piece of its blob")
        held += piece.data

    def complete(self, end: export_lines.BlockEnd) -> SessionDump:
        """The session. Raises UnfitLine if its lines are not those that were exported."""
        if (end.lines, end.sha256) != (self._lines, self._digest.hexdigest()):
            raise export_lines.UnfitLine(
                f"the lines of {self.session.id} are not those that were exported"
            )
        rows: dict[str, Any] = {name: tuple(rows) for name, rows in self._rows.items()}
        blobs = tuple((digest, bytes(data)) for digest, data in self._blobs.items())
        return SessionDump(session=self.session, blobs=blobs, **rows)
