"""A command is ended whole: by its exit, by the clock, by a cancelled turn, whatever it has started.

Each command holds the writing end of a named pipe, and so does everything it starts. When the last of them is
gone, and not before, the reading end says so: nothing here sleeps, and nothing is missed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.tools.process import MARK, Capture, Exit, _marked, run_command
from tests.tools.tool_calls import Lifeline, leap


@pytest.fixture
def lifeline(tmp_path: Path) -> Iterator[Lifeline]:
    made = Lifeline(tmp_path / "lifeline")
    yield made
    made.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "script_kill_grace_s", 0.2)


async def run(command: str, *, key: str = "", timeout_s: float = 60.0) -> Exit:
    environment = {"PATH": os.environ["PATH"]}
    return await run_command(
        command, environment=environment, directory=Path("/"), mark=key, timeout_s=timeout_s
    )


needs_setsid = pytest.mark.skipif(
    shutil.which("setsid") is None, reason="needs setsid (util-linux)"
)

ALIVE = "sleep 1000"
TREES = {
    "itself": f"echo up >&9; exec {ALIVE}",
    "a child": f"echo up >&9; {ALIVE}; :",
    "a child in the background": f"{ALIVE} & echo up >&9; wait",
    "a child of a child": f"sh -c '{ALIVE} & echo up >&9; wait'; :",
    "a child of a child whose parent is gone": f"sh -c '{ALIVE} & echo up >&9' ; {ALIVE}",
    "a pipeline": f"echo up >&9; {ALIVE} | cat; :",
    "silent": f"exec >/dev/null 2>&1; {ALIVE} & echo up >&9; wait",
    "deaf": f"trap '' TERM INT HUP; echo up >&9; {ALIVE}; {ALIVE}",
    "deaf in the background": f"(trap '' TERM; {ALIVE} >/dev/null 2>&1; :) & echo up >&9; wait",
    "stopped": "echo up >&9; kill -STOP $$",
    "in a session of its own": f"setsid {ALIVE} & echo up >&9; wait",
    "a daemon": f"(setsid nohup sh -c '{ALIVE}; :' >/dev/null 2>&1 &); echo up >&9; {ALIVE}",
}


def marked(tree: str) -> ParameterSet:
    return pytest.param(tree, marks=needs_setsid if "setsid" in TREES[tree] else ())


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("tree", [marked(tree) for tree in TREES])
async def test_a_cancelled_command_leaves_nothing_behind(tree: str, lifeline: Lifeline) -> None:
    command = f"exec 9>{lifeline.path}; {TREES[tree]}"
    running = asyncio.create_task(run(command, key=f"cancelled {tree}"))
    assert await lifeline.next_word() == "up"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await lifeline.wait_gone()
    assert list(_marked(f"cancelled {tree}")) == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "tree", [marked(tree) for tree in ("a child of a child", "deaf in the background", "a daemon")]
)
async def test_when_time_is_up_nothing_is_left_behind(
    tree: str, lifeline: Lifeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it had printed by then is kept."""
    command = f"exec 9>{lifeline.path}; echo so far; {TREES[tree]}"
    running = asyncio.create_task(run(command, key=f"timed {tree}", timeout_s=60.0))
    assert await lifeline.next_word() == "up"
    leap(monkeypatch, 60.0)
    ended = await running
    assert ended.why_stopped == "did not finish within 60 s"
    assert (ended.code, ended.output) == (None, b"so far\n")
    await lifeline.wait_gone()
    assert list(_marked(f"timed {tree}")) == []


async def test_a_second_cancel_does_not_wait_for_grace(
    lifeline: Lifeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "script_kill_grace_s", 3600.0)
    command = f"exec 9>{lifeline.path}; {TREES['deaf']}"
    running = asyncio.create_task(run(command, key="cancelled twice"))
    assert await lifeline.next_word() == "up"
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await lifeline.wait_gone()


async def test_there_is_time_to_clean_up(
    lifeline: Lifeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM comes first."""
    monkeypatch.setattr(limits, "script_kill_grace_s", 60.0)
    command = (
        f"exec 9>{lifeline.path}; trap 'echo tidy >&9; exit' TERM; "
        f"sh -c 'echo up >&9; exec {ALIVE}' & wait"
    )
    running = asyncio.create_task(run(command))
    assert await lifeline.next_word() == "up"
    running.cancel()
    assert await lifeline.next_word() == "tidy"
    with pytest.raises(asyncio.CancelledError):
        await running
    await lifeline.wait_gone()


async def test_what_a_command_left_in_its_group_ends_with_it(lifeline: Lifeline) -> None:
    ended = await run(f"exec 9>{lifeline.path}; {ALIVE} & echo done")
    assert (ended.code, ended.output) == (0, b"done\n")
    await lifeline.wait_gone()


@needs_setsid
async def test_what_left_the_group_on_purpose_survives_a_good_end(lifeline: Lifeline) -> None:
    gate = lifeline.path.with_name("gate")
    os.mkfifo(gate)
    inner = f"echo $$ >&9; echo out >{gate}; exec {ALIVE}"
    ended = await run(
        f"exec 9>{lifeline.path}; setsid sh -c '{inner}' >/dev/null 2>&1 & read out <{gate}",
        key="daemon",
    )
    assert ended.code == 0
    pid = int(await lifeline.next_word())
    os.kill(pid, 0)
    os.kill(pid, signal.SIGKILL)
    await lifeline.wait_gone()


@needs_setsid
@pytest.mark.usefixtures("impatient")
async def test_nobody_outside_the_group_can_keep_us_waiting(lifeline: Lifeline) -> None:
    """It holds our pipe open; we take what was said and go."""
    gate = lifeline.path.with_name("gate")
    os.mkfifo(gate)
    inner = f"echo $$ >&9; echo out >{gate}; exec {ALIVE}"
    ended = await run(
        f"exec 9>{lifeline.path}; setsid sh -c '{inner}' & read out <{gate}; echo done",
        key="holder",
    )
    assert ended.output == b"done\n"
    os.kill(int(await lifeline.next_word()), signal.SIGKILL)
    await lifeline.wait_gone()


async def test_a_command_knows_its_call() -> None:
    assert (await run(f"echo ${MARK}", key="fc_7")).output == b"fc_7\n"


async def test_nobody_answers_a_command_that_asks() -> None:
    assert (await run("cat; read line || echo nobody")).output == b"nobody\n"


@pytest.mark.parametrize(
    ("command", "code", "killed_by"),
    [("exit 0", 0, 0), ("exit 3", 3, 0), ("kill -9 $$", 0, 9), ("nonsense-command", 127, 0)],
)
async def test_how_it_ended(command: str, code: int, killed_by: int) -> None:
    ended = await run(command)
    assert (ended.code, ended.killed_by, ended.why_stopped) == (code, killed_by, "")


async def test_both_outputs_come_in_order() -> None:
    assert (await run("echo a; echo b >&2; echo c")).output == b"a\nb\nc\n"


async def test_a_flood_is_stopped(monkeypatch: pytest.MonkeyPatch, lifeline: Lifeline) -> None:
    monkeypatch.setattr(limits, "script_flood_bytes_max", 300_000)
    monkeypatch.setattr(limits, "tool_output_bytes_max", 100_000)
    ended = await run(f"exec 9>{lifeline.path}; yes")
    assert ended.why_stopped == "printed more than 300000 bytes"
    assert ended.left_out > 200_000
    assert len(ended.output) < 40_000
    await lifeline.wait_gone()


async def test_a_missing_directory_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        await run_command("true", environment={}, directory=Path("/nowhere"), mark="", timeout_s=1)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc (Linux)")
async def test_nothing_of_ours_is_left_behind_either() -> None:
    await run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await run("echo a")
    assert len(os.listdir("/proc/self/fd")) == before


@given(st.lists(st.binary(max_size=30)), st.integers(1, 60), st.integers(1, 10))
def test_a_capture_keeps_all_or_both_ends(
    chunks: list[bytes], whole_max: int, ends_max: int
) -> None:
    capture = Capture(whole_max=max(whole_max, 2 * ends_max), ends_max=ends_max)
    whole = b"".join(chunks)
    for chunk in chunks:
        capture.add(chunk)
    assert capture.total == len(whole)
    if len(whole) <= max(whole_max, 2 * ends_max):
        assert capture.bytes() == whole
    else:
        assert capture.left_out == len(whole) - 2 * ends_max > 0
        gap = f"\n[… {capture.left_out} bytes left out …]\n".encode()
        assert capture.bytes() == whole[:ends_max] + gap + whole[-ends_max:]
