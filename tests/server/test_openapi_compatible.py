"""What the document says about `/v1` agrees with OpenAI's own types, as their package has them.

Types are compared one by one, member by member: what theirs has to have ours has, what both have is of the same
kind, and what only we have is named here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, get_args

import pytest
from openai.types import Model, conversations, responses
from openai.types import chat as chat
from openai.types.chat import chat_completion, chat_completion_chunk, completion_create_params
from openai.types.completion_usage import CompletionUsage
from openai.types.conversations.item_create_params import ItemCreateParams
from openai.types.responses import response_create_params, response_output_item
from openai.types.responses.response_usage import ResponseUsage
from openai.types.shared_params import FunctionDefinition
from pydantic import BaseModel, TypeAdapter

from tests.server.openapi.test_document import DOCUMENT

Schema: TypeAlias = dict[str, Any]


class Side:
    """A type, and where the names in it lead."""

    def __init__(self, schema: Schema, names: Schema) -> None:
        self.schema = schema
        self._names = names

    def members(self) -> dict[str, Side]:
        properties = self.schema.get("properties", {})
        return {name: Side(each, self._names) for name, each in properties.items()}

    def variants(self) -> Iterator[Schema]:
        """What a value can be, one at a time."""
        found = self.schema
        if "$ref" in found:
            named = self._names[found["$ref"].rpartition("/")[2]]
            yield from Side(named, self._names).variants()
        elif several := found.get("anyOf") or found.get("oneOf"):
            for each in several:
                yield from Side(each, self._names).variants()
        else:
            yield found

    def kinds(self) -> set[str]:
        """The JSON types that a value can have; empty if it can have any."""
        found = [_kinds(each) for each in self.variants()]
        return set() if not all(found) else set().union(*found)

    def values(self) -> set[Any] | None:
        """The values that it can have; None if that is not said."""
        found: set[Any] = set()
        for each in self.variants():
            if _kinds(each) == {"null"}:
                continue
            if "const" not in each and "enum" not in each:
                return None
            found |= {each["const"]} if "const" in each else set(each["enum"])
        return found or None


def _kinds(schema: Schema) -> set[str]:
    said = schema.get("type")
    if said is not None:
        return {said} if isinstance(said, str) else set(said)
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    return {KINDS[type(each)] for each in values}


KINDS = {str: "string", bool: "boolean", int: "integer", type(None): "null"}


def ours(name: str) -> Side:
    schemas = DOCUMENT["components"]["schemas"]
    return Side(schemas[name], schemas)


def theirs(kind: Any) -> Side:
    schema = TypeAdapter(kind).json_schema()
    return Side(schema, schema.get("$defs", {}))


def disagreements(mine: Side, yours: Side) -> Iterator[str]:
    """Where two members are of different kinds. A whole number is a number; any kind agrees with all."""
    kinds, known = mine.kinds(), yours.kinds()
    if known and "number" in known:
        known = known | {"integer"}
    if kinds and known and not kinds <= known:
        yield f"{sorted(kinds - known)} is not among {sorted(known)}"
    values, allowed = mine.values(), yours.values()
    if values and allowed and not values <= allowed:
        yield f"{sorted(map(str, values - allowed))} is not among {sorted(map(str, allowed))}"


# ── answers ──────────────────────────────────────────────────────────────────────────────────

OURS = {
    "ChatCompletion.holdfast",
    "ChatChunk.holdfast",
    "Compaction.holdfast",
    "AnswerMessage.images",  # the field of the gateways that offer models which draw
    "Delta.images",
    "ResponseObject.holdfast",
    "ResponseObject.frequency_penalty",  # these two: of the open specification of this API
    "ResponseObject.presence_penalty",
    "ResponseObject.store",
}
"""What an answer has beside their members."""

OTHERWISE = {
    "ServedCallItem.error",  # a text for versions 1 and 2 of their package, an object for version 3
    "ItemList.first_id",  # null where a list is empty
    "ItemList.last_id",
}
"""What an answer says otherwise."""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ModelObject", Model),
        ("ChatCompletion", chat.ChatCompletion),
        ("ChatChoice", chat_completion.Choice),
        ("AnswerMessage", chat.ChatCompletionMessage),
        ("AnswerCall", chat.ChatCompletionMessageFunctionToolCall),
        ("ChatUsage", CompletionUsage),
        ("ChatChunk", chat.ChatCompletionChunk),
        ("ChunkChoice", chat_completion_chunk.Choice),
        ("Delta", chat_completion_chunk.ChoiceDelta),
        ("CallDelta", chat_completion_chunk.ChoiceDeltaToolCall),
        ("ResponseObject", responses.Response),
        ("ResponseUsage", ResponseUsage),
        ("ResponseError", responses.ResponseError),
        ("MessageItem", conversations.Message),
        ("OutputText", responses.ResponseOutputText),
        ("OutputRefusal", responses.ResponseOutputRefusal),
        ("InputImage", responses.ResponseInputImage),
        ("InputFile", responses.ResponseInputFile),
        ("FunctionCallItem", responses.ResponseFunctionToolCall),
        ("FunctionOutputItem", responses.ResponseFunctionToolCallOutputItem),
        ("ServedCallItem", response_output_item.McpCall),
        ("CompactionItem", responses.ResponseCompactionItem),
        ("Compaction", responses.CompactedResponse),
        ("TokenCount", responses.InputTokenCountResponse),
        ("Conversation", conversations.Conversation),
        ("ConversationDeleted", conversations.ConversationDeletedResource),
        ("ItemList", conversations.ConversationItemList),
    ],
)
def test_an_answer_has_what_theirs_has_to_have_and_means_the_same_by_it(
    name: str, kind: Any
) -> None:
    mine, yours = ours(name), theirs(kind)
    assert set(yours.schema.get("required", ())) <= set(mine.schema["required"])
    members, known = mine.members(), yours.members()
    assert {f"{name}.{each}" for each in members.keys() - known.keys()} <= OURS
    for each in members.keys() & known.keys():
        if f"{name}.{each}" not in OTHERWISE:
            assert not [*disagreements(members[each], known[each])], f"{name}.{each}"


EVENTS = {
    get_args(each.model_fields["type"].annotation)[0]: each
    for each in vars(responses).values()
    if isinstance(each, type) and issubclass(each, BaseModel) and each.__name__.endswith("Event")
}
"""Their types for events, by the name that an event goes by."""


@pytest.mark.parametrize(
    "name",
    ["LifecycleEvent", "ItemEvent", "PartEvent", "DeltaEvent", "DoneEvent", "ServedCallEvent"],
)
def test_every_event_is_one_of_theirs_with_all_its_members(name: str) -> None:
    mine = ours(name)
    for event in mine.members()["type"].values() or set():
        yours = theirs(EVENTS[event])
        assert set(yours.schema["required"]) <= mine.members().keys() | {"name"}, event
        for member, there in yours.members().items():
            if member in mine.members() and member != "type":
                assert not [*disagreements(mine.members()[member], there)], f"{event}.{member}"


# ── requests ─────────────────────────────────────────────────────────────────────────────────

LENIENT = {
    "ResponsesRequest.frequency_penalty",  # these two: of the open specification of this API
    "ResponsesRequest.presence_penalty",
    "CompactRequest.conversation",
    "CompactRequest.tools",
    "NewMetadata.items",
    "AddedItems.metadata",
}
"""What we take of a request beside their members."""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ChatRequest", completion_create_params.CompletionCreateParamsStreaming),
        ("FunctionDefinition", FunctionDefinition),
        ("ResponsesRequest", response_create_params.ResponseCreateParamsStreaming),
        ("ResponseTool", responses.FunctionToolParam),
        ("ContextRequest", responses.InputTokenCountParams),
        ("CompactRequest", responses.ResponseCompactParams),
        ("NewConversation", conversations.ConversationCreateParams),
        ("NewMetadata", conversations.ConversationUpdateParams),
        ("AddedItems", ItemCreateParams),
    ],
)
def test_a_request_is_read_by_the_names_and_kinds_that_they_send(name: str, kind: Any) -> None:
    """We need nothing that they may leave out, and of each member take at least some of what they send."""
    mine, yours = ours(name), theirs(kind)
    members, known = mine.members(), yours.members()
    assert {f"{name}.{each}" for each in members.keys() - known.keys()} <= LENIENT
    for each in members.keys() & known.keys() - {"function_call"}:  # refused: long deprecated
        taken, sent = members[each].kinds(), known[each].kinds()
        assert not taken or not sent or taken & (sent | {"integer"}) - {"null"}, f"{name}.{each}"


def test_the_comparison_sees_other_kinds_and_values() -> None:
    def side(**schema: Any) -> Side:
        return Side(schema, {})

    number = side(type="number")
    assert not [*disagreements(side(type="integer"), number)]
    assert [*disagreements(side(type="string"), number)] == [
        "['string'] is not among ['integer', 'number']"
    ]
    assert [*disagreements(side(enum=["a", "b"]), side(const="a", type="string"))]
    assert not [*disagreements(side(), number)]
