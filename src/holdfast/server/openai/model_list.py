"""`GET /v1/models`: the agents, as OpenAI clients list models."""

from __future__ import annotations

import msgspec

from holdfast.server.agents.directory import Directory, ModelEntry
from holdfast.server.http.routing import AnswerDescription, HttpCall, Route
from holdfast.sessions.session_requests import Ask
from holdfast.wire.openai.answer_types import ModelList, ModelObject


class ModelsEndpoint:
    """The endpoint. One instance serves every request."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    @Route("GET /v1/models", "chat", "listModels", AnswerDescription("All of them.", ModelList))
    async def every(self, call: HttpCall) -> None:
        """The agents."""
        listed = tuple(map(_model, self._directory.entries(call.tenant)))
        body = msgspec.json.encode(ModelList(object="list", data=listed))
        await call.exchange.answer(200, body)

    @Route(
        "GET /v1/models/{id...}",
        "chat",
        "retrieveModel",
        AnswerDescription("The agent.", ModelObject),
    )
    async def one(self, call: HttpCall) -> None:
        """One agent."""
        (name,) = call.names
        ask = Ask(tenant=call.tenant, name=None, agent=name)
        chosen = self._directory.choose(ask)  # raises ModelNotFound if there is none
        listed = self._directory.entries(call.tenant)
        found = next((each for each in listed if each.id == name), None)
        entry = found or ModelEntry(id=name, agent=chosen.agent, source="")
        await call.exchange.answer(200, msgspec.json.encode(_model(entry)))


def _model(entry: ModelEntry) -> ModelObject:
    return ModelObject(
        id=entry.id, object="model", created=1_700_000_000, owned_by=entry.source or "holdfast"
    )
