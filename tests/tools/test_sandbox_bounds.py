"""How much a command can take of the machine: memory, processes, files, and what has to be left for others."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.tools.sandbox import launcher, machine
from holdfast.tools.sandbox.backend import Kind
from holdfast.tools.sandbox.processes import memory_of
from holdfast.tools.sandbox.sandbox import Sandbox
from tests.tools.sandboxes import run, sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture(params=("landlock", "bubblewrap"))
def box(request: pytest.FixtureRequest) -> Sandbox:
    kind: Kind = request.param
    return sandbox(kind)


def python(code: str) -> str:
    return f"python3 -I -c {shlex.quote(code)}"


async def test_memory_is_bounded_for_a_process(
    box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "sandbox_memory_bytes_max", 200 * 1024**2)
    ended = await run(python("bytearray(300 * 1024**2)"), tmp_path, box.cell(tmp_path))
    assert b"MemoryError" in ended.output


async def test_memory_is_bounded_for_all_of_a_command(
    box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "sandbox_memory_bytes_max", 100 * 1024**2)
    code = (
        "import os, time\n"
        "for _ in range(3):\n"
        "  if not os.fork():\n"
        "    held = bytearray(b'x') * (40 * 1024**2); time.sleep(1000)\n"
        "time.sleep(1000)"
    )
    ended = await run(python(code), tmp_path, box.cell(tmp_path))
    assert b"more than 104,857,600 bytes of memory" in ended.output


async def test_the_number_of_processes_is_bounded(
    box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For root too, whom the kernel's own bound does not hold."""
    monkeypatch.setattr(limits, "sandbox_processes_max", 20)
    code = (
        "import os, time\n"
        "for _ in range(100):\n"
        "  if not os.fork(): time.sleep(1000)\n"
        "time.sleep(1000)"
    )
    ended = await run(python(code), tmp_path, box.cell(tmp_path))
    assert ended.code != 0 or ended.killed_by
    told = (b"started more than 20 processes", b"Resource temporarily unavailable")
    assert any(each in ended.output for each in told)


async def test_files_are_bounded(
    box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "sandbox_file_bytes_max", 1024**2)
    monkeypatch.setattr(limits, "sandbox_files_max", 30)
    ended = await run("head -c 2000000 /dev/zero >large; ls -l large", tmp_path, box.cell(tmp_path))
    assert b" 1048576 " in ended.output
    many = python("held = [open('/dev/null') for _ in range(40)]")
    assert b"Too many open files" in (await run(many, tmp_path, box.cell(tmp_path))).output


SHARED = {
    "shared memory": "import mmap; held = mmap.mmap(-1, 150 << 20); held.write(b'x' * (150 << 20))",
    "a device's": (
        "import mmap, os; held = mmap.mmap(os.open('/dev/zero', os.O_RDWR), 150 << 20)\n"
        "for at in range(0, 150 << 20, 4096): held[at] = 1"
    ),
    "files that have no name": (
        "import os; held = os.memfd_create('x')\nfor _ in range(150): os.write(held, b'x' * (1 << 20))"
    ),
    "System V's": "import ctypes; assert ctypes.CDLL(None).shmget(0, 150 << 20, 0o1600) == -1; raise MemoryError",
}


@pytest.mark.parametrize("kind", SHARED)
async def test_memory_that_processes_can_share_counts(
    kind: str, box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is nobody's own, so no limit of the kernel's for a process holds it."""
    monkeypatch.setattr(limits, "sandbox_memory_bytes_max", 100 * 1024**2)
    command = python(f"{SHARED[kind]}\nimport time; time.sleep(1000)")
    ended = await run(command, tmp_path, box.cell(tmp_path))
    refused = (b"more than 104,857,600 bytes of memory", b"not implemented", b"MemoryError")
    assert any(each in ended.output for each in refused)


def test_memory_that_several_share_is_counted_once_before_a_command_is_ended() -> None:
    code = (
        "import mmap, os\n"
        "held = mmap.mmap(-1, 20 << 20); held.write(b'x' * (20 << 20))\n"
        "pids = [os.getpid()]\n"
        "for _ in range(2):\n"
        "  reading, writing = os.pipe()\n"
        "  if not (pid := os.fork()): sum(held[::4096]); os.write(writing, b'!'); os.read(0, 1); os._exit(0)\n"
        "  os.read(reading, 1); pids.append(pid)\n"
        "print(*pids, flush=True); os.read(0, 1)"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        pids = [int(each) for each in child.stdout.readline().split()]
        quick, exact = memory_of(pids, most=1 << 40), memory_of(pids, most=0)
        child.stdin.close()
    assert quick > 60 << 20
    assert 20 << 20 < exact < quick - (35 << 20)


async def test_files_of_shared_memory_lie_on_the_disk(tmp_path: Path) -> None:
    look = "df --output=target /dev/shm | tail -1; echo x >/dev/shm/x && cat /dev/shm/x; echo y 2>&1 >/dev/y"
    ended = await run(look, tmp_path, sandbox("bubblewrap").cell(tmp_path))
    assert ended.output.startswith(b"/dev/shm\nx\n")
    assert b"Read-only" in ended.output


def test_a_command_leaves_some_of_the_machine_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what no process can be charged with: what is in pipes, on the disk, or shared and no longer mapped."""
    free = {"memory": 10_000, "/own": 5_000}
    monkeypatch.setattr(machine, "free_bytes", free.get)
    watched = machine.Machine(["/own"], memory_left=1_000, disk_left=100)
    assert watched.scarce() == ""
    free["memory"] = 999
    assert watched.scarce() == "left the machine less than 1,000 bytes of memory"
    free |= {"memory": 10_000, "/own": 99}
    assert watched.scarce() == "left the machine less than 100 bytes of disk at /own"


async def test_a_command_cannot_keep_its_launcher_busy(tmp_path: Path) -> None:
    """Which goes before everything else, if it is root's. Here: what takes it six looks is not done in four."""
    asking = (
        "import os, time\n"
        "open('f', 'w').close(); began = time.monotonic()\n"
        "pids = [os.fork() for _ in range(2)]\n"
        "for _ in range(750): os.chmod('f', 0o644)\n"
        "if 0 in pids: os._exit(0)\n"
        "for _ in pids: os.wait()\n"
        "print(time.monotonic() - began)"
    )
    ended = await run(python(asking), tmp_path, sandbox("landlock").cell(tmp_path))
    assert float(ended.output) > 4 * launcher.LOOK_S


def test_where_there_is_little_it_may_take_half_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"memory": 1_000}
    monkeypatch.setattr(machine, "free_bytes", free.get)
    watched = machine.Machine([], memory_left=5_000, disk_left=5_000)
    free["memory"] = 501
    assert watched.scarce() == ""
    free["memory"] = 499
    assert watched.scarce() == "left the machine less than 500 bytes of memory"


def test_what_is_free_is_known_here(tmp_path: Path) -> None:
    assert machine.free_bytes("memory") > 2**20
    assert machine.free_bytes(str(tmp_path)) > 2**20
    assert machine.free_bytes(str(tmp_path / "gone")) == 2**62, "nothing to be careful with"


async def test_what_lies_deep_in_its_temporary_directory_is_gone_afterwards(
    box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deeper than a path can say, and closed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    own = tmp_path / "own"
    own.mkdir()
    deep = (
        "import os\n"
        "os.chdir(os.environ['TMPDIR'])\n"
        "for _ in range(2500): os.mkdir('d'); os.chdir('d')\n"
        "open('f', 'w').close(); os.chdir(os.environ['TMPDIR']); os.chmod('d', 0)"
    )
    ended = await run(f"{python(deep)}; exit 7", own, box.cell(own))
    assert (ended.output, ended.code) == (b"", 7)
    assert os.listdir(tmp_path) == ["own"]
