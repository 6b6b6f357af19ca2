"""Versions of the agent file: docker-agent's current one, and upgrades for files of all versions before it.

There is one step for each new version: a function from a document's tree to the tree in the next version. A moved
value keeps its mark and the field that it has in the file, so that errors are about the file as its author wrote it.

1. A file that uses nothing that a step changes comes out unchanged, except for its version.
2. Fields that a version has dropped stay in the tree; reading it refuses them, with a reason (`dispositions.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from holdfast.agents.file.document import Document, DocumentNode, Where
from holdfast.core.codec import Value

Step: TypeAlias = Callable[[DocumentNode], DocumentNode]

CURRENT = 15
"""The version of docker-agent's format that the shapes follow."""


class NotRead(Value):
    """A version that cannot be read, and the way out."""

    words: str


def current(document: Document) -> Document | NotRead:
    """The same document in the current version.

    A file without a version may be in any: what only an older one can mean is brought up to date.
    """
    said = entries(document.root).get("version")
    if said is None or said.value is None or said.value == "":
        root = from_6_to_7(from_0_to_1(document.root))
        return document if root is document.root else Document(root)
    if isinstance(said.value, list | dict):
        return document  # reading it reports a wrong one
    text = said.word or str(said.value)
    if re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) is None:
        return NotRead(words=f"expected a version of the format, such as '{CURRENT}'")
    version = int(text)
    if version > CURRENT:
        known = f"({min(STEPS)} to {CURRENT})"
        way_out = f"write '{CURRENT}' if the file uses nothing that is newer"
        return NotRead(words=f"is newer than what is read here {known}; {way_out}")
    root = document.root
    for before in range(version, CURRENT):
        root = _numbered(STEPS[before](root), before + 1)
    return document if root is document.root else Document(root)


def from_0_to_1(root: DocumentNode) -> DocumentNode:
    """A model's `type` became its `provider`; an agent's `todo`, `think` and `memory` became toolsets."""
    models, agents = entries(root).get("models"), entries(root).get("agents")
    changed: dict[str, DocumentNode] = {}
    if models is not None:
        changed["models"] = _each(models, "models", _with_provider)
    if agents is not None:
        changed["agents"] = _each(agents, "agents", _with_fields_as_toolsets)
    if all(changed[name] is entries(root)[name] for name in changed):
        return root
    return _with(root, **changed)


def only_added(root: DocumentNode) -> DocumentNode:
    """The step of a version that only has more fields, or dropped some: reading them says so."""
    return root


def from_6_to_7(root: DocumentNode) -> DocumentNode:
    """An agent's document sources became toolsets: `rag: [docs]` → `toolsets: [{type: rag, ref: docs}]`."""
    agents = entries(root).get("agents")
    if agents is None:
        return root
    moved = _each(agents, "agents", _with_rag_as_toolsets)
    return root if moved is agents else _with(root, agents=moved)


STEPS: Mapping[int, Step] = {
    **dict.fromkeys(range(CURRENT), only_added),
    0: from_0_to_1,
    1: from_0_to_1,  # files of version 1 were still written with its fields
    6: from_6_to_7,
}
"""The version that a step begins from → the step."""


def _each(
    node: DocumentNode, field: str, change: Callable[[DocumentNode, Where], DocumentNode]
) -> DocumentNode:
    """A mapping with a change made to each of its entries; the same node if nothing changes."""
    moved = {name: change(each, (field, name)) for name, each in entries(node).items()}
    if all(moved[name] is each for name, each in entries(node).items()):
        return node
    return msgspec.structs.replace(node, value=moved)


def _with_provider(model: DocumentNode, where: Where) -> DocumentNode:
    kind = entries(model).get("type")
    if kind is None or "provider" in entries(model):
        return model
    value = {"provider" if name == "type" else name: each for name, each in entries(model).items()}
    value["provider"] = msgspec.structs.replace(kind, written=(*where, "type"))
    return msgspec.structs.replace(model, value=value)


def _with_fields_as_toolsets(agent: DocumentNode, where: Where) -> DocumentNode:
    fields = {
        name: each
        for name, each in entries(agent).items()
        if name in ("todo", "think", "memory") and isinstance(each.value, bool | dict)
    }
    toolsets = entries(agent).get("toolsets")
    before = toolsets.value if toolsets is not None and toolsets.value is not None else []
    if not fields or not isinstance(before, list):
        return agent  # reading it reports a list that is none
    added = [
        DocumentNode(
            mark=each.mark,
            value={
                "type": msgspec.structs.replace(each, value=name),
                **{field: inner for field, inner in entries(each).items() if field != "add_date"},
            },
            written=(*where, name),
        )
        for name, each in fields.items()
        if each.value is not False
    ]
    rest = {name: each for name, each in entries(agent).items() if name not in fields}
    if added:
        some = toolsets or next(iter(fields.values()))
        rest["toolsets"] = DocumentNode(
            mark=some.mark, value=[*added, *before], written=(*where, "toolsets")
        )
    return msgspec.structs.replace(agent, value=rest)


def _with_rag_as_toolsets(agent: DocumentNode, where: Where) -> DocumentNode:
    sources = entries(agent).get("rag")
    toolsets = entries(agent).get("toolsets")
    if sources is None or not isinstance(sources.value, list):
        return agent
    before = toolsets.value if toolsets is not None else []
    if before is None:
        before = []
    if not isinstance(before, list):
        return agent  # reading it reports this
    added = [
        DocumentNode(
            mark=each.mark,
            value={"type": msgspec.structs.replace(each, value="rag"), "ref": each},
            written=(*where, "rag", n),
        )
        for n, each in enumerate(sources.value)
    ]
    whole = msgspec.structs.replace(toolsets or sources, value=[*before, *added])
    rest = _with(agent, toolsets=whole)
    return msgspec.structs.replace(
        rest, value={name: each for name, each in entries(rest).items() if name != "rag"}
    )


def _numbered(root: DocumentNode, version: int) -> DocumentNode:
    said = entries(root)["version"]
    return _with(root, version=msgspec.structs.replace(said, value=str(version)))


def _with(node: DocumentNode, **changed: DocumentNode) -> DocumentNode:
    return msgspec.structs.replace(node, value={**entries(node), **changed})


def entries(node: DocumentNode) -> Mapping[str, DocumentNode]:
    """The entries of a mapping; empty for another node."""
    return node.value if isinstance(node.value, dict) else {}
