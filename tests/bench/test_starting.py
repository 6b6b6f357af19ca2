"""How systems are started: in which environment, and with what beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from systems.base import Place, System, plain_environment
from systems.litellm import LiteLlm
from systems.ogx import Ogx
from systems.roster import SYSTEMS

TOOL = "charge_mcp.py"


def place(folder: Path) -> Place:
    here = "http://127.0.0.1:1"
    return Place(folder, f"{here}/v1", f"{here}/charge", f"{here}/files", 2, postgres="postgresql:")


def test_what_programs_need_is_kept() -> None:
    ours = {"PATH": "/bin", "HOME": "/root", "LANG": "C.UTF-8", "PIP_INDEX_URL": "http://pip"}
    started_in = plain_environment(ours)
    assert {name: started_in[name] for name in ours} == ours


@pytest.mark.parametrize(
    "name",
    ["LANGSMITH_API_KEY", "LOGFIRE_TOKEN", "PYTHONPATH", "no_proxy", "HTTPS_PROXY", "VIRTUAL_ENV"],
)
def test_what_was_set_for_other_work_reaches_nobody(name: str) -> None:
    assert name not in plain_environment({"PATH": "/bin", name: "secret"})


def test_the_key_of_somebody_is_not_used() -> None:
    assert plain_environment({"OPENAI_API_KEY": "sk-real"})["OPENAI_API_KEY"] == "bench"


@pytest.mark.parametrize("system", [Ogx(), LiteLlm()], ids=lambda system: system.name)
def test_a_server_can_be_started_without_the_tool_beside_it(system: System, tmp_path: Path) -> None:
    """Who measures a server must not count what we have started for the scenarios."""
    where = place(tmp_path)
    system.prepare(where)
    assert TOOL not in " ".join(system.command(where))
    together = system.with_tool(where)
    assert TOOL in " ".join(together)
    assert together[-len(system.command(where)) :] == system.command(where)


@pytest.mark.parametrize(
    "system",
    [each for each in SYSTEMS if each.environment not in ("ogx", "litellm")],
    ids=lambda system: f"{system.name}, {system.variant}",
)
def test_everybody_else_has_the_tool_inside(system: System, tmp_path: Path) -> None:
    where = place(tmp_path)
    system.prepare(where)
    assert system.with_tool(where) == system.command(where)


def test_no_two_systems_have_the_same_name_and_variant() -> None:
    """What was found is kept by both."""
    names = [(each.name, each.variant) for each in SYSTEMS]
    assert len(set(names)) == len(names)
