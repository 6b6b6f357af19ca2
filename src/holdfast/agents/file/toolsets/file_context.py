"""What all parts of one agent file have in common while they are read: its directory, its variables, its findings."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from holdfast import limits
from holdfast.agents.file.document import Where
from holdfast.agents.file.shape_checks import Findings, suggest
from holdfast.agents.file.toolsets.toolset_shapes import Deferred
from holdfast.agents.file.variables import filled, seconds_in
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.web.address_guard import FetchFailed, host_of

_ENVIRONMENT = re.compile(r"\$\{env\.\w+\}", re.ASCII)

TOOL_PREFIX = "tools begin with it: take letters, digits, '_' and '-'"


class FileContext:
    """One file while it is read: where it is, and what it may use."""

    def __init__(
        self,
        findings: Findings,
        directory: Path,
        environment: Mapping[str, str],
        *,
        trusted: bool,
        sandbox: Sandbox,
    ) -> None:
        self.found = findings
        self.directory = directory
        self.environment = environment
        self.trusted = trusted
        self.sandbox = sandbox
        self.unset: list[tuple[Where, str]] = []
        """The variables of the present toolset that are not set, each with its field."""

    def below(self, text: str, at: Where) -> Path:
        """A directory: relative to the agent file and below it, or absolute. Symbolic links are resolved now and not
        again, because a tool could change them later."""
        found = Path(os.path.normpath(self.directory / text))
        if not Path(text).is_absolute() and not found.is_relative_to(self.directory):
            words = f"leads out of {self.directory}; give it as an absolute path"
            self.found.wrong(at, words)
        return Path(os.path.realpath(found))

    def placed(self, roots: tuple[str, ...]) -> tuple[str, ...]:
        """Further directories that a command may use: relative to the agent file, or absolute."""
        return tuple(os.path.realpath(self.directory / each) for each in roots)

    def filled(
        self, values: Mapping[str, str], at: Where
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """Values with their variables filled in, and the secrets among the filled-in values."""
        made: dict[str, str] = {}
        secrets: tuple[str, ...] = ()
        for name, value in values.items():
            made[name], own = self.filled_one(value, (*at, name))
            secrets += own
        return made, secrets

    def filled_one(self, value: str, at: Where) -> tuple[str, tuple[str, ...]]:
        result = filled(value, self.environment)
        self.unset += [(at, name) for name in result.missing]
        return result.text, result.secrets

    def check_server(self, url: str, at: Where) -> None:
        try:
            host_of(url)
        except FetchFailed as error:
            self.found.wrong(at, error.why)

    def seconds(self, text: str, at: Where) -> float:
        found = seconds_in(text)
        if found is None:
            self.found.wrong(at, "expected a duration, such as '30s' or '2m30s'")
        return min(found or 0.0, limits.tool_timeout_s_max)

    def with_environment(self, text: str, at: Where) -> str:
        """The text with `${env.NAME}` filled in; every other `$` is left as it is."""
        return _ENVIRONMENT.sub(partial(self._variable, at=at), text)

    def _variable(self, found: re.Match[str], at: Where) -> str:
        return self.filled_one(found[0], at)[0]


def check_deferred(found: Findings, defer: Deferred, offered: Collection[str], at: Where) -> None:
    """Warn of tools that are named as deferred, and that the toolset does not offer."""
    for n, name in enumerate(defer if isinstance(defer, tuple) else ()):
        if name not in offered:
            found.warn((*at, "defer", n), f"no such tool; {suggest(name, offered)}")
