"""Bytecode of the tests, made once: processes that begin to run them together would each make all of it.

    python -m tests.bytecode

pytest rewrites the assertions of tests as it imports them, and has no command that does it beforehand. So this calls
what its import hook calls. Should these functions change, `test_bytecode.py` says so, and the hook does it itself.
"""

from __future__ import annotations

import compileall
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from _pytest.assertion import rewrite

from tests.repository import ROOT

REWRITTEN = ("test_*.py", "conftest.py")
PROCESSES = 2


def main() -> None:
    paths = [path for path in (ROOT / "tests").glob("**/*.py") if "node_modules" not in path.parts]
    with ProcessPoolExecutor(PROCESSES) as pool:
        for _ in pool.map(keep, paths, chunksize=16):
            pass


def keep(path: Path) -> None:
    """Make the bytecode of a module, if it has changed since."""
    if any(fnmatch(path.name, pattern) for pattern in REWRITTEN):
        keep_rewritten(path)
    else:
        compileall.compile_file(path, quiet=2)


def keep_rewritten(path: Path) -> None:
    kept = kept_at(path)
    if rewrite._read_pyc(path, kept) is None:
        kept.parent.mkdir(exist_ok=True)
        nothing: Any = None  # no settings of ours change how it is done
        told: Any = SimpleNamespace(trace=print)
        made, code = rewrite._rewrite_test(path, nothing)
        rewrite._write_pyc(told, code, made, kept)


def kept_at(path: Path) -> Path:
    """Where pytest looks for it."""
    return rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"


if __name__ == "__main__":
    main()
