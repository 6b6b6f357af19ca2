"""A chat: which conversation it is in, whom it talks to, and what its commands do."""

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
    """The person wants to go."""


class TerminalChat:
    """One person's place in a conversation. Everything that lasts is on the server."""

    def __init__(
        self, client: Client, screen: Screen, *, model: str, name: str, new_name: Callable[[], str]
    ) -> None:
        self.client = client
        self.screen = screen
        self.model = model
        self.name = name
        """The key or id of the conversation."""
        self.has_spoken = False
        """Whether anything was said in this chat."""
        self._new_name = new_name
        self._asked: tuple[str, str | None] | None = None
        """What was said last, and its turn; None if the server named none."""

    # ── saying something ──

    def say(self, text: str) -> None:
        """Ask, show what is answered, and let the person decide on what waits for that."""
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
        """Let the person decide on calls that wait, and show what comes of it, until nothing waits."""
        while played.waiting and played.turn_id is not None:
            decided = self.screen.decide(played.waiting)
            if decided is None:
                names = ", ".join(each.name for each in played.waiting)
                self.screen.note(f"{names}: waiting for a decision; your next message refuses it.")
                return
            try:
                begun = self.client.decide(played.turn_id, decided)
            except ServerRefused as refused:  # it has expired, or somebody else was quicker
                self.screen.trouble(str(refused))
                return
            played = play_decided(self.client, self.screen, begun.id)

    # ── commands ──

    def do(self, command: ChatCommand) -> None:
        """Carry out a command. Raises Leave for the one that ends the chat."""
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
        """How to ask for the agent of a conversation: by its own name, if there is one such."""
        named = [each.id for each in self.client.models().data]
        return agent if agent in named else self.model

    def greet(self) -> None:
        """Say where we are, and how the conversation ended that we go on with."""
        try:
            session = self.client.session(self.name)
        except ServerRefused as refused:
            if refused.status == 403:  # a key that may talk, and not look
                self.screen.note(f"{self.model}, in {self.name}")
                return
            if refused.status != 404 or self.name.startswith(SessionId.prefix):
                raise  # an id has to be there, and one that is gone is not begun anew
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
        """Go back; to where the conversation is then, under the same key if it has one."""
        session = self.client.session(self.name)
        to = max(0, session.version - 1) if version is None else version
        if self.name.startswith(SessionId.prefix):  # an id never comes to mean something else
            self._fork(to)
            return to
        self.client.rewind(self.name, version=to)
        self.screen.note(f"Back at version {to}; what came after is kept as {session.id}.")
        return to

    def _retry(self) -> None:
        """Try again what went wrong last: a message of which nothing was kept is asked again, a last turn that broke
        off is continued. What the person has stopped, and what is complete, is taken back and asked again."""
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
        """Whether the conversation has kept a message whose turn the server could not name any more."""
        try:
            items = self.client.items(self.name).items
        except ServerRefused:
            return False
        said = [text_of(each.content) for each in items if isinstance(each, UserMessage)]
        return said[-1:] == [text]

    def _broken_off(self) -> api.TurnObject | None:
        """The last turn, if it was kept although it broke off, and the person has not stopped it. Of a continuation
        that was stopped the person has stopped that attempt only: what it goes on with is still to be finished."""
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
