"""A campaign of power cuts: record a run of the store, rebuild the disk at every point, open every image."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

import apsw
from msgspec import Struct

from holdfast.core.history.conversation import Titled
from holdfast.ids import Minter, SessionId, SessionKey, Version
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.engine.jobs import Job
from holdfast.store.sqlite.engine.writer import Bounds
from tests.crash.audit import audit
from tests.crash.power import Image, Recorder, Recording, digest_of, images, put
from tests.crash.turn_server import ACME, Plan, Poll, Server
from tests.scratch import scratch_folder

FILE = "holdfast.db"

Script = Callable[[SqliteStore, Minter], Awaitable[None]]

# Check-points come every few commits instead of every few megabytes, so that a short run has them all.
_BOUNDS = Bounds(step_pages=24, idle_pages=1_000, hard_pages=64)


def seeded_minter(seed: int) -> Minter:
    dice = random.Random(seed)
    return Minter(now_ms=lambda: 1_750_000_000_000, random_bits=dice.getrandbits)


def open_inline(path: Path, *, vfs: str | None = None) -> Awaitable[SqliteStore]:
    """A store without threads: what it does is the same in every run."""
    engine = partial(SqliteEngine.open, inline=True, bounds=_BOUNDS, vfs=vfs)
    return SqliteStore.open(path, engine=engine)


# ── recording ────────────────────────────────────────────────────────────────────────────────


async def record(folder: Path, script: Script, *, seed: int) -> Recording:
    """Run the script on the store in this folder, which may hold one already, and write down everything."""
    before = _digest_in(folder)
    recorder = Recorder(folder)
    store = await open_inline(folder / FILE, vfs=recorder.name)
    # The migration was a batch of its own, answered before we could listen.
    recorder.told(_digest_in(folder))
    queue = store.engine._writes
    answer = queue.tell

    def tell(jobs: Sequence[Job]) -> None:
        recorder.told(_digest_in(folder))
        answer(jobs)

    queue.tell = tell  # type: ignore[method-assign]
    try:
        await script(store, seeded_minter(seed))
    finally:
        await store.close()
    return recorder.recording(before)


def _digest_in(folder: Path) -> bytes:
    path = folder / FILE
    if not path.exists():
        return sha256().digest()  # of no table at all
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # looking changes nothing
    try:
        return digest_of(connection)
    finally:
        connection.close()


async def busy_day(store: SqliteStore, mint: Minter, *, rounds: int = 6, seed: int = 1) -> None:
    """Turns of every kind on several sessions at once, and the operations that are not turns."""
    dice = random.Random(seed)
    server = Server(store, mint, waiting=Poll(0))
    await server.enrol()
    for number in range(rounds):
        plans = [
            Plan(
                name=f"{number}-{key}",
                tools=dice.randrange(3),
                end=dice.choice(("complete", "complete", "stop", "fail")),
                resumes=dice.random() < 0.3,
                padding="x" * dice.choice((0, 0, 300, 6_000)),
            )
            for key in range(3)
        ]
        await asyncio.gather(
            *(server.ask(f"key-{key}", plan, idempotent=True) for key, plan in enumerate(plans))
        )
        await _other_things(store, mint, number)


async def _other_things(store: SqliteStore, mint: Minter, number: int) -> None:
    key = SessionKey("key-0")
    row = await store.resolve(ACME, key)
    assert row is not None
    await store.annotate(ACME, row.session_id, [(None, Titled(title=f"Round {number}"))])
    await store.put_blob(ACME, row.session_id, f"{number}".encode() * 2_000)
    info = await store.session(ACME, row.session_id)
    assert info is not None
    fork = await store.fork(ACME, row.session_id, version=info.head, fresh=mint(SessionId))
    await store.remove(ACME, fork.id)
    await store.prune()
    if number % 3 == 2:
        await store.bind(ACME, SessionKey("key-2"), fresh=mint(SessionId), version=Version(0))


async def taking_up(store: SqliteStore, mint: Minter) -> None:
    """What the next boot does: clean up after the dead, and go on."""
    server = Server(store, mint, waiting=Poll(0))
    await server.enrol()
    await server.recover_all()
    await server.ask("key-1", Plan(name=f"after-{server.node}", tools=1), idempotent=True)


# ── checking ─────────────────────────────────────────────────────────────────────────────────


class Tally(Struct):
    points: int = 0
    """Moments at which the power was cut."""
    cuts: int = 0
    """Moments, each with something that might have become of the loose writes."""
    images: int = 0
    """Distinct contents that were opened."""
    booted: int = 0
    """Of those, how many were taken up by a server, which played on."""
    violations: list[str] = []

    def add(self, other: Tally) -> None:
        self.points += other.points
        self.cuts += other.cuts
        self.images += other.images
        self.booted += other.booted
        self.violations += other.violations


async def cut(
    recording: Recording,
    *,
    seed: int,
    share: int = 0,
    shares: int = 1,
    keep: Callable[[Image], bool] = lambda _: True,
    boot_every: int = 60,
) -> Tally:
    """Cut the power at every point of a recorded run; open what is left. `share` of `shares` is ours."""
    tally = Tally(points=len(recording.ops) if share == 0 else 0)
    held: dict[int, bytes | str] = {}
    with scratch_folder() as folder:
        for image in images(recording, seed=seed):
            if image.number % shares != share or not keep(image):
                continue
            tally.cuts += 1
            if image.files is not None:
                tally.images += 1
                held[image.number] = _opened(image.files, folder)
                if tally.images % boot_every == 0:
                    tally.booted += 1
                    tally.violations += await _booted(image.files, folder, seed=image.number)
            found = held.get(image.number)
            if found is not None and found not in image.allowed:
                tally.violations.append(_described(found, image))
    return tally


def _opened(files: dict[str, bytes], folder: Path) -> bytes | str:
    """What the tables of an image hold, or why they cannot be read."""
    put(files, folder)
    try:
        connection = apsw.Connection(str(folder / FILE))
        try:
            sound = connection.execute("pragma integrity_check").get
            return digest_of(connection) if sound == "ok" else f"integrity_check: {sound}"
        finally:
            connection.close()
    except apsw.Error as error:
        return f"{type(error).__name__}: {error}"


async def _booted(files: dict[str, bytes], folder: Path, *, seed: int) -> list[str]:
    """A server starts on the image and plays on; what the audit says then."""
    put(files, folder)
    store = await open_inline(folder / FILE)
    try:
        await taking_up(store, seeded_minter(seed + 1_000))
        return await audit(store)
    finally:
        await store.close()


def _described(found: bytes | str, image: Image) -> str:
    shown = found if isinstance(found, str) else f"state {found.hex()[:8]}"
    allowed = [each.hex()[:8] for each in image.allowed]
    return f"power cut after operation {image.point}: found {shown}, allowed are {allowed}"
