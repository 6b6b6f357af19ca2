"""A conversation in exchanges, the way it is compared with the history that a client owns.

`core/history/branches.py` makes these values, and says what counts in them.
"""

from __future__ import annotations

from holdfast.core.codec import Value


class UserWords(Value):
    """A user's message as it is compared: trimmed text, and how many pictures and files it has."""

    words: str
    parts: int = 0

    def is_end_of(self, held: UserWords) -> bool:
        """Whether it is the held message, or what is left of it without the passages that stood in front. A picture may
        be missing beside words; none may be new."""
        same_parts = self.parts == held.parts
        fewer_parts = bool(self.words) and self.parts < held.parts
        return held.words.endswith(self.words) and (same_parts or fewer_parts)


class SpokenExchange(Value):
    """Questions, and all that was answered to them before the next one."""

    asked: tuple[UserWords, ...] = ()
    said: str = ""
    calls: tuple[str, ...] = ()
    """The ids of calls to the client."""

    @property
    def is_answered(self) -> bool:
        return bool(self.said or self.calls)


class Followed(Value):
    """What a turn of a family is found by later, as far as its request says it. Part of the turn's request."""

    name: str = ""
    """The name of the family; empty if the request does not follow its client's history, but its session is a line."""
    past: bytes = b""
    """The digest of the exchanges before the one that the turn is part of."""
    last: SpokenExchange = SpokenExchange()
    """The exchange that the turn is part of, up to the turn's own answer."""
    is_window: bool = False
    """The request began in the middle of the line: then only the turn's answer finds it."""
    answer_id: str = ""
    streamed: bool = False
    view_from: int = 0
    """The position from which on the model sees the history."""
