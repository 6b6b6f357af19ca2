"""A chat: its conversation, its agent, and its commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.cli.conversation_text import when
from holdfast.cli.talk.input_commands import HELP, KEYS, ChatCommand
from holdfast.cli.talk.screens import Screen
from holdfast.cli.talk.turn_view import KEEPING, TurnOutcome, play, play_decided, waiting_in
from holdfast.client.sync import Client
from holdfast.core.items import Item, UserMessage, text_of
from holdfast.core.transcript import entry_of
from holdfast.errors import ServerRefused
from holdfast.ids import SessionId
from holdfast.wire.api import objects as api

RECENT = 10
"""How many conversations `/sessions` shows."""


class ChatExit(Exception):
    """The person wants to leave the chat."""


class TerminalChat:
    """A chat of one person, in one conversation at a time. Everything that lasts is on the server."""

    def __init__(
        self, client: Client, screen: Screen, *, model: str, name: str, new_name: Callable[[], str]
    ) -> None:
        self.client = client
        self.screen = screen
        self.model = model
        self.name = name
        """The key or id of the conversation."""
        self.has_spoken = False
        """Whether the person has sent a message in this chat."""
        self._new_name = new_name
        self._asked: tuple[str, str | None] | None = None
        """The last message, and its turn; the turn is None if the server named none."""

    # ── messages ──

    def say(self, text: str) -> None:
        """Send a message, show the answer, and let the person decide on waiting calls."""
        self.has_spoken = True
        self._asked = text, None
        answer = self.client.ask(self.model, text, session=self.name, policy=KEEPING)
        try:
            self.see_to(play(self.client, self.screen, answer))
        except ServerRefused as refused:
            answer.turn_id = answer.turn_id or refused.turn_id
            self.screen.trouble(
                f"{refused} /retry tries again." if refused.turn_id else str(refused)
            )
        finally:
            self._asked = text, answer.turn_id

    def see_to(self, played: TurnOutcome) -> None:
        """Let the person decide on waiting calls, and show the turns that follow, until no call waits."""
        while played.waiting and played.turn_id is not None:
            decided = self.screen.decide(played.waiting)
            if decided is None:
                names = ", ".join(each.name for each in played.waiting)
                self.screen.note(f"{names}: waiting for a decision; your next message refuses it.")
                return
            try:
                begun = self.client.decide(played.turn_id, decided)
            except ServerRefused as refused:  # it has expired, or another client has decided
                self.screen.trouble(str(refused))
                return
            played = play_decided(self.client, self.screen, begun.id)

    # ── commands ──

    def do(self, command: ChatCommand) -> None:
        """Carry out a command. Raises ChatExit for `/quit`."""
        match command.name:
            case "help":
                self.screen.table(("", ""), (*HELP, *KEYS))
            case "quit":
                raise ChatExit
            case "sessions":
                self._sessions(command.rest)
            case "open":
                self._go_to(command.rest)
            case "new":
                self.name = command.rest or self._new_name()
                self._asked = None
                self.screen.note(f"A new conversation: {self.name}")
            case "show":
                self._show()
            case "fork":
                self._fork(int(command.rest) if command.rest else None)
            case "rewind":
                self._rewind(int(command.rest) if command.rest else None)
            case "retry":
                self._retry()
            case "model":
                self._model(command.rest)
            case other:
                raise AssertionError(f"/{other} is in the table, and not here")

    def _sessions(self, words: str) -> None:
        found = self.client.sessions(q=words or None, limit=RECENT).sessions
        if not found:
            self.screen.note("There are none." if words else "There are no conversations yet.")
            return
        rows = (
            (name_of(each), each.title, each.agent, str(each.version), when(each.active_at))
            for each in found
        )
        self.screen.table(("conversation", "title", "agent", "version", "last active"), rows)

    def _go_to(self, name: str) -> None:
        session = self.client.session(name)
        self.name = name
        self._asked = None
        if session.agent:
            self.model = self._served_as(session.agent)
        self.greet()

    def _served_as(self, agent: str) -> str:
        """The model name for the agent of a conversation: its own name, if the server lists it."""
        named = [each.id for each in self.client.models().data]
        return agent if agent in named else self.model

    def greet(self) -> None:
        """Show the agent and the conversation, with its last items; ask about calls that wait in it."""
        try:
            session = self.client.session(self.name)
        except ServerRefused as refused:
            if refused.status == 403:  # a key that may chat, but not read
                self.screen.note(f"{self.model}, in {self.name}")
                return
            if refused.status != 404 or self.name.startswith(SessionId.prefix):
                raise  # an id must exist, and a conversation that is gone is not begun anew
            self.screen.note(f"{self.model}, in a new conversation: {self.name}")
            self._welcome()
            return
        count = f"{session.version} turn{'' if session.version == 1 else 's'} so far"
        self.screen.note(f"{self.model}, in {self.name}: {session.title} ({count})")
        self._tell(self.client.items(self.name).items[-2:])
        for turn in self.client.turns(self.name).turns:
            if turn.version == session.version:
                self.see_to(waiting_in(self.client, turn))

    def _welcome(self) -> None:
        for agent in self.client.agents().agents:
            if agent.id == self.model and agent.welcome_message:
                self.screen.say(agent.welcome_message)
                self.screen.settle()

    def _show(self) -> None:
        items = self.client.items(self.name)
        self._tell(items.items)
        self.screen.note(f"Version {items.version}; /rewind and /fork take any before it.")

    def _tell(self, items: Iterable[Item | api.UnreadableItem]) -> None:
        for item in items:
            said = "" if isinstance(item, api.UnreadableItem) else entry_of(item)
            if said:
                self.screen.say(said)
                self.screen.settle()

    def _fork(self, version: int | None) -> None:
        fork = self.client.fork(self.name, version=version)
        self.screen.note(f"From here on in a copy, {fork.id}, at version {fork.version}.")
        self.screen.note(f"{self.name} stays as it is.")
        self.name = fork.id

    def _rewind(self, version: int | None) -> int:
        """Go back to a version, or by one turn, and return that version. A chat by id goes on in a fork instead."""
        session = self.client.session(self.name)
        to = max(0, session.version - 1) if version is None else version
        if self.name.startswith(SessionId.prefix):  # an id is never bound to another session
            self._fork(to)
            return to
        self.client.rewind(self.name, version=to)
        self.screen.note(f"Back at version {to}; what came after is kept as {session.id}.")
        return to

    def _retry(self) -> None:
        """Try the last message again. If nothing of its turn was kept, it is sent again; if the last turn broke off, it
        is continued; if the turn is complete, or the person stopped it, it is taken back and the message sent again."""
        if self._asked is None:
            if not self._go_on():
                self.screen.note("Nothing was asked here yet; /rewind takes back the last turn.")
            return
        text, asked = self._asked
        turn = self.client.turn(asked) if asked is not None else None
        was_kept = self._was_said_last(text) if turn is None else turn.version is not None
        if was_kept and self._go_on():
            return
        if was_kept and turn is not None and self.client.session(self.name).version > turn.base:
            self._rewind(turn.base)
        self.say(text)

    def _go_on(self) -> bool:
        """Continue the last turn if it broke off. False if it did not."""
        broken = self._broken_off()
        if broken is None:
            return False
        begun = self.client.continue_turn(broken.id)
        self.see_to(play_decided(self.client, self.screen, begun.id))
        return True

    def _was_said_last(self, text: str) -> bool:
        """Whether this is the conversation's last user message: for a message whose turn the server did not name."""
        try:
            items = self.client.items(self.name).items
        except ServerRefused:
            return False
        said = [text_of(each.content) for each in items if isinstance(each, UserMessage)]
        return said[-1:] == [text]

    def _broken_off(self) -> api.TurnObject | None:
        """The last turn, if it broke off and was kept. A turn that the person stopped does not count, unless it is a
        continuation: then the person stopped only that attempt, and the original turn is still unfinished."""
        try:
            version = self.client.session(self.name).version
        except ServerRefused:
            return None  # nothing was kept yet
        last = next((t for t in self.client.turns(self.name).turns if t.version == version), None)
        if last is None or last.ended_by == "completed":
            return None
        return last if last.ended_by != "cancelled" or last.continues is not None else None

    def _model(self, name: str) -> None:
        known = [each.id for each in self.client.models().data]
        if not name:
            self.screen.table(
                ("", "agent"), (("→" if each == self.model else "", each) for each in known)
            )
        elif name in known:
            self.model = name
            self.screen.note(f"Talking to {name}.")
        else:
            self.screen.trouble(f"There is no {name}; there are: {', '.join(known)}")


def name_of(session: api.Session) -> str:
    return ", ".join(session.keys) or session.id
