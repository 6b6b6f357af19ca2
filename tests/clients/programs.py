"""How programs are run that belong to another environment than ours."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.testing import Gate
from tests.clients.environments import SHARED, CannotInstall
from tests.e2e.balancer import Balancer
from tests.e2e.world import World
from tests.means import skip_without

PROGRAM_S = 240
"""How long one may take. The slowest needs 9 s to be imported, on an idle machine."""

T = TypeVar("T")


class Driven(Protocol):
    """A client or a framework with a driver."""

    def command(self, *arguments: str) -> list[str]: ...


async def drive(client: Driven, scenario: str, world: World) -> dict[str, Any]:
    """Run a client's driver, and say what the client saw: the last line that it prints."""
    command = await installed(lambda: client.command(f"{world.url}/v1", scenario))
    printed = await run(command, home=world.here)
    saw: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return saw


async def installed(work: Callable[[], T]) -> T:
    """Do something that may have to install packages first. Skips the test if they cannot be had."""
    try:
        return await asyncio.to_thread(work)
    except CannotInstall as error:
        skip_without(f"the packages of {error.name}", enable="make setup-clients")


async def run(
    command: list[str],
    *,
    home: Path,
    may_end_with: tuple[int, ...] = (0,),
    **environment: str,
) -> str:
    """What a program prints. It finds nothing of ours, and nobody's settings."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=home,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(SHARED),
            "OPENAI_API_KEY": "any",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network while it is imported
            **environment,
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PROGRAM_S):
            said, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode in may_end_with, f"{said.decode()}\n{complaints.decode()}"
    return said.decode()


async def killed(world: World, gate: Gate, work: Coroutine[None, None, T]) -> T:
    """What comes of this work although the server is killed as soon as its model is at the gate, and started again.

    Who connects meanwhile waits until the server is there: how often a client tries, and in which time, is not compared
    with how fast this machine starts a server.
    """
    async with Balancer.started() as front:
        address = world.url.removeprefix("http://")
        front.urls, world.url = [world.url], front.url
        working = asyncio.create_task(work)
        reached = asyncio.create_task(gate.reached.wait())
        await asyncio.wait((working, reached), return_when=asyncio.FIRST_COMPLETED)
        front.opened.clear()
        await world.kill()
        await world.start(listen=address)
        front.opened.set()
        gate.release()
        return await working
