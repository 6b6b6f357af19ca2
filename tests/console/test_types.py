"""The console's modules say in comments what their types are; a checker holds them to it."""

from __future__ import annotations

import subprocess

import pytest

from holdfast.console import HERE
from tests.clients.environments import CannotInstall, node
from tests.console.browser import ENABLE, TYPESCRIPT
from tests.means import skip_without

OPTIONS = (
    *("--noEmit", "--allowJs", "--checkJs", "--strict", "--noUnusedLocals"),
    *("--target", "esnext", "--module", "esnext", "--moduleResolution", "bundler"),
    *("--lib", "esnext,dom,dom.iterable,dom.asynciterable"),
)


@pytest.mark.slow
def test_every_module_has_the_types_that_it_says() -> None:
    try:
        checker = TYPESCRIPT.ready() / "node_modules" / "typescript" / "bin" / "tsc"
        program = node().program
    except CannotInstall as error:
        skip_without(f"TypeScript ({error})", enable=ENABLE)
    done = subprocess.run(
        [program, str(checker), *OPTIONS, "main.js"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
