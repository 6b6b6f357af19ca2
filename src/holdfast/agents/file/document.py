"""A YAML reader for untrusted files: plain values, each with its line and column.

An agent file may come from a stranger. So:

1. Nothing is executed, and no tag makes an object: what comes out is text, numbers, truth values, lists, mappings.
2. Size, depth and the expansion of aliases are bounded while reading, not afterwards.
3. A duplicate key is refused; the second would silently win.
4. Every error has a line and column. None repeats a value: it may be a secret.

Plain words mean what they mean in YAML 1.2: `no` and `on` are text, `1:30` is not a number of seconds.
We read the parser's events and build the values ourselves: the library's own composer recurses without bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Protocol, TypeAlias

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.libraries import yaml
from holdfast.printable import shortened

Scalar: TypeAlias = bool | int | float | str | None
Plain: TypeAlias = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None
Step: TypeAlias = str | int
Where: TypeAlias = tuple[Step, ...]

_NODE_WEIGHT = 16
_SCALAR_TAGS = {None, "!", "tag:yaml.org,2002:str"}
_INT = re.compile(r"[-+]?[0-9]{1,18}|0o[0-7]{1,20}|0x[0-9a-fA-F]{1,15}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MERGE = "<<"


class _Found(Protocol):
    """A line and column from the parser, counted from 0."""

    line: int
    column: int


class Mark(Value):
    """A line and column, both counted from 1, columns in characters. A problem of the whole file is at 1:1."""

    line: int = 1
    column: int = 1


class UnreadableDocument(Exception):
    """The file is not YAML, or breaks one of the rules above."""

    def __init__(self, mark: Mark, words: str) -> None:
        super().__init__(words)
        self.mark = mark
        self.words = words


class DocumentNode(Value):
    """A value and its mark. Aliases share their node; `weight` counts it every time."""

    mark: Mark
    value: Scalar | list[DocumentNode] | dict[str, DocumentNode]
    weight: int = _NODE_WEIGHT
    depth: int = 0
    """Levels of lists and mappings in it."""
    key_mark: Mark | None = None
    """The mark of the key whose value this is."""
    written: Where | None = None
    """The field that it has in the file, if an upgrade has moved it."""
    word: str = ""
    """The word of a number or truth value, as it stands in the file."""


class Document:
    """A document's values, and the mark of each."""

    def __init__(self, root: DocumentNode) -> None:
        self.root = root
        self._marks: dict[Where, Mark] = {}
        self._moved: dict[Where, Where] = {}
        self._words: dict[Where, str] = {}
        self.value = self._plain(root, ())

    def mark(self, where: Where) -> Mark:
        """The mark of this field, or of the nearest field around it."""
        while where not in self._marks:
            where = where[:-1]
        return self._marks[where]

    def written(self, where: Where) -> Where:
        """The field as it is in the file, before an upgrade moved it."""
        for length in range(len(where), 0, -1):
            if (moved := self._moved.get(where[:length])) is not None:
                return (*moved, *where[length:])
        return where

    def word(self, where: Where) -> str:
        """The word of a number or truth value as it stands in the file: `1.10`; empty for another value."""
        return self._words.get(where, "")

    def _plain(self, node: DocumentNode, where: Where) -> Plain:
        # The depth of the tree is bounded, so this recursion is.
        self._marks[where] = node.key_mark or node.mark
        if node.word:
            self._words[where] = node.word
        if node.written is not None:
            self._moved[where] = node.written
        match node.value:
            case dict() as entries:
                return {key: self._plain(each, (*where, key)) for key, each in entries.items()}
            case list() as entries:
                return [self._plain(each, (*where, n)) for n, each in enumerate(entries)]
            case scalar:
                return scalar


def read_document(data: bytes) -> Document:
    """Read one YAML document. Raises UnreadableDocument."""
    if len(data) > limits.agent_file_bytes_max:
        raise UnreadableDocument(
            Mark(), f"it has {len(data)} bytes, and at most {limits.agent_file_bytes_max} are read"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableDocument(
            _mark_after(data[: error.start]), "it is not UTF-8 text"
        ) from error
    try:
        return Document(_Builder().build(yaml.parse(text, Loader=yaml.CSafeLoader)))
    except yaml.MarkedYAMLError as error:
        words = ", ".join(filter(None, (error.context, error.problem)))
        mark = _mark(error.problem_mark or error.context_mark)
        raise UnreadableDocument(mark, f"this is not YAML: {words}") from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        at = getattr(error, "position", 0)
        before = text.encode()[: at if isinstance(at, int) else 0]
        words = "this is not YAML: a character that it does not allow"
        raise UnreadableDocument(_mark_after(before), words) from error


class _Open:
    """A list or mapping that is being read."""

    def __init__(self, event: yaml.NodeEvent, *, is_mapping: bool) -> None:
        self.mark = _mark(event.start_mark)
        self.anchor = event.anchor
        self.entries: dict[str, DocumentNode] = {}
        self.items: list[DocumentNode] = []
        self.key: tuple[str, Mark] | None = None
        self.merged: list[DocumentNode] = []
        self.is_mapping = is_mapping
        self.weight = _NODE_WEIGHT
        self.depth = 1

    def add(self, node: DocumentNode) -> None:
        self.weight += node.weight
        self.depth = max(self.depth, node.depth + 1)
        if not self.is_mapping:
            self.items.append(node)
            return
        assert self.key is not None
        key, mark = self.key
        self.key = None
        if key == _MERGE:
            self.merged.append(node)
            return
        self.weight += len(key)
        self.entries[key] = msgspec.structs.replace(node, key_mark=mark)

    def take_key(self, key: str, mark: Mark) -> None:
        known = self.entries.get(key)
        if known is not None or (key == _MERGE and self.merged):
            there = f" on line {known.key_mark.line}" if known and known.key_mark else ""
            raise UnreadableDocument(
                mark, f"the key {shortened(key, 40)!r} is already there{there}"
            )
        self.key = (key, mark)

    def closed(self) -> DocumentNode:
        if not self.is_mapping:
            return self._node(self.items)
        entries = self.entries
        for node in self.merged:
            for source in node.value if isinstance(node.value, list) else [node]:
                if not isinstance(source.value, dict):
                    raise UnreadableDocument(node.mark, "'<<' merges mappings, and this is none")
                entries = {**source.value, **entries}
        return self._node(entries)

    def _node(self, value: list[DocumentNode] | dict[str, DocumentNode]) -> DocumentNode:
        return DocumentNode(mark=self.mark, value=value, weight=self.weight, depth=self.depth)


class _Builder:
    """Builds the tree from the parser's events, within the bounds."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, DocumentNode | None] = {}
        """None: still being read. An alias to it would contain itself."""
        self._root: DocumentNode | None = None
        self._weight = 0

    def build(self, events: Iterator[yaml.Event]) -> DocumentNode:
        for event in events:
            match event:
                case yaml.DocumentStartEvent() if self._root is not None:
                    raise UnreadableDocument(
                        _mark(event.start_mark), "there is a second document; write one per file"
                    )
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._enter(event)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    done = self._open.pop()
                    self._add(done.closed(), done.anchor, event)
                case yaml.ScalarEvent():
                    self._scalar(event)
                case yaml.AliasEvent():
                    self._alias(event)
        if self._root is None:
            raise UnreadableDocument(Mark(), "there is nothing in it")
        return self._root

    def _enter(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        self._refuse_tag(event)
        self._refuse_key(event)
        self._refuse_depth(len(self._open) + 1, event)
        if event.anchor:
            self._anchors[event.anchor] = None
        self._open.append(_Open(event, is_mapping=isinstance(event, yaml.MappingStartEvent)))

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if event.tag not in _SCALAR_TAGS:
            self._refuse_tag(event)
        if self._wants_key():
            self._open[-1].take_key(event.value, _mark(event.start_mark))
            return
        is_text = bool(event.style) or event.tag is not None
        value = event.value if is_text else meaning(event.value)
        weight = _NODE_WEIGHT + len(event.value)
        word = event.value if isinstance(value, bool | int | float) else ""
        self._add(
            DocumentNode(mark=_mark(event.start_mark), value=value, weight=weight, word=word),
            event.anchor,
            event,
        )

    def _alias(self, event: yaml.AliasEvent) -> None:
        self._refuse_key(event)
        anchor = event.anchor or ""
        if anchor not in self._anchors:
            raise UnreadableDocument(
                _mark(event.start_mark), f"no anchor is called {shortened(anchor, 40)!r}"
            )
        node = self._anchors[anchor]
        if node is None:
            raise UnreadableDocument(
                _mark(event.start_mark), f"the alias {shortened(anchor, 40)!r} contains itself"
            )
        self._add(node, None, event)

    def _add(self, node: DocumentNode, anchor: str | None, event: yaml.Event) -> None:
        if anchor:
            self._anchors[anchor] = node
        # Open lists and mappings count with their content so far, so that an alias bomb is refused while it is built.
        held = node.weight + sum(each.weight for each in self._open)
        if held > limits.agent_file_expanded_max:
            raise UnreadableDocument(
                _mark(event.start_mark), "its aliases unfold to more than we read"
            )
        self._refuse_depth(
            len(self._open) + node.depth, event
        )  # an alias is as deep as what it names
        if self._open:
            self._open[-1].add(node)
        else:
            self._root = node

    def _wants_key(self) -> bool:
        return bool(self._open) and self._open[-1].is_mapping and self._open[-1].key is None

    def _refuse_key(self, event: yaml.Event) -> None:
        if self._wants_key():
            raise UnreadableDocument(_mark(event.start_mark), "a key has to be plain text")

    def _refuse_depth(self, depth: int, event: yaml.Event) -> None:
        if depth > limits.agent_file_depth_max:
            raise UnreadableDocument(
                _mark(event.start_mark),
                f"it is nested more than {limits.agent_file_depth_max} levels deep",
            )

    def _refuse_tag(self, event: yaml.NodeEvent) -> None:
        tag = getattr(event, "tag", None)
        if tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise UnreadableDocument(
                _mark(event.start_mark),
                f"the tag {shortened(str(tag), 40)!r} is not read; leave it out",
            )


def meaning(word: str) -> Scalar:
    """The value of a word without quotes, by YAML 1.2: null, a boolean, a number, or the word itself."""
    if word in _WORDS:
        return _WORDS[word]
    if _INT.fullmatch(word):
        return int(word, 0) if word[:2] in ("0o", "0x") else int(word)
    if _FLOAT.fullmatch(word) and len(word) <= 40:
        number = float(word)
        return number if math.isfinite(number) else word
    return word


def _mark(found: _Found | None) -> Mark:
    return Mark(line=found.line + 1, column=found.column + 1) if found else Mark()


def _mark_after(data: bytes) -> Mark:
    """The mark right after these bytes."""
    last = data.rpartition(b"\n")[2].decode(errors="ignore").removeprefix("\ufeff")
    return Mark(line=data.count(b"\n") + 1, column=len(last) + 1)
