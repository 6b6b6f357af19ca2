"""The question about calls that wait for an approval, as a person reads it in a chat, and the words that answer it.

The server writes the question behind the model's text. It is no item: no model sees it, and it is made anew from the
calls, so a replay has the same words, and a client that sends it back is understood.

1. Tool names and arguments are shown whole, and only show themselves: inside a fence, without a character that ends the
   fence, begins a picture, a link or an element, turns the direction of text, or is invisible.
2. A model's text may try to hide what follows it: by a fence or a comment that it leaves open, or by any element. Then
   the question has no fence and escapes more, and a yes must have the code, which only this question has.
3. An answer is a listed word, alone or with codes. It is about all the calls, or it is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from unicodedata import category

import msgspec

from holdfast.core.codec import Unreadable, Value
from holdfast.core.items import AssistantMessage, StoredItem, ToolCall, ToolResult, text_of
from holdfast.ids import CallId, TurnId

YES = frozenset({"yes", "y", "approve", "allow"})
NO = frozenset({"no", "n", "deny", "refuse"})
"""The words that decide, in any case. A word that could mean something else, such as `ok`, is not here."""

WAITING = "[Waiting for your approval]"
UNDECIDED = "[Nothing was decided]"
_SUPPLIED = re.compile(
    r"^[ \t]*\[(?:Waiting for your approval[\]:]|Nothing was decided\])", re.MULTILINE
)
"""The beginning of words that the server supplied, also those of earlier versions."""

LINE_CHARS = 96
"""The width of a line in a question. A longer one would have to be scrolled, and hide its end."""


class ChatQuestion(Value):
    """A question about the calls of one turn that wait for an approval."""

    turn_id: TurnId
    calls: tuple[ToolCall, ...]
    needs_code: bool = False
    """The model's text could hide the question: a yes needs the code from it."""
    is_mixed: bool = False
    """Calls that the client has to answer wait, too."""
    is_kept: bool = True
    """The turn is stored: its calls can be decided on later."""

    @property
    def in_chat(self) -> bool:
        """Whether a message may decide, by the settings of the time when the question was asked."""
        return not self.is_mixed and all(each.chat_key is not None for each in self.calls)

    @property
    def codes(self) -> dict[str, CallId]:
        """A short name for each call, in order."""
        found: dict[str, CallId] = {}
        for each in self.calls:
            number = int.from_bytes(sha256(each.id.encode()).digest()[:4])
            while (code := _code(number)) in found:
                number += 1
            found[code] = each.id
        return found

    @property
    def text(self) -> str:
        """The question, and how to decide."""
        many = len(self.calls) > 1
        head = "These calls have not run:" if many else "This call has not run:"
        names = [code if many or self.needs_code else "" for code in self.codes]
        shown = (
            _call_text(call, name, guarded=self.needs_code)
            for call, name in zip(self.calls, names, strict=True)
        )
        return "\n\n".join((f"{WAITING} {head}", *shown, self._way()))

    def _way(self) -> str:
        if not self.is_kept:
            return (
                "Nothing of this conversation is stored, so the question cannot be answered here. Give the "
                "conversation a name, with `X-Conversation-Id` or by `/c/NAME/v1` in the base URL, and ask again."
            )
        if not self.in_chat:
            flags = " ".join(f"--approve {each.id}" for each in self.calls)
            those = "them" if len(self.calls) > 1 else "it"
            return (
                f"Decide in the console, or with `holdfast approvals decide {self.turn_id} {flags}`. "
                f"Any other message refuses {those}."
            )
        first, *others = self.codes
        if others:
            example = f"yes {first} no {others[0]}"
            return (
                f"Answer with yes or no and the codes of all the calls, such as `{example}`. "
                "Any other message decides nothing."
            )
        yes = f"yes {first}" if self.needs_code else "yes"
        return f"Answer `{yes}` to run it, or `no` to refuse it. Any other message decides nothing."

    def repeated(self, why: str) -> str:
        """The question after a message that did not decide."""
        return f"{UNDECIDED} {why}\n\n{self.text}"

    def decisions(self, said: str) -> dict[CallId, bool] | None:
        """The decisions of a message, about all the calls; None if it is no answer."""
        words = said.strip().casefold().split()
        if len(words) == 1 and len(self.calls) == 1:
            word = words[0].rstrip(".!")
            if word in NO or (word in YES and not self.needs_code):
                return {self.calls[0].id: word in YES}
            return None
        decided: dict[CallId, bool] = {}
        for approve, codes in _groups(words):
            for code in codes:
                call = self.codes.get(code.upper())
                if call is None or call in decided or approve is None:
                    return None
                decided[call] = approve
            if not codes:
                return None
        return decided if len(decided) == len(self.calls) else None

    def is_end_of(self, text: str) -> bool:
        """Whether a client's copy of the answer ends with this question."""
        return "".join(text.split()).endswith("".join(self.text.split()))


def question_in(
    items: Iterable[StoredItem], turn_id: TurnId, *, is_kept: bool = True
) -> ChatQuestion | None:
    """The question of a turn with these items; None if none of its calls waits for an approval. Not `is_kept`, if
    nothing is stored."""
    root = [each for each in items if type(each) is not Unreadable and not each.path]
    waiting = [each for each in root if type(each) is ToolCall and each.waits_for is not None]
    if not waiting:  # nearly always
        return None
    answered = {each.call for each in root if isinstance(each, ToolResult)}
    waiting = [each for each in waiting if each.id not in answered]
    asked = tuple(each for each in waiting if each.waits_for == "approval")
    said = (text_of(each.content) for each in root if isinstance(each, AssistantMessage))
    if not asked:
        return None
    return ChatQuestion(
        turn_id=turn_id,
        calls=asked,
        needs_code=any(map(_could_hide, said)),
        is_mixed=len(asked) < len(waiting),
        is_kept=is_kept,
    )


def without_question(text: str) -> str:
    """An answer as the model gave it: without the words that the server supplied."""
    found = _SUPPLIED.search(text)
    return text if found is None else text[: found.start()]


def is_repeated_question(text: str) -> bool:
    """Whether this answer only repeats a question: then the message that it answers is stored nowhere."""
    return text.lstrip().startswith(UNDECIDED)


# ── words ────────────────────────────────────────────────────────────────────────────────────

_CODE_CHARS = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"


def _code(number: int) -> str:
    return _CODE_CHARS[number >> 5 & 31] + _CODE_CHARS[number & 31]


def _groups(words: Sequence[str]) -> Iterator[tuple[bool | None, list[str]]]:
    """A word that decides with the codes that follow it; None in place of a code that follows no such word."""
    approve: bool | None = None
    codes: list[str] = []
    for n, word in enumerate(words):
        if word in YES or word in NO:
            if n:
                yield approve, codes
            approve, codes = word in YES, []
        else:
            codes.append(word.strip(","))
    if words:
        yield approve, codes


# ── what is shown of a call ──────────────────────────────────────────────────────────────────


def _call_text(call: ToolCall, code: str, *, guarded: bool) -> str:
    words = f"{_shown(call.name)} {_arguments(call.arguments)}".rstrip()
    label = f"{code}:\n\n" if code else ""
    if guarded:
        return label + _GUARDED.sub(_escaped, words.replace("\n", " "))
    lines = (piece for line in words.split("\n") for piece in _wrapped(line))
    return f"{label}```\n" + "\n".join(lines) + "\n```"


def _arguments(arguments: str) -> str:
    """Arguments with a line for each member, and with the letters that their escapes stand for."""
    try:
        laid_out = msgspec.json.format(arguments.encode(), indent=2).decode()
    except (msgspec.DecodeError, UnicodeError):
        return _shown(arguments)
    return "\n".join(map(_shown, _JSON_ESCAPE.sub(_unescaped, laid_out).split("\n")))


_JSON_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)")


def _unescaped(found: re.Match[str]) -> str:
    letter = chr(int(found[1], 16)) if found[1] else ""
    return letter if letter.isprintable() and letter not in ('"', "\\", "") else found[0]


_ACTIVE = re.compile(r"`|<(?=[A-Za-z!/?])|&(?=#?\w+;)|!(?=\[)|(?<=\])\(")
"""Characters that begin or end something in Markdown or HTML, though a renderer should leave a fence alone."""

_GUARDED = re.compile(r"""[^\w\s\\"{}:,.;/='+%@-]|_|(?<=[:/])/""")
"""For a place that may be rendered: all signs that Markdown, HTML or a formula could use."""


def _shown(text: str) -> str:
    """One line of text that only shows itself."""
    visible = "".join(each if _is_visible(each) else _escape(each) for each in text)
    return _ACTIVE.sub(_escaped, visible)


def _is_visible(letter: str) -> bool:
    """Whether a character has a look of its own, and does nothing to others. A space does; no other white space."""
    if letter.isascii():
        return letter.isprintable()
    return category(letter)[0] not in "CZ"


def _escaped(found: re.Match[str]) -> str:
    return _escape(found[0])


def _escape(letter: str) -> str:
    """The character as JSON escapes it."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


def _wrapped(line: str) -> Iterator[str]:
    """The line in pieces that need no scrolling; each but the first is marked."""
    yield line[:LINE_CHARS]
    for start in range(LINE_CHARS, len(line), LINE_CHARS):
        yield f"↪ {line[start : start + LINE_CHARS]}"


# ── text that could hide a question ──────────────────────────────────────────────────────────

_ELEMENT = re.compile(r"<[A-Za-z!/?]")
_FENCE = re.compile(r"^[ \t>*+\-\d.)]*(`{3,}|~{3,})(.*)$", re.MULTILINE)


def _could_hide(text: str) -> bool:
    """Whether what follows this text could be swallowed by it: an element, or a fence that some renderer finds open."""
    if _ELEMENT.search(text) or _SUPPLIED.search(text):
        return True
    if text.count("```") % 2 or text.count("~~~") % 2:
        return True
    opened = ""
    for found in _FENCE.finditer(text):
        fence, rest = found[1], found[2]
        if not opened:
            opened = fence
        elif fence[0] == opened[0] and len(fence) >= len(opened) and not rest.strip():
            opened = ""
    return bool(opened)
