"""A conversation in exchanges, the way it is compared with the history that a client owns.

`core/history/branches.py` makes these values, and says what counts in them.
"""

from __future__ import annotations

from holdfast.core.codec import Value

DIGEST = "sha256:"
"""Begins what stands for a picture or file whose bytes were sent; else it is an address."""


class UserWords(Value):
    """A user's message as it is compared: trimmed text, and how many pictures and files it has."""

    words: str
    parts: int = 0
    media: tuple[str, ...] = ()
    """The digest or the address of each picture and file. No turn stores them: a program sends a picture as data, and
    later its address."""

    def without_media(self) -> UserWords:
        return UserWords(words=self.words, parts=self.parts) if self.media else self

    def is_end_of(self, held: UserWords) -> bool:
        """Whether it is the held message, or what is left of it without the passages that stood in front, whole words
        only. A picture may be missing beside words; none may be new."""
        same_parts = self.parts == held.parts and not self.shows_other_media(held)
        fewer_parts = bool(self.words) and self.parts < held.parts
        if not held.words.endswith(self.words) or not (same_parts or fewer_parts):
            return False
        before = held.words[: len(held.words) - len(self.words)]
        return not before or before[-1].isspace() or not self.words

    def shows_other_media(self, held: UserWords) -> bool:
        """Whether a picture or file is certainly another one than the held message has in its place."""
        return any(map(_is_other, self.media, held.media))


def _is_other(sent: str, held: str) -> bool:
    """Whether these are certainly two pictures. Of data and an address nobody knows; an address may be signed anew."""
    if sent.startswith(DIGEST) != held.startswith(DIGEST):
        return False
    return sent.partition("?")[0] != held.partition("?")[0]


class SpokenExchange(Value):
    """Questions, and all that was answered to them before the next one."""

    asked: tuple[UserWords, ...] = ()
    said: str = ""
    calls: tuple[str, ...] = ()
    """The ids of calls to the client."""

    @property
    def is_answered(self) -> bool:
        return bool(self.said or self.calls)


class ShownPast(Value):
    """How much of a line the model is shown in a turn: what the request has of it, where that is less than all."""

    since: int = 0
    """The position at which the request begins; the model sees nothing before it."""
    ends: tuple[tuple[int, int], ...] = ()
    """Questions of which the request has only the end, without the passages that stood in front: the position of each,
    in order, and how many characters are left."""


WHOLE = ShownPast()


class Followed(Value):
    """What a turn of a family is found by later, as far as its request says it, and what its model is shown. Part of the
    turn's request."""

    name: str = ""
    """The name of the family; empty if the request does not follow its client's history, but its session is a line."""
    past: bytes = b""
    """The digest of the exchanges before the one that the turn is part of."""
    last: SpokenExchange = SpokenExchange()
    """The exchange that the turn is part of, up to the turn's own answer."""
    answer_id: str = ""
    streamed: bool = False
    shown: ShownPast = WHOLE
    """If it is less than all, only the turn's answer finds it: the next request is compared, and not looked up."""
