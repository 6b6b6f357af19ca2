"""`GET /v1/models`: the agents, as OpenAI's and Anthropic's clients list models."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from holdfast.agents.registry import Listed
from holdfast.server.agents.directory import Directory, entry_of
from holdfast.server.http.routing import AnswerDescription, HttpCall, Route
from holdfast.wire.anthropic.door.request_types import ModelInfo, ModelInfoList
from holdfast.wire.api_forms import ANTHROPIC
from holdfast.wire.openai.answer_types import ModelList, ModelObject

SINCE_S = 1_700_000_000
"""When every agent is said to have been made: clients want a time, and none of them uses it."""


class ModelsEndpoint:
    """The endpoint. One instance serves every request."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    @Route(
        "GET /v1/models",
        "chat",
        "listModels",
        AnswerDescription("All of them.", ModelList),
        AnswerDescription("The same, in Anthropic's form.", ModelInfoList),
    )
    async def every(self, call: HttpCall) -> None:
        """The agents.

        A client that sends `anthropic-version` gets Anthropic's form, all others OpenAI's.
        """
        entries = self._directory.entries(call.tenant)
        body: ModelList | ModelInfoList
        if call.exchange.form is ANTHROPIC:
            listed = list(map(_listed, entries))
            first, last = (listed[0].id, listed[-1].id) if listed else (None, None)
            body = ModelInfoList(data=listed, has_more=False, first_id=first, last_id=last)
        else:
            body = ModelList(object="list", data=tuple(map(_model, entries)))
        await call.exchange.answer(200, msgspec.json.encode(body))

    @Route(
        "GET /v1/models/{id...}",
        "chat",
        "retrieveModel",
        AnswerDescription("The agent.", ModelObject),
        AnswerDescription("The same, in Anthropic's form.", ModelInfo),
    )
    async def one(self, call: HttpCall) -> None:
        """One agent."""
        (name,) = call.names
        entry = entry_of(self._directory, call.tenant, name)
        form = _listed if call.exchange.form is ANTHROPIC else _model
        await call.exchange.answer(200, msgspec.json.encode(form(entry)))


def _model(entry: Listed) -> ModelObject:
    return ModelObject(
        id=entry.id, object="model", created=SINCE_S, owned_by=entry.source or "holdfast"
    )


def _listed(entry: Listed) -> ModelInfo:
    since = datetime.fromtimestamp(SINCE_S, UTC).isoformat().replace("+00:00", "Z")
    return ModelInfo(id=entry.id, display_name=entry.agent or entry.id, created_at=since)
