"""What we are made of: known, licensed for everybody, and it talks to nobody behind our back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests import repository

LOCK = (repository.ROOT / "requirements.txt").read_text(encoding="utf-8")
PERMISSIVE = {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "PSF-2.0", "any-OSI"}  # fmt: skip
"""Licences that ask for no more than to be named."""


def made(what: str) -> str:
    """What the script makes of the lock."""
    command = [sys.executable, str(repository.ROOT / "scripts/supply.py"), what]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_packages_fit_together() -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


# ── licences ─────────────────────────────────────────────────────────────────────────────────


def test_the_list_of_licences_is_that_of_the_lock() -> None:
    page = (repository.ROOT / "docs/reference/licences.md").read_text(encoding="utf-8")
    assert page == made("licences"), "run `make licences`"
    listed = re.findall(r"^\| ([\w.-]+) \| (\d[\w.]*) \| [^|]+ \|$", page, re.MULTILINE)
    assert listed == re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)


def test_every_licence_is_permissive() -> None:
    for name, said in re.findall(
        r"^\| (\S+) \| [^|]+ \| ([^|]+) \|$", made("licences"), re.MULTILINE
    ):
        if said != "licence" and not said.startswith("-"):
            assert set(re.split(r" (?:AND|OR) ", said)) <= PERMISSIVE, name


# ── the bill of materials ────────────────────────────────────────────────────────────────────


def test_the_bill_of_materials_is_one() -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(made("sbom")) is None


def test_it_has_every_package_of_the_lock_with_every_hash() -> None:
    bill: dict[str, Any] = json.loads(made("sbom"))
    hashes = {each["content"] for part in bill["components"] for each in part["hashes"]}
    assert hashes == set(re.findall(r"--hash=sha256:(\w+)", LOCK))
    assert {f"{each['name']}=={each['version']}" for each in bill["components"]} == set(
        re.findall(r"^([\w.-]+==\S+)", LOCK, re.MULTILINE)
    )
    assert {each["ref"] for each in bill["dependencies"]} >= {
        each["bom-ref"] for each in bill["components"]
    }


def test_the_same_lock_makes_the_same_bill() -> None:
    assert made("sbom") == made("sbom")


# ── nobody is called ─────────────────────────────────────────────────────────────────────────

WATCHED = """
import asyncio, sys, types

def hear(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.sendto"):
        where = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
        print(f"CALLED {event} {where!r}", file=sys.stderr, flush=True)

sys.addaudithook(hear)
# The fast loop opens connections without telling Python; the plain one does the same, and is heard.
sys.modules["uvloop"] = types.SimpleNamespace(run=asyncio.run)
from holdfast.cli import main
main()
"""


@pytest.mark.slow
def test_a_server_calls_nobody_that_it_was_not_told_to_call(tmp_path: Path) -> None:
    """From its imports over its start and a turn to its end; the demo agent's model is part of the program."""
    serve = [
        "serve",
        "demo",
        "--listen",
        "127.0.0.1:0",
        "--store",
        f"sqlite:///{tmp_path}/store.db",
    ]
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED, *serve],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        url = next(
            found[1] for line in process.stdout if (found := re.search(r"(http://\S+:\d+)", line))
        )
        body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
        asked = urllib.request.Request(
            f"{url}/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"X-Conversation-Id": "trip"},
        )
        with urllib.request.urlopen(asked) as answer:
            assert json.load(answer)["choices"]
        process.terminate()
        process.stdout.read()
        heard = [line for line in process.stderr.read().splitlines() if line.startswith("CALLED")]
        assert process.wait() == 0
    # To listen, it asks what its own address is.
    assert [each for each in heard if "127.0.0.1" not in each] == []
    assert not [each for each in heard if "socket.connect" in each]


def test_a_call_would_be_heard(tmp_path: Path) -> None:
    code = WATCHED.replace("from holdfast.cli import main\nmain()", "")
    code += "\nimport socket\ntry: socket.create_connection(('127.0.0.1', 9), 1)\nexcept OSError: pass\n"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "CALLED socket.connect ('127.0.0.1', 9)" in ran.stderr
