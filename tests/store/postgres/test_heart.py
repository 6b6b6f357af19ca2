"""A node's heart goes on beating when a single connection falls silent, which nobody is told of."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit, urlunsplit

from holdfast.ids import NodeId
from holdfast.sessions.lease import Lease
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from tests.replicas.wire import Wire
from tests.store.postgres.conftest import random_mint

TTL_S = 3.0


async def test_a_renewal_that_is_not_answered_is_given_up_while_there_is_time_for_another(
    url: str,
) -> None:
    """A call may take ten seconds, and a lease may have ended by then: a firewall that has forgotten about
    one connection must not cost a node all of its turns."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    async with Wire.before(parts.hostname, parts.port) as wire:
        there = parts._replace(netloc=f"{parts.username}@127.0.0.1:{wire.port}")
        store = await PostgresStore.open(parse_address(f"{urlunsplit(there)}?listen=off"))
        lease = Lease(store, random_mint()(NodeId), monotonic=time.monotonic, ttl_s=TTL_S)
        await lease.renew()
        wire.silence()
        renewing = asyncio.create_task(lease.renew())
        began = time.monotonic()
        await asyncio.wait({renewing}, timeout=TTL_S * 2)
        took_s = time.monotonic() - began
        assert renewing.done(), "somebody waits for a connection that says nothing"
        assert renewing.exception() is not None
        assert took_s < TTL_S / 2, f"{took_s:.1f} s of {TTL_S} s"
        wire.restore()
        await lease.renew()
        assert lease.is_live
        await store.close()
