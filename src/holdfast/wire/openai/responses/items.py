"""The items of the Responses and Conversations APIs, in both directions.

In: we accept much from clients. A message may lack its type, id and status; parts and items of kinds that only
other servers know are ignored.

Out: the id of an item is its *address*: its own id, followed by the body of its session's id. So an
`item_reference` finds its item in later requests, however old it is, without an index of items. A bare id
is understood too, wherever the session is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, assert_never

import msgspec
from msgspec import Raw, Struct

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.reconciliation import Incoming, IncomingCall, Thought
from holdfast.core.items import (
    AssistantMessage,
    Audio,
    CallDecision,
    Completeness,
    File,
    Image,
    Item,
    Link,
    Opaque,
    Part,
    Parts,
    Reasoning,
    Refusal,
    SystemMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    text_of,
)
from holdfast.core.turns.unfinished_turns import is_cut
from holdfast.errors import InvalidId, InvalidValue
from holdfast.ids import CallId, ItemId, MessageId, SessionId
from holdfast.wire.body_parser import LARGE_BYTES, demand_few, parts_in
from holdfast.wire.openai.chat.messages import (
    AudioData,
    AudioPart,
    FileData,
    FilePart,
    part_of,
    source_of,
    url_of,
)
from holdfast.wire.problems import Problem, Refused, bad_request
from holdfast.wire.seal import Seal, opened

# ── addresses ────────────────────────────────────────────────────────────────────────────────

_BODY_CHARS = 26
_REQUEST_PREFIX = "mcpr_"
"""A call that waits for an approval is shown as a request for it: the same address, with another prefix."""


class ItemAddress(Value):
    """Where an item is stored. `session_id` is None if the request names the session otherwise."""

    item: ItemId
    session_id: SessionId | None = None

    def __str__(self) -> str:
        return f"{self.item}{self.session_id.body}" if self.session_id else str(self.item)


def read_address(text: str) -> ItemAddress | None:
    """The address in a client's text; None if it is no address of ours."""
    if text.startswith(_REQUEST_PREFIX):
        text = CallId.prefix + text.removeprefix(_REQUEST_PREFIX)
    for cut, named in ((len(text), False), (len(text) - _BODY_CHARS, True)):
        try:
            item = ItemId(text[:cut])
            session_id = SessionId.from_body(text[cut:]) if named else None
        except InvalidId:
            continue
        return ItemAddress(item=item, session_id=session_id)
    return None


# ── in ───────────────────────────────────────────────────────────────────────────────────────


class InputPart(Struct, frozen=True):
    """A part of a message or result, as far as we use it."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    file_data: str | None = None
    filename: str | None = None
    input_audio: AudioData | None = None


class InputItem(Struct, frozen=True):
    """An item, as far as we use it. Which fields it needs depends on its type."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None
    encrypted_content: str | None = None
    approval_request_id: str | None = None
    approve: bool | None = None
    reason: str | None = None


class ItemReference(Value):
    """`item_reference`: a stored item, to be inserted here."""

    id: str


InputPiece: TypeAlias = Incoming | ItemReference

_items_decoder = msgspec.json.Decoder(list[Raw])
_item_decoder = msgspec.json.Decoder(InputItem)
_ROLES: dict[str, Literal["user", "assistant", "system"]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}


def read_input(
    raw: Raw | bytes, *, param: str = "input", seal: Seal | None = None
) -> tuple[InputPiece, ...]:
    """The input of a request: a text, or items. Raises Refused. Without a `seal`, no sealed content counts as ours."""
    body = bytes(raw).strip()
    if body.startswith(b'"'):
        text = msgspec.json.decode(body, type=str)
        return (Incoming(role="user", content=(Text(text=text),)),)
    try:
        items = _items_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(
            "invalid_type", f"{param} is a text or a list of items", param=param
        ) from error
    demand_few(param, len(items))
    return tuple(_pieces(items, param, seal))


def _pieces(items: Sequence[Raw], param: str, seal: Seal | None) -> Iterator[InputPiece]:
    """Each item by itself. An assistant's reasoning is kept with the item that follows it."""
    thoughts: list[Thought] = []
    parts = 0
    for n, raw in enumerate(items):
        where = f"{param}[{n}]"
        if len(bytes(raw)) > LARGE_BYTES:
            demand_few(param, parts_in(raw), limits.request_parts_max)
        item = _read_item(raw, where)
        parts += sum(len(each) for each in (item.content, item.output) if isinstance(each, list))
        demand_few(param, parts, limits.request_parts_max)
        if item.type == "reasoning":
            thoughts += _thought(item, raw, seal, where)
            continue
        piece = _piece(item, where, seal)
        if isinstance(piece, Incoming) and piece.role == "assistant" and thoughts:
            piece = msgspec.structs.replace(piece, thoughts=tuple(thoughts))
            thoughts = []
        if piece is not None:
            yield piece


def _read_item(raw: Raw, where: str) -> InputItem:
    try:
        return _item_decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise bad_request("invalid_type", f"{where}: {error}", param=where) from error


def _thought(item: InputItem, raw: Raw, seal: Seal | None, where: str) -> Iterator[Thought]:
    """Reasoning as its provider encrypted it, to go back unchanged. Without encrypted content it is dropped."""
    if not item.encrypted_content:
        return
    plain = opened(seal, "reasoning", item.encrypted_content, where=where)
    said = bytes(raw).decode()
    if plain is not None:
        yield msgspec.json.decode(plain, type=Thought)
    elif len(said) <= limits.opaque_bytes_max:
        yield Thought(extras=(Opaque(owner="openai", json=said),))


def _piece(item: InputItem, where: str, seal: Seal | None) -> InputPiece | None:
    bare = item.id and item.role is None and item.content is None
    match item.type or ("item_reference" if bare else "message"):
        case "message":
            return _message(item, where)
        case "item_reference":
            return ItemReference(id=_needed(item.id, where, "id"))
        case "function_call":
            call = IncomingCall(
                call_id=_needed(item.call_id, where, "call_id"),
                name=_needed(item.name, where, "name"),
                arguments=item.arguments or "",
            )
            return Incoming(role="assistant", calls=(call,))
        case "function_call_output":
            return Incoming(
                role="tool",
                call_id=_needed(item.call_id, where, "call_id"),
                content=_parts(item.output, f"{where}.output"),
            )
        case "mcp_approval_response":
            return _decision(item, where)
        case "compaction":
            summary = opened(seal, "summary", item.encrypted_content or "", where=where)
            if summary is None:
                return None
            text = f"[Summary of the conversation so far: {summary.decode()}]"
            return Incoming(role="system", content=(Text(text=text),))
        case _:
            return None  # an item of other servers


def _decision(item: InputItem, where: str) -> Incoming | None:
    """A decision about a call that waits for an approval; None for a call of another server."""
    address = read_address(_needed(item.approval_request_id, where, "approval_request_id"))
    if item.approve is None:
        _needed(None, where, "approve")
    if address is None or not address.item.startswith(CallId.prefix):
        return None
    decision = CallDecision(
        call=CallId(address.item), approve=bool(item.approve), reason=item.reason or ""
    )
    return Incoming(role="user", decisions=(decision,))


def _message(item: InputItem, where: str) -> Incoming:
    role = _ROLES.get(_needed(item.role, where, "role"))
    if role is None:
        known = ", ".join(_ROLES)
        raise bad_request("invalid_value", f"{where}.role is one of {known}", param=f"{where}.role")
    return Incoming(role=role, content=_parts(item.content, f"{where}.content"))


def _needed(value: str | None, where: str, name: str) -> str:
    if not value:
        raise bad_request(
            "missing_required_parameter", f"{where}.{name} is missing", param=f"{where}.{name}"
        )
    return value


def _parts(content: str | list[InputPart] | None, where: str) -> Parts:
    if not isinstance(content, list):
        return (Text(text=content),) if content else ()
    try:
        return tuple(found for each in content if (found := _part(each)) is not None)
    except InvalidValue as error:
        raise bad_request("invalid_content", str(error), param=where) from error


def _part(part: InputPart) -> Part | None:
    """A part as we store it; None for a part that only other servers know."""
    match part.type:
        case "input_text" | "output_text" | "text" | "summary_text" if part.text is not None:
            return Text(text=part.text)
        case "refusal":
            return Refusal(text=part.refusal or "")
        case "input_image" | "image_url":
            source = source_of(part.image_url) if part.image_url else Link(url=part.file_id or "")
            return Image(source=source, detail=_DETAILS.get(part.detail or "", "auto"))
        case "input_file":
            if part.file_url:
                return File(source=source_of(part.file_url), name=part.filename or "")
            file = FileData(file_data=part.file_data, file_id=part.file_id, filename=part.filename)
            return part_of(FilePart(file=file))
        case "input_audio" if part.input_audio is not None:
            return part_of(AudioPart(input_audio=part.input_audio))
        case _:
            return None


_DETAILS: dict[str, Literal["auto", "low", "high", "original"]] = {
    "low": "low",
    "high": "high",
    "original": "original",
}


def brought_along(item: Item) -> Incoming | None:
    """A referenced item, as if the client had sent it; None for an item that clients do not see."""
    match item:
        case UserMessage() if not item.path and item.content:
            return Incoming(role="user", content=item.content, name=item.name)
        case SystemMessage() if not item.path:
            return Incoming(role="system", content=item.content)
        case AssistantMessage() if not item.path:
            return Incoming(role="assistant", content=item.content, extras=item.extras)
        case ToolCall() if item.waits_for == "client":
            call = IncomingCall(call_id=item.call_id, name=item.name, arguments=item.arguments)
            return Incoming(role="assistant", calls=(call,))
        case ToolResult() if item.from_client:
            return Incoming(role="tool", call_id=item.call_id, content=item.content)
        case _:
            return None


def joined(messages: Iterable[Incoming]) -> tuple[Incoming, ...]:
    """The text and calls of one assistant step joined into one message: parallel calls are answered
    together."""
    found: list[Incoming] = []
    for each in messages:
        before = found[-1] if found else None
        if before is None or before.role != "assistant" or each.role != "assistant":
            found.append(each)
        elif each.calls:
            found[-1] = msgspec.structs.replace(
                before,
                content=before.content + each.content,
                calls=before.calls + each.calls,
                extras=(before.extras + each.extras)[-limits.opaques_max :],
                thoughts=before.thoughts + each.thoughts,
            )
        else:
            found.append(each)
    return tuple(found)


# ── out ──────────────────────────────────────────────────────────────────────────────────────

ItemObject: TypeAlias = dict[str, Any]
_STATUS: dict[Completeness, str] = {
    "complete": "completed",
    "interrupted": "incomplete",
    "set_aside": "incomplete",
}


class IncludedFields(Value):
    """The optional parts of a turn that a client has asked for."""

    tools: bool = False
    """The calls of the agent's own tools."""
    thoughts: bool = False
    """The model's summaries of its reasoning."""
    seal: Seal | None = None
    """The reasoning that the provider needs back, sealed by this."""
    functions: frozenset[str] = frozenset()
    """The client's own tools: their calls are shown even if they broke off."""
    approvals: bool = True
    """The calls that wait for an approval, as requests for it."""

    @property
    def reasoning(self) -> bool:
        return self.thoughts or self.seal is not None


PLAINLY = IncludedFields()


def item_object(
    item: Item,
    session_id: SessionId | None,
    *,
    result: ToolResult | None = None,
    shows: IncludedFields = PLAINLY,
) -> ItemObject | None:
    """An item as clients read it; None for an item that they are not shown.

    A call of the agent's own tools is shown only with its `result`, as an `mcp_call`.
    """
    if item.path:
        return None
    where = str(ItemAddress(item=item.id, session_id=session_id))
    match item:
        case UserMessage() if item.decisions and not item.content:
            return _decision_object(item.decisions[0], where, session_id)
        case UserMessage() | SystemMessage():
            role = "user" if isinstance(item, UserMessage) else "system"
            content = [_input_part(each) for each in item.content]
            return _message_object(where, role, content, "completed")
        case AssistantMessage():
            return message_object(item, where)
        case Reasoning() if shows.reasoning:
            return reasoning_object(item, where, shows)
        case ToolCall() if item.waits_for == "client" or not item.agent:
            return call_object(item, where)
        case ToolCall() if item.state == "set_aside" and item.name in shows.functions:
            return call_object(item, where)
        case ToolCall() if item.waits_for == "approval" and result is None:
            return approval_request_object(item, session_id) if shows.approvals else None
        case ToolCall() if result is not None:
            return served_call_object(item, where, result)
        case ToolResult() if item.from_client:
            return {
                "id": where,
                "type": "function_call_output",
                "call_id": item.call_id,
                "output": _output(item.content),
                "status": "completed",
            }
        case _:
            return None


def message_object(item: AssistantMessage, where: str) -> ItemObject:
    """An agent's message: its text as one part, its refusal as another."""
    text = "".join(part.text for part in item.content if isinstance(part, Text))
    refusal = "".join(part.text for part in item.content if isinstance(part, Refusal))
    content = [
        *([text_part(text)] if text or not refusal else []),
        *([{"type": "refusal", "refusal": refusal}] if refusal else []),
    ]
    return _message_object(where, "assistant", content, _STATUS[item.state])


def reasoning_object(item: Reasoning, where: str, shows: IncludedFields) -> ItemObject:
    """A model's reasoning, as far as the request asked for it."""
    return {
        "id": where,
        "type": "reasoning",
        "status": _STATUS[item.state],
        "summary": [summary_part(item.text)] if shows.thoughts and item.text else [],
        "encrypted_content": shows.seal and sealed_reasoning(item, shows.seal),
    }


def summary_part(text: str) -> ItemObject:
    return {"type": "summary_text", "text": text}


def text_part(text: str) -> ItemObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message_object(where: str, role: str, content: list[ItemObject], status: str) -> ItemObject:
    return {"id": where, "type": "message", "status": status, "role": role, "content": content}


def call_object(item: ToolCall, where: str) -> ItemObject:
    return {
        "id": where,
        "type": "function_call",
        "status": _STATUS[item.state],
        "call_id": item.call_id,
        "name": item.name,
        "arguments": item.arguments,
    }


def approval_request_id(call: ItemId, session_id: SessionId | None) -> str:
    where = str(ItemAddress(item=call, session_id=session_id))
    return _REQUEST_PREFIX + where.removeprefix(CallId.prefix)


def approval_request_object(item: ToolCall, session_id: SessionId | None) -> ItemObject:
    """A call that waits, or has waited, for an approval."""
    return {
        "id": approval_request_id(item.id, session_id),
        "type": "mcp_approval_request",
        "server_label": item.agent or "agent",
        "name": item.name,
        "arguments": item.arguments,
    }


def _decision_object(
    decision: CallDecision, where: str, session_id: SessionId | None
) -> ItemObject:
    return {
        "id": where,
        "type": "mcp_approval_response",
        "approval_request_id": approval_request_id(decision.call, session_id),
        "approve": decision.approve,
        "reason": decision.reason or None,
    }


def question_message(text: str, calls: Sequence[ToolCall]) -> AssistantMessage:
    """The server's question about calls as a message of the output. It is stored nowhere: its id is the first call's."""
    return AssistantMessage(id=MessageId.from_body(calls[0].id.body), content=(Text(text=text),))


def served_call_object(item: ToolCall, where: str, result: ToolResult | None) -> ItemObject:
    """A call of the agent's own tools, in a form that every client ignores."""
    text = text_of(result.content) if result else None
    failed = result is not None and result.outcome != "ok"
    return {
        "id": where,
        "type": "mcp_call",
        "status": "in_progress" if result is None else "failed" if failed else "completed",
        "server_label": item.agent or "agent",
        "name": item.name,
        "arguments": item.arguments,
        "output": None if failed else text,
        "error": (text or "failed") if failed else None,
        "approval_request_id": None,
    }


def output_objects(
    items: Sequence[Item], session_id: SessionId | None, shows: IncludedFields
) -> list[ItemObject]:
    """The items that are a turn's output, in order."""
    results = {each.call: each for each in items if isinstance(each, ToolResult)}
    found = []
    for each in with_cuts(items):
        result = results.get(each.id) if shows.tools and isinstance(each, ToolCall) else None
        shown = item_object(each, session_id, result=result, shows=shows)
        if is_output(each) and shown:
            found.append(shown)
    return found


def with_cuts(items: Sequence[Item]) -> list[Item]:
    """The same items as clients see them: a text that was cut for length is incomplete. The model, which continues
    it, sees a text like any other."""
    found: list[Item] = []
    last = -1
    for each in items:
        if is_cut(each) and last >= 0:
            found[last] = cut(found[last])
        elif is_output(each):
            last = len(found)
        found.append(each)
    return found


def cut(item: Item) -> Item:
    """The item, which was cut for length, as clients see it. The state of a call says by itself whether it was cut."""
    if isinstance(item, AssistantMessage | Reasoning) and item.state == "complete":
        return msgspec.structs.replace(item, state="interrupted")
    return item


def is_output(item: Item) -> bool:
    """Whether an agent said this in this turn. An item that the request brought along has no agent."""
    if not isinstance(item, AssistantMessage | Reasoning | ToolCall):
        return False
    return bool(item.agent) and not item.path


def _input_part(part: Part) -> ItemObject:
    match part:
        case Text():
            return {"type": "input_text", "text": part.text}
        case Refusal():
            return {"type": "refusal", "refusal": part.text}
        case Image():
            return {
                "type": "input_image",
                "image_url": url_of(part.source),
                "detail": part.detail,
                "file_id": None,
            }
        case File():
            return {"type": "input_file", "filename": part.name or None, **_file(part)}
        case Audio():
            return {"type": "input_text", "text": part.transcript or "[a recording]"}
        case _:  # pragma: no cover
            assert_never(part)


def _file(part: File) -> ItemObject:
    if not isinstance(part.source, Link):
        return {"file_data": url_of(part.source)}
    if ":" in part.source.url:
        return {"file_url": part.source.url}
    return {"file_id": part.source.url}


def _output(parts: Parts) -> str | list[ItemObject]:
    if all(isinstance(each, Text) for each in parts):
        return text_of(parts)
    return [_input_part(each) for each in parts]


# ── reasoning ────────────────────────────────────────────────────────────────────────────────


def sealed_reasoning(item: Reasoning, seal: Seal) -> str | None:
    """The reasoning that a provider needs back, as an `encrypted_content` that clients return; None if there is
    none. The content goes into a later request to the provider unchanged: hence the seal."""
    if not item.extras:
        return None
    thought = Thought(text=item.text, extras=item.extras)
    return seal.close("reasoning", msgspec.json.encode(thought))


def unknown_reference(name: str) -> Refused:
    """The refusal of an unknown item, with the message and status of the hosted service."""
    return Refused(
        Problem(
            status=404,
            code="item_not_found",
            message=f"Item with id '{name[:100]}' not found.",
            param="input",
            should_retry=False,
        )
    )
