"""The models of an agent file: named ones, inline ones, and their servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import get_args
from urllib.parse import urlsplit

import msgspec

from holdfast.agents.agent import ModelConfig
from holdfast.agents.file.document import Where
from holdfast.agents.file.shape_base import filled_up
from holdfast.agents.file.shape_checks import Findings, suggest
from holdfast.agents.file.shapes import (
    AgentShape,
    ApiType,
    CapabilitiesShape,
    CostShape,
    FileShape,
    ModelShape,
    ProviderShape,
    SettingsShape,
    TaskBudgetShape,
)
from holdfast.agents.file.variables import filled, filled_name, seconds_in
from holdfast.agents.model_routes import ModelRoute
from holdfast.core.turns.events import Parameters
from holdfast.models.dialects import Kind
from holdfast.models.http.request_headers import Headers, header_problem
from holdfast.models.price import Price
from holdfast.models.providers.anthropic import FALLBACKS, TASK_BUDGET
from holdfast.models.providers.chat_body import OTHERS
from holdfast.models.providers.google import OWN_TOOLS
from holdfast.models.servers import AZURE, BEDROCK, PREFERRED, SERVERS, Api, speaks_messages
from holdfast.tools.hooks import Hooks
from holdfast.tools.toolsets.script import VARIABLE

UNTRUSTED = (
    "is not accepted from a URL: it would let the owner of that server {what}; "
    "keep a copy of the file here, or trust remote files"
)

_VARIABLE_IN_TEXT = re.compile(r"\$\{(?:env\.)?(\w+)\}|\$(\w+)", re.ASCII)
_WINDOW_NAMES = ("context_size", "context_window")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_ADAPTIVE = "adaptive"
"""`adaptive/low` is docker-agent's word for an effort of models that decide by themselves how much they think."""

AUTO = "auto"

SERVER_OPTIONS = frozenset("top_k min_p repetition_penalty".split())
"""Options that are passed on to servers with OpenAI's chat completions."""

_AWS_SIGNS = frozenset("profile role_arn role_session_name external_id".split())
"""Options that choose who signs requests to Bedrock."""

_NO_EFFECT = {
    "disable_prompt_caching": "beginnings of prompts are marked for the provider's cache",
    "speculative_draft_model": "it is for the program that runs the model",
    "speculative_num_tokens": "it is for the program that runs the model",
    "speculative_acceptance_rate": "it is for the program that runs the model",
    "interleaved_thinking": "models think between calls wherever they can",
    "thinking_display": "thoughts are kept as the provider sends them",
    "supports_images": "pictures are always sent",
    "supports_pdf": "files are always sent",
    "transport": "answers are streamed over HTTP",
    "runtime_flags": "they are for the program that runs the model",
    "unload_api": "models stay loaded",
    "rerank_prompt": "documents are not indexed here",
    **dict.fromkeys(
        ("project", "location"), "Gemini is asked at Google's own API, with GOOGLE_API_KEY"
    ),
}
"""Options that cannot matter to an answer."""


_REFUSED = {
    "publisher": "models of others are not asked through Vertex AI; name their own provider",
    **dict.fromkeys(
        OWN_TOOLS, "is a tool of Gemini's; give the agent tools of its own, and leave this out"
    ),
    FALLBACKS: "only Anthropic's API has them; name other models under the agent's 'fallback'",
}
"""Options that change answers, and are not run."""

APIS: Mapping[ApiType, Api] = {
    "openai_chatcompletions": "chat",
    "openai_responses": "responses",
    "anthropic": "anthropic",
    "google": "google",
}

COUNT_TOKENS: frozenset[Api] = frozenset({"anthropic", "google"})
"""The APIs that take a thinking budget in tokens."""


class FileModels:
    """The models of one file: by name, inline as `provider/model`, or `auto`."""

    def __init__(
        self, findings: Findings, file: FileShape, environment: Mapping[str, str], *, trusted: bool
    ) -> None:
        self._found = findings
        self._environment = environment
        self._trusted = trusted
        self._file = file
        self._unset: dict[Where, tuple[str, ...]] = {}
        """Models and providers → their variables that are not set."""
        self._providers = {
            name: self._provider(name, shape, ("providers", name))
            for name, shape in file.providers.items()
        }
        self._provider_headers = {
            name: self._headers(shape.headers, ("providers", name))
            for name, shape in file.providers.items()
        }
        self._named = {
            name: self._config(shape, ("models", name))
            for name, shape in file.models.items()
            if not shape.first_available and not _is_alias(shape)
        }
        self._named |= {
            name: found
            for name, shape in file.models.items()
            if shape.first_available and (found := self._first_available(name, shape)) is not None
        }

    def of_agent(self, shape: AgentShape, where: Where) -> ModelConfig | None:
        """An agent's model, with its fallbacks. None, with a finding, if one is unknown."""
        names = self._named_by(shape.model)
        first, *turns = [
            self._find(each, (*where, "model"), routed=len(names) == 1) for each in names
        ]
        return self._with_fallbacks(first, turns, shape, where)

    def _named_by(self, model: str) -> list[str]:
        """The names of models that an agent's `model` stands for: a model that only names others stands for those."""
        found: list[str] = []
        for name in _names(model):
            alias = self._file.models.get(name, ModelShape())
            found += _names(alias.model) if _is_alias(alias) else [name]
        return found

    def routes_of(self, shape: AgentShape) -> tuple[ModelRoute, ...]:
        """The examples by which an agent's requests go to other models."""
        model = self._file.models.get(_names(shape.model)[0], ModelShape())
        return tuple(ModelRoute(model=each.model, examples=each.examples) for each in model.routing)

    def others_of(
        self, shape: AgentShape, chosen: Iterable[tuple[str, Where]], where: Where
    ) -> dict[str, ModelConfig]:
        """The models that an agent may choose (`chosen`, each with its field), and those of its routes."""
        name = _names(shape.model)[0]
        rules = self._file.models.get(name, ModelShape()).routing
        routed = ((rule.model, ("models", name, "routing", n)) for n, rule in enumerate(rules))
        found = {
            other: self._with_fallbacks(self._find(other, at), [], shape, where)
            for other, at in (*chosen, *routed)
        }
        return {other: config for other, config in found.items() if config is not None}

    def of_hooks(self, hooks: Hooks, where: Where) -> dict[str, ModelConfig]:
        """The models that an agent's hooks ask, by their names in the file."""
        named = {
            hook.model: (*where, event)
            for event, every in hooks.every.items()
            for hook in every
            if hook.model
        }
        found = {name: self._find(name, at) for name, at in named.items()}
        return {name: config for name, config in found.items() if config is not None}

    def _with_fallbacks(
        self,
        first: ModelConfig | None,
        turns: Sequence[ModelConfig | None],
        shape: AgentShape,
        where: Where,
    ) -> ModelConfig | None:
        fallback = shape.fallback
        at = (*where, "fallback")
        others = [self._find(name, (*at, "models", n)) for n, name in enumerate(fallback.models)]
        cooldown_s = seconds_in(fallback.cooldown)
        if cooldown_s is None:
            self._found.wrong((*at, "cooldown"), "expected a duration, such as '30s' or '2m30s'")
        if first is None or None in turns:
            return None
        if turns and others:
            self._found.wrong(at, "models that take turns stand in for each other; leave this out")
        retries = None if fallback.retries == 0 else max(0, fallback.retries)
        return msgspec.structs.replace(
            first,
            fallbacks=tuple(
                msgspec.structs.replace(each, retries=retries)
                for each in (*turns, *others)
                if each is not None
            ),
            retries=retries,
            takes_turns=bool(turns),
            cooldown_s=cooldown_s or 0.0 if fallback.cooldown else first.cooldown_s,
        )

    def of_summaries(self, shape: AgentShape, where: Where) -> ModelConfig | None:
        """The model that writes summaries for an agent: the agent's choice, its model's, or its provider's."""
        if shape.compaction_model:
            return self._find(shape.compaction_model, (*where, "compaction_model"))
        name = _names(shape.model)[0]
        model = self._file.models.get(name, ModelShape())
        if model.compaction_model:
            return self._find(model.compaction_model, ("models", name, "compaction_model"))
        alias = model.provider or name.partition("/")[0]
        provider = self._file.providers.get(alias, ProviderShape())
        if provider.compaction_model:
            at = ("providers", alias, "compaction_model")
            return self._find(provider.compaction_model, at)
        return None

    def compaction_share(self, shape: AgentShape) -> float | None:
        """The share of its window at which an agent's history is summed up: its model's word, then its own."""
        model = self._file.models.get(_names(shape.model)[0], ModelShape())
        return model.compaction_threshold or shape.compaction_threshold

    def _name(self, text: str, where: Where) -> str:
        """The name of a model or provider with its variables filled in."""
        refusal = "" if self._trusted else UNTRUSTED.format(what="read our variables")
        return filled_name(text, self._environment, self._found, where, refusal=refusal)

    def _find(self, name: str, where: Where, *, routed: bool = False) -> ModelConfig | None:
        """The model of this name. `routed`: it may send requests on to other models."""
        name = self._name(name, where)
        if not routed and name in self._file.models and self._file.models[name].routing:
            words = f"{name!r} sends requests on to other models, which only the one model of an agent can"
            self._found.wrong(where, words)
        if name in self._named:
            return self._named[name]
        if name in self._file.models and _is_alias(self._file.models[name]):
            words = (
                f"{name!r} stands for models that take turns, which only the model of an agent can"
            )
            self._found.wrong(where, words)
            return None
        if name == AUTO:
            return self._auto()
        provider, slash, model = name.partition("/")
        if slash and provider.strip() and model.strip():
            return self._config(ModelShape(provider=provider, model=model), where)
        words = f"no such model; {suggest(name, self._file.models)}, or write 'provider/model'"
        self._found.wrong(where, words)
        return None

    def _auto(self) -> ModelConfig:
        """The first preferred provider that the environment has a key for; the last one needs none."""
        provider = next(each for each in PREFERRED if self._has_key(each, ""))
        return ModelConfig(provider=provider, model=PREFERRED[provider])

    def _first_available(self, name: str, shape: ModelShape) -> ModelConfig | None:
        """The first of these models that the environment has a key for; the first of all if it has none."""
        at: Where = ("models", name, "first_available")
        if shape != ModelShape(first_available=shape.first_available):
            self._found.wrong(at, "chooses among other models; leave out the other fields")
        found = [self._find(each, (*at, n)) for n, each in enumerate(shape.first_available)]
        known = [each for each in found if each is not None]
        return next(filter(self._is_usable, known), known[0] if known else None)

    def _is_usable(self, model: ModelConfig) -> bool:
        provider = model.kind or model.provider
        if provider not in SERVERS and not model.base_url and not model.unset:
            return provider == "demo"
        return self._has_key(provider, model.token_key)

    def _has_key(self, provider: str, token_key: str) -> bool:
        if token_key:
            return bool(self._environment.get(token_key, "").strip())
        server = SERVERS.get(provider)
        return server is None or server.has_key(self._environment)

    def _provider(self, name: str, shape: ProviderShape, where: Where) -> ProviderShape:
        """A provider of the file, with its values checked and filled in."""
        base_url = self._base_url(shape.base_url, where)
        kind = shape.provider
        if kind and kind not in SERVERS:
            self._found.wrong((*where, "provider"), f"no such provider; {suggest(kind, SERVERS)}")
        if not shape.base_url and (not kind or (kind == "openai" and name != kind)):
            self._found.wrong(where, "'base_url' is missing: the address of the server")
        self._warn_of_usage(shape, where)
        return msgspec.structs.replace(
            shape, base_url=base_url, token_key=self._token_key(shape.token_key, where)
        )

    def _config(self, shape: ModelShape, where: Where) -> ModelConfig:
        shape = msgspec.structs.replace(
            shape,
            provider=self._name(shape.provider, (*where, "provider")),
            model=self._name(shape.model, (*where, "model")),
        )
        for field in ("provider", "model"):
            if not getattr(shape, field).strip():
                self._found.wrong(where, f"{field!r} is missing")
        alias = self._providers.get(shape.provider, ProviderShape())
        given = {**alias.provider_opts, **shape.provider_opts}
        both = filled_up(SettingsShape, shape, alias, provider_opts=given)
        kind = alias.provider
        api = APIS[both.api_type] if both.api_type else None
        if api is None and shape.provider in self._providers and not kind:
            api = "chat"
        if api is None and speaks_messages(kind or shape.provider, shape.model):
            api = "anthropic"
        effort, tokens = self._thinking(
            both, kind or shape.provider, api, (*where, "thinking_budget")
        )
        options = self._options(both, api, kind or shape.provider, (*where, "provider_opts"))
        self._warn_of_usage(shape, where)
        penalties = (
            ("frequency_penalty", both.frequency_penalty),
            ("presence_penalty", both.presence_penalty),
        )
        base_url = self._base_url(shape.base_url, where) or alias.base_url
        own_headers = self._headers(shape.headers, where)
        unset = (
            *self._unset.get(where[:2], ()),
            *self._unset.get(("providers", shape.provider), ()),
        )
        return ModelConfig(
            provider=shape.provider,
            model=shape.model,
            kind=kind,
            base_url=base_url,
            unset=unset,
            token_key=self._token_key(shape.token_key, where) or alias.token_key,
            headers=self._provider_headers.get(shape.provider, Headers())
            .beneath(own_headers)
            .beneath(options.headers),
            api=api,
            thinking_tokens=tokens,
            context_window=options.window,
            counts_tokens=both.provider_opts.get("counts_tokens") is True,
            price=_price(shape.cost) if shape.cost else None,
            options=tuple(options.members),
            region=options.region,
            without=self._without(shape.capabilities, api, kind or shape.provider, where),
            parameters=Parameters(
                temperature=both.temperature,
                top_p=both.top_p,
                max_output_tokens=both.max_tokens,
                parallel_tool_calls=both.parallel_tool_calls,
                reasoning_effort=effort,
                seed=options.seed,
                others=(
                    *((name, f"{value:g}") for name, value in penalties if value is not None),
                    *options.parameters,
                ),
            ),
        )

    def _warn_of_usage(self, shape: SettingsShape, where: Where) -> None:
        if shape.track_usage is False:
            self._found.warn((*where, "track_usage"), "usage is counted always; left out")

    def _without(
        self, said: CapabilitiesShape, api: Api | None, provider: str, where: Where
    ) -> tuple[Kind, ...]:
        """What a model does not take, and is told of in words alone."""
        kinds = tuple(each for each in get_args(Kind) if not getattr(said, each))
        known = SERVERS.get(provider)
        if (api or (known.api if known else "chat")) != "anthropic":
            return kinds
        for each in kinds:
            words = "left out: Claude is shown what clients send"
            self._found.warn((*where, "capabilities", each), words)
        return ()

    def _options(
        self, shape: SettingsShape, api: Api | None, provider: str, where: Where
    ) -> _Options:
        """The options of a provider. Unknown options become findings."""
        made = _Options()
        known = SERVERS.get(provider)
        spoken = api or (known.api if known else "chat")
        is_chat = spoken == "chat"
        for name, value in shape.provider_opts.items():
            at = (*where, name)
            text = msgspec.json.encode(value).decode()
            if name in (*_WINDOW_NAMES, "seed"):
                if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                    self._found.wrong(at, "expected a whole number, at least 1")
                elif name == "seed":
                    made.seed = value
                else:
                    made.window = value
            elif name == "counts_tokens":
                if not isinstance(value, bool):
                    self._found.wrong(at, "expected true or false")
            elif name == "http_headers" and isinstance(value, dict):
                said = {each: str(text) for each, text in value.items()}
                made.headers = self._headers(said, at)
            elif name == "api_version" and provider == AZURE:
                made.members.append((name, msgspec.json.encode(str(value)).decode()))
            elif name == "region" and provider == BEDROCK:
                made.region = str(value)
            elif name in _AWS_SIGNS and provider == BEDROCK:
                words = "requests are not signed here: use an API key of Bedrock, in AWS_BEARER_TOKEN_BEDROCK"
                self._found.warn(at, f"left out: {words}")
            elif name == "top_k" and spoken in ("anthropic", "google"):
                made.parameters.append((name, text))
            elif name in OWN_TOOLS and spoken == "google":
                made.members += [(name, text)] if value is True else []
            elif name == FALLBACKS and spoken == "anthropic" and provider != BEDROCK:
                models = value if isinstance(value, list) else [value]
                if not all(isinstance(each, str) and each for each in models):
                    self._found.wrong(at, "expected a list of models, by the names of the provider")
                told = [{"model": each} for each in models]
                made.members.append((name, msgspec.json.encode(told).decode()))
            elif name in _REFUSED and value not in (False, "google"):
                self._found.wrong(at, _REFUSED[name])
            elif name in OTHERS:
                made.parameters.append((name, text))
            elif name in SERVER_OPTIONS and is_chat:
                made.members.append((name, text))
            elif name == "extra_body" and is_chat and isinstance(value, dict):
                made.members += [
                    (each, msgspec.json.encode(inner).decode()) for each, inner in value.items()
                ]
            elif name in _NO_EFFECT:
                if value not in (True, "sse", "summarized"):
                    self._found.warn(at, f"left out: {_NO_EFFECT[name]}")
            else:
                self._found.warn(at, "is not known here; left out")
        if shape.task_budget is not None:
            self._task_budget(shape.task_budget, spoken, made, (*where[:-1], TASK_BUDGET))
        return made

    def _task_budget(
        self, said: int | TaskBudgetShape, spoken: Api, made: _Options, where: Where
    ) -> None:
        if spoken != "anthropic":
            self._found.warn(where, "left out: only Anthropic's API has it")
            return
        total = said if isinstance(said, int) else said.total
        budget = {"type": "tokens", "total": total}
        made.members.append((TASK_BUDGET, msgspec.json.encode(budget).decode()))

    def _base_url(self, text: str, where: Where) -> str:
        """The URL with its variables filled in. Findings never repeat their values."""
        where = (*where, "base_url")
        if not text:
            return ""
        if not self._trusted:
            self._found.wrong(where, UNTRUSTED.format(what="receive our conversations and keys"))
            return ""
        names = [found[1] or found[2] for found in _VARIABLE_IN_TEXT.finditer(text)]
        if unset := [name for name in names if not self._environment.get(name)]:
            self._unset[where[:2]] = (*self._unset.get(where[:2], ()), *unset)
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
            result = filled(value, self._environment)
            if result.missing:
                at = where[:2]
                self._unset[at] = (*self._unset.get(at, ()), *result.missing)
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
        self, shape: SettingsShape, provider: str, api: Api | None, where: Where
    ) -> tuple[str | None, int | None]:
        """The thinking budget: as a word, or in tokens for APIs that count in tokens."""
        budget = shape.thinking_budget
        if isinstance(budget, str) and budget.isdecimal() and len(budget) <= 7:
            budget = int(budget)
        if isinstance(budget, str) and budget.partition("/")[0] == _ADAPTIVE:
            budget = budget.partition("/")[2] or "high"
        if budget is None or isinstance(budget, str):
            if budget is not None and budget not in _EFFORTS:
                self._found.wrong(where, f"has to be one of: {', '.join(_EFFORTS)}")
                return None, None
            return budget, None
        if budget == 0:
            return "none", None
        known = SERVERS.get(provider)
        if (api or (known.api if known else "chat")) in COUNT_TOKENS:
            return None, budget
        words = f"this model takes no budget in tokens, but one of: {', '.join(_EFFORTS)}; left out"
        self._found.warn(where, words)
        return None, None


class _Options:
    """The options of a model, sorted by what they are about."""

    def __init__(self) -> None:
        self.window: int | None = None
        self.region = ""
        self.seed: int | None = None
        self.headers = Headers()
        self.parameters: list[tuple[str, str]] = []
        """Parameters that clients may set, too."""
        self.members: list[tuple[str, str]] = []
        """Members of a request that only the server knows."""


def _is_alias(shape: ModelShape) -> bool:
    """Whether a model has nothing but the names of others that take turns: `model: a, b`."""
    return "," in shape.model and shape == ModelShape(
        model=shape.model, description=shape.description
    )


def _names(model: str) -> list[str]:
    """The models of an agent: one, or several that take turns."""
    return [each.strip() for each in model.split(",") if each.strip()] or [AUTO]


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
