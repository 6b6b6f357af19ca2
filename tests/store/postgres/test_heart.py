"""A node's heart goes on beating when a connection falls silent, which nobody is told of."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit, urlunsplit

import pytest

from holdfast.ids import NodeId
from holdfast.observe.supervisor import TaskSupervisor
from holdfast.sessions.turns.lease import Lease
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from tests.replicas.wire import Wire
from tests.store.postgres.conftest import random_mint

TTL_S = 9.0


@pytest.mark.slow
async def test_a_renewal_that_is_not_answered_is_given_up_while_there_is_time_for_another(
    url: str,
) -> None:
    """A call may take as long as the lease lasts: a firewall that has forgotten about one connection must not cost
    a node all of its turns."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    async with Wire.before(parts.hostname, parts.port) as wire:
        there = parts._replace(netloc=f"{parts.username}@127.0.0.1:{wire.port}")
        address = parse_address(f"{urlunsplit(there)}?listen=off&sslmode=disable&timeout={TTL_S}")
        store = await PostgresStore.open(address)
        lease = Lease(
            store, random_mint()(NodeId), monotonic=time.monotonic, ttl_s=TTL_S, renew_s=0.1
        )
        await lease.renew()
        ends_s = time.monotonic() + TTL_S
        wire.forget()
        heart = TaskSupervisor().keep("heart", lease.beat, lease.backoff)
        for _ in range(int(TTL_S / 0.05)):
            if lease._live_until > ends_s:
                break
            await asyncio.sleep(0.05)
        assert lease._live_until > ends_s, "the lease has ended meanwhile"
        await heart.stop()
        await store.close()
