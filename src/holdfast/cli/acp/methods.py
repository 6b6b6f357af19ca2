"""The methods of the protocol: what an editor may ask of us."""

from __future__ import annotations

import logging
import os.path
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import TypeVar

import msgspec

from holdfast.cli.acp.editor import Editor, Handled, RequestFailed
from holdfast.cli.acp.editor_session import EditorSession
from holdfast.cli.acp.given_servers import GivenServers
from holdfast.cli.acp.local_tools import Workplace, local_tools
from holdfast.cli.acp.prompts import CWD, Prompts
from holdfast.cli.acp.questions import PromptCancelled, Questions
from holdfast.cli.acp.session_claims import SessionClaims
from holdfast.cli.acp.slash_commands import RETRY, OwnCommand, expanded, offered
from holdfast.client.aio import AsyncClient
from holdfast.errors import HoldfastError, InvalidValue
from holdfast.ids import SessionKey
from holdfast.version import VERSION
from holdfast.wire import json_rpc
from holdfast.wire.acp import requests as acp
from holdfast.wire.acp import rpc
from holdfast.wire.acp.blocks import AcpText, parts_of
from holdfast.wire.acp.updates import AgentMessageChunk, CommandsUpdate, ModeUpdate
from holdfast.wire.api import objects as api
from holdfast.wire.openai.responses.dialect import user_input

log = logging.getLogger("holdfast.acp")

PAGE = 50
"""How many sessions a page of the list has at most."""

FORKS = "forks:"
PREFIX = "acp-"
"""The beginning of the keys of conversations that editors begin."""

P = TypeVar("P", bound=acp.Params)

NOTHING = Handled(acp.Nothing())


class AcpAgent:
    """Our side of the protocol: one editor, on one server."""

    def __init__(
        self,
        client: AsyncClient,
        editor: Editor,
        *,
        model: str,
        where: str,
        reserved: tuple[str, ...] = (),
    ) -> None:
        """`model` is the agent that answers first in a new session, `where` names the server or store, `reserved` are
        files that belong to the server."""
        self._client = client
        self._editor = editor
        self._model = model
        self._reserved = reserved
        self._can = acp.EditorCapabilities()
        self._sessions: dict[str, EditorSession] = {}
        self._claims = SessionClaims(where)
        self._prompts = Prompts(client, editor)
        self._servers = GivenServers(Questions(editor))
        self._methods: dict[str, Callable[[msgspec.Raw], Awaitable[Handled]]] = {
            "initialize": lambda raw: self.initialize(_read(raw, acp.Initialize)),
            "authenticate": lambda raw: self.nothing(),
            "session/new": lambda raw: self.new(_read(raw, acp.NewSession)),
            "session/load": lambda raw: self.load(_read(raw, acp.PlacedSession)),
            "session/resume": lambda raw: self.resume(_read(raw, acp.PlacedSession)),
            "session/fork": lambda raw: self.fork(_read(raw, acp.PlacedSession)),
            "session/list": lambda raw: self.list(_read(raw, acp.ListSessions)),
            "session/close": lambda raw: self.close(_read(raw, acp.SessionParams)),
            "session/delete": lambda raw: self.delete(_read(raw, acp.SessionParams)),
            "session/set_mode": lambda raw: self.set_mode(_read(raw, acp.SetMode)),
            "session/prompt": lambda raw: self.prompt(_read(raw, acp.PromptRequest)),
            "session/cancel": lambda raw: self.cancel(_read(raw, acp.SessionParams)),
        }

    async def handle(self, method: str, params: msgspec.Raw) -> Handled:
        """Carry out a method. Raises RequestFailed, or an error of ours."""
        found = self._methods.get(method)
        if found is None:
            raise RequestFailed(json_rpc.METHOD_NOT_FOUND, f"there is no method {method!r} here")
        return await found(params)

    async def end(self) -> None:
        """The editor is gone: stop what was started for it. Turns go on."""
        for each in self._sessions.values():
            await each.close()

    # ── the beginning ──

    async def initialize(self, asked: acp.Initialize) -> Handled:
        self._can = asked.client_capabilities or acp.EditorCapabilities()
        name = acp.ProgramName(name="holdfast", version=VERSION, title="Holdfast")
        return Handled(acp.Initialized(agent_info=name))

    async def nothing(self) -> Handled:
        return NOTHING

    # ── sessions ──

    async def new(self, asked: acp.NewSession) -> Handled:
        named = asked.meta.holdfast.conversation if asked.meta else None
        place = _place(asked)
        name = str(SessionKey(named)) if named else f"{_prefix(place.cwd)}{secrets.token_hex(8)}"
        return await self._opened(name, asked, None, is_new=True)

    async def load(self, asked: acp.PlacedSession) -> Handled:
        return await self._reopened(asked, shows=True)

    async def resume(self, asked: acp.PlacedSession) -> Handled:
        return await self._reopened(asked, shows=False)

    async def _reopened(self, asked: acp.PlacedSession, *, shows: bool) -> Handled:
        """Open a conversation that is there, and go on with what goes on in it once the editor has the answer."""
        found = await self._client.session(asked.session_id)
        opened = await self._opened(asked.session_id, asked, found)
        session = self._sessions[asked.session_id]
        turns = await self._replay(session, shows=shows)
        # The waiting calls of other clients are for their own tools.
        is_editors = CWD in found.attributes or asked.session_id.startswith(PREFIX)

        async def then() -> None:
            assert opened.then is not None
            await opened.then()
            await self._pick_up(session, turns, answers=is_editors)

        return Handled(opened.result, then)

    async def fork(self, asked: acp.PlacedSession) -> Handled:
        made = await self._client.fork(asked.session_id)
        attributes = {CWD: _place(asked).cwd}
        await self._client.change(made.id, attributes=attributes)
        return await self._opened(made.id, asked, made, is_new=True)

    async def list(self, asked: acp.ListSessions) -> Handled:
        """The conversations that editors began in a directory, then the forks of them; without a directory, all."""
        forks, cursor = _cursor(asked.cursor)
        page = await self._client.sessions(
            key_prefix=None if forks or asked.cwd is None else _prefix(asked.cwd),
            cursor=cursor,
            limit=PAGE,
        )
        found = [
            each
            for each in page.sessions
            if not forks or (not each.keys and each.attributes.get(CWD) == asked.cwd)
        ]
        following = page.cursor
        if asked.cwd is not None and forks == bool(following):
            following = f"{FORKS}{following or ''}"
        shown = tuple(_listed(each, asked.cwd) for each in found)
        return Handled(acp.ListedSessions(sessions=shown, next_cursor=following))

    async def close(self, asked: acp.SessionParams) -> Handled:
        session = self._session(asked.session_id)
        await self._prompts.cancel(session)
        await session.close()
        del self._sessions[session.id]
        return NOTHING

    async def delete(self, asked: acp.SessionParams) -> Handled:
        await self._client.delete(asked.session_id)
        session = self._sessions.pop(asked.session_id, None)
        if session is not None:
            await session.close()
        return NOTHING

    async def set_mode(self, asked: acp.SetMode) -> Handled:
        session = self._session(asked.session_id)
        if not session.choose(asked.mode_id):
            raise RequestFailed(json_rpc.INVALID_PARAMS, f"there is no mode {asked.mode_id!r}")

        async def then() -> None:
            await self._editor.show(session.id, ModeUpdate(current_mode_id=session.mode))
            await self._editor.show(session.id, CommandsUpdate(available_commands=offered(session)))

        return Handled(acp.Nothing(), then)

    def _session(self, name: str) -> EditorSession:
        found = self._sessions.get(name)
        if found is None:
            raise RequestFailed(rpc.RESOURCE_NOT_FOUND, f"no session {name!r} is open; load it")
        return found

    async def _opened(
        self,
        name: str,
        asked: acp.PlaceParams,
        found: api.Session | None,
        *,
        is_new: bool = False,
    ) -> Handled:
        """Open a session in this process. Its commands are told after the answer, when the editor knows of it."""
        agents = (await self._client.agents()).agents
        agent = _agent(agents, found.agent if found else self._model, self._model)
        if found is not None and found.version:
            agents = tuple(each for each in agents if each.source == agent.source)
        place = msgspec.structs.replace(_place(asked), reserved=self._reserved)
        session = EditorSession(
            name,
            place,
            agents,
            agent,
            local_tools(self._editor, self._can, name, place),
            asked.mcp_servers or (),
        )
        session.described = found is not None and found.attributes.get(CWD) == place.cwd
        before = self._sessions.get(name)
        if before is not None:  # opened again: its prompts go on, and can still be cancelled
            session.running, session.allowed = before.running, before.allowed
            await before.close()
        self._sessions[name] = session

        async def then() -> None:
            commands = CommandsUpdate(available_commands=offered(session))
            await self._editor.show(name, commands)

        given = name if is_new else None
        return Handled(acp.OpenedSession(modes=session.modes, session_id=given), then)

    # ── what was said before ──

    async def _replay(self, session: EditorSession, *, shows: bool) -> Sequence[api.TurnObject]:
        """Read the history, show it if asked to, and return the turns that are not in it yet, the oldest first; or else
        the last one that is."""
        before = (await self._client.turns(session.id)).turns
        held = await self._client.items(session.id)
        for item in held.items:
            if not isinstance(item, api.UnreadableItem):
                for update in session.updates.of_item(item):
                    if shows:
                        await self._editor.show(session.id, update)
        running = [each for each in before if each.state in ("open", "queued")]
        now = [await self._client.turn(each.id) for each in running]
        later = [each for each in now if each.version is None or each.version > held.version]
        if later:
            return sorted(later, key=lambda each: each.began_at)
        return [each for each in before if each.version == held.version]

    async def _pick_up(
        self, session: EditorSession, turns: Sequence[api.TurnObject], *, answers: bool
    ) -> None:
        """Go on with the prompt that was open when the session was left: watch its turns, and answer its calls."""
        waiting = session.updates.waiting
        with self._claims.claim(session.id) as ours:
            try:
                for turn in turns:
                    if turn.ended_by is None:
                        await self._prompts.follow(
                            session, turn.id, echo=True, answers=ours and answers
                        )
                    elif waiting and ours and answers:
                        await self._prompts.take_up(session, turn.id, waiting)
            except (RequestFailed, HoldfastError) as error:
                await self._say(session, f"[{error}]")

    # ── prompts ──

    async def prompt(self, asked: acp.PromptRequest) -> Handled:
        session = self._session(asked.session_id)
        said = expanded(session, asked.prompt)
        with self._claims.claim(session.id) as ours:
            if not ours:
                log.info("another window answers the calls of %s", session.id)
            if isinstance(said, OwnCommand):
                return Handled(await self._own(session, said))
            try:
                for words in await self._servers.start(session):
                    await self._say(session, f"[{words}]\n\n")
            except PromptCancelled:
                return Handled(acp.PromptEnded(stop_reason="cancelled"))
            key = asked.meta.holdfast.idempotency_key if asked.meta else None
            items = (user_input(parts_of(said)),)
            ended = await self._prompts.play(
                session, items, key=key or f"acp-{secrets.token_hex(16)}"
            )
        return Handled(ended)

    async def _own(self, session: EditorSession, command: OwnCommand) -> acp.PromptEnded:
        if command.name == RETRY:
            return await self._retry(session)
        made = await self._client.compact(session.id)
        await self._say(session, f"The model sees a summary of {made.items} items now.")
        return acp.PromptEnded(stop_reason="end_turn")

    async def _retry(self, session: EditorSession) -> acp.PromptEnded:
        version = (await self._client.session(session.id)).version
        turns = (await self._client.turns(session.id)).turns
        last = next((each for each in turns if each.version == version), None)
        if last is None or last.ended_by == "completed":
            await self._say(session, "The last turn is complete; there is nothing to go on with.")
            return acp.PromptEnded(stop_reason="end_turn")
        begun = await self._client.continue_turn(last.id)
        return await self._prompts.follow(session, begun.id)

    async def cancel(self, asked: acp.SessionParams) -> Handled:
        await self._prompts.cancel(self._session(asked.session_id))
        return NOTHING

    async def _say(self, session: EditorSession, text: str) -> None:
        await self._editor.show(session.id, AgentMessageChunk(content=AcpText(text=text)))


def _read(raw: msgspec.Raw, kind: type[P]) -> P:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise RequestFailed(
            json_rpc.INVALID_PARAMS, f"the parameters do not fit: {error}"
        ) from error


def _place(asked: acp.PlaceParams) -> Workplace:
    """The directories of a session. Raises InvalidValue unless they are absolute paths of directories."""
    given = (asked.cwd, *(asked.additional_directories or ()))
    for each in given:
        if not os.path.isabs(each) or not os.path.isdir(each):
            raise InvalidValue(f"{each!r} is not the absolute path of a directory")
    return Workplace(directories=tuple(map(os.path.normpath, given)))


def _prefix(cwd: str) -> str:
    """The beginning of the keys of conversations that editors begin in a directory."""
    return f"{PREFIX}{sha256(os.path.normpath(cwd).encode()).hexdigest()[:12]}-"


def _cursor(text: str | None) -> tuple[bool, str | None]:
    """Whether a cursor leads into the forks, which have no key; and the server's cursor in it."""
    if text is None or not text.startswith(FORKS):
        return False, text
    return True, text.removeprefix(FORKS) or None


def _listed(session: api.Session, cwd: str | None) -> acp.ListedSession:
    named = session.keys[0] if session.keys else session.id
    active = datetime.fromtimestamp(session.active_at, UTC).isoformat()
    return acp.ListedSession(
        session_id=named,
        cwd=session.attributes.get(CWD) or cwd or os.getcwd(),
        title=session.title or None,
        updated_at=active,
    )


def _agent(agents: Sequence[api.AgentObject], name: str, otherwise: str) -> api.AgentObject:
    """The agent of a conversation, else the agent that the command names, else any. Raises InvalidValue if the server has none."""
    for sought in (name, otherwise):
        for each in agents:
            if sought in (each.id, each.agent):
                return each
    if not agents:
        raise InvalidValue("this server has no agents; name a source, or look at its log")
    return agents[0]
