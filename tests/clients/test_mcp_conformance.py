"""The protocol's own conformance suite, against agents on scripted models behind the real door.

What does not apply to a server of agents is listed here by name, with the reason, and the list is compared as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.http.origin_guard import OriginGuard
from tests.clients.catalogue import MCP
from tests.clients.mcp_fixtures import fixtures
from tests.clients.programs import installed, run
from tests.server.mcp.peer import CURRENT, PREVIOUS, RpcPeer
from tests.server.stubs import serving

pytestmark = [pytest.mark.slow, pytest.mark.clients]

_WORDS = "agents answer in words"
_PROMPTS = "no prompts are offered"
_COMPLETION = "there is nothing to complete: no prompts, and one template whose places are ids"
_URIS = "it asks for addresses of its own; resources are conversations, under ours"
_SAMPLING = "the server asks the host for approvals, and for nothing else"
_FORMS = "a form asks for an approval, and has no other fields"
_LOGS = "no log messages are sent"
_SCHEMA = "every tool takes a message and a conversation"

BOTH: Mapping[str, str] = {
    "completion-complete": _COMPLETION,
    "json-schema-2020-12": _SCHEMA,
    "prompts-get-embedded-resource": _PROMPTS,
    "prompts-get-simple": _PROMPTS,
    "prompts-get-with-args": _PROMPTS,
    "prompts-get-with-image": _PROMPTS,
    "prompts-list": _PROMPTS,
    "resources-read-binary": _URIS,
    "resources-read-text": _URIS,
    "resources-templates-read": _URIS,
    "tools-call-audio": _WORDS,
    "tools-call-embedded-resource": _WORDS,
    "tools-call-image": _WORDS,
    "tools-call-mixed-content": _WORDS,
}

LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    CURRENT: {
        **BOTH,
        "caching": f"only its check of prompts/list: {_PROMPTS}",
        "http-custom-header-server-validation": "no argument is repeated in a header",
        "input-required-result-basic-list-roots": _SAMPLING,
        "input-required-result-basic-sampling": _SAMPLING,
        "input-required-result-capability-check": _SAMPLING,
        "input-required-result-multiple-input-requests": _SAMPLING,
        "input-required-result-non-tool-request": _PROMPTS,
        "server-stateless": f"only its two checks of a tool that needs sampling: {_SAMPLING}",
        "tasks-mrtr-composition": _FORMS,
        "tasks-mrtr-input": "only its check of two questions at once: all calls are decided in one form",
        "tasks-required-task-error": "no agent needs a task: each also answers a client without them",
    },
    PREVIOUS: {
        **BOTH,
        "elicitation-sep1034-defaults": _FORMS,
        "elicitation-sep1330-enums": _FORMS,
        "logging-set-level": _LOGS,
        "resources-subscribe": "there are no subscriptions",
        "resources-unsubscribe": "there are no subscriptions",
        "tools-call-sampling": _SAMPLING,
        "tools-call-with-logging": _LOGS,
    },
}
"""Scenarios with a check that fails, by revision, and why."""

PASSED = {CURRENT: 141, PREVIOUS: 43}
"""How many checks pass at least."""


@pytest.mark.parametrize("revision", [CURRENT, PREVIOUS])
async def test_what_applies_to_a_server_of_agents_conforms(tmp_path: Path, revision: str) -> None:
    runner = await installed(MCP.runner)
    program = MCP.folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    guard = OriginGuard(frozenset({"127.0.0.1", "localhost"}))
    async with serving(*fixtures(), guard=guard) as server:
        await RpcPeer(server).tool("hello", name="greet")  # so that there is something to list
        asked = (f"--url={server.url}/mcp", "--requirements", revision, "-o", str(tmp_path))
        command = [runner[0], str(program), "server", *asked]
        await run(command, home=tmp_path, may_end_with=(0, 1))  # 1: something failed, see below
    checks = _checks(tmp_path)
    failed = {
        name: [
            f"{each['id']}: {each.get('errorMessage')}"
            for each in found
            if each["status"] == "FAILURE"
        ]
        for name, found in checks.items()
    }
    unexpected = {
        name: found for name, found in failed.items() if found and name not in LEFT_OUT[revision]
    }
    assert unexpected == {}
    assert {name for name, found in failed.items() if found} == LEFT_OUT[revision].keys()
    everything = [each for found in checks.values() for each in found]
    assert sum(each["status"] == "SUCCESS" for each in everything) >= PASSED[revision]
    wire = [each for each in everything if each["id"] == "wire-schema-valid"]
    assert wire and all(each["status"] == "SUCCESS" for each in wire)


def _checks(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What the suite found, by scenario."""
    return {
        re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", each.parent.name): json.loads(each.read_text())
        for each in folder.rglob("checks.json")
    }
