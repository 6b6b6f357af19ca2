"""The archive: stores as a version left them. Every later one has to open them, read the same and go on with them.

    python -m tests.store.archive tables_9      plays the story of `furnish_fully`, and keeps what it leaves

An entry is never made anew: a version that leaves something else adds another. It consists of

- NAME.db.gz    a SQLite file after a clean close
- NAME.sql.gz   what pg_dump says of a PostgreSQL
- NAME.json.gz  all that can be read of either of them, at a time when every node has died
"""

from __future__ import annotations

import asyncio
import gzip
import re
import sys
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.history.log import Log
from holdfast.ids import IdempotencyKey, Minter, Tenant, Version
from holdfast.ids import Name as Named
from holdfast.store.outcomes import Attempt, SessionDump
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.rows import ItemRow, JournalRow
from holdfast.store.search.matches import parse_query
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.postgres import Server, execute
from tests.store.builders import TTL_MS
from tests.store.furnishing import CLAIMS, furnish_fully
from tests.store.state import contents

DATA = Path(__file__).parent / "data"
SOUGHT = ("oslo", "tokyo", "東京", "not in the index")
MOST = 100


def entries() -> Sequence[str]:
    """The names of what is there, the oldest first."""
    names = (each.name.partition(".")[0] for each in DATA.glob("*.json.gz"))
    return sorted(names, key=lambda name: int(name.removeprefix("tables_")))


# ── what is in a store ───────────────────────────────────────────────────────────────────────


async def everything(store: Store, clock: ManualClock) -> dict[str, Any]:
    """All that can be read of a store that was furnished fully, in the form that JSON has."""
    tenants = await store.tenants()
    nodes = await store.nodes()
    state = await contents(
        store,
        agents=("butler", "cook"),
        claims=CLAIMS,
        nodes=[each.node_id for each in nodes],
    )
    found = {
        "now_ms": clock.now_ms(),
        "state": state,
        "attempts": [
            await _known(store, tenant, IdempotencyKey(key)) for tenant in tenants for key in CLAIMS
        ],
        "queued": await store.queued(limit=MOST),
        # Only SQLite has slots: bytes of a side file that processes lock.
        "nodes": [msgspec.structs.replace(each, slot=0) for each in nodes],
        "grants": [await store.grants(each, limit=MOST) for each in tenants],
        "api_keys": await store.api_keys(limit=MOST),
        "seal_keys": await store.seal_keys(),
        "found": [
            [each.item or each.info.session.id for each in results.matches]
            for tenant in tenants
            for text in SOUGHT
            for results in [await store.search(tenant, parse_query(text))]
        ],
        # How large a store is depends on its home.
        "stats": msgspec.structs.replace(await store.stats(), bytes=0),
    }
    plain: dict[str, Any] = _plain(found)
    return plain


async def _known(store: Store, tenant: Tenant, key: IdempotencyKey) -> object:
    """What a retry under this key would be told, and of what kind that is."""
    row = await store.idempotency(tenant, key)
    if row is None:
        return None
    told = await store.find_attempt(tenant, Attempt(request_hash=row.request_hash, key=key))
    return [key, type(told).__name__, told]


def _plain(value: object) -> Any:
    """A value as JSON has it: what is a default is left out, so that a field which comes later changes nothing."""
    match value:
        # These two are told as when the first entry was made, without what stands around them.
        case ItemRow():
            return {"pos": value.pos, "turn_id": str(value.turn_id), "body": _plain(value.body)}
        case JournalRow():
            return {"n": value.n, "token": value.token, "records": _plain(value.records)}
        case msgspec.Struct():
            tag = value.__struct_config__.tag
            fields = ((each, getattr(value, each.name)) for each in msgspec.structs.fields(value))
            said = {each.name: _plain(has) for each, has in fields if has != each.default}
            if isinstance(value, SessionDump) and value.journals:
                said["journals"] = [[str(row.turn_id), _plain(row)] for row in value.journals]
            return {"type": tag, **said} if tag else said
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case frozenset():
            return sorted(map(_plain, value), key=repr)
        case list() | tuple() | Log():
            return [*map(_plain, value)]
        case bytes():
            return value.decode(errors="backslashreplace")
        case Version():
            return int(value)
        case Named():
            return str(value)
        case _:
            assert value is None or isinstance(value, bool | int | str), value
            return value


# ── reading the archive ──────────────────────────────────────────────────────────────────────


def said_of(entry: str) -> dict[str, Any]:
    """What could be read of an entry when it was made."""
    said: dict[str, Any] = msgspec.json.decode(_unpacked(f"{entry}.json.gz"))
    return said


def unpack_sqlite(entry: str, path: Path) -> None:
    path.write_bytes(_unpacked(f"{entry}.db.gz"))


async def unpack_postgres(entry: str, url: str) -> None:
    await execute(url, _unpacked(f"{entry}.sql.gz").decode())


def _unpacked(name: str) -> bytes:
    return gzip.decompress((DATA / name).read_bytes())


# ── making an entry ──────────────────────────────────────────────────────────────────────────


async def play(store: Store, clock: ManualClock) -> dict[str, Any]:
    """Furnish an empty store, and tell what it holds once all its nodes have died."""
    steps = count()
    mint = Minter(now_ms=clock.now_ms, random_bits=lambda bits: next(steps) % (1 << bits))
    await furnish_fully(store, clock, mint)
    clock.advance(TTL_MS / 1000)
    return await everything(store, clock)


async def _make_sqlite(path: Path) -> tuple[dict[str, Any], bytes]:
    clock = ManualClock()
    store = await SqliteStore.open(path, now_ms=clock.now_ms)
    await play(store, clock)
    await store.close()
    file = await asyncio.to_thread(path.read_bytes)
    reopened = await SqliteStore.open(path, now_ms=clock.now_ms)  # its nodes have died with it
    said = await everything(reopened, clock)
    await reopened.close()
    return said, file


async def _make_postgres(url: str) -> dict[str, Any]:
    clock = ManualClock()
    store = await PostgresStore.open(parse_address(f"{url}?listen=off"), clock=clock.now_ms)
    said = await play(store, clock)
    await store.close()
    return said


def _dumped(server: Server, url: str) -> str:
    """A dump that any PostgreSQL takes, without what is about the program that made it."""
    options = ("--inserts", "--rows-per-insert=20", "--no-owner", "--no-privileges")
    dump = server.call("pg_dump", *options, "--schema=holdfast", "--dbname", url)
    about = re.compile(r"^(--.*|SET .*|\\.*|SELECT pg_catalog\.set_config.*)\n", re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", about.sub("", dump)).strip() + "\n"


def main(entry: str) -> None:
    DATA.mkdir(exist_ok=True)
    assert entry not in entries(), f"{entry} is there already, and stays as it is"
    with Server.started() as server, tempfile.TemporaryDirectory() as folder:
        url = server.url(server.fresh_database())
        on_sqlite, file = asyncio.run(_make_sqlite(Path(folder) / "store.db"))
        on_postgres = asyncio.run(_make_postgres(url))
        assert on_sqlite == on_postgres, "the homes do not agree"
        dump = _dumped(server, url)
    told = msgspec.json.format(msgspec.json.encode(on_sqlite), indent=1)
    (DATA / f"{entry}.db.gz").write_bytes(gzip.compress(file, mtime=0))
    (DATA / f"{entry}.sql.gz").write_bytes(gzip.compress(dump.encode(), mtime=0))
    (DATA / f"{entry}.json.gz").write_bytes(gzip.compress(told, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
