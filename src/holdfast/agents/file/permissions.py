"""The permission rules of an agent file: checked against the tools that the file has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

import msgspec

from holdfast.agents.file.document import Where
from holdfast.agents.file.shape_checks import Findings, suggest
from holdfast.agents.file.shapes import AgentShape, FileShape, PermissionsShape
from holdfast.agents.file.toolsets.agent_tools import RESERVED_TOOLS, AgentTools
from holdfast.core.items import Permissions
from holdfast.tools.permissions import ToolRule, read_rule
from holdfast.tools.tool import ToolSpec


class FilePermissions:
    """The rules of one file, of which some hold for all of its agents."""

    def __init__(self, findings: Findings) -> None:
        self._found = findings

    def of_agent(self, shape: AgentShape, file: FileShape, where: Where) -> Permissions:
        """An agent's rules: those of the file, and its own."""
        shared, own = file.permissions, shape.permissions
        return Permissions(
            allow=(*shared.allow, *own.allow),
            ask=(*shared.ask, *own.ask),
            deny=(*shared.deny, *own.deny),
        )

    def check_tools(self, file: FileShape, agents: Mapping[str, AgentTools]) -> None:
        """Warn of rules that name no tool. A rule that protects, and cannot hold, is a problem."""
        self._check(file.permissions, ("permissions",), list(agents.values()))
        for name, shape in file.agents.items():
            where = ("agents", name, "permissions")
            self._check(shape.permissions, where, [agents[name]])

    def _check(self, shape: PermissionsShape, where: Where, agents: list[AgentTools]) -> None:
        specs = {name: spec for each in agents for name, spec in each.specs.items()}
        has_foreign = any(each.has_foreign for each in agents)
        for at, text, allows in _rules(shape, where):
            rule = read_rule(text)
            if ":" in rule.name:
                self._tell(
                    at,
                    "a rule is a tool's name, and 'tool:argument=pattern'; the tools of a server with "
                    "'name: github' are 'github_*'",
                    allows=allows,
                )
            elif found := [spec for name, spec in specs.items() if _is_named(name, rule)]:
                if not has_foreign:
                    self._check_arguments(rule, found, at, allows=allows)
            elif not has_foreign and _means_one(rule, allows=allows):
                self._found.warn(at, f"no tool has that name; {suggest(rule.name, specs)}")

    def _check_arguments(
        self, rule: ToolRule, found: list[ToolSpec], at: Where, *, allows: bool
    ) -> None:
        known = {name for spec in found for name in _arguments(spec)}
        for argument, _ in rule.conditions:
            if argument not in known:
                words = f"no such argument of {found[0].name}; {suggest(argument, sorted(known))}"
                self._tell(at, words, allows=allows)

    def _tell(self, at: Where, words: str, *, allows: bool) -> None:
        if allows:
            self._found.warn(at, f"it allows nothing: {words}")
        else:
            self._found.wrong(at, words)


def _rules(shape: PermissionsShape, where: Where) -> Iterator[tuple[Where, str, bool]]:
    """Each rule with its place, and whether it allows."""
    for field in ("allow", "ask", "deny"):
        rules: tuple[str, ...] = getattr(shape, field)
        for n, rule in enumerate(rules):
            yield (*where, field, n), rule, field == "allow"


def _means_one(rule: ToolRule, *, allows: bool) -> bool:
    """Whether a rule that names no tool is a slip: a pattern that forbids may be there for tools to come."""
    if any(_is_named(each, rule) for each in RESERVED_TOOLS):
        return False
    return rule.name != "*" and (allows or not set("*?[") & set(rule.name))


def _is_named(name: str, rule: ToolRule) -> bool:
    return fnmatchcase(name.casefold(), rule.name.casefold())


def _arguments(spec: ToolSpec) -> list[str]:
    schema: dict[str, dict[str, object]] = msgspec.json.decode(spec.parameters)
    return list(schema.get("properties", {}))
