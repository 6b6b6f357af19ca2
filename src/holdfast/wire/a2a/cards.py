"""Agent cards: how an agent tells other agents what it can do, and where.

One card serves clients of both versions: it has the fields of 1.0, and beside them those of 0.3 (`url`,
`preferredTransport`, `additionalInterfaces`, `security`). An extension of the card names the other agents of the
server that the reader of the card may know of.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from holdfast.core.codec import Value

AGENTS_EXTENSION = "urn:holdfast:a2a:agents"
"""The extension whose `agents` names the agents of this server, each with the address of its card."""

WELL_KNOWN = ".well-known/agent-card.json"

TEXT_MODES = ("text/plain", "application/json")
INPUT_MODES = (*TEXT_MODES, "image/*", "audio/*", "application/pdf")


class CardSkill(Value):
    """Something that an agent can do."""

    id: str
    name: str
    description: str
    examples: tuple[str, ...] = ()


class CardSubject(Value):
    """The agent that a card is about."""

    id: str
    """Its model id, which its address has."""
    name: str
    description: str
    skills: tuple[CardSkill, ...]


class AgentCard(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A card, as the document describes it: the fields of version 1.0. Those of 0.3 stand beside them."""

    name: str
    description: str
    version: str
    supported_interfaces: list[dict[str, Any]]
    capabilities: dict[str, Any]
    default_input_modes: list[str]
    default_output_modes: list[str]
    skills: list[dict[str, Any]]


def address_of(base: str, agent: str) -> str:
    """The address of an agent at the server with this base URL."""
    return f"{base}/a2a/{quote(agent, safe='')}"


def card(
    subject: CardSubject, others: tuple[str, ...], *, base: str, version: str, needs_key: bool
) -> dict[str, object]:
    """The card of an agent. `others` are all agents that its reader may know of; `base` is the server's own URL."""
    url = address_of(base, subject.id)
    made: dict[str, object] = {
        "name": subject.name,
        "description": subject.description,
        "version": version,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": spoken}
            for spoken in ("1.0", "0.3")
            for binding in ("JSONRPC", "HTTP+JSON")
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extendedAgentCard": True,
            "extensions": [_agents(others, base)],
        },
        "defaultInputModes": list(INPUT_MODES),
        "defaultOutputModes": list(TEXT_MODES),
        "skills": [_skill(each) for each in subject.skills],
        # what 0.3 has in other places
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
        "additionalInterfaces": [
            {"url": url, "transport": "JSONRPC"},
            {"url": url, "transport": "HTTP+JSON"},
        ],
        "supportsAuthenticatedExtendedCard": True,
    }
    return {**made, **_BEARER} if needs_key else made


def _agents(others: tuple[str, ...], base: str) -> dict[str, object]:
    named = [
        {
            "id": each,
            "card": f"{address_of(base, each)}/{WELL_KNOWN}",
            "url": address_of(base, each),
        }
        for each in others
    ]
    return {
        "uri": AGENTS_EXTENSION,
        "description": "The agents of this server that the reader of this card may know of.",
        "required": False,
        "params": {"agents": named},
    }


def _skill(skill: CardSkill) -> dict[str, object]:
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "tags": ["agent"],
        **({"examples": list(skill.examples)} if skill.examples else {}),
    }


_BEARER: dict[str, object] = {
    "securitySchemes": {
        "bearer": {
            "httpAuthSecurityScheme": {"scheme": "Bearer"},
            "type": "http",
            "scheme": "Bearer",
        }
    },
    "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
    "security": [{"bearer": []}],
}
