"""The words of the document at `/openapi.json`: what each route is for, what it takes and what it answers.

The examples can be sent as they are; a test does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Raw

from holdfast import limits
from holdfast.server import openapi_errors as errors
from holdfast.server.openapi import (
    Answer,
    Body,
    Description,
    Operation,
    Parameter,
    TurnEvent,
)
from holdfast.server.openapi_overview import CONSOLE
from holdfast.wire import api
from holdfast.wire import api_openai as openai
from holdfast.wire import api_requests as asked
from holdfast.wire.problems import ErrorAnswer

# ── parameters ───────────────────────────────────────────────────────────────────────────────

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=limits.page_size_max)]
Flag: TypeAlias = Literal["true", "false"]
After: TypeAlias = Annotated[int, Meta(ge=-1, le=999_999_999)]
AfterRecord: TypeAlias = Annotated[int, Meta(ge=-1, le=999_999_999_999_999)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]
Key: TypeAlias = Annotated[
    str, Meta(pattern=r"^[\x21-\x7e]+$", min_length=1, max_length=limits.session_key_chars_max)
]
Once: TypeAlias = Annotated[
    str, Meta(pattern=r"^[\x21-\x7e]+$", min_length=1, max_length=limits.idempotency_key_chars_max)
]
Etag: TypeAlias = Annotated[str, Meta(pattern='^"(0|[1-9][0-9]{0,17})"$')]
Calls: TypeAlias = Annotated[str, Meta(pattern="^(fc_[0-7][0-9a-hjkmnp-tv-z]{25}(, ?|$))*$")]


def _header(name: str, words: str, kind: object = str, example: object = None) -> Parameter:
    return Parameter(name, words, kind, "header", example)


_ONCE = _header(
    "Idempotency-Key", "This is one request, however often it arrives.", Once, "4f9c0d1e"
)
_IF_MATCH = _header(
    "If-Match", 'Only if the conversation is at this version, in quotes: `"7"`.', Etag
)
_ON_BUSY = _header(
    "X-On-Busy",
    "What to do when another turn runs.",
    Literal["wait", "reject", "interrupt", "steer"],
)
_POLICY = _header(
    "X-Turn-Policy",
    "What becomes of a turn that does not complete: `cancel=keep, disconnect=finish`.",
)
_TURN = (
    _header(
        "X-Conversation-Id",
        "The conversation: a key of your own choosing, or an id that begins with `conv_` and must exist.",
        Key,
        "trip-to-oslo",
    ),
    _header("X-Conversation-Create", "`never`: an unknown key is a 404.", Literal["auto", "never"]),
    _ONCE,
    _IF_MATCH,
    _ON_BUSY,
    _POLICY,
    _header("X-Show-Tools", "Show the agent's own calls as well.", Flag),
    _header("X-Show-Reasoning", "On chat: show what the agent's model thinks, too.", Flag),
    _header("X-Approve", "Ids of calls that wait, with commas: they may run.", Calls),
    _header("X-Deny", "Ids of calls that wait, with commas: they may not.", Calls),
)
_PAGE = (
    Parameter("limit", "How many at most.", Limit),
    Parameter("order", "`desc`: the newest first.", Literal["asc", "desc"]),
    Parameter("after", "Go on after the item with this id."),
)

PLACES: Mapping[str, Parameter] = {
    word: Parameter(name, words, where="path", example=example)
    for word, name, words, example in (
        ("models", "id", "An agent, as `GET /v1/models` names it.", "root"),
        ("sessions", "name", "A session: its key, or its id.", "trip-to-oslo"),
        ("turns", "id", "A turn's id.", "turn_01jd0000000000000000000000"),
        ("approvals", "call", "The id of a call that waits.", "fc_01jd0000000000000000000000"),
        ("grants", "grant", "A remembered approval's id.", "grant_01jd0000000000000000000000"),
        ("responses", "response", "A response's id.", "resp_01jd0000000000000000000000"),
        ("conversations", "conversation", "A session's id.", "conv_01jd0000000000000000000000"),
        ("items", "item", "An item's id.", "msg_01jd0000000000000000000000"),
    )
}

ANSWER_HEADERS = {
    "x-request-id": "What the server's log knows this request by.",
    "x-turn-id": "The turn.",
    "x-turn-continues": "The unfinished turn that it goes on with.",
    "x-conversation-id": "What the request called the conversation.",
    "x-session-id": "The conversation's id.",
    "x-conversation-base": "The version that the turn began from.",
    "x-conversation-version": "The version that it made; on JSON.",
    "x-conversation-created": "`true`: the conversation is new with this turn.",
    "x-conversation-diverged": "`true`: the request told a history that is not ours.",
    "x-ignored-params": "Parameters that the agent's model does nothing about.",
    "x-token-count": "Who says so many: the model's `provider`, or an `estimate`.",
    "x-should-retry": "Whether sending the same request again makes sense.",
    "retry-after": "When, in seconds.",
    "etag": "The conversation's version, in quotes.",
}

_ABOUT_TURN = (
    "x-turn-id",
    "x-turn-continues",
    "x-conversation-id",
    "x-session-id",
    "x-conversation-base",
    "x-conversation-version",
    "x-conversation-created",
    "x-conversation-diverged",
    "x-ignored-params",
)

# ── the table ────────────────────────────────────────────────────────────────────────────────


def _health(name: str, summary: str) -> Operation:
    return Operation(
        name,
        summary,
        "operations",
        (
            Answer("Yes.", openai.Health),
            Answer("Not now; `status` says why.", openai.Health, 503),
        ),
    )


_OPERATING: Mapping[str, Operation] = {
    "GET /healthz": _health("isAlive", "Whether the process is alive"),
    "HEAD /healthz": _health("isAliveHead", "Whether the process is alive, without a body"),
    "GET /readyz": _health("isReady", "Whether it can take requests"),
    "HEAD /readyz": _health("isReadyHead", "Whether it can take requests, without a body"),
    "GET /metrics": Operation(
        "readMetrics",
        "Numbers for Prometheus",
        "operations",
        (Answer("The numbers of this process.", str, media_type="text/plain"),),
    ),
    "GET /openapi.json": Operation(
        "readDescription",
        "This document",
        "operations",
        (Answer("An OpenAPI document.", dict[str, Raw]),),
    ),
}

_CHAT: Mapping[str, Operation] = {
    "POST /v1/chat/completions": Operation(
        "createChatCompletion",
        "Say something to an agent, in a conversation if one is named",
        "chat",
        (
            Answer("What the agent says.", openai.ChatCompletion, headers=_ABOUT_TURN),
            Answer(
                "The same as it comes, with `stream: true`; `data: [DONE]` is the last event of one that succeeded.",
                events=(openai.ChatChunk, ErrorAnswer),
                done=True,
                headers=_ABOUT_TURN,
            ),
        ),
        Body(
            asked.ChatBody,
            {"model": "root", "messages": [{"role": "user", "content": "Where is Oslo?"}]},
        ),
        _TURN,
        (*errors.BODY, *errors.TURN, *errors.ASKING, "answer_restarted"),
        passes_codes_on=True,
    ),
    "GET /v1/models": Operation(
        "listModels", "The agents", "chat", (Answer("All of them.", openai.ModelList),)
    ),
    "GET /v1/models/{id...}": Operation(
        "retrieveModel",
        "One agent",
        "chat",
        (Answer("It is there.", openai.ModelObject),),
        codes=("model_not_found",),
    ),
}

_CONTEXT = (
    *errors.BODY,
    "conversation_not_found",
    "invalid_content",
    "invalid_request",
    "item_not_found",
    "previous_response_not_found",
    "unknown_tool_call",
)

_RESPONSES: Mapping[str, Operation] = {
    "POST /v1/responses": Operation(
        "createResponse",
        "Ask an agent for a response",
        "responses",
        (
            Answer("The response.", openai.ResponseObject, headers=_ABOUT_TURN),
            Answer(
                "Its events, with `stream: true`; `data: [DONE]` comes last.",
                events=openai.RESPONSE_EVENTS,
                done=True,
                headers=_ABOUT_TURN,
            ),
        ),
        Body(asked.ResponsesBody, {"model": "root", "input": "Where is Oslo?"}),
        _TURN,
        (*_CONTEXT, *errors.TURN, *errors.ASKING, "background_queue_full"),
        passes_codes_on=True,
    ),
    "POST /v1/responses/compact": Operation(
        "compactContext",
        "Sum a history up; nothing is stored",
        "responses",
        (Answer("The summary, sealed, to go on with.", openai.Compaction),),
        Body(asked.CompactBody, {"model": "root", "input": "Oslo is in Norway."}),
        codes=(*_CONTEXT, *errors.ASKING, "agent_not_found", "nothing_to_compact"),
        passes_codes_on=True,
    ),
    "POST /v1/responses/input_tokens": Operation(
        "countInputTokens",
        "How large a request would be, by its model's provider or as an estimate",
        "responses",
        (Answer("So many, or about so many.", openai.TokenCount, headers=("x-token-count",)),),
        Body(asked.ContextBody, {"model": "root", "input": "Where is Oslo?"}),
        codes=_CONTEXT,
    ),
    "GET /v1/responses/{response}": Operation(
        "retrieveResponse",
        "A response, in whatever state",
        "responses",
        (
            Answer("The response.", openai.ResponseObject),
            Answer(
                "Its events again, with `stream=true`, and on until its end.",
                events=openai.RESPONSE_EVENTS,
                done=True,
                headers=("x-turn-id",),
            ),
        ),
        parameters=(
            Parameter("stream", "Tell it as events.", Flag),
            Parameter("starting_after", "Leave out the events up to this number.", After),
        ),
        codes=("invalid_value", "response_not_found"),
    ),
    "DELETE /v1/responses/{response}": Operation(
        "deleteResponse",
        "Let a response be found no more; the history keeps what was said",
        "responses",
        (Answer("It is not found any more.", openai.ResponseDeleted),),
        codes=("response_not_found",),
    ),
    "POST /v1/responses/{response}/cancel": Operation(
        "cancelResponse",
        "Stop a response that runs in the background",
        "responses",
        (
            Answer("What became of it.", openai.ResponseObject),
            Answer("It has not let go yet.", openai.ResponseObject, 202),
        ),
        codes=("invalid_request", "response_not_found"),
    ),
    "GET /v1/responses/{response}/input_items": Operation(
        "listInputItems",
        "What a response's request brought",
        "responses",
        (Answer("Some items.", openai.ItemList),),
        parameters=_PAGE,
        codes=("invalid_value", "response_not_found"),
    ),
}

_CONVERSATION = Answer("The conversation.", openai.Conversation, headers=("etag",))
_SAID = {"type": "message", "role": "user", "content": "Oslo is in Norway."}

_CONVERSATIONS: Mapping[str, Operation] = {
    "POST /v1/conversations": Operation(
        "createConversation",
        "Begin a conversation",
        "conversations",
        (_CONVERSATION,),
        Body(asked.NewConversation, {"metadata": {"about": "Oslo"}}, required=False),
        (_ONCE, _POLICY, _ON_BUSY),
        (*_CONTEXT, *errors.TURN, "turn_limit_reached"),
    ),
    "GET /v1/conversations/{conversation}": Operation(
        "retrieveConversation",
        "A conversation",
        "conversations",
        (_CONVERSATION,),
        codes=("conversation_not_found",),
    ),
    "POST /v1/conversations/{conversation}": Operation(
        "updateConversation",
        "Replace a conversation's metadata",
        "conversations",
        (_CONVERSATION,),
        Body(asked.NewMetadata, {"metadata": {"about": "Oslo"}}),
        codes=(*errors.BODY, "conversation_not_found", "invalid_content"),
    ),
    "DELETE /v1/conversations/{conversation}": Operation(
        "deleteConversation",
        "Delete a conversation",
        "conversations",
        (Answer("It is gone.", openai.ConversationDeleted),),
        codes=("conversation_not_found",),
    ),
    "GET /v1/conversations/{conversation}/items": Operation(
        "listItems",
        "A conversation's items",
        "conversations",
        (Answer("Some items.", openai.ItemList),),
        parameters=(
            *_PAGE,
            Parameter("include", "`holdfast.tool_calls`: the agent's own calls, too."),
        ),
        codes=("conversation_not_found", "invalid_value"),
    ),
    "POST /v1/conversations/{conversation}/items": Operation(
        "createItems",
        "Add items to a conversation, all or none; nobody answers",
        "conversations",
        (Answer("The items, as they were added.", openai.ItemList),),
        Body(asked.AddedItems, {"items": [_SAID]}),
        (_ONCE, _IF_MATCH, _ON_BUSY, _POLICY),
        (*_CONTEXT, *errors.TURN, "turn_limit_reached"),
    ),
    "GET /v1/conversations/{conversation}/items/{item}": Operation(
        "retrieveItem",
        "An item",
        "conversations",
        (Answer("The item.", openai.OutputItem),),
        codes=("conversation_not_found", "item_not_found"),
    ),
    "DELETE /v1/conversations/{conversation}/items/{item}": Operation(
        "deleteItem",
        "Hide an item, with its call or result",
        "conversations",
        (_CONVERSATION,),
        codes=("conversation_not_found", "item_not_found"),
    ),
}

_SESSION = Answer("The session.", api.Session, headers=("etag",))
_PLACE = Body(api.Place, {"version": 1}, required=False)

_SESSIONS: Mapping[str, Operation] = {
    "GET /api/agents": Operation(
        "listAgents",
        "The agents with their sources, and the sources that cannot be loaded",
        "agents",
        (Answer("All of them.", api.Agents),),
    ),
    "GET /api/sessions": Operation(
        "listSessions",
        "List, filter and search sessions",
        "sessions",
        (Answer("Some sessions, the last active first.", api.SessionPage),),
        parameters=(
            Parameter(
                "q",
                "Words to look for in what was said, and in titles.",
                Annotated[str, Meta(max_length=limits.query_chars_max)],
            ),
            Parameter("agent", "Only those that this agent speaks in."),
            Parameter("key_prefix", "Only those with a key that begins so."),
            Parameter("active_from", "Only those that were active then or later.", Seconds),
            Parameter("active_before", "Only those that were active before.", Seconds),
            Parameter("busy", "Only those with a turn that runs, or without.", Flag),
            Parameter("anonymous", "Those that nobody named, in place of the others.", Flag),
            Parameter("cursor", "Go on where a page ended."),
            Parameter("limit", "How many at most.", Limit),
        ),
        codes=("invalid_cursor", "invalid_value"),
    ),
    "POST /api/sessions/import": Operation(
        "importSessions",
        "Take in an export",
        "sessions",
        (Answer("What became of each session.", api.Imported),),
        Body(bytes, "", media_type="application/jsonl"),
        (
            Parameter(
                "on_conflict",
                "What to do about a session that differs from one that is here.",
                Literal["stop", "skip"],
            ),
        ),
        ("import_conflict", "invalid_export", "invalid_value"),
    ),
    "GET /api/sessions/{name}": Operation(
        "retrieveSession", "A session", "sessions", (_SESSION,), codes=errors.SESSION
    ),
    "PATCH /api/sessions/{name}": Operation(
        "updateSession",
        "Change a session's title and attributes",
        "sessions",
        (_SESSION,),
        Body(api.Changes, {"title": "Oslo", "attributes": {"colour": "red"}}),
        codes=(*errors.SESSION, *errors.STRICT_BODY),
    ),
    "DELETE /api/sessions/{name}": Operation(
        "deleteSession",
        "Delete a session",
        "sessions",
        (Answer("It is gone.", api.Deleted),),
        codes=errors.SESSION,
    ),
    "GET /api/sessions/{name}/items": Operation(
        "listSessionItems",
        "Everything in a session",
        "sessions",
        (Answer("All items.", api.Items),),
        parameters=(
            Parameter(
                "view",
                "`model`: what its agent's model sees, in place of everything.",
                Literal["people", "model"],
            ),
        ),
        codes=(*errors.SESSION, "invalid_value"),
    ),
    "GET /api/sessions/{name}/turns": Operation(
        "listTurns",
        "A session's turns, discarded ones too",
        "sessions",
        (Answer("All turns, and what they consumed.", api.Turns),),
        codes=errors.SESSION,
    ),
    "GET /api/sessions/{name}/export": Operation(
        "exportSession",
        "A session and its past as lines of JSON",
        "sessions",
        (Answer("An export.", bytes, media_type="application/jsonl"),),
        codes=errors.SESSION,
    ),
    "POST /api/sessions/{name}/fork": Operation(
        "forkSession",
        "Make a session that begins as this one stood",
        "sessions",
        (_SESSION,),
        _PLACE,
        codes=(*errors.SESSION, *errors.STRICT_BODY, "version_not_found"),
    ),
    "POST /api/sessions/{name}/reset": Operation(
        "resetSession",
        "Let a key mean a new, empty session",
        "sessions",
        (_SESSION,),
        Body(api.Place, {}, required=False),
        codes=(*errors.SESSION, *errors.STRICT_BODY),
    ),
    "POST /api/sessions/{name}/rewind": Operation(
        "rewindSession",
        "Let a key mean a fork of its session at an earlier version",
        "sessions",
        (_SESSION,),
        Body(api.Place, {"version": 1}),
        codes=(*errors.SESSION, *errors.STRICT_BODY, "version_not_found"),
    ),
    "POST /api/sessions/{name}/compact": Operation(
        "compactSession",
        "Let the model see a summary in place of the past",
        "sessions",
        (Answer("The summary.", api.Compacted),),
        codes=(
            *errors.SESSION,
            *errors.ASKING,
            "agent_ambiguous",
            "agent_mismatch",
            "agent_not_found",
            "nothing_to_compact",
            "summary_moved",
        ),
        passes_codes_on=True,
    ),
}

_DECIDING = (
    *errors.TURN,
    *errors.STRICT_BODY,
    "approval_closed",
    "approval_expired",
    "approval_not_found",
    "approvals_missing",
    "model_not_found",
    "too_many_grants",
    "turn_not_found",
)
_BEGUN = Answer("The turn that carries it out.", api.Turn, 202)

_TURNS: Mapping[str, Operation] = {
    "GET /api/turns/{id}": Operation(
        "retrieveTurn",
        "A turn, and what became of it",
        "turns",
        (Answer("The turn.", api.Turn),),
        codes=("turn_not_found",),
    ),
    "GET /api/turns/{id}/events": Operation(
        "watchTurn",
        "A turn's events as they happen",
        "turns",
        (
            Answer(
                "Events, each with its number; what the turn became is the last.",
                events=(TurnEvent, api.TurnEnded, ErrorAnswer),
                headers=("x-turn-id",),
            ),
        ),
        parameters=(
            Parameter("starting_after", "Leave out the events up to this number.", AfterRecord),
        ),
        codes=("invalid_value", "turn_not_found"),
    ),
    "POST /api/turns/{id}/cancel": Operation(
        "cancelTurn",
        "Stop a turn",
        "turns",
        (
            Answer("What became of it, also if it had ended.", api.Turn),
            Answer("It has not let go yet.", api.Turn, 202),
        ),
        codes=("turn_not_found",),
    ),
    "POST /api/turns/{id}/continue": Operation(
        "continueTurn",
        "Go on with a turn that broke off",
        "turns",
        (Answer("The turn that goes on with it.", api.Turn, 202),),
        None,
        (_ONCE,),
        (
            "agent_ambiguous",
            "agent_mismatch",
            "agent_not_found",
            "conversation_gone",
            "conversation_locked",
            "idempotency_key_reused",
            "invalid_idempotency_key",
            "model_not_found",
            "turn_complete",
            "turn_not_found",
            "turn_not_head",
            "turn_not_kept",
        ),
    ),
    "GET /api/turns/{id}/approvals": Operation(
        "listApprovals",
        "The calls of a turn that wait for a decision",
        "turns",
        (Answer("Those that wait.", api.WaitingCalls),),
        codes=("turn_not_found",),
    ),
    "POST /api/turns/{id}/approvals": Operation(
        "decide",
        "Decide on all calls of a turn that wait",
        "turns",
        (_BEGUN,),
        Body(api.Decisions, {"decisions": {"fc_00000000000000000000000000": {"approve": True}}}),
        (_ONCE, _POLICY),
        _DECIDING,
    ),
    "POST /api/turns/{id}/approvals/{call}": Operation(
        "decideOne",
        "Decide on a call that waits",
        "turns",
        (_BEGUN,),
        Body(api.Decision, {"approve": True}),
        (_ONCE, _POLICY),
        _DECIDING,
    ),
    "GET /api/grants": Operation(
        "listGrants",
        "The approvals that are remembered for agents",
        "turns",
        (Answer("Some of them, the oldest first.", api.Grants),),
        None,
        (
            Parameter("limit", "How many at most.", Limit),
            Parameter("after", "Go on after the one with this id."),
            Parameter("agent", "Only those of this agent."),
        ),
        ("grant_not_found", "invalid_value"),
    ),
    "DELETE /api/grants/{grant}": Operation(
        "revokeGrant",
        "Take a remembered approval back",
        "turns",
        (Answer("The approval, as it stands now.", api.Grant),),
        codes=("grant_not_found",),
    ),
}

DESCRIPTION = Description(
    title="Holdfast",
    words="AI agents over the OpenAI API, with conversations that hold: every turn is a transaction. "
    "`/v1` is as OpenAI has it, `/api` is our own; both are doors to the same sessions. "
    "Every error has OpenAI's envelope and a stable `code`.",
    tags={
        "chat": "OpenAI's Chat Completions.",
        "responses": "OpenAI's Responses.",
        "conversations": "OpenAI's Conversations.",
        "agents": "Who can be asked.",
        "sessions": "Conversations, for people who look after them and for tools.",
        "turns": "What requests have added to them, or add now.",
        "operations": "For whoever runs the server.",
    },
    operations={
        **_OPERATING,
        **_CHAT,
        **_RESPONSES,
        **_CONVERSATIONS,
        **_SESSIONS,
        **_TURNS,
        **CONSOLE,
    },
    places=PLACES,
    headers=ANSWER_HEADERS,
)
