"""Versions of the agent file: docker-agent's current one, and upgrades for files of the two versions before it.

There is one step for each new version: a function from a document's tree to the tree in the next version. A moved
value keeps its mark and the field that it has in the file, so that errors are about the file as its author wrote it.

1. A file that uses nothing that a step changes comes out unchanged, except for its version.
2. Fields that a version has dropped stay in the tree; reading it refuses them, with a reason (`shapes.GONE`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from holdfast.agents.file.document import Document, DocumentNode, Where
from holdfast.core.codec import Value

Step: TypeAlias = Callable[[DocumentNode], DocumentNode]

CURRENT = 7
"""The version of docker-agent's format that the shapes follow."""


class NotRead(Value):
    """A version that cannot be read, and the way out."""

    words: str


def current(document: Document) -> Document | NotRead:
    """The same document in the current version. A file without a version is in the current one."""
    said = entries(document.root).get("version")
    if said is None or not isinstance(said.value, str | int) or isinstance(said.value, bool):
        return document  # without a version it is current; reading it reports a wrong one
    text = str(said.value)
    if re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) is None:
        return NotRead(words=f"expected a version of the format, such as '{CURRENT}'")
    version, known = int(text), f"({min(STEPS)} to {CURRENT})"
    if version > CURRENT:
        way_out = f"write '{CURRENT}' if the file uses nothing that is newer"
        return NotRead(words=f"is newer than what is read here {known}; {way_out}")
    if version not in (*STEPS, CURRENT):
        way_out = f"write '{CURRENT}', and `holdfast agents check` says what has to change"
        return NotRead(words=f"is older than what is read here {known}; {way_out}")
    root = document.root
    for before in range(version, CURRENT):
        root = _numbered(STEPS[before](root), before + 1)
    return document if root is document.root else Document(root)


def from_5_to_6(root: DocumentNode) -> DocumentNode:
    """Only fields were added; `sandbox` of a shell is gone, which reading it reports."""
    return root


def from_6_to_7(root: DocumentNode) -> DocumentNode:
    """An agent's document sources became toolsets: `rag: [docs]` → `toolsets: [{type: rag, ref: docs}]`."""
    agents = entries(root).get("agents")
    if agents is None:
        return root
    moved = {
        name: _with_rag_as_toolsets(each, ("agents", name))
        for name, each in entries(agents).items()
    }
    if all(moved[name] is each for name, each in entries(agents).items()):
        return root
    return _with(root, agents=msgspec.structs.replace(agents, value=moved))


STEPS: Mapping[int, Step] = {5: from_5_to_6, 6: from_6_to_7}
"""The version that a step begins from → the step."""


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
