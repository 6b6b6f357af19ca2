"""What the doctor thinks of what it finds."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.agents.agent import ModelConfig
from holdfast.cli import checkup
from holdfast.cli.agent_checks import Report
from holdfast.cli.checkup import CheckupFinding
from holdfast.cli.commands.doctor import Provider, used_providers
from holdfast.store.condition import Condition, Replication
from holdfast.tools.sandbox.backend import Backend
from holdfast.tools.sandbox.sandbox import Mode

GOOD = Condition(kind="SQLite", version="3.51.3", step=3, newest=3, nodes=1)
POSTGRES = msgspec.structs.replace(GOOD, kind="PostgreSQL", version="16.4")
ALONE = Replication(commit="on", names="", standbys=0, synchronous=0, is_standby=False)


def found(condition: Condition, check: str) -> CheckupFinding:
    (finding,) = [each for each in checkup.judge_store(condition) if each.check == check]
    return finding


def test_a_store_that_is_well_has_nothing_to_do() -> None:
    for condition in (GOOD, msgspec.structs.replace(POSTGRES, replication=ALONE)):
        findings = list(checkup.judge_store(condition))
        assert {each.state for each in findings} == {"ok"}
        assert not any(each.todo for each in findings)


@pytest.mark.parametrize(
    ("changes", "check", "state", "todo"),
    [
        ({"step": 0}, "tables", "warning", "holdfast db migrate"),
        ({"step": 2}, "tables", "problem", "holdfast db backup"),
        ({"step": 9}, "tables", "problem", "newer"),
        (
            {"damage": ("row 1 missing",)},
            "integrity",
            "problem",
            "with --heads who has lost turns; its --help",
        ),
        ({"read_only": "page 7 of item"}, "integrity", "problem", "holdfast db verify"),
        ({"checksums": False}, "checksums", "warning", "holdfast db copy"),
        ({"log_bytes": 2 * 1024**3}, "log", "warning", "end other programs"),
        ({"orphans": 2, "open_turns": 2, "nodes": 0}, "servers", "warning", "start a server"),
        ({"orphans": 1, "open_turns": 2}, "servers", "warning", "within 30 s"),
        ({"clock_ms": 5000}, "clocks", "warning", "time service"),
        ({"clock_ms": -5000}, "clocks", "warning", "time service"),
        ({"node_ahead_ms": 5000}, "clocks", "warning", "on its machine"),
    ],
)
def test_what_is_not_well_has_a_way_out(
    changes: dict[str, object], check: str, state: str, todo: str
) -> None:
    finding = found(msgspec.structs.replace(GOOD, **changes), check)
    assert finding.state == state
    assert todo in finding.todo


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({}, "ok", "no standby"),
        ({"standbys": 1}, "warning", "a failover can lose acknowledged turns"),
        ({"names": "*", "commit": "local"}, "warning", "a failover can lose acknowledged turns"),
        ({"names": "*", "commit": "remote_write"}, "warning", "loss of power"),
        ({"names": "*", "standbys": 1}, "problem", "none is connected"),
        ({"names": "*", "standbys": 1, "synchronous": 1}, "ok", "loses no acknowledged turn"),
        ({"is_standby": True}, "problem", "standby"),
    ],
)
def test_it_is_said_whether_a_failover_can_lose_acknowledged_turns(
    changes: dict[str, object], state: str, words: str
) -> None:
    finding = checkup.judge_replication(msgspec.structs.replace(ALONE, **changes))
    assert finding.state == state
    assert words in finding.what


def test_this_machine_is_judged_by_numbers() -> None:
    assert checkup.judge_python((3, 10, 9)).state == "problem"
    assert checkup.judge_python((3, 13, 0)).state == "ok"
    assert [checkup.judge_disk("/x", each).state for each in (10, 10**9, 10**10)] == [
        "problem",
        "warning",
        "ok",
    ]
    assert [checkup.judge_descriptors(each).state for each in (1024, 4096)] == ["warning", "ok"]
    assert checkup.judge_mode("x", 0o644).state == "warning"
    assert checkup.judge_mode("x", 0o640).state == "ok"


def test_providers_are_those_that_are_used_or_else_those_with_a_key() -> None:
    models = (
        ModelConfig(provider="openai", model="gpt"),
        ModelConfig(provider="mine", model="m", base_url="http://a:1/v1", token_key="MINE"),
        ModelConfig(provider="openai", model="x", base_url="http://proxy.example/v1"),
        ModelConfig(provider="demo", model="parrot"),
    )
    used = used_providers([Report(file="a", models=models)], {})
    assert used == [
        Provider(name="openai", base_url="https://api.openai.com/v1", key="OPENAI_API_KEY"),
        Provider(name="mine", base_url="http://a:1/v1", key="MINE"),
        Provider(name="openai", base_url="http://proxy.example/v1", key=""),
    ], "a key is for its own server only"
    (groq,) = used_providers([], {"GROQ_API_KEY": "x"})
    assert (groq.name, groq.key) == ("groq", "GROQ_API_KEY")


@pytest.mark.parametrize(
    ("mode", "backend", "state", "words"),
    [
        ("auto", Backend(kind="bubblewrap", program="bwrap"), "ok", "auto: bubblewrap"),
        ("required", Backend(kind="landlock", abi=7), "ok", "required: Landlock (ABI 7)"),
        ("auto", Backend(kind="none", why="macOS"), "warning", "no sandbox: macOS"),
        ("required", Backend(kind="none", why="macOS"), "problem", "no sandbox: macOS"),
        ("off", Backend(kind="bubblewrap", program="bwrap"), "warning", "switched off"),
    ],
)
def test_what_confines_commands_is_told(
    mode: Mode, backend: Backend, state: str, words: str
) -> None:
    finding = checkup.judge_sandbox(mode, backend)
    assert (finding.check, finding.state) == ("sandbox", state)
    assert words in finding.what
    assert bool(finding.todo) == (state != "ok")
