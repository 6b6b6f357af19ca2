"""Well-known providers as data: their URLs, their API keys' variables, and their peculiarities.

Any other provider is reached by a `base_url`. URLs and variable names are those that the providers
document; a provider with OpenAI's API needs only one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import quote, urlsplit

from holdfast.core.codec import Value
from holdfast.errors import InvalidValue
from holdfast.models.providers.anthropic import ANTHROPIC_URL
from holdfast.models.providers.chat_body import MaxTokensName
from holdfast.models.providers.google import GOOGLE_URL
from holdfast.models.providers.openai_chat import OPENAI_URL

Api: TypeAlias = Literal["chat", "responses", "anthropic", "google"]
"""The wires that Holdfast speaks."""


class ProviderServer(Value):
    """A provider's server."""

    base_url: str = ""
    """Empty if every customer has a URL of their own."""
    token_keys: tuple[str, ...] = ()
    """Environment variables that may hold the API key; the first that is set is used. Empty: no key is needed."""
    api: Api = "chat"
    key_header: str = "Authorization"
    """For OpenAI's two APIs; the other APIs have a header of their own."""
    max_tokens_name: MaxTokensName = "max_tokens"
    usage_in_stream: bool = True
    """It takes `stream_options`. Servers that do not send usage anyway, or never."""
    leaves_out: frozenset[str] = frozenset()
    """Parameters, by our names, that the server refuses or ignores."""
    reasoning_back: bool = False
    """It wants the model's reasoning back with the calls that followed, and refuses or forgets otherwise."""
    query: str = ""
    counts: bool = False
    """It counts prompts as OpenAI does. Anthropic's and Google's APIs have counts of their own."""

    def is_at(self, base_url: str) -> bool:
        """Whether this URL is on the server: the same scheme, host and port, with any path."""
        here, there = urlsplit(self.base_url), urlsplit(base_url)
        return not self.base_url or (here.scheme, here.netloc) == (there.scheme, there.netloc)

    def token_key(self, environ: Mapping[str, str]) -> str:
        """The first variable that is set; the first of all if none is, for the error message."""
        there = (name for name in self.token_keys if environ.get(name, "").strip())
        return next(there, self.token_keys[0] if self.token_keys else "")


_MISTRAL_REFUSES = frozenset(
    """
    seed logit_bias user safety_identifier prompt_cache_key service_tier verbosity web_search_options
    """.split()
)


def _chat(base_url: str, *token_keys: str) -> ProviderServer:
    return ProviderServer(base_url=base_url, token_keys=token_keys)


SERVERS: Mapping[str, ProviderServer] = {
    "openai": ProviderServer(
        base_url=OPENAI_URL,
        token_keys=("OPENAI_API_KEY",),
        max_tokens_name="max_completion_tokens",
        counts=True,
    ),
    "anthropic": ProviderServer(
        base_url=ANTHROPIC_URL,
        token_keys=("ANTHROPIC_API_KEY",),
        api="anthropic",
    ),
    "azure": ProviderServer(
        token_keys=("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
        key_header="api-key",
        max_tokens_name="max_completion_tokens",
    ),
    "google": ProviderServer(
        base_url=GOOGLE_URL, token_keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"), api="google"
    ),
    # Hosted, for all customers.
    "cerebras": _chat("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "deepseek": ProviderServer(
        base_url="https://api.deepseek.com/v1",
        token_keys=("DEEPSEEK_API_KEY",),
        reasoning_back=True,
    ),
    "fireworks": _chat("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "github": _chat("https://models.github.ai/inference", "GITHUB_TOKEN"),
    "groq": _chat("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "huggingface": _chat("https://router.huggingface.co/v1", "HF_TOKEN"),
    "mistral": ProviderServer(
        base_url="https://api.mistral.ai/v1",
        token_keys=("MISTRAL_API_KEY",),
        usage_in_stream=False,
        leaves_out=_MISTRAL_REFUSES,
    ),
    "moonshot": ProviderServer(
        base_url="https://api.moonshot.ai/v1",
        token_keys=("MOONSHOT_API_KEY",),
        reasoning_back=True,
    ),
    "nebius": _chat("https://api.studio.nebius.com/v1", "NEBIUS_API_KEY"),
    "nvidia": _chat("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    "openrouter": _chat("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": _chat("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "xai": _chat("https://api.x.ai/v1", "XAI_API_KEY"),
    # On this machine.
    "dmr": _chat("http://127.0.0.1:12434/engines/v1"),
    "llamacpp": _chat("http://127.0.0.1:8080/v1"),
    "lmstudio": _chat("http://127.0.0.1:1234/v1"),
    "ollama": _chat("http://127.0.0.1:11434/v1"),
    "vllm": _chat("http://127.0.0.1:8000/v1"),
}

AZURE_VERSION = "2024-10-21"
"""The last dated version of Azure's older API that is not a preview."""


def azure_place(base_url: str, model: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The URL of an Azure deployment, and its query.

    A URL that ends with `/openai/v1` is used like OpenAI's own; any other uses the older API, by deployment.
    """
    if not base_url:
        raise InvalidValue(
            "azure needs a base_url, as https://NAME.openai.azure.com/openai/v1 or without the path"
        )
    base_url = base_url.rstrip("/")
    path = urlsplit(base_url).path
    if path.endswith("/v1"):
        return base_url, ""
    version = environ.get("AZURE_OPENAI_API_VERSION") or AZURE_VERSION
    if "/deployments/" not in path:
        base_url += f"/openai/deployments/{quote(model, safe='')}"
    return base_url, f"api-version={quote(version, safe='')}"
