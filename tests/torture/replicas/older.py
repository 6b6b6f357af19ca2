"""An older Holdfast, out of the repository's history, to be served beside this one: a rolling upgrade.

Every replica begins as the older one. The first one is replaced while clients talk, and brings the tables to where they
are now under the feet of the others; these follow one after the other. An older one that ends does not come back: it would
refuse tables that are newer than itself.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.repository import ROOT
from tests.torture.replicas.faults import Fault

FIRST_NEWER = "src/holdfast/store/sqlite/migrations/0007_*"
"""The default is the last commit without it."""
ENDS = frozenset({"kill", "drain", "hurry"})
"""Faults that end a process."""
REPLACED = (0.1, 0.6, 0.85)
"""When each replica is replaced, as a part of the whole time."""


@contextmanager
def older_tree(commit: str) -> Iterator[Path]:
    """The files of this commit, or of the default one if it is empty."""
    commit = commit or _git("log", "--diff-filter=A", "--format=%H^", "--", FIRST_NEWER).split()[-1]
    with tempfile.TemporaryDirectory(prefix="holdfast-older-") as folder:
        files = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=files.stdout, check=True)
        yield Path(folder)


def described(commit: str) -> str:
    """A commit, for people; the default one if it is empty."""
    commit = commit or _git("log", "--diff-filter=A", "--format=%H^", "--", FIRST_NEWER).split()[-1]
    return _git("log", "-1", "--format=%h (%s)", commit).strip()


def _git(*words: str) -> str:
    told = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return told.stdout


def rolling(faults: Sequence[Fault], *, whole_s: float) -> tuple[Fault, ...]:
    """The same faults, but for those that would end a replica before its time, and the replacements among them."""
    times_s = [whole_s * part for part in REPLACED]
    kept = [
        each
        for each in faults
        if each.replica is None or each.kind not in ENDS or each.at_s > times_s[each.replica]
    ]
    drains = [
        Fault(at_s=at_s, kind="drain", for_s=0.0, replica=number)
        for number, at_s in enumerate(times_s)
    ]
    return tuple(sorted((*kept, *drains), key=lambda each: each.at_s))
