"""The documentation's site: every page of ours is in it, and its script sees what is wrong with a page."""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import repository

CONFIG = repository.ROOT / "docs/site/zensical.toml"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a site in a folder of its own."""
    spec = importlib.util.spec_from_file_location(
        "site_script", repository.ROOT / "scripts/site.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SOURCE", tmp_path / "source")
    monkeypatch.setattr(module, "HTML", tmp_path)
    return module


def listed(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, str):
            yield entry
            continue
        for value in entry.values():
            yield from [value] if isinstance(value, str) else listed(value)


def test_every_page_is_in_the_contents_of_the_site(site: ModuleType) -> None:
    """Decisions, and what lies in an example's folders, are reached by links."""
    nav = list(listed(tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"]))
    pages = {page.relative_to(repository.ROOT).as_posix() for page in site.pages()}
    reached = {page for page in pages if page.startswith(("docs/decisions/0", "examples/"))}
    assert len(nav) == len(set(nav))
    assert set(nav) - pages == set()
    assert pages - reached - set(nav) == set(), "add it to docs/site/zensical.toml"


def test_a_page_brings_what_it_links_to_and_no_folders(site: ModuleType) -> None:
    site.copy_page(repository.ROOT / "docs/explanation/how-promises-are-kept.md")
    site.copy_page(repository.ROOT / "bench/README.md")
    copied = (site.SOURCE / "bench/README.md").read_text(encoding="utf-8")
    assert "](scenarios)" not in copied and "](serving/bare.py)" in copied
    assert (site.SOURCE / "bench/serving/bare.py").is_file()
    assert not any("```python no-run" in page.read_text() for page in site.SOURCE.rglob("*.md"))


def test_what_is_wrong_with_a_page_of_the_site_is_seen(site: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h2 id="there">There</h2>')
    page = tmp_path / "page.html"
    page.write_text(
        '<a href="other.html#there">a</a> <a href="other.html#away">b</a> <a href="missing.html">c</a>'
        '<script src="https://elsewhere.example/x.js"></script> <a href="https://elsewhere.example">d</a>'
    )
    assert list(site.faults(page)) == [
        "page.html: it loads https://elsewhere.example/x.js",
        "page.html: other.html#away names no heading",
        "page.html: missing.html leads nowhere",
    ]
