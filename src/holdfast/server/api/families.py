"""`/api/sessions/{name}/family`: the lines of a chat whose client owns its history, as a tree; and names for lines.

Forks share the turns of their past. So a line is told by the turns that it has of its own, and by the turn before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast import limits
from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import Snapshot, TurnMark
from holdfast.core.items import AssistantMessage, StoredItem, UserMessage, text_of
from holdfast.core.quotations import SaidMessages
from holdfast.ids import SessionId, SessionKey, Tenant
from holdfast.printable import on_one_line
from holdfast.server.api.session_lookup import named_session, say_session, session_key
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route
from holdfast.sessions.sessions import Sessions
from holdfast.store.decisions import line_of_family
from holdfast.store.outcomes import SessionInfo
from holdfast.wire.api import families as shown
from holdfast.wire.api import objects as api
from holdfast.wire.body_parser import BodyDecoder, read_body
from holdfast.wire.headers import ETAG

_names: BodyDecoder[api.NewName] = BodyDecoder(api.NewName)

LABEL_CHARS = 160
PASSAGE_CHARS = 400
"""In front of a question that is longer than this, a chat program may have put passages: then its last paragraph is
shown."""


class FamiliesApi:
    """The endpoints. One instance serves every request."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._store = sessions.store

    @Route(
        "GET /api/sessions/{name}/family",
        "read",
        "readFamily",
        AnswerDescription("The lines.", shown.LineFamily),
    )
    async def family(self, call: HttpCall) -> None:
        """The lines of a chat: every edit, regenerated answer, second model and side call is one.

        A session that is alone under its name is the only line. See
        [chat programs](../guides/clients.md#chat-programs).
        """
        info = await named_session(self._store, call)
        rows = await self._store.family_lines(
            call.tenant, info.session.family_id, limit=limits.family_lines_shown_max
        )
        ids = {info.session.id: None, **{each.id: None for each in rows}}
        found = [await self._store.info(call.tenant, each) for each in ids]
        infos = [each for each in found if each is not None and _is_shown(each)]
        told = [await self._line(call, each) for each in infos]
        current = await self._current(call.tenant, infos) or info.session.id
        await call.say(
            shown.LineFamily(
                id=info.session.family_id,
                current=current,
                lines=tuple(_with_asides(told, current)),
                is_whole=len(rows) < limits.family_lines_shown_max,
            )
        )

    async def _current(self, tenant: Tenant, infos: Sequence[SessionInfo]) -> SessionId | None:
        """The line that the family's name means. A line with a name of its own is listed, too."""
        listed = [each for each in infos if not each.session.anonymous]
        ids = [each.session.id for each in listed]
        names = [SessionKey(key) for each in listed for key in each.keys]
        found = [await self._store.resolve(tenant, name) for name in names]
        keys = [key for key in found if key is not None and key.session_id in ids]
        return line_of_family(ids, keys) or next(iter(ids), None)

    async def _line(self, call: HttpCall, info: SessionInfo) -> tuple[shown.FamilyLine, list[str]]:
        """A line, and what its user has said in its own turns."""
        row = info.session
        snapshot = await self._sessions.snapshot(call.tenant, row.id) or Snapshot(session_id=row.id)
        inherited = row.lineage[-1].upto_version if row.lineage else 0
        marks = snapshot.marks
        own = snapshot.items[marks[inherited - 1].end if inherited else 0 :]
        line = shown.FamilyLine(
            id=row.id,
            keys=info.keys,
            title=row.title or row.opening,
            agent=row.agent,
            version=row.head,
            active_at=row.active_ms / 1000,
            open_turn=row.open_turn,
            after=marks[inherited - 1].turn_id if inherited else None,
            exchanges=tuple(_exchange(snapshot, each) for each in marks.since(inherited)),
            is_listed=not row.anonymous,
        )
        return line, _texts(own, UserMessage)

    @Route(
        "POST /api/sessions/{name}/name",
        "chat",
        "nameSession",
        AnswerDescription("The session.", api.Session, headers=(ETAG.name,)),
        body=BodyDescription(api.NewName, {"key": "trip-to-oslo"}),
        codes=("name_taken",),
        audit="session.name",
    )
    async def name(self, call: HttpCall) -> None:
        """Give a session one more name.

        A line of a chat that has a name of its own is listed by itself, and is gone on with under that name.
        """
        asked = read_body(_names, call.body)
        info = await named_session(self._store, call)
        key = session_key(asked.key)
        await self._sessions.operations.name(call.tenant, info.session.id, key)
        await say_session(self._store, call, info.session.id)


def _is_shown(info: SessionInfo) -> bool:
    """Whether a line has turns, or is about to: the first turn of a line may have failed."""
    row = info.session
    return row.state == "live" and (row.head > 0 or row.open_turn is not None)


def _exchange(snapshot: Snapshot, mark: TurnMark) -> shown.LineTurn:
    items = snapshot.items[mark.start : mark.end]
    return shown.LineTurn(
        id=mark.turn_id,
        version=mark.version,
        agent=mark.agent,
        ended_by=mark.ended_by,
        asked=_label(_words(items, UserMessage), is_question=True),
        answered=_label(_words(items, AssistantMessage)),
        began_at=mark.turn_id.minted_at_ms / 1000,
    )


def _words(items: Sequence[StoredItem], kind: type[UserMessage | AssistantMessage]) -> str:
    """The text of the last message of this kind that has some."""
    return next(filter(None, reversed(_texts(items, kind))), "")


def _texts(items: Sequence[StoredItem], kind: type[UserMessage | AssistantMessage]) -> list[str]:
    return [
        text_of(each.content).strip()
        for each in items
        if not isinstance(each, Unreadable) and isinstance(each, kind) and not each.path
    ]


def _label(text: str, *, is_question: bool = False) -> str:
    if is_question and len(text) > PASSAGE_CHARS:
        text = text.rpartition("\n\n")[2]
    return on_one_line(text[: LABEL_CHARS * 4], LABEL_CHARS)


def _with_asides(
    told: Sequence[tuple[shown.FamilyLine, list[str]]], current: str
) -> Iterable[shown.FamilyLine]:
    """The lines, each told whether it is an aside: a question of its own about the chat that no other line goes on
    from. A search has the same rule (`store/search/folded_lines.py`)."""
    gone_on_from = {line.after for line, _ in told}
    said = SaidMessages(text for _, questions in told for text in questions)
    for line, questions in told:
        is_alone = line.after is None and len(line.exchanges) == 1 and line.id != current
        is_aside = (
            is_alone
            and not line.keys
            and line.exchanges[0].id not in gone_on_from
            and said.are_quoted_in(questions)
        )
        yield msgspec.structs.replace(line, is_aside=is_aside)
