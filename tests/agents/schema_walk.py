"""The fields of docker-agent's format as its own JSON Schemas have them: kind by kind, by name alone.

`schema_fields.txt` holds the list, so that the test needs nothing else. Where the schemas lie beside the checkout
(`shared/data`), `python -m tests.agents.schema_walk` writes the list anew, and the test compares it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tests import repository

LIST = Path(__file__).with_name("schema_fields.txt")

Fields: TypeAlias = dict[str, set[str]]
"""A definition of the schema, or `definition.field` for an object inside of a field → the fields that it has."""

DATA = next(
    (found for each in repository.ROOT.parents if (found := each / "shared/data").is_dir()), None
)
SCHEMAS = sorted(DATA.glob("docker-agent-schema*.json")) if DATA else []

KINDS: Mapping[str, str] = {
    "file": "a file",
    "Lifecycle": "`lifecycle`",
    "Lifecycle.backoff": "`backoff`",
    "ProviderConfig": "a provider",
    "ProviderConfig.task_budget": "`task_budget`",
    "AuthConfig": "`auth`",
    "FederationAuthConfig": "`workload_identity_federation`",
    "IdentityTokenSourceConfig": "`identity_token`",
    "AgentConfig": "an agent",
    "AgentConfig.structured_output": "`structured_output`",
    "InlineSkill": "`skills`",
    "CommandConfig": "a command",
    "HarnessConfig": "`harness`",
    "FallbackConfig": "`fallback`",
    "CacheConfig": "`cache`",
    "HooksConfig": "`hooks`",
    "HookMatcherConfig": "a matcher of hooks",
    "HookDefinition": "a hook",
    "ModelConfig": "a model",
    "ModelConfig.task_budget": "`task_budget`",
    "CapabilitiesConfig": "`capabilities`",
    "CostConfig": "`cost`",
    "RoutingRule": "`routing`",
    "Metadata": "`metadata`",
    "RuntimeDefaults": "`runtime`",
    "BudgetConfig": "`budget`, `budgets`",
    "PermissionsConfig": "`permissions`",
    "MCPToolset": "`mcps`",
    "Remote": "`remote`",
    "RemoteOAuthConfig": "`oauth`",
    "ScriptShellToolConfig": "a command of `script`",
    "PostEditConfig": "`post_edit`",
    "WebhookConfig": "`webhook_config`",
    "ApiConfig": "`api_config`",
    "RAGConfig": "toolset `rag`, `rag_config`",
    "RAGToolset": "toolset `rag`, `rag_config`",
}
"""The kinds of our table. `Toolset` is every type of toolset at once, and `RAGConfig.…` is what it says."""

FREE = frozenset({"AgentConfig.structured_output.schema", "ApiConfig.args"})
"""JSON Schemas of users: their fields are not the format's."""


def walk(schema: Mapping[str, Any]) -> Fields:
    """Every field of a schema."""
    found: Fields = {}
    whole = {name: each for name, each in schema.items() if name != "definitions"}
    for name, node in {"file": whole, **schema["definitions"]}.items():
        for kind, field in _fields(node, name):
            found.setdefault(kind, set()).add(field)
    return {kind: fields for kind, fields in found.items() if kind not in FREE}


def toolset_types(schema: Mapping[str, Any]) -> set[str]:
    return set(schema["definitions"]["Toolset"]["properties"]["type"]["enum"])


def _fields(node: Any, kind: str) -> Iterator[tuple[str, str]]:
    if not isinstance(node, dict) or "$ref" in node or kind in FREE:
        return
    for field, inner in node.get("properties", {}).items():
        yield kind, field
        yield from _fields(inner, f"{kind}.{field}")
    below = [node.get("items"), node.get("additionalProperties")]
    below += node.get("patternProperties", {}).values()
    for each in ("oneOf", "anyOf"):
        below += node.get(each, ())
    for inner in below:
        yield from _fields(inner, kind)


def joined(*all_fields: Fields) -> Fields:
    made: Fields = {}
    for fields in all_fields:
        for kind, names in fields.items():
            made.setdefault(kind, set()).update(names)
    return made


def written(fields: Fields) -> str:
    return "".join(f"{kind}: {' '.join(sorted(names))}\n" for kind, names in sorted(fields.items()))


def listed() -> Fields:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return {kind: set(names.split()) for kind, _, names in (each.partition(": ") for each in lines)}


def of_schemas() -> Fields:
    """The fields of all schemas beside the checkout; the types of toolsets are those of a kind of their own."""
    schemas = [json.loads(each.read_text(encoding="utf-8")) for each in SCHEMAS]
    types = {"a toolset": set[str]().union(*map(toolset_types, schemas))}
    return joined(*map(walk, schemas), types)


def main() -> None:
    assert SCHEMAS, "there are no schemas beside the checkout"
    LIST.write_text(written(of_schemas()), encoding="utf-8")


if __name__ == "__main__":
    main()
