"""Export and import of sessions: `GET /api/sessions/{name}/export`, `POST /api/sessions/import`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO

from holdfast.ids import SessionId, Tenant
from holdfast.server.http.exchange import Exchange
from holdfast.store.store import Store
from holdfast.store.transfer.exports import Exported, LeftOut, export
from holdfast.store.transfer.imports import OnConflict, take_in
from holdfast.wire.api.objects import Dropped, Imported, Skipped
from holdfast.wire.headers import DISPOSITION
from holdfast.wire.problems import bad_request

PIECE_BYTES = 64 * 1024
"""The size of a piece on the wire: lines are short, so many are sent together."""


async def send_session(
    exchange: Exchange, store: Store, tenant: Tenant, session_id: SessionId
) -> None:
    """Send a session and its past as a file, while it is read. A file that breaks off lacks its last line.

    Raises ClientGone, and reads no further, if the client disconnects.
    """
    await exchange.start_stream(
        {
            "content-type": "application/jsonl",
            DISPOSITION.name: f'attachment; filename="{session_id}.jsonl"',
        }
    )
    with exchange.while_present():
        async for each in export(store, tenant, session_id):
            if isinstance(each, LeftOut):
                continue  # another line of its family; the last line of the file names it
            for piece in _pieces(each.lines if isinstance(each, Exported) else (each,)):
                await exchange.write(piece)
    await exchange.finish()


async def take_sessions(store: Store, tenant: Tenant, body: bytes, on_conflict: str) -> Imported:
    """Import a file for this tenant, even if another tenant exported it. Raises InvalidExport and ImportConflict."""
    found = take_in(store, tenant, BytesIO(body), on_conflict=_on_conflict(on_conflict))
    taken = [each async for each in found]
    return Imported(
        imported=tuple(each.session_id for each in taken if each.how == "fresh"),
        there_already=tuple(each.session_id for each in taken if each.how == "same"),
        skipped=tuple(
            Skipped(id=each.session_id, why=each.why) for each in taken if each.how == "skipped"
        ),
        dropped=tuple(
            Dropped(id=each.session_id, permissions=each.dropped) for each in taken if each.dropped
        ),
    )


def _on_conflict(text: str) -> OnConflict:
    match text:
        case "stop" | "skip":
            return text
        case _:
            raise bad_request("invalid_value", "on_conflict is stop or skip", param="on_conflict")


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        gathered.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)
