"""Google's Gemini: how a history looks there.

A content is a role and parts. A result is a part of the user's content after the model's call, and names the call.
Signatures that came with calls, text and thoughts go back with the same parts, to the model that made them: newer
models refuse a call of the current turn without a signature, and a signature of another model. A call that another
model made gets the placeholder that Google defines for that case.

Models refuse a call that does not follow the user's or a result, so a note stands where what was there is hidden.

A part names a blob by its digest, in the member `data`, as `wire.openai.chat.messages` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct

from holdfast.core.items import (
    AssistantMessage,
    Audio,
    File,
    Image,
    Item,
    Link,
    Opaque,
    Part,
    Parts,
    Reasoning,
    Refusal,
    Source,
    Text,
    ToolCall,
    ToolResult,
    text_of,
)
from holdfast.wire.history_order import (
    Said,
    Step,
    arguments_object,
    extras_of,
    in_order,
    plain_call_id,
    result_text,
    words_of,
)
from holdfast.wire.openai.chat.messages import BlobNames, base64_of

OWNER = "google"
"""The owner of an `Opaque` that holds the signature of a part."""

UNSIGNED = "skip_thought_signature_validator"
"""Replaces the signature of a call that another model made."""

# ── parts ────────────────────────────────────────────────────────────────────────────────────


class InlineData(Struct, frozen=True, rename="camel"):
    mime_type: str
    data: str


class FileUri(Struct, frozen=True, rename="camel"):
    file_uri: str


class GoogleFunctionCall(Struct, frozen=True):
    id: str
    name: str
    args: msgspec.Raw


class GoogleFunctionResponse(Struct, frozen=True):
    id: str
    name: str
    response: dict[str, str]


class GooglePart(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A part: one of its members is set, and perhaps a signature."""

    text: str | None = None
    thought: bool = False
    inline_data: InlineData | None = None
    file_data: FileUri | None = None
    function_call: GoogleFunctionCall | None = None
    function_response: GoogleFunctionResponse | None = None
    thought_signature: str = ""


class GoogleContent(Struct, frozen=True):
    role: Literal["user", "model"]
    parts: list[GooglePart]


# ── items → contents ─────────────────────────────────────────────────────────────────────────


class GoogleDialect(BlobNames):
    """How a history looks to Gemini. See `models.model.Dialect`.

    `signed`: for models that refuse a call without a signature. `model`: the one that is asked.
    """

    binds = False

    def __init__(self, *, signed: bool, model: str = "") -> None:
        self.name = ("google-signed" if signed else "google") + (f":{model}" if model else "")
        self._signed = signed
        self._model = model

    def encode(self, items: Sequence[Item]) -> bytes:
        return b",".join(map(_encode, contents_of(items, signed=self._signed, model=self._model)))


_encode = msgspec.json.Encoder().encode


UNSEEN = GooglePart(text="[What came before is not shown.]")


def contents_of(items: Sequence[Item], *, signed: bool, model: str = "") -> list[GoogleContent]:
    """The contents for these items: none is empty, and no two of the model follow each other."""
    contents: list[GoogleContent] = []
    for each in in_order(items):
        if isinstance(each, Step):
            _add(contents, "model", _said(each.said, signed=signed, model=model))
            _add(contents, "user", (_result(each, result) for result in each.results))
            # Exactly one response per call, and nothing else in this content: pictures and files follow in another.
            shown = [part for result in each.results for part in _shown_by(result)]
            if shown:
                contents.append(GoogleContent(role="user", parts=shown))
        else:
            _add(contents, "user", _parts(words_of(each)))
    return contents


_Role: TypeAlias = Literal["user", "model"]


def _add(contents: list[GoogleContent], role: _Role, said: Iterable[GooglePart]) -> None:
    parts = list(said)
    if parts and role == "model" and contents and contents[-1].role == "model":
        contents.append(GoogleContent(role="user", parts=[UNSEEN]))
    if parts:
        contents.append(GoogleContent(role=role, parts=parts))


_MODEL = b'{"role":"model","parts":['


def connected(pieces: Iterable[bytes]) -> Iterable[bytes]:
    """Pieces of encoded contents, with a note before an answer that does not follow the user's words."""
    after_model = True
    for piece in pieces:
        if after_model and piece.startswith(_MODEL):
            yield _encode(GoogleContent(role="user", parts=[UNSEEN]))
        yield piece
        after_model = piece.startswith(_MODEL, piece.rfind(b'{"role":"'))


def _said(said: Iterable[Said], *, signed: bool, model: str) -> Iterable[GooglePart]:
    for item in said:
        signature = _signature(item, model)
        match item:
            case Reasoning():
                if signature:
                    yield GooglePart(text=item.text, thought=True, thought_signature=signature)
            case AssistantMessage():
                shown = list(
                    _parts(tuple(p for p in item.content if not isinstance(p, Text | Refusal)))
                )
                yield from _words(text_of(item.content), "" if shown else signature)
                if shown:  # the signature came with the picture
                    yield from shown[:-1]
                    yield msgspec.structs.replace(shown[-1], thought_signature=signature)
            case _:
                yield _call(item, signature or (UNSIGNED if signed else ""))
                signed = False  # of parallel calls, only the first needs a signature


def _words(text: str, signature: str) -> Iterable[GooglePart]:
    """Text and its signature, which is on an empty part behind it, as it came."""
    if text:
        yield GooglePart(text=text)
    if signature:
        yield GooglePart(text="", thought_signature=signature)


def _call(item: ToolCall, signature: str) -> GooglePart:
    call = GoogleFunctionCall(
        id=plain_call_id(item), name=item.name, args=arguments_object(item.arguments)
    )
    return GooglePart(function_call=call, thought_signature=signature)


class _Kept(Struct, frozen=True, rename="camel", omit_defaults=True):
    thought_signature: str
    model: str = ""
    """The model that made it; empty in old records."""


def kept_signature(signature: str, model: str = "") -> Opaque:
    kept = _Kept(thought_signature=signature, model=model)
    return Opaque(owner=OWNER, json=_encode(kept).decode())


def read_signature(extra: Opaque) -> str:
    return msgspec.json.decode(extra.json, type=_Kept).thought_signature


def _signature(item: Said, model: str) -> str:
    """The signature that came with an item, if this model made it."""
    extras = extras_of(item, OWNER)
    if not extras:
        return ""
    kept = msgspec.json.decode(extras[-1].json, type=_Kept)
    return kept.thought_signature if kept.model in ("", model) else ""


def without_signatures(messages: bytes) -> bytes:
    """The contents without thoughts and signatures, for a server that refuses one of them."""
    contents = msgspec.json.decode(b"[" + messages + b"]")
    for content in contents:
        parts = [part for part in content["parts"] if not part.get("thought")]
        signed = any("thoughtSignature" in part for part in parts)
        for part in parts:
            part.pop("thoughtSignature", None)
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None and signed:
            first["thoughtSignature"] = UNSIGNED
        content["parts"] = [part for part in parts if part != {"text": ""} and part]
    return b",".join(_encode(content) for content in contents if content["parts"])


def _result(step: Step, result: ToolResult) -> GooglePart:
    call = step.called(result)
    member = "output" if result.outcome == "ok" else "error"
    response = GoogleFunctionResponse(
        id=plain_call_id(result),
        name=call.name if call else "",
        response={member: result_text(result)},
    )
    return GooglePart(function_response=response)


def _shown_by(result: ToolResult) -> list[GooglePart]:
    shown = tuple(part for part in result.content if not isinstance(part, Text | Refusal))
    if not shown:
        return []
    return [GooglePart(text=f"[From the result of {plain_call_id(result)}:]"), *_parts(shown)]


def _parts(parts: Parts) -> Iterable[GooglePart]:
    return [shown for part in parts if (shown := _part(part)) is not None]


def _part(part: Part) -> GooglePart | None:
    match part:
        case Text() | Refusal():
            return GooglePart(text=part.text) if part.text else None
        case Image() | Audio() | File():
            return _bytes(part.source)
        case _:  # pragma: no cover
            assert_never(part)


def _bytes(source: Source) -> GooglePart:
    if isinstance(source, Link):
        return GooglePart(file_data=FileUri(file_uri=source.url))
    data = InlineData(mime_type=source.media_type, data=base64_of(source))
    return GooglePart(inline_data=data)
