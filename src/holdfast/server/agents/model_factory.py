"""Makes the model client that an agent file describes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypedDict, assert_never

import msgspec

from holdfast import limits
from holdfast.agents.agent import ModelConfig
from holdfast.errors import InvalidValue
from holdfast.models.demo.demo_model import DemoModel
from holdfast.models.dialects import LimitedDialect
from holdfast.models.fallback import FallbackModel
from holdfast.models.families.gpt import rules_for
from holdfast.models.http.connections import Connections
from holdfast.models.http.http_model import Access, HttpModel
from holdfast.models.model import Model
from holdfast.models.providers.anthropic import AnthropicModel
from holdfast.models.providers.google import GoogleModel
from holdfast.models.providers.openai_chat import OPENAI_URL, OpenAIModel
from holdfast.models.providers.openai_responses import ResponsesModel, openai_counting
from holdfast.models.retries import RetryingModel
from holdfast.models.servers import (
    AZURE,
    BEDROCK,
    SERVERS,
    Api,
    ProviderServer,
    UnknownProvider,
    azure_place,
    bedrock_server,
)
from holdfast.models.usage import MeteredModel
from holdfast.observe.events import warn
from holdfast.wire.headers import API_KEY


def model(name: str, *, base_url: str = "", token_key: str = "") -> Model:
    """The model PROVIDER/MODEL, for an agent in Python. Raises InvalidValue if there is no such provider.

    `base_url` is another server that speaks the provider's API; `token_key` names the environment variable that
    has its API key.
    """
    provider, _, called = name.partition("/")
    if not called:
        raise InvalidValue(
            f"{name!r} is no model; say PROVIDER/MODEL, such as 'openai/gpt-5' or 'demo/parrot'"
        )
    config = ModelConfig(provider=provider, model=called, base_url=base_url, token_key=token_key)
    return ServerModels()(config)


class ServerModels:
    """Makes models that share their connections. It is a `ModelFactory`."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._connections = Connections()

    def __call__(self, config: ModelConfig) -> Model:
        """Make a model. Raises InvalidValue, which says what to change, if it cannot be made."""
        first = self._patient(config)
        if not config.fallbacks:
            return first
        others = map(self._patient, config.fallbacks)
        return FallbackModel(
            first, *others, cooldown_s=config.cooldown_s, takes_turns=config.takes_turns
        )

    async def close(self) -> None:
        await self._connections.close()

    def _patient(self, config: ModelConfig) -> Model:
        model: Model = MeteredModel(self._one(config), config.price)
        asks = limits.retry_attempts_max if config.retries is None else config.retries + 1
        return RetryingModel(
            model, attempts_max=max(1, asks)
        )  # with one attempt, it tells of failures

    def _one(self, config: ModelConfig) -> Model:
        """Make one model, and say so if it is newer than the table of its vendor's families."""
        model = self._made(config)
        if config.without:
            model.dialect = LimitedDialect(model.dialect, config.without)
        if isinstance(model, HttpModel) and model.taken_for:
            warn("model.unknown", model=model.name, taken_for=model.taken_for)
        return model

    def _made(self, config: ModelConfig) -> Model:
        if config.provider == "demo" and not config.base_url:
            return DemoModel(name=config.name)
        known = SERVERS.get(config.kind or config.provider)
        if known is None and not config.base_url:
            raise UnknownProvider(config.provider)
        server = known or ProviderServer()
        is_bedrock = (config.kind or config.provider) == BEDROCK
        if is_bedrock and not config.base_url:
            server = bedrock_server(config.model, config.region, self._environ)
        elif not config.base_url:
            server = server.located(self._environ)
        base_url = config.base_url or server.base_url
        if not server.is_at(base_url):
            # The defaults of a known server hold for that server alone; above all, no other one may get its key.
            server = ProviderServer(api=server.api)
        where = _Where(
            name=config.name,
            base_url=base_url,
            token_key=config.token_key or server.token_key(self._environ),
            headers=dict(config.headers.pairs),
        )
        access = Access(
            environ=self._environ,
            connections=self._connections,
            secrets=config.headers.secrets,
        )
        model, tokens = config.model, config.thinking_tokens
        match config.api or _api_for(config.model, server):
            case "chat":
                return _chat(config, server, where, access)
            case "responses":
                counts = config.counts_tokens or server.counts
                return ResponsesModel(
                    model, key_header=server.key_header, counts=counts, **where, **access
                )
            case "anthropic":
                return AnthropicModel(
                    model,
                    thinking_tokens=tokens,
                    options=config.options,
                    key_header="Authorization" if is_bedrock else API_KEY.name,
                    counts=not is_bedrock,
                    **where,
                    **access,
                )
            case "google":
                own = tuple(name for name, _ in config.options)
                return GoogleModel(model, thinking_tokens=tokens, own_tools=own, **where, **access)
            case other:
                assert_never(other)


class _Where(TypedDict):
    """A model's name, the URL of its server, the variable that holds the API key, and headers to send."""

    name: str
    base_url: str
    token_key: str
    headers: Mapping[str, str]


def _api_for(model: str, server: ProviderServer) -> Api:
    """The API for a model whose agent file names none: at OpenAI, Responses for a model that refuses tools over chat."""
    family = rules_for(model) if server.base_url == OPENAI_URL else None
    return "responses" if family is not None and not family.chat_tools else server.api


def _chat(config: ModelConfig, server: ProviderServer, where: _Where, access: Access) -> Model:
    query = ""
    options = dict(config.options)
    if AZURE in (config.provider, config.kind):
        version = msgspec.json.decode(options.pop("api_version", '""'), type=str)
        base_url, query = azure_place(
            where["base_url"], config.model, access["environ"], version=version
        )
        where = {**where, "base_url": base_url}
    return OpenAIModel(
        config.model,
        key_header=server.key_header,
        query=query,
        max_tokens_name=server.max_tokens_name,
        usage_in_stream=server.usage_in_stream,
        leaves_out=server.leaves_out,
        reasoning_back=server.reasoning_back,
        options=options,
        counting=openai_counting(config.model) if config.counts_tokens or server.counts else None,
        **where,
        **access,
    )
