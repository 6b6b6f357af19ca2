"""Typed values from a document, and a problem with line and column for everything that does not fit.

Problems are collected: a file with three mistakes is corrected once, not three times.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeAlias, TypeVar

import msgspec

from holdfast.agents.file.dispositions import CANNOT_MATTER, REFUSED, TOOLSETS_REFUSED
from holdfast.agents.file.document import Document, Mark, Plain, Where, meaning
from holdfast.agents.file.shape_base import Shape
from holdfast.agents.file.toolsets.toolset_shapes import UnrunToolsetShape
from holdfast.core.codec import Value
from holdfast.printable import printable, shortened

S = TypeVar("S", bound=Shape)

_UNIONS = (types.UnionType, typing.Union)
"""A union of annotated types is a `typing.Union`."""

EXTENSION = "x-"
"""What names of fields begin with that are the author's own: anchors stand there."""

_NOTHING: tuple[Plain, ...] = (None, False, 0, "", [], {}, "false", "off")
"""Values of a field that ask for nothing."""

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


class FileProblem(Value):
    """A problem or a warning, and its place in a file."""

    place: str
    """The file's path or URL, for people."""
    mark: Mark
    field: str
    """Empty if it is about the document as a whole."""
    words: str
    elsewhere: bool = False
    """It is about something that the file refers to, and may pass without a change of the file."""

    def __str__(self) -> str:
        """As compilers and editors write it: `shop.yaml:14:5: agents.root.modle: unknown field`."""
        return f"{printable(self.place)}:{self.mark.line}:{self.mark.column}: {self.what}"

    @property
    def what(self) -> str:
        """As one printable line: a stranger may have written the names in a file."""
        return printable(f"{self.field}: {self.words}" if self.field else self.words)


Problems: TypeAlias = tuple[FileProblem, ...]


class Findings:
    """The `problems` of a document, which make it unusable, and its `warnings`."""

    def __init__(self, place: str, document: Document) -> None:
        self.place = place
        self._document = document
        self.problems: list[FileProblem] = []
        self.warnings: list[FileProblem] = []

    def wrong(self, where: Where, words: str) -> None:
        self.problems.append(self.problem(where, words))

    def missing(self, where: Where, words: str) -> None:
        """Add a problem of something that this field refers to: it may pass without a change of the file."""
        self.problems.append(msgspec.structs.replace(self.problem(where, words), elsewhere=True))

    def warn(self, where: Where, words: str) -> None:
        self.warnings.append(self.problem(where, words))

    def problem(self, where: Where, words: str) -> FileProblem:
        """A problem of this field, which is not collected."""
        return FileProblem(
            place=self.place,
            mark=self._document.mark(where),
            field=_field(self._document.written(where)),
            words=words,
        )

    def sort(self) -> None:
        """Put everything in the order of the document."""
        for found in (self.problems, self.warnings):
            found.sort(key=lambda each: (each.mark.line, each.mark.column))

    # ── shapes ──

    def shaped(self, value: Plain, kind: type[S], where: Where) -> S | None:
        """The mapping at this field as a struct; None, with problems added, if it does not fit."""
        if not isinstance(value, dict):
            self.wrong(where, f"expected a mapping, got {_kind_of(value)}")
            return None
        fields = _fields(kind)
        tag_field = kind.__struct_config__.tag_field
        problems = len(self.problems)
        given: dict[str, object] = {}
        for name, each in value.items():
            if name == tag_field or name.startswith(EXTENSION):
                continue  # the tag has chosen this kind
            if (words := REFUSED.get(kind, {}).get(name)) is not None:
                self._refuse((*where, name), each, words)
            elif (words := CANNOT_MATTER.get(kind, {}).get(name)) is not None:
                self._leave_out((*where, name), each, words)
            elif name not in fields:
                self.wrong((*where, name), f"unknown field; {suggest(name, fields)}")
            elif each is not None:  # a field without a value counts as left out
                given[name] = self._fitted(each, fields[name].type, (*where, name))
        for name, field in fields.items():
            if field.required and name not in given:
                self.wrong(where, f"{name!r} is missing")
        return kind(**given) if len(self.problems) == problems else None

    def _refuse(self, where: Where, value: Plain, words: str) -> None:
        """Refuse a field, unless its value says that it is not wanted."""
        if value not in _NOTHING:
            self.wrong(where, words)

    def _leave_out(self, where: Where, value: Plain, words: str) -> None:
        if value not in _NOTHING:
            self.warn(where, f"left out: {words}")

    def _fitted(self, value: Plain, kind: Any, where: Where) -> object:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated and _is_container(arguments[0]):
            self._counted(value, arguments[1], where)
            return self._fitted(value, arguments[0], where)
        if _is_shape(kind):
            return self.shaped(value, kind, where)
        if origin is dict and isinstance(value, dict):
            return {
                name: self._fitted(each, arguments[1], (*where, name))
                for name, each in value.items()
            }
        if origin is tuple and isinstance(value, list):
            return tuple(
                self._fitted(each, arguments[0], (*where, n)) for n, each in enumerate(value)
            )
        if origin in _UNIONS and len(shapes := list(filter(_is_shape, arguments))) > 1:
            return self._tagged(value, shapes, where)
        if origin in _UNIONS and (arm := _arm(arguments, value)) is not None:
            return self._fitted(value, arm, where)
        return self._leaf(value, kind, where)

    def _tagged(self, value: Plain, kinds: list[type[Shape]], where: Where) -> object:
        """A mapping whose `type` chooses one of several kinds."""
        by_tag = {str(kind.__struct_config__.tag): kind for kind in kinds}
        if not isinstance(value, dict):
            self.wrong(where, f"expected a mapping, got {_kind_of(value)}")
        elif (tag := value.get("type")) is None:
            self.wrong(where, "'type' is missing")
        elif isinstance(tag, str) and (words := TOOLSETS_REFUSED.get(tag)) is not None:
            return self._unrun(tag, words, value, where)
        elif not isinstance(tag, str) or tag not in by_tag:
            self.wrong((*where, "type"), f"has to be one of: {', '.join(by_tag)}")
        else:
            return self.shaped(value, by_tag[tag], where)
        return None

    def _unrun(
        self, kind: str, words: str, value: dict[str, Plain], where: Where
    ) -> UnrunToolsetShape | None:
        """A toolset without tools in place of one that is not run. A file that cannot do without it is refused."""
        if _is_required(value):
            self.wrong((*where, "type"), f"{kind}: {words}")
            return None
        told = f"{kind}: refused, so it has no tools, and its agent is told so: {words}"
        self.warn((*where, "type"), told)
        return UnrunToolsetShape(kind=kind, why=words.partition(";")[0])

    def _counted(self, value: Plain, meta: msgspec.Meta, where: Where) -> None:
        if meta.max_length is None or not isinstance(value, list | dict):
            return
        if len(value) > meta.max_length:
            self.wrong(where, f"has {len(value)} entries, at most {meta.max_length}")

    def _leaf(self, value: Plain, kind: Any, where: Where) -> object:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            with suppress(msgspec.ValidationError):
                return msgspec.convert(self._reread(value, where), kind)
            self.wrong(where, _in_words(str(error), value, kind))
            return None

    def _reread(self, value: Plain, where: Where) -> Plain:
        """What docker-agent takes a value for where it does not fit: text for the word in the file, a number in quotes
        for the number."""
        if isinstance(value, str):
            number = meaning(value)
            return value if isinstance(number, bool) else number
        return self._document.word(where) or value


def _is_required(toolset: dict[str, Plain]) -> bool:
    """Whether a toolset says that there is no answer without its tools."""
    lifecycle = toolset.get("lifecycle")
    return toolset.get("required") is True or (
        isinstance(lifecycle, dict) and lifecycle.get("required") is True
    )


@cache
def _fields(kind: type[Shape]) -> dict[str, msgspec.structs.FieldInfo]:
    return {each.name: each for each in msgspec.structs.fields(kind)}


def _is_shape(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Shape)


def _is_container(kind: Any) -> bool:
    return typing.get_origin(kind) in (tuple, dict)


def _arm(kinds: tuple[Any, ...], value: Plain) -> Any:
    """The list, mapping or shape among several kinds that this value should be; None if it is a plain value."""
    arms = [kind for kind in kinds if _is_shape(kind) or _is_container(_bare(kind))]
    for kind in arms:
        is_list = typing.get_origin(_bare(kind)) is tuple
        if isinstance(value, list if is_list else dict):
            return kind
    plain = [kind for kind in kinds if kind not in arms and kind is not types.NoneType]
    return None if plain or not arms else arms[0]


def _bare(kind: Any) -> Any:
    """A kind without its bounds."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind


def _in_words(complaint: str, value: Plain, kind: Any) -> str:
    """An error message that tells what to change, and does not repeat the value: it may be a secret."""
    complaint = complaint.partition(" - at `")[0]
    if complaint.startswith("Invalid enum value"):
        return f"has to be one of: {', '.join(map(str, _choices(kind)))}"
    found = re.fullmatch(r"Expected `([^`]*)`, got `[^`]*`", complaint)
    if found:
        wanted = " or ".join(
            _KINDS.get(each.strip(), each.strip())
            for each in found[1].split("|")
            if each.strip() != "null"
        )
        return f"expected {wanted}, got {_kind_of(value)}{_quote_hint(value, wanted)}"
    return _KINDS_IN_TEXT.sub(
        lambda match: _KINDS.get(match[1], match[1]), complaint[:1].lower() + complaint[1:]
    )


_KINDS_IN_TEXT = re.compile(r"`([^`]*)`")


def _quote_hint(value: Plain, wanted: str) -> str:
    is_word = isinstance(value, int | float) or value is None
    return "; write it in quotes" if wanted == "text" and is_word else ""


def _choices(kind: Any) -> Iterable[object]:
    for each in typing.get_args(kind):
        if isinstance(each, str | int):
            yield each
        else:
            yield from _choices(each)


def _kind_of(value: Plain) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "a mapping"


def _field(where: Where) -> str:
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{shortened(step, 60)}" for step in where
    ).removeprefix(".")


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean 'model'?`, or the list of known words."""
    names = list(known)
    close = get_close_matches(word, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(names) or 'none'}"
