"""Bits flipped over a whole SQLite file, one at a time: each is noticed, and nothing is served that is not true."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter

from holdfast.ids import Minter
from holdfast.store.sqlite import SqliteStore
from tests.store.builders import ACME, Player
from tests.store.sqlite.flips import PAGE_BYTES, furnish, kinds_of, sweep, truth_of
from tests.torture.campaign import Figures, Progress, Run

SESSIONS = 60
FLIPS_PER_PAGE = 4


def flips(run: Run, progress: Progress) -> Figures:
    """So many bits of every page, each in a copy of its own."""
    logging.getLogger("holdfast.events").setLevel(logging.ERROR)  # each flip is told, and meant
    return asyncio.run(_flips(run, progress))


async def _flips(run: Run, progress: Progress) -> Figures:
    path, chance = run.folder / "whole.db", random.Random(run.seed)
    store = await SqliteStore.open(path)
    bits = iter(range(1 << 30))
    mint = Minter(now_ms=lambda: 1_700_000_000_000, random_bits=lambda _: next(bits))
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    await furnish(store, player, sessions=SESSIONS)
    truth = await truth_of(store)
    await store.close()
    kinds = kinds_of(path)
    places = [
        ((page - 1) * PAGE_BYTES + chance.randrange(PAGE_BYTES), chance.randrange(8))
        for page in kinds
        for _ in range(run.count(FLIPS_PER_PAGE))
    ]
    seen: Counter[str] = Counter()
    became: Counter[str] = Counter()
    wrong: list[str] = []
    async for at, bit, served in sweep(path, run.folder / "flipped.db", truth, places):
        kind = kinds[at // PAGE_BYTES + 1]
        seen[kind] += 1
        became["refused at the start"] += bool(served.refused)
        became["read-only"] += served.read_only
        became["conversations damaged"] += bool(served.damaged) and not served.read_only
        became["named by verify alone"] += not (
            served.refused or served.read_only or served.damaged
        )
        where = f"bit {bit} of byte {at} ({kind})"
        wrong += [f"{where}: {each}" for each in served.wrong]
        if not served.noticed:
            wrong.append(f"{where} was not noticed")
        progress(seen.total(), len(places))
    did = f"{seen.total():,} bits over {len(kinds)} pages ({_listed(seen)}): {_listed(became)}"
    return Figures(did, wrong, points=seen.total())


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in sorted(counts.items()))
