"""Which conversation a request names, and how: by a header of ours, its base URL, a chat program's header, or its body."""

from __future__ import annotations

from holdfast.ids import SessionKey
from holdfast.server.http.routing import HttpCall
from holdfast.sessions.session_requests import ClientHistory
from holdfast.wire.conversation_names import CHAT_IDS, base_name, chat_id, derived_name
from holdfast.wire.headers import CONVERSATION_ID, ConversationHeaders, read_naming
from holdfast.wire.problems import bad_request


def naming_of(call: HttpCall, names: tuple[str, ...]) -> ConversationHeaders:
    """The headers of a request for a turn, with the name of its conversation. `names` are the headers that name one.
    Raises Refused."""
    headers = call.exchange.headers
    own = tuple(each for each in names if each not in CHAT_IDS)
    if any(name in headers for name in own):
        naming = read_naming(headers, names=own)
        if call.exchange.conversation not in (None, str(naming.name)):
            raise bad_request(
                CONVERSATION_ID.code,
                f"the base URL and {own[0]} name two conversations: use one of them",
                param=own[0],
            )
        return naming
    return read_naming(headers, names=own, other_name=_other_name(call))


def _other_name(call: HttpCall) -> str | None:
    named = call.exchange.conversation
    if named is not None:
        return base_name(named)
    found = chat_id(call.exchange.headers)
    source = call.caller.conversation_from
    if found is None and source is not None:
        found = derived_name(source, call.body)
    return found


def history_of(naming: ConversationHeaders, *, streamed: bool) -> ClientHistory | None:
    """How the conversation follows the client's own history, if it does."""
    if naming.history != "follow" or not isinstance(naming.name, SessionKey):
        return None
    return ClientHistory(parent=naming.parent, answer_id=naming.answer_id, streamed=streamed)
