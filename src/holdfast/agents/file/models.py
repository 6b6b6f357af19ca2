"""The models of an agent file: named ones, inline ones, and their servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from urllib.parse import urlsplit

import msgspec

from holdfast.agents.agent import ModelConfig
from holdfast.agents.file.document import Where
from holdfast.agents.file.shape_checks import Findings, suggest
from holdfast.agents.file.shapes import AgentShape, ApiType, CostShape, FileShape, ModelShape
from holdfast.agents.file.variables import filled_in
from holdfast.core.codec import Value
from holdfast.core.turns.events import Parameters
from holdfast.models.http.request_headers import Headers, header_problem
from holdfast.models.price import Price
from holdfast.models.providers.chat_body import OTHERS
from holdfast.models.servers import SERVERS, Api
from holdfast.tools.toolsets.script import VARIABLE

UNTRUSTED = (
    "is not accepted from a URL: it would let the owner of that server {what}; "
    "keep a copy of the file here, or trust remote files"
)

_VARIABLE_IN_TEXT = re.compile(r"\$\{(?:env\.)?(\w+)\}|\$(\w+)", re.ASCII)
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
_WINDOW_NAMES = ("context_size", "context_window")
_EFFORTS = ("none", "minimal", "low", "medium", "high")


APIS: Mapping[ApiType, Api] = {
    "openai_chatcompletions": "chat",
    "openai_responses": "responses",
    "anthropic": "anthropic",
    "google": "google",
}

COUNT_TOKENS: frozenset[Api] = frozenset({"anthropic", "google"})
"""The APIs that take a thinking budget in tokens."""


class _Server(Value):
    """A provider that the file defines; the default stands for any other provider."""

    base_url: str = ""
    token_key: str = ""
    headers: Headers = Headers()
    api: Api | None = None


class FileModels:
    """The models of one file: by name, or inline as `provider/model`."""

    def __init__(
        self, findings: Findings, file: FileShape, environment: Mapping[str, str], *, trusted: bool
    ) -> None:
        self._found = findings
        self._environment = environment
        self._trusted = trusted
        self._file = file
        self._servers = {
            name: _Server(
                base_url=self._base_url(shape.base_url, ("providers", name)),
                token_key=self._token_key(shape.token_key, ("providers", name)),
                headers=self._headers(shape.headers, ("providers", name)),
                api=APIS[shape.api_type],
            )
            for name, shape in file.providers.items()
        }
        self._named = {
            name: self._config(shape, ("models", name)) for name, shape in file.models.items()
        }

    def of_agent(self, shape: AgentShape, where: Where) -> ModelConfig | None:
        """An agent's model, with its fallbacks. None, with a finding, if one is unknown."""
        first = self._find(shape.model, (*where, "model"))
        fallback = shape.fallback
        at = (*where, "fallback")
        others = [self._find(name, (*at, "models", n)) for n, name in enumerate(fallback.models)]
        cooldown_s = self._duration(fallback.cooldown, (*at, "cooldown"))
        if first is None:
            return None
        retries = None if fallback.retries == 0 else max(0, fallback.retries)
        return msgspec.structs.replace(
            first,
            fallbacks=tuple(
                msgspec.structs.replace(each, retries=retries)
                for each in others
                if each is not None
            ),
            retries=retries,
            cooldown_s=cooldown_s,
        )

    def _find(self, name: str, where: Where) -> ModelConfig | None:
        if name in self._named:
            return self._named[name]
        provider, slash, model = name.partition("/")
        if slash and provider.strip() and model.strip():
            server = self._servers.get(provider, _Server())
            return ModelConfig(
                provider=provider,
                model=model,
                base_url=server.base_url,
                token_key=server.token_key,
                headers=server.headers,
                api=server.api,
            )
        words = f"no such model; {suggest(name, self._file.models)}, or write 'provider/model'"
        self._found.wrong(where, words)
        return None

    def _config(self, shape: ModelShape, where: Where) -> ModelConfig:
        server = self._servers.get(shape.provider, _Server())
        api = APIS[shape.api_type] if shape.api_type else server.api
        effort, tokens = self._thinking(shape, api, (*where, "thinking_budget"))
        window, options = self._options(shape, (*where, "provider_opts"))
        if shape.track_usage is False:
            words = "usage is counted always; left out"
            self._found.warn((*where, "track_usage"), words)
        penalties = (
            ("frequency_penalty", shape.frequency_penalty),
            ("presence_penalty", shape.presence_penalty),
        )
        return ModelConfig(
            provider=shape.provider,
            model=shape.model,
            base_url=self._base_url(shape.base_url, where) or server.base_url,
            token_key=self._token_key(shape.token_key, where) or server.token_key,
            headers=server.headers.beneath(self._headers(shape.headers, where)),
            api=api,
            thinking_tokens=tokens,
            context_window=window,
            counts_tokens=shape.provider_opts.get("counts_tokens") is True,
            price=_price(shape.cost) if shape.cost else None,
            parameters=Parameters(
                temperature=shape.temperature,
                top_p=shape.top_p,
                max_output_tokens=shape.max_tokens,
                parallel_tool_calls=shape.parallel_tool_calls,
                reasoning_effort=effort,
                others=(
                    *((name, f"{value:g}") for name, value in penalties if value is not None),
                    *options,
                ),
            ),
        )

    def _options(
        self, shape: ModelShape, where: Where
    ) -> tuple[int | None, tuple[tuple[str, str], ...]]:
        """The size of its window, and the options for its server. Unknown options become findings."""
        window: int | None = None
        passed: list[tuple[str, str]] = []
        for name, value in shape.provider_opts.items():
            if name in _WINDOW_NAMES:
                if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                    self._found.wrong((*where, name), "expected a number of tokens")
                else:
                    window = value
            elif name == "counts_tokens":
                if not isinstance(value, bool):
                    self._found.wrong((*where, name), "expected true or false")
            elif name in OTHERS:
                passed.append((name, msgspec.json.encode(value).decode()))
            else:
                self._found.warn((*where, name), "is not known here; left out")
        return window, tuple(passed)

    def _base_url(self, text: str, where: Where) -> str:
        """The URL with its variables filled in. Findings never repeat their values."""
        where = (*where, "base_url")
        if not text:
            return ""
        if not self._trusted:
            self._found.wrong(where, UNTRUSTED.format(what="receive our conversations and keys"))
            return ""
        names = [found[1] or found[2] for found in _VARIABLE_IN_TEXT.finditer(text)]
        for name in names:
            if not self._environment.get(name):
                self._found.wrong(where, f"the environment variable {name!r} is not set")
                return ""
        url = _VARIABLE_IN_TEXT.sub(lambda found: self._environment[found[1] or found[2]], text)
        if not _is_web_address(url):
            self._found.wrong(where, "expected the address of a server: https://…")
            return ""
        return url

    def _token_key(self, text: str, where: Where) -> str:
        where = (*where, "token_key")
        if text and not self._trusted:
            self._found.wrong(where, UNTRUSTED.format(what="choose which of our keys is used"))
        elif text and VARIABLE.fullmatch(text) is None:
            # The author may have put the API key itself here, so it is not repeated.
            words = "expected the name of an environment variable, such as OPENAI_API_KEY"
            self._found.wrong(where, words)
        return text

    def _headers(self, said: Mapping[str, str], where: Where) -> Headers:
        """The headers of every request, with their variables filled in. Findings never repeat their values."""
        where = (*where, "headers")
        if said and not self._trusted:
            self._found.wrong(
                where, UNTRUSTED.format(what="choose which of our variables are sent")
            )
            return Headers()
        pairs: list[tuple[str, str]] = []
        secrets: list[str] = []
        for name, value in said.items():
            result = filled_in(value, self._environment, self._found, (*where, name))
            if (words := header_problem(name, result.text)) is not None:
                self._found.wrong((*where, name), words)
            pairs.append((name, result.text))
            secrets += result.secrets
        if len({name.lower() for name, _ in pairs}) < len(pairs):
            self._found.wrong(
                where, "a header is there twice; upper and lower case are the same name"
            )
        return Headers(pairs=tuple(pairs), secrets=tuple(secrets))

    def _thinking(
        self, shape: ModelShape, api: Api | None, where: Where
    ) -> tuple[str | None, int | None]:
        """The thinking budget: as a word, or in tokens for APIs that count in tokens."""
        budget = shape.thinking_budget
        if budget is None or isinstance(budget, str):
            if budget is not None and budget not in _EFFORTS:
                self._found.wrong(where, f"has to be one of: {', '.join(_EFFORTS)}")
                return None, None
            return budget, None
        if budget == 0:
            return "none", None
        known = SERVERS.get(shape.provider)
        if (api or (known.api if known else "chat")) in COUNT_TOKENS:
            return None, budget
        words = f"this model takes no budget in tokens, but one of: {', '.join(_EFFORTS)}; left out"
        self._found.warn(where, words)
        return None, None

    def _duration(self, text: str, where: Where) -> float:
        if not text:
            return ModelConfig(provider="", model="").cooldown_s
        found = _DURATION.fullmatch(text)
        if not found or len(text) > 20:
            self._found.wrong(where, "expected a duration, such as '30s' or '2m30s'")
            return 0.0
        hours, minutes, seconds = (float(each or 0) for each in found.groups())
        return hours * 3600 + minutes * 60 + seconds


def _price(cost: CostShape) -> Price:
    """The price from the digits in the file: 0.1 is exactly a tenth, not the nearest float."""

    def amount(said: float | None) -> Decimal | None:
        return None if said is None else Decimal(repr(said))

    return Price(
        input=Decimal(repr(cost.input)),
        output=Decimal(repr(cost.output)),
        cache_read=amount(cost.cache_read),
        cache_write=amount(cost.cache_write),
    )


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        return False
