"""The items of the Responses and Conversations APIs, in both directions.

In: we accept much from clients. A message may lack its type, id and status; items that only other servers act on are
kept as they are (`foreign_items.py`).

Out: the id of an item is its address (`item_addresses.py`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
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
    ForeignItem,
    Image,
    Item,
    Link,
    Opaque,
    Opaques,
    Part,
    Parts,
    Reasoning,
    Refusal,
    Source,
    SystemMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    text_of,
)
from holdfast.core.turns.unfinished_turns import is_cut
from holdfast.errors import InvalidValue
from holdfast.ids import CallId, ItemId, MessageId, SessionId
from holdfast.wire.body_parser import LARGE_BYTES, BodyDecoder, demand_few, parts_in
from holdfast.wire.openai.chat.messages import (
    AudioData,
    AudioPart,
    FileData,
    FilePart,
    part_of,
    source_of,
    url_of,
)
from holdfast.wire.openai.kept_members import CLIENT, is_plain, kept_members, with_members
from holdfast.wire.openai.responses.foreign_items import (
    answered_calls,
    foreign_content,
    original_object,
)
from holdfast.wire.openai.responses.item_addresses import (
    ItemAddress,
    approval_request_id,
    read_address,
)
from holdfast.wire.pictures import pictures_in
from holdfast.wire.problems import Refused, bad_request, not_found
from holdfast.wire.seal import Seal, opened

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
    status: str | None = None
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

_items_decoder: BodyDecoder[list[Raw]] = BodyDecoder(list[Raw])
_item_decoder: BodyDecoder[InputItem] = BodyDecoder(InputItem)
_ROLES: dict[str, Literal["user", "assistant", "system"]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_OTHER_ROLES = frozenset({"unknown", "critic", "discriminator", "tool"})
"""Roles that OpenAI documents and no client of an agent has: such messages are only kept."""


def read_input(
    raw: Raw | bytes,
    *,
    param: str = "input",
    seal: Seal | None = None,
    ignored: list[str] | None = None,
) -> tuple[InputPiece, ...]:
    """The input of a request: a text, or items. Raises Refused. Without a `seal`, no sealed content counts as ours. The
    names of items and parts that no model is shown are added to `ignored`."""
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
    return tuple(_pieces(items, param, seal, [] if ignored is None else ignored))


def _pieces(
    items: Sequence[Raw], param: str, seal: Seal | None, ignored: list[str]
) -> Iterator[InputPiece]:
    """Each item by itself. Reasoning that its provider can use again is an assistant's; other reasoning, and reasoning
    that no answer follows, is kept as it is."""
    held: list[tuple[Incoming, Incoming]] = []
    """Reasoning and what follows it up to an answer, each in the form that it has if there is one, and if there is none."""
    parts = 0
    answered: frozenset[str] | None = None
    for n, raw in enumerate(items):
        where = f"{param}[{n}]"
        if len(bytes(raw)) > LARGE_BYTES:
            demand_few(param, parts_in(raw), limits.request_parts_max)
        item = _read_item(raw, where)
        parts += sum(len(each) for each in (item.content, item.output) if isinstance(each, list))
        demand_few(param, parts, limits.request_parts_max)
        if item.type == "function_call" and item.status == "incomplete" and answered is None:
            answered = answered_calls(items)
        if _is_cut(item, answered):
            piece: InputPiece = _foreign(item, raw, where)
        else:
            piece = _piece(item, raw, where, seal, ignored) or _foreign(item, raw, where)
        thought = _thought(item, raw, seal, where) if item.type == "reasoning" else None
        is_foreign = isinstance(piece, Incoming) and piece.foreign is not None
        if isinstance(piece, Incoming) and is_foreign and (thought is not None or held):
            held.append((thought or piece, piece))
            continue
        yield from _answered(held, piece, ignored)
        held = []
        yield piece
        if isinstance(piece, Incoming) and is_foreign:
            ignored += _unread(piece)
    yield from _answered(held, None, ignored)


def _is_cut(item: InputItem, answered: Container[str] | None) -> bool:
    """Whether this is a call that was cut inside its arguments, and has no result: no model reads half a call."""
    if answered is None or item.type != "function_call" or item.status != "incomplete":
        return False
    return bool(item.call_id) and item.call_id not in answered


def _answered(
    held: Sequence[tuple[Incoming, Incoming]], by: InputPiece | None, ignored: list[str]
) -> Iterator[Incoming]:
    """Items from some reasoning on, up to its answer. Without an answer, no provider takes the reasoning."""
    is_answer = isinstance(by, Incoming) and by.role == "assistant"
    for with_answer, alone in held:
        each = with_answer if is_answer else alone
        ignored += _unread(each)
        yield each


def _unread(piece: Incoming) -> Iterator[str]:
    """The name of a foreign item that no model is shown."""
    if piece.foreign is not None and not piece.foreign.text:
        yield piece.name


_ACTED_ON = frozenset({None, "message", "item_reference", "function_call", "function_call_output"})


class ItemHead(Struct, frozen=True):
    """The members that every type of item has."""

    type: str | None = None
    id: str | None = None


_head_decoder: BodyDecoder[ItemHead] = BodyDecoder(ItemHead)


def _read_item(raw: Raw, where: str) -> InputItem:
    try:
        return _item_decoder.decode(raw)
    except msgspec.ValidationError as error:
        head = _foreign_head(raw)
        if head is None:
            raise bad_request("invalid_type", f"{where}: {error}", param=where) from error
        return InputItem(type=head.type, id=head.id)


def _foreign_head(raw: Raw) -> ItemHead | None:
    """The head of an item that only other servers act on; its other members may have our names. None if it is malformed,
    or an item that we act on."""
    try:
        head = _head_decoder.decode(raw)
    except msgspec.ValidationError:
        return None
    return None if head.type in _ACTED_ON else head


def _thought(item: InputItem, raw: Raw, seal: Seal | None, where: str) -> Incoming | None:
    """Reasoning as its provider encrypted it, to go back unchanged. None if it is not encrypted, or too large."""
    if not item.encrypted_content:
        return None
    plain = opened(seal, "reasoning", item.encrypted_content, where=where)
    said = bytes(raw).decode()
    fits = len(said) <= limits.opaque_bytes_max
    if plain is not None:
        thought = msgspec.json.decode(plain, type=Thought)
        if fits and len(thought.extras) < limits.opaques_max:
            extras = (*thought.extras, Opaque(owner=CLIENT, json=said))
            thought = Thought(text=thought.text, extras=extras)
    elif fits:
        thought = Thought(extras=(Opaque(owner="openai", json=said),))
    else:
        return None
    return Incoming(role="assistant", thoughts=(thought,))


def _foreign(item: InputItem, raw: Raw, where: str) -> Incoming:
    """An item that only other servers act on, by the name that it has in this request."""
    content = foreign_content(item.type or "message", item.id, bytes(raw))
    address = read_address(item.id) if item.id else None
    ours = address.item if address else None
    return Incoming(role="foreign", name=where, foreign=content, ours=ours)


def _piece(
    item: InputItem, raw: Raw, where: str, seal: Seal | None, ignored: list[str]
) -> InputPiece | None:
    """An item that we act on; None for an item of another type."""
    bare = item.id and item.role is None and item.content is None
    match item.type or ("item_reference" if bare else "message"):
        case "message" if item.role not in _OTHER_ROLES:
            said = _message(item, where)
            if is_plain(said.role, raw):
                return said
            shown = _message_object("", said.role, _message_parts(said), "completed")
            extras = _kept(item.content, raw, shown, "content", where, ignored)
            return msgspec.structs.replace(said, extras=extras)
        case "item_reference":
            return ItemReference(id=_needed(item.id, where, "id"))
        case "function_call":
            call = IncomingCall(
                call_id=_needed(item.call_id, where, "call_id"),
                name=_needed(item.name, where, "name"),
                arguments=item.arguments or "",
            )
            if not is_plain("call", raw):
                shown = _call_object(call.call_id, call.name, call.arguments, "", "completed")
                extras = _kept(None, raw, shown, "", where, ignored)
                call = msgspec.structs.replace(call, extras=extras)
            return Incoming(role="assistant", calls=(call,))
        case "function_call_output" if item.call_id is not None or item.name is None:
            call_id = _needed(item.call_id, where, "call_id")
            content = _parts(item.output, f"{where}.output")
            given = Incoming(role="tool", call_id=call_id, content=content)
            if is_plain("tool", raw):
                return given
            shown = _result_object(call_id, [*map(_input_part, content)], "")
            extras = _kept(item.output, raw, shown, "output", where, ignored)
            return msgspec.structs.replace(given, extras=extras)
        case "mcp_approval_response":
            return _decision(item, raw, where)
        case "compaction":
            summary = opened(seal, "summary", item.encrypted_content or "", where=where)
            if summary is None:
                return None
            text = f"[Summary of the conversation so far: {summary.decode()}]"
            return Incoming(role="system", content=(Text(text=text),))
        case _:
            return None


def _decision(item: InputItem, raw: Raw, where: str) -> Incoming | None:
    """A decision about a call that waits for an approval; None for a call of another server."""
    address = read_address(_needed(item.approval_request_id, where, "approval_request_id"))
    if item.approve is None:
        _needed(None, where, "approve")
    if address is None or not address.item.startswith(CallId.prefix):
        return None
    decision = CallDecision(
        call=CallId(address.item), approve=bool(item.approve), reason=item.reason or ""
    )
    shown = {"approval_request_id": item.approval_request_id, "approve": item.approve}
    shown["reason"] = item.reason or None
    extras = kept_members(raw, shown, "", (), where=where)
    return Incoming(role="user", decisions=(decision,), extras=extras)


def _message(item: InputItem, where: str) -> Incoming:
    role = _ROLES.get(_needed(item.role, where, "role"))
    if role is None:
        known = ", ".join(_ROLES)
        raise bad_request("invalid_value", f"{where}.role is one of {known}", param=f"{where}.role")
    return Incoming(role=role, content=_parts(item.content, f"{where}.content"))


def _message_parts(said: Incoming) -> list[ItemObject]:
    part = _answer_part if said.role == "assistant" else _input_part
    return [part(each) for each in said.content]


def _kept(
    content: str | list[InputPart] | None,
    raw: Raw,
    shown: ItemObject,
    name: str,
    where: str,
    ignored: list[str],
) -> Opaques:
    """The members of an item that we do not use, in its parts too. Parts that we do not know are ignored by models."""
    parts = content if isinstance(content, list) else []
    known = [_part(each) is not None for each in parts]
    ignored += (f"{where}.{name}[{n}]" for n, is_known in enumerate(known) if not is_known)
    return kept_members(raw, shown, name, known, where=where)


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
        case UserMessage() if not item.path and (item.content or item.extras):
            return Incoming(role="user", content=item.content, name=item.name, extras=item.extras)
        case SystemMessage() if not item.path:
            return Incoming(role="system", content=item.content, extras=item.extras)
        case AssistantMessage() if not item.path:
            return Incoming(role="assistant", content=item.content, extras=item.extras)
        case ToolCall() if item.waits_for == "client":
            call = IncomingCall(
                call_id=item.call_id,
                name=item.name,
                arguments=item.arguments,
                extras=item.extras,
            )
            return Incoming(role="assistant", calls=(call,))
        case ToolResult() if item.from_client:
            content, extras = item.content, item.extras
            return Incoming(role="tool", call_id=item.call_id, content=content, extras=extras)
        case ForeignItem():
            return Incoming(role="foreign", foreign=item.original, ours=item.id)
        case _:
            return None


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
    pictures: bool = False
    """The pictures of a message among its parts, as conversations list them. In a response they are items."""
    approvals: bool = True
    """The calls that wait for an approval, as requests for it."""

    @property
    def reasoning(self) -> bool:
        return self.thoughts or self.seal is not None


LISTED = IncludedFields(pictures=True)


def item_object(
    item: Item,
    session_id: SessionId | None,
    *,
    result: ToolResult | None = None,
    shows: IncludedFields = LISTED,
) -> ItemObject | None:
    """An item as clients read it; None for an item that they are not shown.

    A call of the agent's own tools is shown only with its `result`, as an `mcp_call`.
    """
    if item.path:
        return None
    where = str(ItemAddress(item=item.id, session_id=session_id))
    match item:
        case UserMessage() if item.decisions and not item.content:
            shown = _decision_object(item.decisions[0], where, session_id)
            return with_members(shown, item.extras)
        case UserMessage() | SystemMessage():
            role = "user" if isinstance(item, UserMessage) else "system"
            content = [_input_part(each) for each in item.content]
            shown = _message_object(where, role, content, "completed")
            if isinstance(item, UserMessage) and item.name:
                shown["name"] = item.name
            return with_members(shown, item.extras, "content")
        case AssistantMessage() if shows.pictures and (pictures := pictures_in(item)):
            shown = message_object(item, where)
            return {**shown, "content": [*shown["content"], *map(_input_part, pictures)]}
        case AssistantMessage():
            return message_object(item, where)
        case Reasoning() if not item.agent and (sent := _original(item)) is not None:
            return original_object(sent, where)
        case Reasoning() if not item.agent:
            return reasoning_object(item, where, IncludedFields(thoughts=True))
        case Reasoning() if shows.reasoning:
            return reasoning_object(item, where, shows)
        case ForeignItem():
            return original_object(item.original.json, where)
        case ToolCall() if item.waits_for == "client" or not item.agent:
            return call_object(item, where)
        case ToolCall() if item.state == "set_aside" and item.name in shows.functions:
            return call_object(item, where)
        case ToolCall() if item.waits_for == "approval" and result is None:
            return approval_request_object(item, session_id) if shows.approvals else None
        case ToolCall() if result is not None:
            return served_call_object(item, where, result)
        case ToolResult() if item.from_client:
            output = [*map(_input_part, item.content)]
            shown = _result_object(item.call_id, output, where)
            return with_members(shown, item.extras, "output")
        case _:
            return None


def listed(
    items: Iterable[Item],
    session_id: SessionId,
    *,
    results: Mapping[ItemId, ToolResult] | None = None,
) -> list[ItemObject]:
    """The items that clients are shown. Each has another id, also if a client has given one id to two items."""
    found: list[ItemObject] = []
    ids: set[str] = set()
    for each in items:
        shown = item_object(each, session_id, result=results.get(each.id) if results else None)
        if shown is None:
            continue
        if shown["id"] in ids:
            shown["id"] = str(ItemAddress(item=each.id, session_id=session_id))
        ids.add(shown["id"])
        found.append(shown)
    return found


def by_id(items: Iterable[Item]) -> dict[str, Item]:
    """The items by their ids, and by their clients' own ids if they are listed under them."""
    found: dict[str, Item] = {}
    for each in items:
        found[each.id] = each
        if given := _given_id(each):
            found.setdefault(given, each)
    return found


def find_item(items: Mapping[str, Item], name: str) -> Item | None:
    """The item that a client names by an address, or as it is listed; of items `by_id`."""
    address = read_address(name)
    return items.get(name if address is None else address.item)


def _given_id(item: Item) -> str | None:
    if isinstance(item, ForeignItem):
        return item.original.given_id
    sent = _original(item) if isinstance(item, Reasoning) and not item.agent else None
    return _head_decoder.decode(sent).id if sent else None


def _original(item: Reasoning) -> str | None:
    """Reasoning that a client brought along, as it came."""
    owners = {each.owner: each.json for each in item.extras}
    return owners.get(CLIENT) or owners.get("openai")


def message_object(item: AssistantMessage, where: str) -> ItemObject:
    """An agent's message: its text as one part, its refusal as another. One that a client brought along: part by part."""
    if not item.agent:
        parts = [_answer_part(each) for each in item.content]
        shown = _message_object(where, "assistant", parts, _STATUS[item.state])
        return with_members(shown, item.extras, "content")
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
    status = _STATUS[item.state]
    shown = _call_object(item.call_id, item.name, item.arguments, where, status)
    return with_members(shown, item.extras)


def _call_object(call_id: str, name: str, arguments: str, where: str, status: str) -> ItemObject:
    return {
        "id": where,
        "type": "function_call",
        "status": status,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def _result_object(call_id: str, output: list[ItemObject], where: str) -> ItemObject:
    return {
        "id": where,
        "type": "function_call_output",
        "call_id": call_id,
        "output": output,
        "status": "completed",
    }


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
            named = _file_id(part.source)
            return {
                "type": "input_image",
                "image_url": None if named else url_of(part.source),
                "detail": part.detail,
                "file_id": named,
            }
        case File():
            return {"type": "input_file", "filename": part.name or None, **_file(part)}
        case Audio():
            sound = url_of(part.source).partition(";base64,")[2] or url_of(part.source)
            return {
                "type": "input_audio",
                "input_audio": {"data": sound, "format": part.format or "wav"},
            }
        case _:  # pragma: no cover
            assert_never(part)


def _answer_part(part: Part) -> ItemObject:
    return text_part(part.text) if isinstance(part, Text) else _input_part(part)


def _file(part: File) -> ItemObject:
    if not isinstance(part.source, Link):
        return {"file_data": url_of(part.source)}
    named = _file_id(part.source)
    return {"file_id": named} if named else {"file_url": part.source.url}


def _file_id(source: Source) -> str | None:
    """The id of a file at a provider; None if the source is no such id."""
    return source.url if isinstance(source, Link) and ":" not in source.url else None


# ── reasoning ────────────────────────────────────────────────────────────────────────────────


def sealed_reasoning(item: Reasoning, seal: Seal) -> str | None:
    """The reasoning that a provider needs back, as an `encrypted_content` that clients return; None if there is
    none. The content goes into a later request to the provider unchanged: hence the seal."""
    if not item.extras:
        return None
    thought = Thought(text=item.text, extras=item.extras)
    return seal.close("reasoning", msgspec.json.encode(thought))


def unknown_item(name: str, *, param: str | None = None) -> Refused:
    """The refusal of an unknown item, with the message and status of the hosted service."""
    return not_found("item_not_found", f"Item with id '{name[:100]}' not found.", param=param)
