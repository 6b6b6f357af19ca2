"""Several processes behind one port: how they start, die, are started again, and stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import WORKERS
from tests.e2e.world import Staff, World, until
from tests.e2e.world import world as new_world

pytestmark = pytest.mark.slow

ONE, OTHER = 0, 1


def staff_of(world: World) -> Staff:
    assert world.workers is not None
    return world.workers


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@WORKERS
async def test_it_says_once_that_it_is_ready_and_answers_by_all_of_them(world: World) -> None:
    staff = staff_of(world)
    assert [each["workers"] for each in staff.said("server.ready")] == [2]
    assert len({each.node for each in staff.members.values()}) == 2
    for at in (ONE, OTHER):
        assert (await world.chat("hello", to="trip", at=at)).status == 200
    assert world.sent == [["hello"], ["hello", "hello"]]


@WORKERS
async def test_a_worker_that_dies_is_started_again_and_its_turn_is_finished(world: World) -> None:
    """Its clients see a connection that broke; the keyed retry meets the turn where it is played on."""
    staff, key = staff_of(world), {"Idempotency-Key": "7d8f"}
    before = dict(staff.members)
    gate = world.hold("important")
    waiting = asyncio.create_task(world.chat("important", to="trip", at=ONE, headers=key))
    await gate.reached.wait()
    world.gates.clear()
    await world.kill_one(ONE)
    await asyncio.wait({waiting})
    assert waiting.exception() is not None, "the client heard nothing"
    answer = await world.chat("important", to="trip", at=OTHER, headers=key)
    assert (answer.status, len(await world.turns("trip"))) == (200, 1)

    await staff.until(lambda staff: staff.members[ONE] != before[ONE])
    assert staff.members[OTHER] == before[OTHER]
    assert staff.said("worker.ended")[0]["code"] == -signal.SIGKILL
    again = await world.chat("important", to="trip", at=ONE, headers=key)
    assert again.body == answer.body
    assert await world.stop() == 0
    await world.verify()


@WORKERS
async def test_a_worker_that_is_asked_to_stop_lets_its_turn_finish_and_is_replaced(
    world: World,
) -> None:
    staff = staff_of(world)
    before = staff.members[ONE]
    gate = world.hold("long")
    waiting = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    for _ in range(2):  # twice is no hurry: a worker does not know who else was asked
        os.kill(before.pid, signal.SIGTERM)
    gate.release()
    assert (await waiting).status == 200
    await staff.until(lambda staff: staff.members[ONE] != before)


@WORKERS
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
async def test_a_signal_has_every_worker_reload_and_ends_none(
    world: World, number: signal.Signals
) -> None:
    staff, before = staff_of(world), dict(staff_of(world).members)
    gate = world.hold("long")
    waiting = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    world.signal(number)
    await staff.until(lambda staff: len(staff.said("server.reloaded")) == 2)
    gate.release()
    assert (await waiting).status == 200
    assert staff.members == before
    assert await world.stop() == 0


async def counted(world: World, name: str, *, at: int | None = None) -> float:
    """A number of the whole server, as one of the workers tells it."""
    shown = (await world.request("GET", "/metrics", at=at)).body.decode()
    return sum(
        float(line.rpartition(" ")[2]) for line in shown.splitlines() if line.startswith(name)
    )


@WORKERS
async def test_the_numbers_are_of_all_workers_whichever_is_asked(world: World) -> None:
    """Also of one that was killed, up to the last time that it was asked or had shown them."""
    turns = 'holdfast_turns_total{ended_by="completed"'
    for at in (ONE, OTHER, ONE):
        assert (await world.chat("hello", to="trip", at=at)).status == 200
    for at in (ONE, OTHER):  # what a worker is asked for, all know of from then on
        await counted(world, turns, at=at)
    assert [await counted(world, turns, at=at) for at in (ONE, OTHER)] == [3, 3]
    assert await counted(world, "holdfast_workers ") == 2
    staff, before = staff_of(world), staff_of(world).members[ONE]
    await world.kill_one(ONE)
    assert await counted(world, turns, at=OTHER) == 3
    await staff.until(lambda staff: staff.members[ONE] != before)
    await world.chat("hello", to="trip", at=ONE)
    assert await counted(world, turns, at=ONE) == 4
    assert await counted(world, "holdfast_worker_restarts_total ", at=OTHER) == 1


@WORKERS
async def test_a_tenants_bound_is_one_for_all_workers(world: World) -> None:
    await world.restart(HOLDFAST_TENANT_TURNS="1")
    gate = world.hold("long")
    waiting = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    refused = await world.chat("other", to="other", at=OTHER)
    assert (refused.status, refused.error["code"]) == (429, "concurrency_limit_exceeded")
    await world.kill_one(ONE)
    await asyncio.gather(waiting, return_exceptions=True)
    freed = await world.chat("other", to="other", at=OTHER)
    assert freed.status == 200, "what a dead worker held is free"


@WORKERS
async def test_a_signal_to_all_of_them_lets_streams_finish(world: World) -> None:
    """A terminal's Ctrl-C, or systemd, signals the supervisor and its workers alike."""
    gate, staff = world.hold("long"), staff_of(world)
    async with world.streaming("long", to="trip") as response:
        said = await response.content.readany()
        await gate.reached.wait()
        for member in staff.members.values():
            os.kill(member.pid, signal.SIGINT)
        world.signal(signal.SIGINT)
        await until(lambda: not accepts(world.url))
        gate.release()
        said += await response.content.read()
    assert said.endswith(b"data: [DONE]\n\n")
    assert await world.stop() == 0
    await world.start()
    assert len(await world.items("trip")) == 2


def accepts(url: str) -> bool:
    where = urlsplit(url)
    try:
        socket.create_connection((where.hostname, where.port), timeout=5).close()
    except ConnectionError:
        return False
    return True


@WORKERS
async def test_two_signals_to_the_supervisor_are_a_hurry(world: World) -> None:
    gate = world.hold("long")
    async with world.streaming("long", to="trip") as response:
        await response.content.readany()
        await gate.reached.wait()
        world.signal(signal.SIGTERM)
        assert await world.stop(signal.SIGINT) == 0
    await world.start()
    (turn,) = await world.turns("trip")
    assert (turn["state"], turn["ended_by"]) == ("discarded", "shutdown")


@WORKERS
async def test_workers_do_not_outlive_their_supervisor(world: World) -> None:
    pids = [each.pid for each in staff_of(world).members.values()]
    await world.kill()
    await until(lambda: not any(map(is_alive, pids)))
    await world.start()
    assert (await world.chat("hello", to="trip")).status == 200


@pytest.mark.parametrize("world", ["workers on a database"], indirect=True)
async def test_workers_on_a_database(world: World) -> None:
    answers = await asyncio.gather(*(world.chat(f"{n}", to="trip", at=n % 2) for n in range(4)))
    assert {each.status for each in answers} == {200}
    assert len({each.headers["x-session-id"] for each in answers}) == 1
    gate = world.hold("long")
    waiting = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    await world.kill_one(ONE)
    await asyncio.gather(waiting, return_exceptions=True)
    assert (await world.chat("after", to="trip", at=OTHER)).status == 200
    assert await world.stop() == 0
    await world.verify()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--store", "sqlite:///no/such/place.db"), "does not exist"),
        (("--store", "memory:"), "belongs to one process"),
        (("--listen", "0.0.0.0:0"), "lets others in"),
        (("nowhere.yaml",), "nowhere.yaml"),
        (("--workers", "0"), "--workers takes a number from 1 to 64"),
    ],
)
async def test_what_cannot_work_is_said_once(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    async with new_world(tmp_path) as world:
        process = await world.run("serve", "--workers", "3", *arguments)
        said, _ = await process.communicate()
    text = said.decode()
    assert process.returncode == 2, text
    assert text.startswith("holdfast: ") and words in text
    assert len(text.strip().splitlines()) == 1


async def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    """Also if those who have it would share it."""
    async with new_world(tmp_path, workers=2) as world:
        await world.start()
        process = await world.run(
            *("serve", "demo", "--workers", "2", "--listen", world.url.removeprefix("http://"))
        )
        said, _ = await process.communicate()
        assert process.returncode == 2
        assert "is taken" in said.decode() and len(said.decode().strip().splitlines()) == 1


ADOPTING = """
import ctypes, os, sys
from holdfast.server.http.listen_sockets import SharedPort
from holdfast.server.processes.worker import Worker
from holdfast.server.processes.worker_supervisor import WorkerSupervisor

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans below us are given to us
place = WorkerSupervisor(2, SharedPort("127.0.0.1", 0), bounded=False, on_ready=print).run()
if isinstance(place, Worker):
    if os.fork() == 0:
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            sys.stdin.read()
        os._exit(0)
    os.wait()
    place._line.recv(1)
"""
"""A supervisor whose worker leaves a process behind, which ends with its standard input."""


@pytest.mark.skipif(sys.platform != "linux", reason="there is no such process elsewhere")
async def test_processes_that_others_have_left_behind_are_taken_leave_of() -> None:
    """Process 1 of a container is given them; nobody else would take their last word."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ADOPTING),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    orphan = int(await process.stdout.readline())
    await until(lambda: parent_of(orphan) == process.pid)
    process.stdin.close()
    await until(lambda: parent_of(orphan) is None)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


def parent_of(pid: int) -> int | None:
    """None if there is no such process, not even one that nobody has taken leave of."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):  # it may go while it is read
        return None
