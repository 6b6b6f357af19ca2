"""The process itself: how it starts, refuses to, and stops."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.world import World
from tests.e2e.world import world as new_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with new_world(tmp_path) as found:
        found.fresh = True
        await found.start()
        yield found


async def test_it_says_where_it_is_and_what_to_try(world: World) -> None:
    assert world.url in world.output
    for word in ("agents", "root", "store", "curl", "X-Conversation-Id", "Ctrl-C"):
        assert word in world.output
    assert world.started_in_s < 5  # about 0.6 s on an idle machine


async def draining(world: World) -> None:
    """Wait until the server has heard that it is to stop: it takes no new connections then."""
    async with asyncio.timeout(120):
        while True:
            try:
                async with aiohttp.ClientSession() as http:
                    async with http.get(f"{world.url}/readyz") as ready:
                        assert ready.status in (200, 503)
            except aiohttp.ClientError:
                break


async def test_a_signal_lets_streams_finish_and_takes_no_new_connections(world: World) -> None:
    gate = world.hold("long")
    async with world.streaming("long", to="trip") as response:
        said = await response.content.readany()
        await gate.reached.wait()
        world.signal(signal.SIGTERM)
        await draining(world)
        gate.release()
        said += await response.content.read()
    assert said.endswith(b"data: [DONE]\n\n")
    assert await world.stop() == 0

    await world.start()
    assert len(await world.items("trip")) == 2


async def test_a_hangup_ends_no_stream_and_no_server(world: World) -> None:
    """A daemon is told by it to read its files anew; it used to end there and then."""
    gate = world.hold("long")
    async with world.streaming("long", to="trip") as response:
        said = await response.content.readany()
        await gate.reached.wait()
        for each in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            world.signal(each)
        gate.release()
        said += await response.content.read()
    assert said.endswith(b"data: [DONE]\n\n")
    assert (await world.chat("hello", to="trip")).status == 200
    assert await world.stop() == 0


async def test_two_signals_are_a_hurry(world: World) -> None:
    gate = world.hold("long")
    async with world.streaming("long", to="trip") as response:
        await response.content.readany()
        await gate.reached.wait()
        world.signal(signal.SIGINT)
        await draining(world)  # a second one that came before it had heard the first would be none
        assert await world.stop(signal.SIGINT) == 0
    await world.start()
    assert await world.items("trip") == []
    (turn,) = await world.turns("trip")
    assert (turn["state"], turn["ended_by"]) == ("discarded", "shutdown")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--store", "mysql://x"), "there is no kind of store called 'mysql'"),
        (("--store", "sqlite:///no/such/place.db"), "does not exist"),
        (("--listen", "everywhere"), "--listen takes HOST:PORT"),
        (("--listen", "0.0.0.0:0"), "lets others in"),
        (("nowhere.yaml",), "nowhere.yaml"),
        (("what is this",), "names no agents"),
        (("broken.yaml",), "broken.yaml"),
    ],
)
async def test_what_cannot_work_is_one_sentence_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "broken.yaml").write_text("agents: {root: {modle: x}}\n")
    async with new_world(tmp_path) as world:
        process = await world.run("serve", *arguments)
        said, _ = await process.communicate()
    text = said.decode()
    assert process.returncode == 2, text
    assert text.startswith("holdfast: ") and words in text
    assert "Traceback" not in text


async def test_a_port_that_is_taken_is_one_sentence(world: World) -> None:
    address = world.url.removeprefix("http://")
    process = await world.run("serve", "demo", "--listen", address, HOLDFAST_STORE="memory:")
    said, _ = await process.communicate()
    assert process.returncode == 2
    assert "is taken" in said.decode() and len(said.decode().strip().splitlines()) == 1


async def test_settings_can_be_looked_at(tmp_path: Path) -> None:
    async with new_world(tmp_path) as world:
        process = await world.run(
            *("serve", "--print-config", "--busy-status", "400"), HOLDFAST_LISTEN="127.0.0.1:99"
        )
        said, _ = await process.communicate()
    lines = [line.split() for line in said.decode().splitlines()]
    assert ["listen", "127.0.0.1:99", "HOLDFAST_LISTEN"] in lines
    assert ["busy_status", "400", "--busy-status"] in lines
    assert any(line[0] == "sources" and line[-1] == "default" for line in lines)
