"""A skipped test is listed with its cure, and is a failure where CI is set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.means import Skipped, closing_block, with_certificates

ROOT = Path(__file__).parents[1]

SKIPPING = """
from tests.means import skip_without

def test_that_runs():
    pass

def test_that_does_not():
    skip_without("a tape drive", enable="buy a tape drive")
"""


def run(tests: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One run of pytest in a process of its own, with our conftest as a plugin, and no other but what runs it."""
    plain = {name: value for name, value in os.environ.items() if name != "CI"}
    alone = {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    settings = {"PYTHONPATH": str(ROOT)} | alone | environment
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "xdist",
            "-p",
            "tests.conftest",
            *options,
            str(tests),
        ],
        cwd=tests.parent,
        env=plain | settings,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def skipping(tmp_path: Path) -> Path:
    path = tmp_path / "test_sample.py"
    path.write_text(SKIPPING)
    return path


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_a_skip_passes_here_and_fails_where_ci_is_set(
    skipping: Path, options: tuple[str, ...]
) -> None:
    here, there = run(skipping, *options), run(skipping, *options, CI="1")
    assert (here.returncode, there.returncode) == (0, 1)
    for outcome in (here, there):
        assert "needs a tape drive (1 skipped, first test_sample.py::test_that_does_not)" in (
            outcome.stdout
        )
        assert "    buy a tape drive" in outcome.stdout


def test_a_run_that_left_nothing_out_passes_where_ci_is_set(tmp_path: Path) -> None:
    path = tmp_path / "test_sample.py"
    path.write_text("def test_that_runs(): pass")
    outcome = run(path, CI="1")
    assert outcome.returncode == 0
    assert "left out" not in outcome.stdout


def test_the_closing_block_names_each_reason_once() -> None:
    skipped = [
        Skipped("needs strace; enable with: apt install strace", "tests/b.py::two"),
        Skipped("needs luck", "tests/c.py::three"),
        Skipped("needs strace; enable with: apt install strace", "tests/a.py::one"),
    ]
    assert closing_block(skipped) == [
        "needs luck (1 skipped, first tests/c.py::three)",
        "    no command is known to enable it",
        "needs strace (2 skipped, first tests/a.py::one)",
        "    apt install strace",
    ]
    assert closing_block([]) == []


@pytest.mark.parametrize(
    ("environ", "trusted"),
    [
        ({}, None),
        ({"PIP_CERT": "a.pem"}, "a.pem"),
        ({"PIP_CERT": "", "SSL_CERT_FILE": "b.pem"}, "b.pem"),
        ({"PIP_CERT": "a.pem", "NODE_EXTRA_CA_CERTS": "c.pem"}, "c.pem"),
    ],
)
def test_npm_trusts_what_pip_was_told_to(environ: dict[str, str], trusted: str | None) -> None:
    assert with_certificates(environ).get("NODE_EXTRA_CA_CERTS") == trusted
