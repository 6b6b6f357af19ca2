"""What a wheel says of itself to people who have no clone."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tests import repository

HOME = "https://forge.example/holdfast"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    path = repository.ROOT / "scripts" / "release.py"
    spec = importlib.util.spec_from_file_location("release", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("home", [None, HOME, f"{HOME}/"])
def test_no_link_of_a_packaged_readme_leads_nowhere(
    release: ModuleType, home: str | None, tmp_path: Path
) -> None:
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(repository.ROOT / name, tmp_path)
    release.prepare(tmp_path, home=home)
    readme = (tmp_path / "README.md").read_text("utf-8")
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    assert all(each.startswith(("https://", "http://")) for each in targets), targets
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"].get("urls")
    if home is None:
        assert urls is None and "quick start (`docs/quick-start.md`)" in readme
    else:
        assert f"[quick start]({HOME}/blob/HEAD/docs/quick-start.md)" in readme
        assert f"]({HOME}/raw/HEAD/docs/console/session-light.png)" in readme
        assert urls["Repository"] in (HOME, f"{HOME}/") and urls["Changelog"].startswith(HOME)
        files = re.findall(rf"{HOME}/(?:blob|raw)/HEAD/([^)#]+)", readme)
        assert files and all((repository.ROOT / each).exists() for each in files)


def test_the_wheel_is_tried_with_every_python_that_runs_once(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version manager's name on the PATH does not run while its own folder has one that does."""

    def put(path: Path, code: int) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
        return str(path)

    put(tmp_path / "shims/python3.11", 0)
    put(tmp_path / "shims/python3.12", 127)
    versions = tmp_path / "pyenv/versions"
    put(versions / "3.11.9/bin/python3.11", 0)
    put(versions / "3.12.0/bin/python3.12", 1)
    found = put(versions / "3.12.1/bin/python3.12", 0)
    put(versions / "3.10.1/bin/python3.10", 0)
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:/nowhere")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert list(release.supported_pythons()) == ["python3.11", found]
