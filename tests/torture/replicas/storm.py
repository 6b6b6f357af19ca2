"""Doing to replicas and their database what was drawn for them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import assert_never

import asyncpg

from holdfast.core.codec import Value
from tests.torture.replicas.faults import Fault
from tests.torture.replicas.fleet import Fleet, Replica

SLOW_S = 0.1


class Befallen(Value):
    """A fault as it was done, by the clock on the wall, which logs go by."""

    fault: Fault
    from_s: float
    until_s: float


class Storm:
    """The faults of a run, each at its time, some side by side."""

    def __init__(self, fleet: Fleet, now_s: Callable[[], float]) -> None:
        self._fleet = fleet
        self._now_s = now_s
        self._database = asyncio.Lock()
        self.befallen: list[Befallen] = []

    async def rage(self, faults: tuple[Fault, ...]) -> None:
        """Do all of them; afterwards everything runs again."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(max(0.0, fault.at_s - self._now_s()))
                group.create_task(self._befall(fault))
        await self._fleet.wait_ready()

    async def _befall(self, fault: Fault) -> None:
        struck = None if fault.replica is None else self._fleet.replicas[fault.replica]
        async with self._database if struck is None else struck.hands:
            began_s = time.time()
            await (self._strike_database(fault) if struck is None else self._strike(fault, struck))
            self.befallen.append(Befallen(fault=fault, from_s=began_s, until_s=time.time()))

    async def _strike(self, fault: Fault, replica: Replica) -> None:
        match fault.kind:
            case "kill":
                await replica.stop(signal.SIGKILL)
                await asyncio.sleep(fault.for_s)
                await replica.start()
            case "drain":
                await replica.stop(signal.SIGTERM)
                await replica.start()
            case "hurry":
                await replica.stop(signal.SIGTERM, signal.SIGTERM)
                await replica.start()
            case "pause" | "blink":
                replica.send(signal.SIGSTOP)
                await asyncio.sleep(fault.for_s)
                replica.send(signal.SIGCONT)
            case "cut":
                replica.wire.cut()
                await asyncio.sleep(fault.for_s)
                replica.wire.restore()
            case "silence":
                replica.wire.silence()
                await asyncio.sleep(fault.for_s)
                replica.wire.restore()
            case "restart" | "crash" | "away" | "slow" | "full":
                raise AssertionError(f"{fault.kind} befalls a database")
            case _:
                assert_never(fault.kind)

    async def _strike_database(self, fault: Fault) -> None:
        database = self._fleet.database
        match fault.kind:
            case "restart" | "away":
                await asyncio.to_thread(database.stop, "fast")
                await asyncio.sleep(fault.for_s if fault.kind == "away" else 0)
                await asyncio.to_thread(database.start)
            case "crash":
                await asyncio.to_thread(database.crash)
                await asyncio.to_thread(database.start)
            case "slow":
                for each in self._fleet.replicas:
                    each.wire.slow_down(SLOW_S)
                await asyncio.sleep(fault.for_s)
                for each in self._fleet.replicas:
                    each.wire.slow_down(0.0)
            case "full":
                await self._fill(fault.for_s)
            case "kill" | "drain" | "hurry" | "pause" | "blink" | "cut" | "silence":
                raise AssertionError(f"{fault.kind} befalls a replica")
            case _:
                assert_never(fault.kind)

    async def _fill(self, for_s: float) -> None:
        """Take every connection that there is, those of the replicas included, and hold on to them."""
        loop = asyncio.get_running_loop()
        taken: list[asyncpg.Connection[asyncpg.Record]] = []
        until_s = loop.time() + for_s
        try:
            while loop.time() < until_s:
                try:
                    taken.append(await asyncpg.connect(self._fleet.url, statement_cache_size=0))
                except asyncpg.TooManyConnectionsError:
                    with suppress(asyncpg.PostgresError):
                        await taken[0].execute(_END_OTHERS)
                    await asyncio.sleep(0.05)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pass  # something else has befallen the database meanwhile
        finally:
            for each in taken:
                each.terminate()


_END_OTHERS = (
    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'holdfast'"
)
