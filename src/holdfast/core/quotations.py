"""Recognises a question that is about a conversation, as chat programs ask for a title or for tags: it quotes a message
of that conversation, between words of its own.

A person who edits a question may keep the old one as a part of the new; it is then a part of a line, or stands at the
beginning or at the end. A request that tells a whole conversation has its messages one by one, and quotes none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class SaidMessages:
    """Messages that may be quoted."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._by_first: dict[str, list[list[str]]] = {}
        for text in texts:
            lines = _lines(text)
            if lines:
                self._by_first.setdefault(lines[0], []).append(lines)

    def are_quoted_in(self, questions: Sequence[str]) -> bool:
        """Whether the only question of a line has one of the messages as lines of its own, with other lines before and
        after; the name of a speaker may stand in front, as in `USER: `."""
        if len(questions) != 1:
            return False
        lines = _lines(questions[0])
        return any(
            self._is_at(lines, n, begin)
            for n, line in enumerate(lines)
            for begin in (line, line.partition(": ")[2])
        )

    def _is_at(self, lines: list[str], n: int, begin: str) -> bool:
        return any(
            0 < n < len(lines) - len(said) and lines[n + 1 : n + len(said)] == said[1:]
            for said in self._by_first.get(begin, ())
        )


def _lines(text: str) -> list[str]:
    """The lines that have words, each with single spaces."""
    return [words for line in text.splitlines() if (words := " ".join(line.split()))]
