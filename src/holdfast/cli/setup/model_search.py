"""The models that this machine can use already: by API keys in the environment, and by local servers.

The search looks at names of variables and at ports of this machine. It sends no key, and nothing leaves the machine.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping

import aiohttp
import msgspec

from holdfast.core.codec import Value
from holdfast.models.servers import SERVERS

ASK_S = 1.0
"""A local server that runs answers within milliseconds; a port where none listens refuses at once."""
ANSWER_BYTES_MAX = 1_000_000


class FoundModel(Value):
    """A model that an agent file can name."""

    provider: str
    model: str
    because: str
    """What shows that it can be used, for people."""

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


class LocalServer(Value):
    """A program that serves models on this machine."""

    title: str
    provider: str
    base_url: str

    @classmethod
    def of(cls, title: str, provider: str) -> LocalServer:
        """The server at the address that an agent file gets by naming `provider`. It has no key, so none is sent there."""
        return cls(title=title, provider=provider, base_url=SERVERS[provider].base_url)


DEMO = FoundModel(provider="demo", model="parrot", because="it is built in, and needs no key")

HOSTED: Mapping[str, str] = {
    "openai": "gpt-5.4-mini",
    "anthropic": "claude-sonnet-5-5",
    "google": "gemini-3-flash-preview",
}
"""Provider → the model of a new agent: one that is quick, and good enough to begin with."""

LOCAL = (
    LocalServer.of("Ollama", "ollama"),
    LocalServer.of("LM Studio", "lmstudio"),
    LocalServer.of("llama.cpp", "llamacpp"),
)


def keyed_models(environ: Mapping[str, str]) -> list[FoundModel]:
    """The hosted models whose API key is set, in a fixed order."""
    found = []
    for provider, model in HOSTED.items():
        key = next(
            (each for each in SERVERS[provider].token_keys if environ.get(each, "").strip()), ""
        )
        if key:
            found.append(FoundModel(provider=provider, model=model, because=f"{key} is set"))
    return found


async def local_models(servers: Iterable[LocalServer] = LOCAL) -> list[FoundModel]:
    """The first model that can talk, of each local server that answers."""
    timeout = aiohttp.ClientTimeout(total=ASK_S)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        found = await asyncio.gather(*(_local_model(http, each) for each in servers))
    return [each for each in found if each is not None]


async def _local_model(http: aiohttp.ClientSession, server: LocalServer) -> FoundModel | None:
    try:
        async with http.get(f"{server.base_url}/models", allow_redirects=False) as response:
            if response.status != 200:
                return None
            body = await response.content.read(ANSWER_BYTES_MAX)
        listed = msgspec.json.decode(body, type=_ModelList)
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
        return None  # no server, or another program that has the port
    talkers = [each.id for each in listed.data if each.id and not _SILENT.search(each.id)]
    if not talkers:
        return None
    return FoundModel(
        provider=server.provider,
        model=talkers[0],
        because=f"{server.title} answers at {server.base_url}",
    )


_SILENT = re.compile(r"embed|rerank|whisper|bge-|minilm", re.IGNORECASE)
"""The names of models that hold no conversation: local servers list them among the others, LM Studio always one."""


class _ListedModel(msgspec.Struct):
    id: str = ""


class _ModelList(msgspec.Struct):
    """The part that matters of an answer to `GET /v1/models`."""

    data: list[_ListedModel]
