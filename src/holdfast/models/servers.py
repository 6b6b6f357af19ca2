"""Well-known providers as data: their URLs, their API keys' variables, and their peculiarities.

Any other provider is reached by a `base_url`. URLs and variable names are those that the providers
document; a provider with OpenAI's API needs only one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Literal, TypeAlias
from urllib.parse import quote, urlsplit

import msgspec

from holdfast.core.codec import Value
from holdfast.errors import InvalidValue
from holdfast.models.model import KeyMissing
from holdfast.models.providers.anthropic import ANTHROPIC_URL
from holdfast.models.providers.chat_body import MaxTokensName
from holdfast.models.providers.google import GOOGLE_URL
from holdfast.models.providers.openai_chat import OPENAI_URL

Api: TypeAlias = Literal["chat", "responses", "anthropic", "google"]
"""The wires that Holdfast speaks."""


_NOT_ASKED = {
    "chatgpt": "a subscription's login is for programs of OpenAI; take 'openai', with a key in OPENAI_API_KEY",
}
"""Providers that docker-agent has and Holdfast has not, and the way out."""


class UnknownProvider(InvalidValue):
    """A provider that has neither an address here nor a `base_url`."""

    def __init__(self, name: str, *, own: Iterable[str] = ()) -> None:
        """`own`: the providers that the agent file defines."""
        if name in _NOT_ASKED:
            super().__init__(f"the provider {name!r} is not asked here: {_NOT_ASKED[name]}")
            self.name = name
            return
        named = list(own)
        close = get_close_matches(name, [*named, *SERVERS, "demo"], n=1)
        meant = f"did you mean {close[0]!r}? There" if close else "there"
        file = f" the file's own {', '.join(named)};" if named else ""
        super().__init__(
            f"there is no provider {name!r}; {meant} are{file} {', '.join(sorted(SERVERS))} and demo, "
            "and with a base_url any server that speaks OpenAI's chat completions"
        )
        self.name = name


class ProviderServer(Value):
    """A provider's server."""

    base_url: str = ""
    """Empty if every customer has a URL of their own; `${NAME}` is a variable of the environment."""
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

    def located(self, environ: Mapping[str, str]) -> ProviderServer:
        """The server with the variables of its URL filled in. Raises KeyMissing."""
        names = _VARIABLE.findall(self.base_url)
        for name in names:
            if re.fullmatch(r"[\w.-]+", environ.get(name, ""), re.ASCII) is None:
                raise KeyMissing(name, what="the address of the server is not known")
        if not names:
            return self
        filled = _VARIABLE.sub(lambda found: environ[found[1]], self.base_url)
        return msgspec.structs.replace(self, base_url=filled)

    def has_key(self, environ: Mapping[str, str]) -> bool:
        """Whether the environment has what this server needs: a key, or nothing."""
        return not self.token_keys or bool(environ.get(self.token_key(environ), "").strip())

    def token_key(self, environ: Mapping[str, str]) -> str:
        """The first variable that is set; the first of all if none is, for the error message."""
        there = (name for name in self.token_keys if environ.get(name, "").strip())
        return next(there, self.token_keys[0] if self.token_keys else "")


_VARIABLE = re.compile(r"\$\{(\w+)\}", re.ASCII)
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
    "atlascloud": _chat("https://api.atlascloud.ai/v1", "ATLASCLOUD_API_KEY"),
    "baseten": _chat("https://inference.baseten.co/v1", "BASETEN_API_KEY"),
    "cerebras": _chat("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "deepseek": ProviderServer(
        base_url="https://api.deepseek.com/v1",
        token_keys=("DEEPSEEK_API_KEY",),
        reasoning_back=True,
    ),
    "fireworks": _chat("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "github": _chat("https://models.github.ai/inference", "GITHUB_TOKEN"),
    "github-copilot": _chat("https://api.githubcopilot.com", "GITHUB_TOKEN", "GH_TOKEN"),
    "groq": _chat("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "huggingface": _chat("https://router.huggingface.co/v1", "HF_TOKEN"),
    "minimax": _chat("https://api.minimax.io/v1", "MINIMAX_API_KEY"),
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
    "opencode-go": _chat("https://opencode.ai/zen/go/v1", "OPENCODE_API_KEY"),
    "opencode-zen": _chat("https://opencode.ai/zen/v1", "OPENCODE_API_KEY"),
    "openrouter": _chat("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "ovhcloud": _chat(
        "https://oai.endpoints.kepler.ai.cloud.ovh.net/v1", "OVH_AI_ENDPOINTS_ACCESS_TOKEN"
    ),
    "requesty": _chat("https://router.requesty.ai/v1", "REQUESTY_API_KEY"),
    "together": _chat("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "vercel": _chat("https://ai-gateway.vercel.sh/v1", "AI_GATEWAY_API_KEY"),
    "xai": _chat("https://api.x.ai/v1", "XAI_API_KEY"),
    # Hosted, with an account or a region in the address.
    "amazon-bedrock": _chat(
        "https://bedrock-runtime.${AWS_REGION}.amazonaws.com/openai/v1", "AWS_BEARER_TOKEN_BEDROCK"
    ),
    "cloudflare-ai-gateway": _chat(
        "https://gateway.ai.cloudflare.com/v1/${CLOUDFLARE_ACCOUNT_ID}/${CLOUDFLARE_GATEWAY_ID}/compat",
        "CLOUDFLARE_API_TOKEN",
    ),
    "cloudflare-workers-ai": _chat(
        "https://api.cloudflare.com/client/v4/accounts/${CLOUDFLARE_ACCOUNT_ID}/ai/v1",
        "CLOUDFLARE_API_TOKEN",
    ),
    # On this machine.
    "dmr": _chat("http://127.0.0.1:12434/engines/v1"),
    "llamacpp": _chat("http://127.0.0.1:8080/v1"),
    "lmstudio": _chat("http://127.0.0.1:1234/v1"),
    "ollama": _chat("http://127.0.0.1:11434/v1"),
    "vllm": _chat("http://127.0.0.1:8000/v1"),
}

AZURE = "azure"
BEDROCK = "amazon-bedrock"
_CLAUDE_ON_BEDROCK = "anthropic."
"""In the names of Claude's models there: `us.anthropic.claude-opus-4-8`."""


def speaks_messages(provider: str, model: str) -> bool:
    """Whether Bedrock serves this model by Anthropic's API, and not by chat completions."""
    return provider == BEDROCK and _CLAUDE_ON_BEDROCK in model


def bedrock_server(model: str, region: str, environ: Mapping[str, str]) -> ProviderServer:
    """Bedrock's server for a model, in this region, else in that of the environment. Raises KeyMissing."""
    server = SERVERS[BEDROCK].located({**environ, "AWS_REGION": region} if region else environ)
    if not speaks_messages(BEDROCK, model):
        return server
    base_url = server.base_url.replace("/openai/", "/anthropic/")
    return msgspec.structs.replace(server, base_url=base_url, api="anthropic")


PREFERRED: Mapping[str, str] = {
    "anthropic": "claude-sonnet-4-6",
    "openai": "gpt-5",
    "google": "gemini-2.5-flash",
    "mistral": "mistral-small-latest",
    "openrouter": "openai/gpt-5",
    "groq": "llama-3.3-70b-versatile",
    "fireworks": "accounts/fireworks/models/kimi-k2-instruct",
    "deepseek": "deepseek-chat",
    "cerebras": "gpt-oss-120b",
    "together": "meta-llama/Llama-3.3-70B-Instruct-Turbo",
    "huggingface": "meta-llama/Llama-3.3-70B-Instruct",
    "moonshot": "kimi-k2-0905-preview",
    "dmr": "ai/qwen3:latest",
}
"""The providers that `auto` stands for, in this order, with a model of each; the last one needs no key."""

AZURE_VERSION = "2024-10-21"
"""The last dated version of Azure's older API that is not a preview."""


def azure_place(
    base_url: str, model: str, environ: Mapping[str, str], *, version: str = ""
) -> tuple[str, str]:
    """The URL of an Azure deployment, and its query. `version` is that of the API.

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
    version = version or environ.get("AZURE_OPENAI_API_VERSION") or AZURE_VERSION
    if "/deployments/" not in path:
        base_url += f"/openai/deployments/{quote(model, safe='')}"
    return base_url, f"api-version={quote(version, safe='')}"
