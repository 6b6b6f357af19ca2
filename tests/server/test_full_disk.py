"""A disk that fills up while turns run, a real one: clients are told in time, and all goes on when there is room."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import Gate
from tests.means import skip_without
from tests.server.stubs import agent, serving, until
from tests.server.test_busy import held

SIZE = "4m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", place],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        skip_without("the right to mount a file system", enable="sudo make test")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the room that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for piece in (1 << 16, 1):
            try:
                while True:
                    file.write(bytes(piece))
            except OSError:
                pass
    assert os.statvfs(disk).f_bavail == 0
    return filler


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_clients_of_a_full_disk_are_told_in_time_and_truly(
    small_disk: Path, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "store_retry_s", 0.1)
    monkeypatch.setattr(limits, "sweep_s", 0.01)
    store = await SqliteStore.open(small_disk / "store.db")
    gate = Gate()
    try:
        async with serving(agent(held(gate)), store=store) as server:
            first = asyncio.create_task(server.chat("one", to="trip", stream=streamed))
            await gate.reached.wait()
            filler = fill(small_disk)
            gate.release()
            told = await first
            refused = await server.chat("two", to="another")
            assert (refused.status, refused.error["code"]) == (503, "storage_full")
            assert (await server.get("/api/sessions")).status == 200, "reading goes on"
            filler.unlink()
            await until(lambda: not server.sessions._owner.unstored)
            again = await server.chat("three", to="trip")
    finally:
        await store.close()
    if streamed:
        assert told.status == 200
        assert b'"code":"storage_full"' in told.body and b"[DONE]" not in told.body
    else:
        assert (told.status, told.error["code"]) == (503, "storage_full")
    assert again.status == 200
