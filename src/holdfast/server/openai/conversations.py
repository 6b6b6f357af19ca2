"""`/v1/conversations`: the same sessions, created, read and added to without asking an agent.

Added items are a turn like any other: they are stored in order, all or none, by one writer at a time, and once under an
idempotency key. Only no model answers. Deleting an item hides it, with its call or result, from people and from the
model; the history keeps it.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from holdfast import limits
from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import Flagged, Snapshot, Visibility, seen_by_people
from holdfast.core.items import Item, ToolResult
from holdfast.core.policy import Policy
from holdfast.errors import InvalidId, KeyReused, TurnRejected
from holdfast.ids import ItemId, SessionId, SessionKey, Tenant, TurnId
from holdfast.server.access.seals import Seals
from holdfast.server.agents.directory import Directory
from holdfast.server.agents.session_end_hooks import SessionEndHooks
from holdfast.server.http.parameters import IF_MATCH, ON_BUSY, ONCE, PAGE, POLICY, Parameter
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route
from holdfast.server.openai.item_references import ItemReferences
from holdfast.server.openai.response_turns import ResponseTurns
from holdfast.server.openapi import error_codes as errors
from holdfast.server.problems import problem_of
from holdfast.server.turns.answers import is_answered, problem_for
from holdfast.server.turns.attempts import attempt_of
from holdfast.server.turns.inline_blobs import inlined
from holdfast.server.turns.turn_requests import TurnSettings
from holdfast.sessions.manual_turns import play_without_model
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.store.rows import SessionRow
from holdfast.wire.headers import ETAG, ConversationHeaders, read_naming
from holdfast.wire.openai import answer_types as openai
from holdfast.wire.openai.conversations import (
    ConversationAsk,
    conversation_object,
    deleted_object,
    metadata_patch,
    read_items,
    read_metadata,
    read_new_conversation,
    unknown_conversation,
)
from holdfast.wire.openai.pages import PageAsk, page_object, read_page
from holdfast.wire.openai.request_types import AddedItems, NewConversation, NewMetadata
from holdfast.wire.openai.responses.items import (
    ItemObject,
    by_id,
    find_item,
    item_object,
    listed,
    unknown_item,
    with_cuts,
)
from holdfast.wire.openai.responses.request import SHOW_TOOLS
from holdfast.wire.problems import Refused

KEY_PREFIX = "conversation_"
"""The prefix of the keys of sessions that were made here. Clients do not need these keys: they have the id."""

_MADE_BY = "conversations.made_by"
"""The flag that holds the hash of the request that made a conversation."""

_ADDING = Policy(crash="discard", disconnect="finish")
"""A turn of added items is never resumed, since that would ask a model; a retry adds the items again."""


_CONVERSATION = AnswerDescription("The conversation.", openai.Conversation, headers=(ETAG.name,))
_ADDING_CODES = (*errors.CONTEXT, *errors.TURN, "turn_limit_reached")


class Conversations:
    """The endpoints. One instance serves every request."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        seals: Seals,
        settings: TurnSettings,
    ) -> None:
        self._sessions = sessions
        self._seals = seals
        self._end_hooks = SessionEndHooks(directory)
        self._store = sessions.store
        self._operations = sessions.operations
        self._turns = ResponseTurns(sessions)
        self._settings = settings

    # ── conversations ──

    @Route(
        "POST /v1/conversations",
        "chat",
        "createConversation",
        _CONVERSATION,
        body=BodyDescription(NewConversation, {"metadata": {"about": "Oslo"}}, required=False),
        parameters=(ONCE, POLICY, ON_BUSY),
        codes=_ADDING_CODES,
        body_bytes_max=limits.body_bytes_max,
    )
    async def create(self, call: HttpCall) -> None:
        """Begin a conversation.

        It may begin with up to 20 items, and with metadata.
        """
        # Each step can be repeated, so a retry under an idempotency key finishes what an interrupted attempt has
        # begun, and makes nothing twice.
        asked = read_new_conversation(
            call.body, seal=await self._seals.asked_in(call.tenant, call.body)
        )
        naming = read_naming(call.exchange.headers, names=())
        key = self._new_key(naming)
        known = await self._store.resolve(call.tenant, key)
        if known is None:
            row = await self._operations.reset(call.tenant, key)
        else:
            row = await self._row(call.tenant, known.session_id)
        await self._set_up(call, row, asked, naming)
        if asked.items:
            try:
                await self._add(call, row.id, asked, msgspec.structs.replace(naming, if_match=None))
            except Refused:
                if known is None:
                    await self._operations.delete(call.tenant, row.id)
                raise
        await self._say(call, await self._row(call.tenant, row.id))

    @Route("GET /v1/conversations/{conversation}", "chat", "retrieveConversation", _CONVERSATION)
    async def retrieve(self, call: HttpCall) -> None:
        """A conversation."""
        await self._say(call, await self._find(call))

    @Route(
        "POST /v1/conversations/{conversation}",
        "chat",
        "updateConversation",
        _CONVERSATION,
        body=BodyDescription(NewMetadata, {"metadata": {"about": "Oslo"}}),
        codes=("invalid_content",),
    )
    async def update(self, call: HttpCall) -> None:
        """Replace a conversation's metadata."""
        asked = read_metadata(call.body)
        row = await self._find(call)
        await self._set_metadata(call.tenant, row, asked)
        await self._say(call, await self._row(call.tenant, row.id))

    @Route(
        "DELETE /v1/conversations/{conversation}",
        "admin",
        "deleteConversation",
        AnswerDescription("It is gone.", openai.ConversationDeleted),
        audit="session.delete",
    )
    async def delete(self, call: HttpCall) -> None:
        """Delete a conversation."""
        row = await self._find(call)
        await self._operations.delete(call.tenant, row.id)
        await self._end_hooks.run(row)
        await call.exchange.answer(200, msgspec.json.encode(deleted_object(row.id)))

    # ── items ──

    @Route(
        "GET /v1/conversations/{conversation}/items",
        "chat",
        "listItems",
        AnswerDescription("Some items.", openai.ItemList),
        parameters=(
            *PAGE,
            Parameter("include", "`holdfast.tool_calls`: the agent's own calls, too."),
        ),
    )
    async def items(self, call: HttpCall) -> None:
        """A conversation's items.

        The newest first, unless `order` is `asc`.
        """
        ask = read_page(call.query)
        row = await self._find(call)
        shown = self._shown(await self._snapshot(call.tenant, row.id), call)
        await self._say_json(call, row.id, page_object(shown, ask))

    @Route(
        "POST /v1/conversations/{conversation}/items",
        "chat",
        "createItems",
        AnswerDescription("The items, as they were added.", openai.ItemList),
        body=BodyDescription(
            AddedItems,
            {"items": [{"type": "message", "role": "user", "content": "Oslo is in Norway."}]},
        ),
        parameters=(ONCE, IF_MATCH, ON_BUSY, POLICY),
        codes=_ADDING_CODES,
        body_bytes_max=limits.body_bytes_max,
    )
    async def add_items(self, call: HttpCall) -> None:
        """Add items to a conversation, all or none; no agent is asked.

        At most 20 of them.
        """
        asked = read_items(call.body, seal=await self._seals.asked_in(call.tenant, call.body))
        row = await self._find(call)
        naming = read_naming(call.exchange.headers, names=())
        added = await self._add(call, row.id, asked, naming)
        page = PageAsk(newest_first=False, limit=max(1, len(added)))
        await self._say_json(call, row.id, page_object(added, page))

    @Route(
        "GET /v1/conversations/{conversation}/items/{item}",
        "chat",
        "retrieveItem",
        AnswerDescription("The item.", openai.ListedItem),
    )
    async def item(self, call: HttpCall) -> None:
        """An item."""
        row = await self._find(call)
        snapshot = await self._snapshot(call.tenant, row.id)
        found = find_item(by_id(with_cuts(_seen(snapshot))), call.names[1])
        shown = item_object(found, row.id) if found else None
        if shown is None:
            raise unknown_item(call.names[1])
        await self._say_json(call, row.id, shown)

    @Route(
        "DELETE /v1/conversations/{conversation}/items/{item}",
        "chat",
        "deleteItem",
        _CONVERSATION,
        audit="item.delete",
    )
    async def delete_item(self, call: HttpCall) -> None:
        """Hide an item, with its call or result.

        Answers with the conversation.
        """
        row = await self._find(call)
        seen = _seen(await self._snapshot(call.tenant, row.id))
        wanted = find_item(by_id(seen), call.names[1])
        if wanted is None:
            raise unknown_item(call.names[1])
        hidden = Visibility(to_people=False, to_model=False)
        await self._operations.annotate(
            call.tenant, row.id, [(each, hidden) for each in _with_partner(wanted.id, seen)]
        )
        await self._say(call, await self._row(call.tenant, row.id))

    # ── pieces ──

    def _new_key(self, naming: ConversationHeaders) -> SessionKey:
        once = naming.idempotency_key
        name = sha256(once.encode()).hexdigest() if once else self._sessions.mint(TurnId).body
        return SessionKey(KEY_PREFIX + name)

    async def _find(self, call: HttpCall) -> SessionRow:
        """The conversation that the path names. Raises Refused (404)."""
        try:
            session_id = SessionId(call.names[0])
        except InvalidId as error:
            raise unknown_conversation(call.names[0]) from error
        return await self._row(call.tenant, session_id)

    async def _row(self, tenant: Tenant, session_id: SessionId) -> SessionRow:
        row = await self._store.session(tenant, session_id)
        if row is None or row.state == "deleted":
            raise unknown_conversation(session_id)
        return row

    async def _snapshot(self, tenant: Tenant, session_id: SessionId) -> Snapshot:
        snapshot = await self._sessions.snapshot(tenant, session_id)
        if snapshot is None:
            raise unknown_conversation(session_id)
        return snapshot

    async def _set_up(
        self, call: HttpCall, row: SessionRow, asked: ConversationAsk, naming: ConversationHeaders
    ) -> None:
        """Store a new conversation's metadata and the hash of its request, once. Raises KeyReused if another request
        has made it."""
        request = attempt_of(call, naming).request_hash.hex()
        if row.meta_rev == 0:
            made_by = Flagged(name=_MADE_BY, value=request)
            metadata = metadata_patch(row.settings, asked.metadata or ())
            await self._operations.annotate(
                call.tenant, row.id, [(None, made_by), (None, metadata)]
            )
            return
        snapshot = await self._snapshot(call.tenant, row.id)
        if (None, _MADE_BY, request) not in snapshot.notes.flags:
            raise KeyReused(str(naming.idempotency_key), turn_id=str(row.id))

    async def _set_metadata(self, tenant: Tenant, row: SessionRow, asked: ConversationAsk) -> None:
        if asked.metadata is not None:
            patch = metadata_patch(row.settings, asked.metadata)
            await self._operations.annotate(tenant, row.id, [(None, patch)])

    async def _add(
        self,
        call: HttpCall,
        session_id: SessionId,
        asked: ConversationAsk,
        naming: ConversationHeaders,
    ) -> list[ItemObject]:
        """Add items as a turn without an answer, and return them as they were stored."""
        references = ItemReferences(self._sessions, call.tenant, line=session_id, previous=None)
        ask = Ask(
            tenant=call.tenant,
            name=session_id,
            messages=await references.resolved(asked.items),
            policies=(_ADDING,),
            on_busy="wait" if naming.on_busy == "steer" else naming.on_busy,
            if_match=naming.if_match,
            attempt=attempt_of(call, naming),
            expire_after_s=self._settings.expire_after_s,
            system_is_stored=True,
            verbatim=True,
        )
        if not ask.messages:
            return []  # references to items that clients do not see
        try:
            watch = await call.exchange.unless_gone(
                self._sessions.submit(ask, play=play_without_model)
            )
        except TurnRejected as error:
            raise Refused(msgspec.structs.replace(problem_of(error), param="items")) from error
        async with watch:
            ending = await watch.ended()
        if not is_answered(ending):
            store = self._sessions.store
            raise Refused(await problem_for(store, call.tenant, watch, ending, stored=True))
        kept = await self._turns.find(call.tenant, ending.turn_id.response_id)
        return listed(kept.items, session_id)

    def _shown(self, snapshot: Snapshot, call: HttpCall) -> list[ItemObject]:
        """The items of a conversation that clients see, oldest first."""
        seen = with_cuts(_seen(snapshot))
        results: dict[ItemId, ToolResult] = {}
        if SHOW_TOOLS in (call.query.get("include"), call.query.get("include[]")):
            results = {each.call: each for each in seen if isinstance(each, ToolResult)}
        return listed(seen, snapshot.session_id, results=results)

    async def _say(self, call: HttpCall, row: SessionRow) -> None:
        said = conversation_object(row.id, created_s=row.created_ms // 1000, settings=row.settings)
        await call.exchange.answer(
            200, msgspec.json.encode(said), headers={ETAG.name: row.head.etag}
        )

    async def _say_json(self, call: HttpCall, session_id: SessionId, said: ItemObject) -> None:
        body = msgspec.json.encode(said)
        await call.exchange.answer(200, await inlined(self._store, call.tenant, session_id, body))


def _seen(snapshot: Snapshot) -> list[Item]:
    return [each for each in seen_by_people(snapshot) if not isinstance(each, Unreadable)]


def _with_partner(wanted: ItemId, items: list[Item]) -> list[ItemId]:
    """An item, and the call that it answers or the result that answers it."""
    partners = [
        (each.call, each.id)
        for each in items
        if isinstance(each, ToolResult) and wanted in (each.call, each.id)
    ]
    return [*partners[0]] if partners else [wanted]
