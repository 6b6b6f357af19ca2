"""Everything that can be asked for, in one table: who may, and who answers.

Dispatch, the document at `/openapi.json`, the names in `/metrics` and the test that tenants cannot see each other
are all made from it, so what is not here does not exist.
"""

from __future__ import annotations

from holdfast import limits
from holdfast.server.api import Api
from holdfast.server.chat import Chat
from holdfast.server.console import ConsoleFiles
from holdfast.server.contexts import Contexts
from holdfast.server.conversations import Conversations
from holdfast.server.grants import Grants
from holdfast.server.health import Health
from holdfast.server.listing import Models
from holdfast.server.metrics import Metrics
from holdfast.server.openapi import OpenApi
from holdfast.server.overview import Overview
from holdfast.server.responses import Responses
from holdfast.server.responses_stored import StoredResponses
from holdfast.server.routing import Route, Routes

TURN_BYTES = limits.body_bytes_max


def all_routes(
    *,
    health: Health,
    metrics: Metrics,
    openapi: OpenApi,
    models: Models,
    chat: Chat,
    responses: Responses,
    stored: StoredResponses,
    contexts: Contexts,
    conversations: Conversations,
    api: Api,
    grants: Grants,
    console: ConsoleFiles,
    overview: Overview,
) -> Routes:
    """The table, over these endpoints."""
    return Routes(
        (
            Route("GET", "/healthz", None, health.alive),
            Route("HEAD", "/healthz", None, health.alive),
            Route("GET", "/readyz", None, health.ready),
            Route("HEAD", "/readyz", None, health.ready),
            Route("GET", "/metrics", "metrics", metrics.show),
            Route("GET", "/openapi.json", None, openapi.show),
            Route(
                "POST",
                "/v1/chat/completions",
                "chat",
                chat.serve,
                body_bytes_max=TURN_BYTES,
                load="turns",
            ),
            Route("GET", "/v1/models", "chat", models.every),
            Route("GET", "/v1/models/{id...}", "chat", models.one),
            *_responses(responses, stored, contexts),
            *_conversations(conversations),
            *_sessions(api),
            *_turns(api),
            Route("GET", "/api/grants", "read", grants.every),
            Route(
                "DELETE",
                "/api/grants/{grant}",
                "admin",
                grants.revoke,
                audit="approval.revoke",
            ),
            *_console(console, overview),
        )
    )


def _responses(
    responses: Responses, stored: StoredResponses, contexts: Contexts
) -> tuple[Route, ...]:
    path, one = "/v1/responses", "/v1/responses/{response}"
    return (
        Route("POST", path, "chat", responses.create, body_bytes_max=TURN_BYTES, load="turns"),
        Route(
            "POST",
            f"{path}/compact",
            "chat",
            contexts.compact,
            body_bytes_max=TURN_BYTES,
            load="turns",
        ),
        Route(
            "POST",
            f"{path}/input_tokens",
            "chat",
            contexts.input_tokens,
            body_bytes_max=TURN_BYTES,
            load="turns",  # its provider may be asked
        ),
        Route("GET", one, "chat", stored.retrieve),
        Route("DELETE", one, "chat", stored.delete, audit="response.delete"),
        Route("POST", f"{one}/cancel", "chat", stored.cancel),
        Route("GET", f"{one}/input_items", "chat", stored.input_items),
    )


def _conversations(conversations: Conversations) -> tuple[Route, ...]:
    path = "/v1/conversations"
    one, items = f"{path}/{{conversation}}", f"{path}/{{conversation}}/items"
    return (
        Route("POST", path, "chat", conversations.create, body_bytes_max=TURN_BYTES),
        Route("GET", one, "chat", conversations.retrieve),
        Route("POST", one, "chat", conversations.update),
        Route("DELETE", one, "admin", conversations.delete, audit="session.delete"),
        Route("GET", items, "chat", conversations.items),
        Route("POST", items, "chat", conversations.add_items, body_bytes_max=TURN_BYTES),
        Route("GET", f"{items}/{{item}}", "chat", conversations.item),
        Route(
            "DELETE", f"{items}/{{item}}", "chat", conversations.delete_item, audit="item.delete"
        ),
    )


def _sessions(api: Api) -> tuple[Route, ...]:
    one = "/api/sessions/{name}"
    return (
        Route("GET", "/api/agents", "read", api.agents),
        Route("GET", "/api/sessions", "read", api.sessions),
        Route(
            "POST",
            "/api/sessions/import",
            "admin",
            api.take_in,
            body_bytes_max=limits.import_body_bytes_max,
            audit="session.import",
        ),
        Route("GET", one, "read", api.session),
        Route("PATCH", one, "chat", api.patch),
        Route("DELETE", one, "admin", api.delete, audit="session.delete"),
        Route("GET", f"{one}/items", "read", api.items),
        Route("GET", f"{one}/turns", "read", api.turns),
        Route("GET", f"{one}/export", "admin", api.export, audit="session.export"),
        Route("POST", f"{one}/fork", "chat", api.fork),
        Route("POST", f"{one}/reset", "chat", api.reset),
        Route("POST", f"{one}/rewind", "chat", api.rewind),
        Route("POST", f"{one}/compact", "chat", api.compact, load="turns"),
    )


def _turns(api: Api) -> tuple[Route, ...]:
    one, decide = "/api/turns/{id}", "approval.decide"
    return (
        Route("GET", one, "read", api.turn),
        Route("GET", f"{one}/events", "read", api.events, load="watchers"),
        Route("POST", f"{one}/cancel", "chat", api.cancel),
        Route("POST", f"{one}/continue", "chat", api.go_on, load="turns"),
        Route("GET", f"{one}/approvals", "read", api.approvals),
        Route("POST", f"{one}/approvals", "chat", api.decide, load="turns", audit=decide),
        Route(
            "POST",
            f"{one}/approvals/{{call}}",
            "chat",
            api.decide_one,
            load="turns",
            audit=decide,
        ),
    )


def _console(console: ConsoleFiles, overview: Overview) -> tuple[Route, ...]:
    one = "/api/sessions/{name}"
    return (
        Route("GET", "/", None, console.page),
        Route("GET", "/console/{build}/{file...}", None, console.file),
        Route("GET", "/api/me", "read", overview.me),
        Route("GET", "/api/nodes", "metrics", overview.nodes),
        Route("GET", f"{one}/history", "read", overview.history),
        Route("GET", f"{one}/lineage", "read", overview.lineage),
        Route("GET", f"{one}/chain", "read", overview.chain),
        Route("POST", f"{one}/annotations", "chat", overview.annotate),
    )
