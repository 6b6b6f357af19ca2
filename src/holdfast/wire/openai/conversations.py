"""The Conversations API: sessions as its clients see them. A conversation's metadata are its session's attributes."""

from __future__ import annotations

from msgspec import Raw, Struct

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.conversation import SettingsMerged
from holdfast.core.items import SessionSettings
from holdfast.ids import SessionId
from holdfast.wire.body_parser import NULL, BodyDecoder, as_json, missing_parameter, read_body
from holdfast.wire.openai.responses.items import InputPiece, read_input
from holdfast.wire.openai.responses.request import demand_metadata
from holdfast.wire.problems import Refused, bad_request, not_found
from holdfast.wire.seal import Seal


class ConversationBody(Struct, frozen=True):
    """The body of a request: a conversation's metadata, and its items."""

    items: Raw = NULL
    metadata: dict[str, str] | None = None


class ConversationAsk(Value):
    """A parsed request: the first items of a new conversation, items to add, or metadata."""

    items: tuple[InputPiece, ...] = ()
    metadata: tuple[tuple[str, str], ...] | None = None


_decoder: BodyDecoder[ConversationBody] = BodyDecoder(ConversationBody)


def read_new_conversation(body: bytes, *, seal: Seal | None = None) -> ConversationAsk:
    """Parse the body for a new conversation, which may be empty. Raises Refused."""
    return _read(body or b"{}", seal)


def read_items(body: bytes, *, seal: Seal | None = None) -> ConversationAsk:
    """Parse the items to add, at least one. Raises Refused."""
    if as_json(read_body(_decoder, body).items) in (None, "[]"):
        raise missing_parameter("items")
    return _read(body, seal)


def read_metadata(body: bytes) -> ConversationAsk:
    """Parse a conversation's new metadata. Raises Refused."""
    ask = _read(body)
    if ask.metadata is None:
        raise missing_parameter("metadata")
    return ask


def _read(body: bytes, seal: Seal | None = None) -> ConversationAsk:
    said = read_body(_decoder, body)
    items = read_input(said.items, param="items", seal=seal) if as_json(said.items) else ()
    if len(items) > limits.conversation_items_max:
        raise bad_request(
            "invalid_value",
            f"at most {limits.conversation_items_max} items can be added at once",
            param="items",
        )
    if said.metadata is None:
        return ConversationAsk(items=items)
    demand_metadata(said.metadata)
    return ConversationAsk(items=items, metadata=tuple(sorted(said.metadata.items())))


def metadata_patch(
    settings: SessionSettings, metadata: tuple[tuple[str, str], ...]
) -> SettingsMerged:
    """The change after which a session has exactly these attributes."""
    gone = [(name, None) for name in dict(settings.attributes).keys() - dict(metadata).keys()]
    return SettingsMerged(attributes=(*sorted(gone), *metadata))


def conversation_object(
    session_id: SessionId, *, created_s: int, settings: SessionSettings
) -> dict[str, object]:
    return {
        "id": str(session_id),
        "object": "conversation",
        "created_at": created_s,
        "metadata": dict(settings.attributes),
    }


def deleted_object(session_id: SessionId) -> dict[str, object]:
    return {"id": str(session_id), "object": "conversation.deleted", "deleted": True}


def unknown_conversation(name: str) -> Refused:
    return not_found("conversation_not_found", f"Conversation with id '{name[:100]}' not found.")
