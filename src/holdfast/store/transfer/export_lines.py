"""The export format: sessions as lines of JSON. docs/reference/export-format.md describes it for users.

    {"type":"holdfast","format":"sessions","version":[1,0]}
    {"type":"session","id":"conv_…",…}          a block: the session's row, then the rows that it has,
    {"type":"turn",…} {"type":"item",…} …       always in this order
    {"type":"end","id":"conv_…","lines":9,"sha256":"…"}
    …                                           more blocks; a fork's past comes before the fork
    {"type":"last","sessions":1}

1. The same rows give the same bytes in every home: a file does not tell when or where it was written.
2. A file names no tenant. The import says which tenant gets the sessions.
3. The bytes under the hash chain are a text inside the JSON, so that a program that formats JSON differently
   does not change them. Bytes that are no text are in base64, under a name that ends in `64`.
4. A block ends with a checksum over its lines, and a file with its last line: so a cut file is noticed.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec

from holdfast.core.codec import Decoder, Value, encode
from holdfast.ids import SessionId, Tenant
from holdfast.store import rows
from holdfast.store.outcomes import SessionDump
from holdfast.store.transfer.import_checks import path_of

VERSION = (1, 0)
"""A file with a greater second number may have more fields and lines; with a greater first one, anything."""

_HEADER = b'{"type":"holdfast","format":"sessions","version":[%d,%d]}\n'
HEADER = _HEADER % VERSION

BLOB_PIECE_BYTES = 192 * 1024
"""How much of a blob is in one line: 256 KiB as base64. So no line is longer than an item, and a blob has any size."""

Fields: TypeAlias = dict[str, object]
"""The fields of a line as plain JSON. They do not leave this module."""


class BlobPiece(Value):
    """Some bytes of a blob, from `at` on."""

    digest: str
    at: int
    data: bytes


class BlockEnd(Value):
    """The end of a block."""

    id: SessionId
    lines: int
    sha256: str


class FileEnd(Value):
    """The end of a file."""

    sessions: int
    left_out: tuple[str, ...] = ()
    """The ids of sessions that are not in it, because they could not be read."""


Row: TypeAlias = (
    rows.SessionRow
    | rows.KeyRow
    | rows.TurnRow
    | rows.ItemRow
    | rows.StateRow
    | rows.AnnotationRow
    | rows.JournalRow
    | rows.IdempotencyRow
    | BlobPiece
)
Line: TypeAlias = Row | BlockEnd | FileEnd

_KINDS: dict[type[Line], str] = {
    rows.SessionRow: "session",
    rows.KeyRow: "key",
    rows.TurnRow: "turn",
    rows.ItemRow: "item",
    rows.StateRow: "state",
    rows.AnnotationRow: "annotation",
    rows.JournalRow: "journal",
    rows.IdempotencyRow: "idempotency",
    BlobPiece: "blob",
    BlockEnd: "end",
    FileEnd: "last",
}
_TYPES = {name: kind for kind, name in _KINDS.items()}
_DECODERS: dict[str, Decoder[Line]] = {name: Decoder(kind) for name, kind in _TYPES.items()}
_TEXTS = {"item": "body", "annotation": "patch", "journal": "records"}
"""The field of each row type that holds text as bytes, because the hash chain is computed over its bytes."""
_IMPLIED = frozenset({"tenant", "session_id", "path"})


def _defaults_of(kind: type[Line]) -> Fields:
    return {
        field.name: msgspec.json.decode(encode(field.default))
        for field in msgspec.structs.fields(kind)
        if field.default is not msgspec.NODEFAULT
    }


_DEFAULTS = {name: _defaults_of(kind) for name, kind in _TYPES.items()}
"""The fields that a line leaves out. msgspec itself leaves out what *is* the default, not what equals it."""


PLACES: dict[type[Row], tuple[str, Callable[[Any], tuple[str | int, ...]]]] = {
    rows.KeyRow: ("keys", lambda row: (row.key,)),
    rows.TurnRow: ("turns", lambda row: (row.turn_id,)),
    rows.ItemRow: ("items", lambda row: (row.pos,)),
    rows.StateRow: ("state", lambda row: (row.seq, row.name)),
    rows.AnnotationRow: ("annotations", lambda row: (row.rev,)),
    rows.JournalRow: ("journals", lambda row: (row.turn_id, row.n)),
    rows.IdempotencyRow: ("claims", lambda row: (row.key,)),
}
"""The rows of a block in their order, without blobs: their field in a dump, and their sort key."""

ORDER = tuple(name for name, _ in PLACES.values())


class UnfitLine(ValueError):
    """Why a line does not fit the format."""


# ── writing ──────────────────────────────────────────────────────────────────────────────────


def block_of(dump: SessionDump) -> Iterator[bytes]:
    """The lines of a session, its end included."""
    digest, count = sha256(), 0
    for row in rows_of(dump):
        line = to_line(row)
        digest.update(line)
        count += 1
        yield line
    yield to_line(BlockEnd(id=dump.session.id, lines=count, sha256=digest.hexdigest()))


def rows_of(dump: SessionDump) -> Iterator[Row]:
    """Everything in a dump, in the order of the format."""
    yield dump.session
    for name in ORDER:
        yield from getattr(dump, name)
    for digest, data in dump.blobs:
        for at in range(0, max(1, len(data)), BLOB_PIECE_BYTES):
            yield BlobPiece(digest=digest, at=at, data=data[at : at + BLOB_PIECE_BYTES])


def to_line(row: Line) -> bytes:
    """A row as its line; the same row always gives the same bytes."""
    name = _KINDS[type(row)]
    defaults = _DEFAULTS[name]
    fields: Fields = {
        field: value
        for field, value in msgspec.json.decode(encode(row)).items()
        if field not in _IMPLIED and (field not in defaults or value != defaults[field])
    }
    text = _TEXTS.get(name)
    if text is not None:
        _show(fields, text)
    return msgspec.json.encode({"type": name, **fields}) + b"\n"


def _show(fields: Fields, name: str) -> None:
    raw = b64decode(str(fields[name]))
    try:
        fields[name] = raw.decode()
    except UnicodeDecodeError:
        fields[f"{name}64"] = fields.pop(name)


# ── reading ──────────────────────────────────────────────────────────────────────────────────


def check_header(line: bytes) -> tuple[int, int]:
    """The format version of a file. Raises UnfitLine if it is no export, or one that this version cannot read."""
    numbers = re.fullmatch(re.escape(_HEADER).replace(b"%d", rb"(\d{1,6})"), line)
    if numbers is None:
        raise UnfitLine("this is no export of sessions: it does not begin as one")
    major, minor = map(int, numbers.groups())
    if major != VERSION[0]:
        raise UnfitLine(
            f"its format is {major}.{minor}, and this Holdfast reads {VERSION[0]}; use one that does"
        )
    return major, minor


def from_line(line: bytes, *, tenant: Tenant, session_id: SessionId | None) -> Line:
    """The row of a line. Raises UnfitLine unless writing it again gives the very same line.

    So no field of a newer version is dropped silently, and nothing is guessed.
    """
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
        row = _row(fields, tenant=tenant, session_id=session_id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise UnfitLine(str(error)) from error
    if to_line(row) != line:
        raise UnfitLine("it has a field or a form that this version does not write")
    return row


def _row(fields: Fields, *, tenant: Tenant, session_id: SessionId | None) -> Line:
    name = fields.pop("type", None)
    if not isinstance(name, str) or name not in _TYPES:
        raise UnfitLine(f"there is no line of type {str(name)[:40]!r}")
    if not _fits(fields):
        raise UnfitLine("it has a number that no store can hold")
    if fields.keys() & _IMPLIED:
        raise UnfitLine("it must not name its tenant, session or path")
    kind = _TYPES[name]
    text = _TEXTS.get(name)
    if text is not None:
        _hide(fields, text)
    own = {"tenant": str(tenant), "session_id": str(session_id)}
    fields |= {each: value for each, value in own.items() if each in kind.__struct_fields__}
    if kind is rows.ItemRow:
        fields["path"] = path_of(b64decode(str(fields.get("body", ""))))
    return _DECODERS[name].strict(msgspec.json.encode(fields))


def _fits(value: object) -> bool:
    """Whether every number in the value fits into 64 bits, as databases need."""
    match value:
        case dict():
            return all(map(_fits, value.values()))
        case list():
            return all(map(_fits, value))
        case int():
            return -(1 << 63) <= value < 1 << 63
        case _:
            return True


def _hide(fields: Fields, name: str) -> None:
    """The opposite of `_show`: the field in base64, as the decoder of its row expects bytes."""
    shown = fields.get(name)
    if isinstance(shown, str):
        fields[name] = b64encode(shown.encode()).decode()
    elif f"{name}64" in fields:
        fields[name] = fields.pop(f"{name}64")
