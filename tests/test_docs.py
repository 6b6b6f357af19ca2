"""The pages keep their word: links lead somewhere, and Python examples run.

Every ```python block is run in a namespace of its own. One that cannot run is marked ```python no-run.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests import markdown, repository

PAGES = [path for path in repository.files() if path.suffix == ".md"]


def name(path: Path) -> str:
    return path.relative_to(repository.ROOT).as_posix()


PICTURE = re.compile(r'<(?:img|source)\b[^>]*?\bsrc(?:set)?="([^"\s]+)"')


def pictures(page: str) -> list[str]:
    """Where the pictures come from that are written as HTML, for dark and for light."""
    return PICTURE.findall(markdown.prose(page))


def broken_links(page: Path) -> list[str]:
    """The relative links and pictures of a page that lead to no file, or to no heading of it."""
    broken = []
    text = page.read_text(encoding="utf-8")
    for link in (*markdown.links(text), *pictures(text)):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, fragment = unquote(link).partition("#")
        target = page.parent / path if path else page
        found = target.exists()
        if found and fragment and target.suffix == ".md":
            found = fragment in markdown.anchors(target.read_text(encoding="utf-8"))
        if not found:
            broken.append(link)
    return broken


def is_example(block: markdown.Block) -> bool:
    return block.info[:1] == ("python",) and "no-run" not in block.info


def run_example(block: markdown.Block, *, page: str) -> None:
    # Empty lines in front keep the line numbers of the page in a traceback.
    source = "\n" * (block.line - 1) + block.text
    exec(compile(source, page, "exec"), {"__name__": "example"})


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in filter(is_example, markdown.blocks(page.read_text(encoding="utf-8"))):
        run_example(block, page=name(page))


# From here on the checks themselves are on trial.


def test_a_link_that_leads_nowhere_is_seen(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# What it `does`, today\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n"
        "[a](other.md) [b](other.md#what-it-does-today) [c](#here) [d](https://example.org/x)\n"
        "[e](missing.md) [f](other.md#tomorrow) ![g](picture.png) [h](#there)\n"
        "`[i](code.md)`\n"
        '<source media="dark" srcset="dark.png"><img alt="k" src="other.md"> <img src="light.png">\n'
        "```\n[j](block.md)\n```\n"
    )
    assert broken_links(page) == [
        *("missing.md", "other.md#tomorrow", "picture.png", "#there"),
        *("dark.png", "light.png"),
    ]


def test_blocks_are_found_with_their_words_and_lines() -> None:
    page = "text\n```python no-run\na\n```\n~~~~ console\n~~~\nb\n~~~~\n```python\nc"
    assert markdown.blocks(page) == [
        markdown.Block(("python", "no-run"), "a", 3),
        markdown.Block(("console",), "~~~\nb", 6),
        markdown.Block(("python",), "c", 10),
    ]
    assert markdown.prose(page) == "text"


def test_an_example_that_fails_is_seen() -> None:
    [runs, marked, fails] = markdown.blocks(
        "```python\nx = 1\n```\n```python no-run\nraise OSError\n```\n```python\nassert x\n```\n"
    )
    assert [is_example(block) for block in (runs, marked, fails)] == [True, False, True]
    run_example(runs, page="page.md")
    with pytest.raises(NameError):
        run_example(fails, page="page.md")
