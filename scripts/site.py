"""The documentation as a site: `make docs` writes build/site/html, which a browser opens from the folder itself.

1. The pages keep their places in the tree, so that every link between them stays as it is.
2. A file that a page links to and that is no page comes along as it is; a link to a folder becomes plain text.
3. After the build, every link and every fragment leads somewhere within the site, and no page loads anything from
   elsewhere. Otherwise the script says what is wrong, and exits with 1.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "docs/site/zensical.toml"
TARGET = ROOT / "build/site"
SOURCE = TARGET / "source"
HTML = TARGET / "html"

PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "bench/*.md", "deploy/**/*.md")
LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<target>[^)\s]+)(?P<rest>[^)]*)\)")
FENCE = re.compile(r"^(?P<opening> *```\w+) .*$", re.MULTILINE)
PICTURE = re.compile(r'<(?:img|source)\b[^>]*?\bsrc(?:set)?="(?P<target>[^"\s]+)"')


def main() -> int:
    shutil.rmtree(TARGET, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    shutil.copy(CONFIG, TARGET)
    for page in pages():
        copy_page(page)
    zensical = [sys.executable, "-m", "zensical", "build", "--config-file", CONFIG.name]
    if subprocess.run(zensical, cwd=TARGET, stdout=subprocess.DEVNULL, check=False).returncode:
        return 1
    wrong = [line for page in sorted(HTML.rglob("*.html")) for line in faults(page)]
    print("\n".join(wrong) or f"{HTML.relative_to(ROOT)}/index.html: {len(pages())} pages")
    return 1 if wrong else 0


def pages() -> list[Path]:
    """Every page of the site."""
    return sorted(page for pattern in PAGES for page in ROOT.glob(pattern))


def copy_page(page: Path) -> None:
    """Copy a page, and the files beside it that it shows or links to."""

    def kept(link: re.Match[str]) -> str:
        target = page.parent / unquote(link["target"]).partition("#")[0]
        if "://" in link["target"] or not target.is_dir():
            copy_file(page, link["target"])
            return link[0]
        return link["text"].strip("![]")

    text = page.read_text(encoding="utf-8")
    for picture in PICTURE.finditer(text):
        copy_file(page, picture["target"])
    copied = SOURCE / page.relative_to(ROOT)
    copied.parent.mkdir(parents=True, exist_ok=True)
    text = FENCE.sub(
        r"\g<opening>", text
    )  # what our tests read after the language, Zensical takes for prose
    copied.write_text(LINK.sub(kept, text), encoding="utf-8")


def copy_file(page: Path, link: str) -> None:
    """Copy a file that a page links to, unless it is a page itself."""
    target = (page.parent / unquote(urlsplit(link).path)).resolve()
    if "://" in link or target.suffix == ".md" or not target.is_file():
        return
    copied = SOURCE / target.relative_to(ROOT)
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(target, copied)


class PageLinks(HTMLParser):
    """The links, the loads and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in ("src", "srcset") or (name == "href" and tag == "link"):
                self.loads.append(value or "")


def faults(page: Path) -> Iterator[str]:
    """What is wrong with a page of the site, a line each."""
    found = PageLinks(page.read_text(encoding="utf-8"))
    where = page.relative_to(HTML)
    if where.name == "404.html":  # its addresses begin at the root of a server
        return
    for load in found.loads:
        if "//" in load:
            yield f"{where}: it loads {load}"
    for link in (*found.links, *found.loads):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if target.is_dir():
            target /= "index.html"
        if not target.is_file():
            yield f"{where}: {link} leads nowhere"
        elif target.suffix == ".html":
            anchors = found.anchors if target == page else anchors_of(target)
            if unquote(parts.fragment) not in anchors:
                yield f"{where}: {link} names no heading"


def anchors_of(page: Path) -> set[str]:
    """The anchors of another page; read once."""
    if page not in _ANCHORS:
        _ANCHORS[page] = PageLinks(page.read_text(encoding="utf-8")).anchors
    return _ANCHORS[page]


_ANCHORS: dict[Path, set[str]] = {}


if __name__ == "__main__":
    sys.exit(main())
