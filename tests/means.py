"""What a test needs and this machine may lack: a program, a server, a permission.

A test that cannot run says so in one form, so that the closing block can list what was left out
together with the command that enables it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import pytest

ENABLE = "; enable with: "

NODE_CERTIFICATES = "NODE_EXTRA_CA_CERTS"
CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""Where people say which certificates to trust. Node looks at none of them."""


def with_certificates(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for npm: who has told pip which certificates to trust means npm, too."""
    told = [environ[name] for name in CERTIFICATES if environ.get(name)]
    return {**({NODE_CERTIFICATES: told[0]} if told else {}), **environ}


@dataclass(frozen=True, order=True)
class Skipped:
    """One test that did not run."""

    reason: str
    test: str


def skip_without(what: str, *, enable: str) -> NoReturn:
    """Skip the running test for lack of `what`; `enable` is the command that brings it."""
    pytest.skip(f"needs {what}{ENABLE}{enable}")


def closing_block(skipped: Iterable[Skipped]) -> list[str]:
    """The lines that end a run with skipped tests: each reason once, with its tests and its cure."""
    tests_by_reason: dict[str, list[str]] = {}
    for each in sorted(skipped):
        tests_by_reason.setdefault(each.reason, []).append(each.test)
    lines = []
    for reason, tests in tests_by_reason.items():
        what, _, command = reason.partition(ENABLE)
        lines.append(f"{what} ({len(tests)} skipped, first {tests[0]})")
        lines.append(f"    {command}" if command else "    no command is known to enable it")
    return lines
