"""Who decides that commands are confined, and what happens where they cannot be."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from holdfast.tools.execution import execute
from holdfast.tools.hooks import Hook, Hooks, run_hook
from holdfast.tools.sandbox.backend import Backend, find_backend
from holdfast.tools.sandbox.sandbox import (
    Mode,
    NotConfined,
    Sandbox,
    cache_home,
    named_paths,
    program_folders,
)
from holdfast.tools.tool import ToolOutput
from holdfast.tools.toolsets.shell import ShellToolset
from tests.tools.sandboxes import ENVIRONMENT
from tests.tools.tool_calls import Blobs, call_of, said

NOTHING = Backend(kind="none", why="this is a toaster")
NEW = Backend(kind="landlock", abi=7)
WRAPPED = Backend(kind="bubblewrap", program="/usr/bin/bwrap")


def sandbox(mode: Mode, backend: Backend = NOTHING) -> Sandbox:
    return Sandbox(mode, find=lambda: backend)


async def shell(box: Sandbox, directory: Path, cmd: str = "echo ran") -> ToolOutput:
    toolset = ShellToolset(directory, environment=ENVIRONMENT, cell=box.cell(directory))
    (tool,) = await toolset.tools()
    return await execute(tool, call_of({"cmd": cmd}), Blobs())


async def test_required_refuses_what_cannot_be_confined_and_says_the_way_out(
    tmp_path: Path,
) -> None:
    output = await shell(sandbox("required"), tmp_path, "touch ran")
    assert output.outcome == "error"
    assert "have to be confined" in said(output)
    assert "apt-get install bubblewrap" in said(output)
    assert not (tmp_path / "ran").exists()


async def test_a_guard_that_cannot_be_confined_refuses(tmp_path: Path) -> None:
    hooks = Hooks(directory=tmp_path, environment=ENVIRONMENT, sandbox=sandbox("required"))
    verdict = await run_hook(hooks, Hook(command="exit 0"), "pre_tool_use", {}, mark="m")
    assert "have to be confined" in verdict.trouble


async def test_auto_runs_it_as_it_is_and_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = sandbox("auto")
    with caplog.at_level(logging.WARNING, "holdfast.sandbox"):
        for _ in range(3):
            assert said(await shell(box, tmp_path)) == "ran\n"
    (told,) = [each.getMessage() for each in caplog.records if each.name == "holdfast.sandbox"]
    assert "this is a toaster" in told
    assert "install bubblewrap" in told


async def test_off_looks_for_nothing(tmp_path: Path) -> None:
    def find() -> Backend:
        raise AssertionError

    assert said(await shell(Sandbox("off", find=find), tmp_path)) == "ran\n"


async def test_a_second_tenant_is_not_served_unconfined() -> None:
    box = sandbox("auto")
    for tenant in ("acme", "acme"):
        assert await box.cell("/").launched(["true"], {}, tenant=tenant) is None
    with pytest.raises(NotConfined):
        await box.cell("/").launched(["true"], {}, tenant="rival")
    with pytest.raises(NotConfined):
        await box.cell("/").launched(["true"], {}, tenant="acme")


@pytest.mark.parametrize(("mode", "after"), [("auto", "required"), ("off", "off")])
def test_what_the_operator_switched_off_stays_off(mode: Mode, after: Mode) -> None:
    box = sandbox(mode)
    box.require()
    assert box.mode == after


@pytest.mark.parametrize("backend", [NOTHING, NEW, WRAPPED])
def test_what_is_in_force_is_told(backend: Backend) -> None:
    assert ("no network" in backend.words) == (backend != NOTHING)


async def test_the_environment_of_the_server_is_no_word_of_the_launcher(tmp_path: Path) -> None:
    words = await sandbox("auto", NEW).cell(tmp_path).launched(["/bin/sh"], {"SECRET": "shh"})
    assert words is not None and words[-2:] == ["--", "/bin/sh"]
    assert "shh" not in " ".join(words)


def test_a_path_means_its_programs_and_what_belongs_to_them(tmp_path: Path) -> None:
    for each in ("bin", "lib", "share/keyrings"):
        (tmp_path / ".local" / each).mkdir(parents=True)
    found = program_folders({"PATH": f"{tmp_path}/.local/bin:{tmp_path}:relative/bin"})
    assert sorted(found) == [f"{tmp_path}/.local/bin", f"{tmp_path}/.local/lib"]


def test_a_program_of_a_virtual_environment_brings_its_python() -> None:
    named = named_paths(Path("/"), sys.executable)
    assert os.path.join(sys.base_prefix, "lib") in named.projects


def test_the_files_of_a_command_are_found_in_its_words(tmp_path: Path) -> None:
    (tmp_path / "guard.sh").touch()
    (tmp_path / "orders.csv").touch()
    (tmp_path / "data").mkdir()
    named = named_paths(tmp_path, "sh guard.sh <orders.csv ./data orders.csv 'nothing", "a\0b")
    assert {f"{tmp_path}/guard.sh", f"{tmp_path}/orders.csv"} <= set(named.files)
    assert named.folders == (f"{tmp_path}/./data",)


def test_programs_have_homes_of_their_own() -> None:
    ours = {"XDG_CACHE_HOME": "/cache"}
    one, other = cache_home(["npx", "-y", "a"], ours), cache_home(["npx", "-y", "b"], ours)
    assert one != other
    assert one.startswith("/cache/holdfast/homes/")


def test_elsewhere_than_on_linux_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    found = find_backend.__wrapped__()
    assert (found.kind, found.words) == ("none", "no sandbox: there is none for darwin yet")


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_what_is_found_here_really_works() -> None:
    found = find_backend()
    assert found.kind != "none", found.why
