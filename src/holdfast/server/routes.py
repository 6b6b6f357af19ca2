"""Everything that can be asked for, in one table: who may, and who answers.

Dispatch, the names in `/metrics` and the test that tenants cannot see each other are all made from it, so what is
not here does not exist.
"""

from __future__ import annotations

from holdfast import limits
from holdfast.server.api import Api
from holdfast.server.chat import Chat
from holdfast.server.contexts import Contexts
from holdfast.server.conversations import Conversations
from holdfast.server.health import Health
from holdfast.server.listing import Models
from holdfast.server.metrics import Metrics
from holdfast.server.responses import Responses
from holdfast.server.responses_stored import StoredResponses
from holdfast.server.routing import Route, Routes


def all_routes(
    *,
    health: Health,
    metrics: Metrics,
    models: Models,
    chat: Chat,
    responses: Responses,
    stored: StoredResponses,
    contexts: Contexts,
    conversations: Conversations,
    api: Api,
) -> Routes:
    """The table, over these endpoints."""
    turn_bytes, import_bytes = limits.body_bytes_max, limits.import_body_bytes_max
    return Routes(
        (
            Route("GET", "/healthz", None, health.alive),
            Route("HEAD", "/healthz", None, health.alive),
            Route("GET", "/readyz", None, health.ready),
            Route("HEAD", "/readyz", None, health.ready),
            Route("GET", "/metrics", "metrics", metrics.show),
            # ── as OpenAI has it ──
            Route("POST", "/v1/chat/completions", "chat", chat.serve, body_bytes_max=turn_bytes),
            Route("GET", "/v1/models", "chat", models.every),
            Route("GET", "/v1/models/{id...}", "chat", models.one),
            Route("POST", "/v1/responses", "chat", responses.create, body_bytes_max=turn_bytes),
            Route(
                "POST", "/v1/responses/compact", "chat", contexts.compact, body_bytes_max=turn_bytes
            ),
            Route(
                "POST",
                "/v1/responses/input_tokens",
                "chat",
                contexts.input_tokens,
                body_bytes_max=turn_bytes,
            ),
            Route("GET", "/v1/responses/{response}", "chat", stored.retrieve),
            Route("DELETE", "/v1/responses/{response}", "chat", stored.delete),
            Route("POST", "/v1/responses/{response}/cancel", "chat", stored.cancel),
            Route("GET", "/v1/responses/{response}/input_items", "chat", stored.input_items),
            Route(
                "POST",
                "/v1/conversations",
                "chat",
                conversations.create,
                body_bytes_max=turn_bytes,
            ),
            Route("GET", "/v1/conversations/{conversation}", "chat", conversations.retrieve),
            Route("POST", "/v1/conversations/{conversation}", "chat", conversations.update),
            Route("DELETE", "/v1/conversations/{conversation}", "admin", conversations.delete),
            Route("GET", "/v1/conversations/{conversation}/items", "chat", conversations.items),
            Route(
                "POST",
                "/v1/conversations/{conversation}/items",
                "chat",
                conversations.add_items,
                body_bytes_max=turn_bytes,
            ),
            Route(
                "GET", "/v1/conversations/{conversation}/items/{item}", "chat", conversations.item
            ),
            Route(
                "DELETE",
                "/v1/conversations/{conversation}/items/{item}",
                "chat",
                conversations.delete_item,
            ),
            # ── our own: sessions ──
            Route("GET", "/api/agents", "read", api.agents),
            Route("GET", "/api/sessions", "read", api.sessions),
            Route(
                "POST",
                "/api/sessions/import",
                "admin",
                api.take_in,
                body_bytes_max=import_bytes,
                audit="session.import",
            ),
            Route("GET", "/api/sessions/{name}", "read", api.session),
            Route("PATCH", "/api/sessions/{name}", "chat", api.patch),
            Route("DELETE", "/api/sessions/{name}", "admin", api.delete, audit="session.delete"),
            Route("GET", "/api/sessions/{name}/items", "read", api.items),
            Route("GET", "/api/sessions/{name}/turns", "read", api.turns),
            Route(
                "GET", "/api/sessions/{name}/export", "admin", api.export, audit="session.export"
            ),
            Route("POST", "/api/sessions/{name}/fork", "chat", api.fork),
            Route("POST", "/api/sessions/{name}/reset", "chat", api.reset),
            Route("POST", "/api/sessions/{name}/rewind", "chat", api.rewind),
            Route("POST", "/api/sessions/{name}/compact", "chat", api.compact),
            # ── our own: turns ──
            Route("GET", "/api/turns/{id}", "read", api.turn),
            Route("GET", "/api/turns/{id}/events", "read", api.events),
            Route("POST", "/api/turns/{id}/cancel", "chat", api.cancel),
            Route("GET", "/api/turns/{id}/approvals", "read", api.approvals),
            Route("POST", "/api/turns/{id}/approvals", "chat", api.decide, audit="approval.decide"),
            Route(
                "POST",
                "/api/turns/{id}/approvals/{call}",
                "chat",
                api.decide_one,
                audit="approval.decide",
            ),
        )
    )
