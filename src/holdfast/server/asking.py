"""What every request for a turn goes through, whichever API it came by."""

from __future__ import annotations

from holdfast.errors import ModelNotFound
from holdfast.server.directory import AgentManner, Directory
from holdfast.server.exchange import Exchange
from holdfast.sessions.ask import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.stateless import Loose
from holdfast.sessions.watch import Watch
from holdfast.wire.chat_request import Given, ignored


def heeded(
    exchange: Exchange,
    directory: Directory,
    model: str,
    *,
    given: tuple[Given, ...],
    left_alone: tuple[str, ...],
    named: bool,
) -> AgentManner:
    """How the agent that was asked for goes about it. The answer will say what of the request it ignores.

    Raises ModelNotFound, and Refused if it ignores what an answer has to keep to.
    """
    manner = _manner(directory, model, given, named=named)
    unheeded = (*ignored(given, manner.knows), *left_alone)
    if unheeded:
        exchange.about["x-ignored-params"] = ", ".join(unheeded)
    return manner


def _manner(
    directory: Directory, model: str, given: tuple[Given, ...], *, named: bool
) -> AgentManner:
    try:
        return directory.manner(directory.named(model))
    except ModelNotFound:
        if not named:
            raise
        # To its own source a conversation may say a name that nobody else understands.
        return AgentManner(knows=frozenset(each.ours for each in given))


class Unstored:
    """The turns that nobody but their client knows of."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._watches: set[Watch] = set()

    def submit(self, ask: Ask, loose: Loose | None = None) -> Watch:
        """Begin one, from nothing or from where a conversation stands. Raises TurnRejected."""
        watch = self._sessions.submit_stateless(ask, loose=loose)
        assert watch.live is not None
        self._watches.add(watch)
        watch.live.done.add_done_callback(lambda _: self._watches.discard(watch))
        return watch

    def end(self) -> None:
        """The grace time of a shutdown is over: what is stored ends by itself, this does not."""
        for watch in self._watches:
            if watch.live is not None:
                watch.live.interrupt("shutdown")
