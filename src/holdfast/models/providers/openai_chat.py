"""Models on any server with OpenAI's chat completions: OpenAI's own, and most others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from holdfast import limits
from holdfast.core.turns.deltas import Delta
from holdfast.errors import InvalidValue
from holdfast.models.families.gpt import ignored_by, taken_for
from holdfast.models.http.http_model import Access, HttpModel
from holdfast.models.model import AnswerParser, CountRequest, Dialect, Prompt, Wire
from holdfast.models.providers.chat_body import (
    KNOWN,
    OTHERS,
    OURS,
    MaxTokensName,
    Style,
    json_of,
    request_body,
)
from holdfast.wire.openai.chat.messages import ChatDialect
from holdfast.wire.openai.chat.stream_parser import ChatStreamParser, parse_whole

OPENAI_URL = "https://api.openai.com/v1"


class OpenAIModel(HttpModel):
    """A model on a server with chat completions."""

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        base_url: str = OPENAI_URL,
        token_key: str | None = None,
        key_header: str = "Authorization",
        query: str = "",
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
        also_knows: frozenset[str] = frozenset(),
        leaves_out: frozenset[str] = frozenset(),
        max_tokens_name: MaxTokensName | None = None,
        usage_in_stream: bool = True,
        reasoning_back: bool = False,
        counting: CountRequest | None = None,
        **access: Unpack[Access],
    ) -> None:
        """`token_key` names the environment variable that holds the API key; it defaults to `OPENAI_API_KEY` for
        OpenAI's own server, to none elsewhere; an empty name means no key.
        `options` are sent with every request (name → JSON); `also_knows` are more parameters of clients
        that this server takes, `leaves_out` are parameters that it does not take.
        `reasoning_back`: the server wants `reasoning_content` back on messages with calls.
        For the rest see `HttpModel` and `Access`.

        Raises InvalidValue, with the way out, for settings that cannot work.
        """
        base_url = base_url.rstrip("/")
        if token_key is None:
            token_key = "OPENAI_API_KEY" if base_url == OPENAI_URL else ""
        style = Style(
            model=model,
            max_tokens_name=max_tokens_name
            or ("max_completion_tokens" if base_url == OPENAI_URL else "max_tokens"),
            usage_in_stream=usage_in_stream,
            options=_checked_options(options or {}),
            others=OTHERS | also_knows,
            leaves_out=leaves_out,
            reasoning_back=reasoning_back,
        )
        super().__init__(
            ChatWire(style),
            name=name or f"openai/{model}",
            base_url=base_url,
            path=f"/chat/completions{f'?{query}' if query else ''}",
            token_key=token_key,
            key_header=key_header,
            headers=headers,
            counting=counting,
            taken_for=taken_for(model),
            **access,
        )


class ChatWire(Wire):
    """Chat completions, as a `Wire`."""

    def __init__(self, style: Style) -> None:
        self.dialect: Dialect = ChatDialect(reasoning_back=style.reasoning_back)
        self.knows = (KNOWN | style.others) - style.leaves_out - ignored_by(style.family)
        self._style = style

    def body(self, prompt: Prompt) -> bytes:
        return request_body(prompt, self._style)

    def parser(self, prompt: Prompt) -> AnswerParser:
        return ChatStreamParser(event_bytes_max=limits.upstream_event_bytes_max)

    def whole(self, body: bytes, prompt: Prompt) -> Sequence[Delta]:
        return parse_whole(body)


def _checked_options(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    taken = OURS & options.keys()
    if taken:
        raise InvalidValue(f"{', '.join(sorted(taken))} cannot be set: Holdfast decides them")
    for name, text in options.items():
        json_of(text, f"the option {name!r}")
    return tuple(options.items())
