"""Broken copies of our source, for tests of the tests: the real source with a few words exchanged.

If those words are no longer there, exactly once, a mutant says nothing any more, and has to be rewritten along with
the source. The source tree itself is never touched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tests.repository import ROOT

SOURCE = ROOT / "src" / "holdfast"


class Edit(Struct, frozen=True):
    file: str
    """Inside src/holdfast."""
    old: str
    new: str

    @property
    def fits(self) -> bool:
        return (SOURCE / self.file).read_text(encoding="utf-8").count(self.old) == 1


def misfits(edits: Sequence[Edit]) -> list[str]:
    """The edits whose words are not in the source, or not just once."""
    return [f"{each.file}: {each.old!r}" for each in edits if not each.fits]


@contextmanager
def broken_copy(edits: Sequence[Edit]) -> Iterator[Path]:
    """A folder in which `holdfast` is our source with these edits: links, but for the files that were edited."""
    assert not misfits(edits), f"the source has changed; rewrite the mutant: {misfits(edits)}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts: dict[Path, str] = {}
        for edit in edits:
            file = Path(edit.file)
            text = texts.get(file) or (SOURCE / file).read_text(encoding="utf-8")
            texts[file] = text.replace(edit.old, edit.new)
        _link(SOURCE, folder / "holdfast", texts)
        yield folder


def _link(source: Path, target: Path, texts: dict[Path, str]) -> None:
    """Make `target` like `source`, with other texts for some of the files below it.

    Bytecode comes along, so that only what was edited is compiled: Python notices that its bytecode is older.
    """
    target.mkdir()
    for each in source.iterdir():
        inside = each.relative_to(SOURCE)
        if inside in texts:
            (target / each.name).write_text(texts[inside], encoding="utf-8")
        elif any(inside in file.parents for file in texts):
            _link(each, target / each.name, texts)
        else:
            (target / each.name).symlink_to(each)


def run_on(copy: Path, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run Python with `holdfast` from this folder. Raises TimeoutExpired if it does not come to an end."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(copy), str(ROOT))),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
