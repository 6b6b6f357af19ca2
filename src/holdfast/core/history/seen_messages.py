"""Messages as clients see them: the form in which a request is compared with the history.

White space is nothing, and neighbouring answers are one: a chat client has seen one answer, however many steps it took.
A request tells its messages (`Telling`) apart from its results: clients group an answer's texts and calls as they like
and send results in any order, but a result names its call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import takewhile
from typing import NamedTuple, TypeAlias, TypeVar, assert_never

from holdfast.core.approval_questions import without_question
from holdfast.core.codec import Unreadable
from holdfast.core.items import (
    AssistantMessage,
    Blob,
    Inline,
    Item,
    Link,
    Parts,
    Refusal,
    Source,
    SystemMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    text_of,
)

Seen: TypeAlias = tuple[str, str, tuple[str, ...]]
"""A message as a client sees it: role, trimmed text, and the ids of its calls or digests of its other parts."""

SentMessages: TypeAlias = list[tuple[Seen, int]]
"""Messages of a request, each with how many of the request's messages end with it."""


class Telling(NamedTuple):
    """The messages of a request, in order; results apart from the other messages."""

    said: SentMessages
    """All messages but results and empty ones; neighbouring answers are not merged."""
    results: list[tuple[str, int]]
    """The call id of each result, and its position among the request's messages."""
    answers_end: int
    """How many of the request's messages end with its last answer."""

    @property
    def ends_with_result(self) -> bool:
        return bool(self.results) and (not self.said or self.results[-1][1] >= self.said[-1][1])


def telling_of(messages: Iterable[Seen | None]) -> Telling:
    """The messages, None for each that is not compared."""
    said: SentMessages = []
    results: list[tuple[str, int]] = []
    answers_end = 0
    for n, seen in enumerate(messages):
        if seen is None:
            continue
        if seen[0] == "tool":
            results.append((seen[2][0], n))
            continue
        said.extend(_stripped((seen, n + 1)))
        if seen[0] == "assistant":
            answers_end = n + 1
    return Telling(said, results, answers_end)


def seen_of(item: Item | Unreadable) -> Seen | None:
    """An item as a client sees it; None if clients do not see such items."""
    if isinstance(item, Unreadable) or item.path:
        return None
    match item:
        case UserMessage():
            decided = () if item.content else tuple(each.call for each in item.decisions)
            return "user", text_of(item.content), (*media(item.content), *decided)
        case SystemMessage():
            return "system", text_of(item.content), media(item.content)
        case AssistantMessage() if item.state != "set_aside":
            return "assistant", without_question(text_of(item.content)), ()
        case ToolCall() if item.waits_for == "client":
            return "assistant", "", (item.call_id,)
        case ToolResult() if is_given(item):
            return "tool", "", (item.call_id,)
        case _:
            return None


def is_given(result: ToolResult) -> bool:
    """Whether a client has sent this result."""
    return result.from_client and result.outcome != "not_answered"


def media(parts: Parts) -> tuple[str, ...]:
    """A digest or address for each part of a message that is not text."""
    return tuple(_mark(part.source) for part in parts if not isinstance(part, Text | Refusal))


def _mark(source: Source) -> str:
    match source:
        case Blob():
            return source.digest
        case Inline():
            return f"sha256:{sha256(source.data).hexdigest()}"
        case Link():
            return source.url
        case _:  # pragma: no cover
            assert_never(source)


T = TypeVar("T")


def _last(_: T, last: T) -> T:
    return last


def merged(
    said: Iterable[tuple[Seen, T]], *, joined: Callable[[T, T], T] = _last
) -> Iterator[tuple[Seen, T]]:
    """The messages with neighbouring answers merged into one; its second value is the last one's, or as `joined` makes
    it. Empty messages are left out."""
    before: tuple[Seen, T] | None = None
    for (role, text, marks), of_it in said:
        if before is not None and role == before[0][0] == "assistant":
            (_, so_far, earlier), of_both = before
            before = (("assistant", so_far + text, earlier + marks), joined(of_both, of_it))
            continue
        if before is not None:
            yield from _stripped(before)
        before = ((role, text, marks), of_it)
    if before is not None:
        yield from _stripped(before)


def without_results(said: Iterable[tuple[Seen, T]]) -> Iterator[tuple[Seen, T]]:
    """The messages but results; answers on both sides of a result are one."""
    return merged(each for each in said if each[0][0] != "tool")


def _stripped(said: tuple[Seen, T]) -> Iterator[tuple[Seen, T]]:
    """The message, trimmed; an answer without any white space, since clients join its steps as they like."""
    (role, text, marks), of_it = said
    text = "".join(text.split()) if role == "assistant" else text.strip()
    if text or marks:
        yield (role, text, marks), of_it


# ── comparing answers ────────────────────────────────────────────────────────────────────────


class ToldAnswer:
    """An answer as a client tells it, in one message or several, and how much of it the history has so far.

    Its texts are compared as one text and its calls by their ids, in any order. A client may leave out calls if it sends
    their results.
    """

    def __init__(self, said: Sequence[tuple[Seen, int]], at: int) -> None:
        """The answer that begins with the message at this position."""
        self._at = at
        self._messages = [
            seen for seen, _ in takewhile(lambda each: each[0][0] == "assistant", said[at:])
        ]
        self._text = "".join(text for _, text, _ in self._messages)
        self._chars = 0
        """How much of the text the history has."""
        self._calls = Counter(call for _, _, calls in self._messages for call in calls)
        """The calls that the history has not."""

    @property
    def end(self) -> int:
        """The position after its last message."""
        return self._at + len(self._messages)

    @property
    def is_known(self) -> bool:
        """Whether the history has all of it."""
        return self._chars == len(self._text) and not any(self._calls.values())

    def goes_on_with(self, ours: Seen, *, answered: Container[str]) -> bool:
        """Take the history's next step of the answer for known. False if it differs. `answered` are the calls whose
        results the request has."""
        _, text, calls = ours
        if not self._text.startswith(text, self._chars):
            return False
        wanted = Counter(calls)
        told = wanted & self._calls
        if any(call not in answered for call in wanted - told):
            return False
        self._calls.subtract(told)
        self._chars += len(text)
        return True

    def ends_within(self, ours: Seen) -> bool:
        """Take the rest of it for known if it begins the history's next step. False if it does not."""
        _, text, calls = ours
        if not text.startswith(self._text[self._chars :]) or not self._calls <= Counter(calls):
            return False
        self._chars = len(self._text)
        self._calls.clear()
        return True

    def known_to(self) -> int | None:
        """The position of its first message that the history has not; None if it has only a part of that one, or none of
        its messages."""
        chars, calls = len(self._text), Counter[str]()
        for at in range(len(self._messages), 0, -1):
            if chars == self._chars and calls == self._calls:
                return self._at + at
            _, text, told = self._messages[at - 1]
            chars -= len(text)
            calls.update(told)
        return None
