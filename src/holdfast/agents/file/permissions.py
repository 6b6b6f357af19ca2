"""The permission rules of an agent file: checked against the tools that the file has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

import msgspec

from holdfast.agents.file.document import Where
from holdfast.agents.file.shape_checks import Findings, suggest
from holdfast.agents.file.shapes import AgentShape, FileShape, PermissionsShape
from holdfast.agents.file.toolsets.agent_tools import RESERVED_TOOLS, AgentTools
from holdfast.agents.file.toolsets.toolset_shapes import McpToolsetShape
from holdfast.core.items import Permissions
from holdfast.tools.permissions import ToolRule, read_rule
from holdfast.tools.tool import ToolSpec

_QUALIFIED = re.compile(r"mcp:([^:=]+):(.+)", re.DOTALL)
"""docker-agent's rules about the tools of one MCP server: `mcp:github:get_*`."""
_NO_RULE = (
    "a rule is a tool's name, and 'tool:argument=pattern'; the tools of a server with 'name: github' are "
    "'github_*', or 'mcp:github:*'"
)


class FilePermissions:
    """The rules of one file, of which some hold for all of its agents."""

    def __init__(self, findings: Findings) -> None:
        self._found = findings

    def of_agent(self, shape: AgentShape, file: FileShape, where: Where) -> Permissions:
        """An agent's rules: those of the file, and its own."""
        shared, own = file.permissions, shape.permissions
        servers = _servers(shape, file)
        return Permissions(
            allow=_plain((*shared.allow, *own.allow), servers, allows=True),
            ask=_plain((*shared.ask, *own.ask), servers, allows=False),
            deny=_plain((*shared.deny, *own.deny), servers, allows=False),
        )

    def check_tools(self, file: FileShape, agents: Mapping[str, AgentTools]) -> None:
        """Warn of rules that name no tool. A rule that protects, and cannot hold, is a problem."""
        servers = {name: _servers(shape, file) for name, shape in file.agents.items()}
        every = {name: tools for each in servers.values() for name, tools in each.items()}
        self._check(file.permissions, ("permissions",), list(agents.values()), every)
        for name, shape in file.agents.items():
            where = ("agents", name, "permissions")
            self._check(shape.permissions, where, [agents[name]], servers[name])

    def _check(
        self,
        shape: PermissionsShape,
        where: Where,
        agents: list[AgentTools],
        servers: Mapping[str, str],
    ) -> None:
        specs = {name: spec for each in agents for name, spec in each.specs.items()}
        has_foreign = any(each.has_foreign for each in agents)
        for at, text, allows in _rules(shape, where):
            rule = read_rule(text)
            if (asked := _QUALIFIED.match(rule.name)) is not None:
                self._check_server(asked[1], servers, at, allows=allows)
            elif ":" in rule.name:
                self._tell(at, _NO_RULE, allows=allows)
            elif found := [spec for name, spec in specs.items() if _is_named(name, rule)]:
                if not has_foreign:
                    self._check_arguments(rule, found, at, allows=allows)
            elif not has_foreign and _means_one(rule, allows=allows):
                self._found.warn(at, f"no tool has that name; {suggest(rule.name, specs)}")

    def _check_server(
        self, server: str, servers: Mapping[str, str], at: Where, *, allows: bool
    ) -> None:
        found = [tools for name, tools in servers.items() if fnmatchcase(name, server)]
        if not found:
            words = f"no server has that name; {suggest(server, servers)}"
            self._found.warn(at, f"it {'allows' if allows else 'names'} nothing: {words}")
        elif allows and not all(found):
            words = f"the tools of {server!r} cannot be told from others: give its toolset a 'name'"
            self._found.warn(at, f"it allows nothing: {words}")

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


def _servers(shape: AgentShape, file: FileShape) -> dict[str, str]:
    """The names of an agent's MCP servers in rules, and what the names of their tools begin with."""
    used = (file.toolsets[each] for each in shape.use_toolsets if each in file.toolsets)
    found: dict[str, str] = {}
    for each in (*shape.toolsets, *used):
        if isinstance(each, McpToolsetShape):
            there = file.mcps.get(each.ref)
            prefix = each.name or (there.name if there else "")
            name = prefix or each.ref.rpartition(":")[2] or each.command
            found[name] = f"{prefix}_" if prefix else ""
    return found


def _plain(rules: tuple[str, ...], servers: Mapping[str, str], *, allows: bool) -> tuple[str, ...]:
    """The rules with `mcp:SERVER:TOOL` as names of tools.

    A server without a name of its own has tools that are called like others' tools: what forbids or asks holds for
    all of them, and what allows for none.
    """
    made: list[str] = []
    for rule in rules:
        asked = _QUALIFIED.match(rule)
        if asked is None:
            made.append(rule)
            continue
        named = [tools for name, tools in servers.items() if fnmatchcase(name, asked[1])]
        made += [f"{tools}{asked[2]}" for tools in named if tools or not allows]
    return tuple(made)


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
