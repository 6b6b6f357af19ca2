"""What client processes do with a PostgreSQL store until they are killed. Started by a `Zygote`.

A client says what it is about to do before it does it, and what was acknowledged before it does anything else:

    try NAME KEY          ack NAME VERSION       a turn; version 0 if it was discarded
    fork ID KEY VERSION   forked ID              a fork of a key's session
    remove ID             removed ID             a fork goes again
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Protocol, TypeVar

import msgspec

from holdfast.errors import StoreUnavailable, Superseded
from holdfast.ids import SessionId, SessionKey, Version
from holdfast.store.outcomes import Taken
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from tests.crash.audit import audit
from tests.crash.turn_server import ACME, Answer, Plan, Poll, Server, plans_of
from tests.crash.worker import Inspection, Pipe, new_minter, random_plan, serve_forks

TTL_MS = 1_000
RENEW_S = 0.2
"""Leases are short, so that the dead are found soon, and a slow machine makes a zombie now and then."""

WAIT_S = 0.02
SETTLED_S = 60.0

T = TypeVar("T")


class Found(Inspection):
    """What a fresh process finds in the database, besides what a file would show."""

    sessions: dict[str, list[str] | None]
    """By session id, the plans in its history, one per version; None if it was deleted."""


class Says(Protocol):
    """Where a client says what it does."""

    def say(self, *words: object) -> None: ...


async def new_server(url: str, seed: int) -> Server:
    """A server on a store of its own. A database that is away is waited for."""
    store = await insisting(lambda: PostgresStore.open(parse_address(url)))
    server = Server(store, new_minter(seed), waiting=Poll(WAIT_S))
    await insisting(lambda: server.enrol(ttl_ms=TTL_MS))
    return server


async def insisting(work: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer, as a client would: whatever became of the last try, it is told by the next."""
    while True:
        try:
            return await work()
        except (Superseded, StoreUnavailable):
            await asyncio.sleep(WAIT_S)


async def keep_alive(server: Server) -> None:
    while True:
        await insisting(lambda: server.enrol(ttl_ms=TTL_MS))
        await asyncio.sleep(RENEW_S)


def plan_of(name: str) -> Plan:
    """A plan is known by its name: whoever retries it asks for the same."""
    return random_plan(name, random.Random(name))


BUSY = 6
"""What one client does at once: enough that some of it goes in one statement."""

# ── clients ──────────────────────────────────────────────────────────────────────────────────


async def play(pipe: Pipe, url: str, seed: str, keys: str, *retried: str) -> None:
    """Ask again for what a dead client was asking for (`NAME=KEY`), then do this and that on some sessions at once."""
    server = await new_server(url, int(seed))
    pipe.say("ready")
    beating = asyncio.create_task(keep_alive(server))
    names = (f"{seed}.{number}" for number in count())
    for each in retried:
        name, _, key = each.partition("=")
        await take_turn(pipe, server, name, key)
    await asyncio.gather(
        beating,
        *(
            keep_busy(Client(pipe, server, random.Random(f"{seed}/{number}"), names, int(keys)))
            for number in range(BUSY)
        ),
    )


async def take_turn(pipe: Says, server: Server, name: str, key: str) -> None:
    async def ask() -> Answer:
        return await server.ask(key, plan_of(name), idempotent=True)

    pipe.say("try", name, key)
    answer = await insisting(ask)
    # Durable: from here on nothing may take it back.
    pipe.say("ack", name, answer.version or 0)


async def take_turn_once(pipe: Says, server: Server, name: str, key: str) -> None:
    """The same without an idempotency key: if there is no answer, nobody asks again, and it may have landed."""
    pipe.say("once", name, key)
    with suppress(Superseded, StoreUnavailable):
        answer = await server.ask(key, plan_of(name))
        pipe.say("ack", name, answer.version or 0)


class Client(msgspec.Struct):
    """One of several that share a process."""

    pipe: Says
    server: Server
    dice: random.Random
    names: Iterator[str]
    keys: int

    def key(self) -> str:
        return f"key-{self.dice.randrange(self.keys)}"


async def keep_busy(client: Client) -> None:
    while True:
        act = client.dice.choices((turn, fork, cancel, clean_up), (80, 9, 6, 5))[0]
        with suppress(StoreUnavailable):  # of what is done once: whether it was done is not known
            await act(client)


async def turn(client: Client) -> None:
    take = take_turn if client.dice.random() < 0.5 else take_turn_once
    await take(client.pipe, client.server, next(client.names), client.key())


async def fork(client: Client) -> None:
    """Fork a session, and remove the fork again half of the time."""
    server, key = client.server, client.key()
    row = await server.store.resolve(ACME, SessionKey(key))
    head = await server.head(row.session_id) if row else None
    if head is None or head.version < 1:
        return
    version = Version(client.dice.randint(1, head.version))
    fresh = server.mint(SessionId)
    client.pipe.say("fork", fresh, key, version)
    await insisting(lambda: server.store.fork(ACME, head.session_id, version=version, fresh=fresh))
    client.pipe.say("forked", fresh)
    if client.dice.random() < 0.5:
        client.pipe.say("remove", fresh)
        await insisting(lambda: server.store.remove(ACME, fresh))
        client.pipe.say("removed", fresh)


async def cancel(client: Client) -> None:
    """Tell whatever turn is open somewhere that it shall stop; these players do not listen."""
    row = await client.server.store.resolve(ACME, SessionKey(client.key()))
    found = await client.server.store.session(ACME, row.session_id) if row else None
    if found is not None and found.open_turn is not None:
        await client.server.store.signal(ACME, found.open_turn, kind="cancel")


async def clean_up(client: Client) -> None:
    await recover(client.server)


async def recover(server: Server) -> int:
    """Take over whatever is nobody's, and bring it to an end."""
    taken = 0
    for each in await server.store.orphans(node=server.node, limit=50):
        if each.holder != server.node:
            with suppress(Superseded):
                taken += isinstance(await server.recover(each.session_id), Taken)
    return taken


async def sweep(pipe: Pipe, url: str, seed: str) -> None:
    """Clean up after everybody, for as long as there is somebody to clean up after."""
    server = await new_server(url, int(seed))
    pipe.say("ready")
    while True:
        await insisting(lambda: server.enrol(ttl_ms=TTL_MS))
        with suppress(StoreUnavailable):
            await recover(server)
        await asyncio.sleep(WAIT_S)


# ── looking ──────────────────────────────────────────────────────────────────────────────────


async def look(pipe: Pipe, url: str, keys: str) -> None:
    """When all are dead: wait until their leases have ended, clean up, and look at everything."""
    began = time.monotonic()
    server = await new_server(url, time.time_ns())
    recovered = 0
    async with asyncio.timeout(SETTLED_S):
        while True:
            await server.enrol(ttl_ms=TTL_MS)
            recovered += await recover(server)
            if not (await server.store.stats()).turns_open:
                break
            await asyncio.sleep(WAIT_S)
    waited_s = time.monotonic() - began
    pipe.say(
        msgspec.json.encode(
            await inspected(server, int(keys), recovered=recovered, waited_s=waited_s)
        ).decode()
    )
    await server.store.close()


async def inspected(server: Server, keys: int, *, recovered: int, waited_s: float) -> Found:
    store = server.store
    sessions: dict[str, list[str] | None] = {}
    for session_id in await store.session_ids(ACME, after=None, limit=1_000_000):
        snapshot = await store.snapshot(ACME, session_id)
        sessions[session_id] = None if snapshot is None else plans_of(snapshot)
    histories = {}
    for key in (f"key-{number}" for number in range(keys)):
        row = await store.resolve(ACME, SessionKey(key))
        histories[key] = (sessions[row.session_id] or []) if row else []
    return Found(
        wrong=await audit(store),
        histories=histories,
        recovered=recovered,
        waited_s=waited_s,
        sessions=sessions,
    )


if __name__ == "__main__":
    serve_forks(int(sys.argv[1]), {"play": play, "sweep": sweep, "look": look})
