"""Power loss at every moment of a run, without a machine to switch off.

A run on real files is recorded through a VFS: every write, truncation, sync, creation and deletion, in order,
and a mark for every batch whose callers are about to be told. Afterwards the disk is rebuilt as it might have
been found after a power cut at any point in between, and each such image is opened.

What a disk promises, and no more:

1. What was written to a file before a sync of it returned is there.
2. Of what was written since then, any part may be there and any may not, in any order; a write may be
   torn between sectors. Bytes outside of a write are not touched by it (SQLite's "powersafe overwrite").
3. A name is there, or gone, once its directory was synced. Before that, changes of names are found up to
   some point in their order, as a journalling file system keeps them.

So this is stronger than `kill -9`, which loses nothing that was written.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import apsw
import msgspec
from msgspec import Struct

SECTOR = 512
DIGESTED = "select name from sqlite_schema where type = 'table' order by name"

# ── what happens on a disk ───────────────────────────────────────────────────────────────────


class Create(Struct, tag=True, frozen=True):
    """A name gets a new, empty file."""

    name: str
    file: int


class Delete(Struct, tag=True, frozen=True):
    name: str
    synced: bool


class Write(Struct, tag=True, frozen=True):
    file: int
    offset: int
    data: bytes


class Truncate(Struct, tag=True, frozen=True):
    file: int
    size: int


class Sync(Struct, tag=True, frozen=True):
    """A sync has returned; of a new log or journal, SQLite syncs the directory with it."""

    file: int
    names: bool


class Told(Struct, tag=True, frozen=True):
    """A batch is durable, its callers are told now. `digest` is what all tables held then."""

    digest: bytes


Op = Create | Delete | Write | Truncate | Sync | Told


class Recording(Struct, frozen=True):
    """A run: what the disk held before, all that happened to it, and what was told."""

    before: dict[str, bytes]
    digest: bytes
    """Of the tables, as they were before."""
    ops: list[Op]

    @property
    def writes(self) -> int:
        return sum(isinstance(op, Write) for op in self.ops)

    @property
    def syncs(self) -> int:
        return sum(isinstance(op, Sync) for op in self.ops)


encode_recording: Callable[[Recording], bytes] = msgspec.msgpack.Encoder().encode
decode_recording: Callable[[bytes], Recording] = msgspec.msgpack.Decoder(Recording).decode

# ── recording ────────────────────────────────────────────────────────────────────────────────

_names = itertools.count(1)


class Recorder(apsw.VFS):
    """SQLite's own file system, with a witness. Give `name` to `Engine.open(vfs=…)`."""

    def __init__(self, folder: Path) -> None:
        self.name = f"recorder-{next(_names)}"
        self.ops: list[Op] = []
        self._guard = threading.Lock()
        self._files = itertools.count(1)
        self._known: dict[str, int] = {}
        self._unsynced: set[int] = set()
        """New files whose first sync syncs the directory, too."""
        self.before: dict[str, bytes] = {}
        for path in sorted(folder.iterdir()):
            if path.name.endswith((".db", "-wal", "-journal")):
                self.before[path.name] = path.read_bytes()
                self._known[path.name] = next(self._files)
        super().__init__(self.name, "")

    def happened(self, op: Op) -> None:
        with self._guard:
            self.ops.append(op)

    def told(self, digest: bytes) -> None:
        self.happened(Told(digest))

    def recording(self, digest: bytes) -> Recording:
        return Recording(self.before, digest, list(self.ops))

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else (name or "")
        opened = _RecordedFile(self, name, flags)
        opened.file = self._known_as(Path(path).name, flags[0])
        return opened

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        name = Path(filename).name
        with self._guard:
            self._known.pop(name, None)
            self.ops.append(Delete(name, bool(syncdir)))

    def synced(self, file: int) -> None:
        with self._guard:
            self.ops.append(Sync(file, names=file in self._unsynced))
            self._unsynced.discard(file)

    def _known_as(self, name: str, flags: int) -> int:
        with self._guard:
            if name not in self._known:
                self._known[name] = file = next(self._files)
                self.ops.append(Create(name, file))
                if not flags & apsw.SQLITE_OPEN_MAIN_DB:
                    self._unsynced.add(file)
            return self._known[name]


class _RecordedFile(apsw.VFSFile):
    file: int

    def __init__(
        self, recorder: Recorder, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._recorder = recorder
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._recorder.happened(Write(self.file, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._recorder.happened(Truncate(self.file, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._recorder.synced(self.file)


# ── what may be found afterwards ─────────────────────────────────────────────────────────────


class Fate(Struct, frozen=True):
    """What became of the writes that nobody had synced: which of them landed, by their index.

    `torn` is one of those; only some of its sectors did. `names` says how many changes of names did.
    """

    landed: frozenset[int]
    names: int
    torn: tuple[int, frozenset[int]] | None = None


class Image(Struct, frozen=True):
    """A disk after a power cut."""

    number: int
    """The same for the same content."""
    files: dict[str, bytes] | None
    """None if it was shown before under this number."""
    point: int
    """How many operations had happened."""
    allowed: tuple[bytes, ...]
    """What its tables may hold: what was told last, or the batch that was on its way."""


class Disk:
    """The recorded disk at one moment: what is safe, and what is still on its way."""

    def __init__(self, recording: Recording) -> None:
        self._ops = recording.ops
        self._safe: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        for file, (name, data) in enumerate(sorted(recording.before.items()), start=1):
            self._safe[file] = data
            self._names[name] = file
        self._loose: dict[int, list[int]] = {}
        """By file, the operations since its last sync."""
        self._loose_names: list[int] = []
        self._epoch = 0

    @property
    def loose(self) -> list[int]:
        return sorted(index for indexes in self._loose.values() for index in indexes)

    @property
    def loose_names(self) -> int:
        return len(self._loose_names)

    @property
    def epoch(self) -> int:
        """Counts syncs: two images of one epoch differ only in their fates."""
        return self._epoch

    def happens(self, index: int) -> None:
        match self._ops[index]:
            case Write(file=file) | Truncate(file=file):
                self._loose.setdefault(file, []).append(index)
            case Create():
                self._loose_names.append(index)
            case Delete(synced=synced):
                self._loose_names.append(index)
                if synced:
                    self._sync_names()
            case Sync(file=file, names=names):
                self._epoch += 1
                self._safe[file] = self._content(file, set(self._loose.get(file, ())), None)
                self._loose.pop(file, None)
                if names:
                    self._sync_names()
            case Told():
                pass

    def found(self, fate: Fate) -> dict[str, bytes]:
        """All files with their bytes, if this is what became of the loose ends."""
        names = self._named(fate.names)
        torn = fate.torn
        return {name: self._content(file, fate.landed, torn) for name, file in names.items()}

    def _named(self, landed: int) -> dict[str, int]:
        names = dict(self._names)
        for index in self._loose_names[:landed]:
            op = self._ops[index]
            if isinstance(op, Create):
                names[op.name] = op.file
            elif isinstance(op, Delete):
                names.pop(op.name, None)
        return names

    def _sync_names(self) -> None:
        self._epoch += 1
        self._names = self._named(len(self._loose_names))
        self._loose_names.clear()

    def _content(
        self, file: int, landed: frozenset[int] | set[int], torn: tuple[int, frozenset[int]] | None
    ) -> bytes:
        loose = [index for index in self._loose.get(file, ()) if index in landed]
        safe = self._safe.get(file, b"")
        if not loose:
            return safe
        data = bytearray(safe)
        for index in loose:
            op = self._ops[index]
            if isinstance(op, Truncate):
                del data[op.size :]
                data.extend(bytes(op.size - len(data)))
            elif isinstance(op, Write):
                sectors = torn[1] if torn is not None and torn[0] == index else None
                _overwrite(data, op, sectors)
        return bytes(data)


def _overwrite(data: bytearray, op: Write, sectors: frozenset[int] | None) -> None:
    """Apply a write, or only those 512-byte sectors of it."""
    end = op.offset + len(op.data)
    if len(data) < end:
        data.extend(bytes(end - len(data)))
    if sectors is None:
        data[op.offset : end] = op.data
        return
    first = op.offset // SECTOR
    for sector in sectors:
        start = max(op.offset, (first + sector) * SECTOR)
        stop = min(end, (first + sector + 1) * SECTOR)
        data[start:stop] = op.data[start - op.offset : stop - op.offset]


def images(recording: Recording, *, seed: int, near: int = 5, wild: int = 3) -> Iterator[Image]:
    """Every image that may be found after every operation.

    For loose writes: none or all of them landed; all but one, and only one, of the `near` last ones; the last
    one torn; and `wild` random subsets. The same for changes of names: none or all.
    """
    disk = Disk(recording)
    digests = [recording.digest] + [op.digest for op in recording.ops if isinstance(op, Told)]
    dice = random.Random(seed)
    told = 0
    numbers: dict[tuple[int, Fate], int] = {}
    for index, op in enumerate(recording.ops):
        disk.happens(index)
        told += isinstance(op, Told)
        for fate in _fates(disk, recording.ops, dice, near=near, wild=wild):
            known = (disk.epoch, fate) in numbers
            number = numbers.setdefault((disk.epoch, fate), len(numbers))
            yield Image(
                number=number,
                files=None if known else disk.found(fate),
                point=index + 1,
                allowed=tuple(digests[told : told + 2]),
            )


def _fates(
    disk: Disk, ops: list[Op], dice: random.Random, *, near: int, wild: int
) -> Iterator[Fate]:
    loose, names = disk.loose, disk.loose_names
    everything = frozenset(loose)
    yield Fate(everything, names)
    if not loose and not names:
        return
    yield Fate(frozenset(), 0)
    if names:
        yield Fate(everything, 0)
        yield Fate(frozenset(), names)
    if not loose:
        return
    for index in loose[-near:]:
        yield Fate(everything - {index}, names)
        yield Fate(frozenset({index}), names)
    last = loose[-1]
    write = ops[last]
    if isinstance(write, Write) and len(write.data) > SECTOR:
        sectors = range(-(-len(write.data) // SECTOR) + 1)
        some = frozenset(sector for sector in sectors if dice.random() < 0.5)
        yield Fate(everything, names, torn=(last, some))
        yield Fate(everything, names, torn=(last, frozenset(sectors) - some))
    for _ in range(wild if len(loose) > 2 else 0):
        yield Fate(frozenset(index for index in loose if dice.random() < 0.5), names)


# ── reading an image ─────────────────────────────────────────────────────────────────────────


def digest_of(connection: apsw.Connection) -> bytes:
    """What all tables hold, as one value."""
    state = sha256()
    for (table,) in connection.execute(DIGESTED).fetchall():
        state.update(
            repr((table, connection.execute(f"select * from {table}").fetchall())).encode()
        )
    return state.digest()


def put(files: dict[str, bytes], folder: Path) -> None:
    """Make the folder hold these files, and nothing else."""
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
