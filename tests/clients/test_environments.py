"""The locks hold, and an environment is built once for each of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients import environments
from tests.clients.catalogue import CLAUDE_CODE, CODEX, ENVIRONMENTS, MCP
from tests.clients.coding_agents import AIDER, CODING_AGENTS
from tests.clients.environments import NODE, CannotInstall, Environment
from tests.clients.frameworks import FRAMEWORKS, INSTRUCTOR, TELLERS
from tests.test_repository import unhashed

LARGE = (*FRAMEWORKS, *TELLERS, INSTRUCTOR, *CODING_AGENTS, AIDER)
APART = [each.environment for each in LARGE]
LOCKS = [each.lock for each in (*ENVIRONMENTS, *APART, CODEX, CLAUDE_CODE, MCP, NODE)]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: f"{lock.parent.name}/{lock.name}")
def test_a_lock_holds_every_package_by_its_hash_and_names_no_registry(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    if lock.suffix == ".txt":
        assert unhashed(text) == []
        assert "://" not in text
    else:
        packages = json.loads(text)["packages"]
        installed = {name: each for name, each in packages.items() if name}
        assert installed
        assert [name for name, each in installed.items() if "integrity" not in each] == []
        assert [name for name, each in installed.items() if "resolved" in each] == []


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A home of its own, where packages are not installed but counted."""
    built: list[str] = []

    def pretend(environment: Environment) -> None:
        environment.folder.mkdir()
        built.append(environment.lock.read_text())

    monkeypatch.setattr(environments, "HOME", tmp_path / "home")
    monkeypatch.setattr(Environment, "_build_python", pretend)
    return built


def test_an_environment_is_built_again_only_if_its_lock_changes(
    tmp_path: Path, builds: list[str]
) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text("one")
    assert Environment("some", lock).ready() == Environment("some", lock).ready()
    lock.write_text("two")
    folder = Environment("some", lock).ready()
    (folder / ".stamp").unlink()  # as if it had been interrupted half-way
    Environment("some", lock).ready()
    assert builds == ["one", "two", "two"]


def test_what_cannot_be_installed_says_why_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "HOME", tmp_path / "home")
    lock = tmp_path / "requirements.txt"
    lock.write_text("no-such-thing @ file:///no/such/thing\n")
    for _ in range(2):
        with pytest.raises(CannotInstall, match="some cannot be installed: "):
            Environment("some", lock).ready()
