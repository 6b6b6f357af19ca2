"""From a model as an agent file describes it to somebody who answers."""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast import limits
from holdfast.agents.base import ModelConfig
from holdfast.core.codec import Value
from holdfast.errors import InvalidValue
from holdfast.models.base import Model
from holdfast.models.connections import Connections
from holdfast.models.demo import DemoModel
from holdfast.models.fallback import FallbackModel
from holdfast.models.openai import OPENAI_URL, OpenAIModel
from holdfast.models.retry import RetryingModel


class Server(Value):
    """Where a provider's server is, and which environment variable holds the key for it."""

    base_url: str
    token_key: str


SERVERS: dict[str, Server] = {
    "openai": Server(base_url=OPENAI_URL, token_key="OPENAI_API_KEY"),
    "deepseek": Server(base_url="https://api.deepseek.com/v1", token_key="DEEPSEEK_API_KEY"),
    "groq": Server(base_url="https://api.groq.com/openai/v1", token_key="GROQ_API_KEY"),
    "mistral": Server(base_url="https://api.mistral.ai/v1", token_key="MISTRAL_API_KEY"),
    "ollama": Server(base_url="http://127.0.0.1:11434/v1", token_key=""),
    "openrouter": Server(base_url="https://openrouter.ai/api/v1", token_key="OPENROUTER_API_KEY"),
    "xai": Server(base_url="https://api.x.ai/v1", token_key="XAI_API_KEY"),
}
"""Providers whose servers speak OpenAI's chat completions, by the names that people use for them."""


class Models:
    """Makes models that share their connections. It is a `ModelFactory`."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._connections = Connections()

    def __call__(self, config: ModelConfig) -> Model:
        """Raises InvalidValue, with the way out, for a model that cannot be made."""
        first = self._patient(config)
        if not config.fallbacks:
            return first
        others = map(self._patient, config.fallbacks)
        return FallbackModel(first, *others, cooldown_s=config.cooldown_s)

    async def close(self) -> None:
        await self._connections.close()

    def _patient(self, config: ModelConfig) -> Model:
        model = self._one(config)
        asks = limits.retry_attempts_max if config.retries is None else config.retries + 1
        return model if asks <= 1 else RetryingModel(model, attempts_max=asks)

    def _one(self, config: ModelConfig) -> Model:
        if config.provider == "demo" and not config.base_url:
            return DemoModel(name=config.name)
        known = SERVERS.get(config.provider)
        if known is None and not config.base_url:
            raise InvalidValue(
                f"there is no provider {config.provider!r}; there are {', '.join(SERVERS)} and demo, "
                "and with a base_url any server that speaks OpenAI's chat completions"
            )
        elsewhere = bool(config.base_url) and (
            known is None or config.base_url.rstrip("/") != known.base_url
        )
        # A key goes to the server that it is for, and to no other unless it is named for it.
        token_key = config.token_key or ("" if elsewhere or known is None else known.token_key)
        return OpenAIModel(
            config.model,
            name=config.name,
            base_url=config.base_url or (known.base_url if known else ""),
            token_key=token_key,
            environ=self._environ,
            connections=self._connections,
        )
