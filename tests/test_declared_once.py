"""What is declared in a table is written nowhere else: names of headers, and variables of the environment.

Prose may mention a header, in docstrings, help and messages; then it has to be one that exists.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import holdfast
from holdfast.config import SETTINGS
from holdfast.environment import COMMANDS, MARKS, variable
from holdfast.wire.headers import HEADERS, SENT_BY_SDKS

SOURCE = Path(holdfast.__file__).parent
TABLES = {"environment.py", "wire/headers.py"}

STANDARD = {"authorization", "content-disposition", "content-type", "etag", "traceparent"}
"""Names that mean something in other places as well: at models' servers, in the console's files, in logs."""

KNOWN = {name for each in HEADERS for name in (each.name, *each.aliases)} | set(SENT_BY_SDKS)
KNOWN -= STANDARD
HEADER = re.compile(r"(?<![\w/|-])x(?:-[a-z0-9]+)+\b", re.IGNORECASE)


@cache
def texts() -> dict[str, str]:
    """The files of the package, by their places."""
    paths = sorted(path for kind in ("py", "js") for path in SOURCE.rglob(f"*.{kind}"))
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def constants(text: str) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    nodes = list(ast.walk(ast.parse(text)))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in prose:
            if isinstance(node.value, bytes):
                yield node.value.decode("latin-1")
            elif isinstance(node.value, str):
                yield node.value


def headers_in(text: str) -> Iterator[str]:
    """The headers that a constant consists of: one, or a list of words."""
    if re.fullmatch(r"[\w\s-]+", text):
        words = text.lower().split()
        yield from (each for each in words if HEADER.fullmatch(each) or each in KNOWN)


@cache
def written() -> list[tuple[str, str]]:
    """Every constant outside the tables, and the module that it is in."""
    places = {place for place in texts() if place.endswith(".py")} - TABLES
    return [(text, place) for place in sorted(places) for text in constants(texts()[place])]


def test_a_header_that_is_in_the_table_is_written_there_alone() -> None:
    found = [(each, place) for text, place in written() for each in headers_in(text)]
    assert [each for each in found if each[0] in KNOWN] == []


def test_a_header_of_others_is_written_in_one_place() -> None:
    count = Counter(each for text, _ in written() for each in headers_in(text))
    assert [each for each, times in count.items() if times > 1 and each not in KNOWN] == []


def test_every_header_that_prose_and_the_console_mention_exists() -> None:
    known = KNOWN | {each for text, _ in written() for each in headers_in(text)}
    for place in texts().keys() - TABLES:
        found = {each.lower() for each in HEADER.findall(texts()[place])}
        assert found <= known, f"{place}: {found - known}"


def test_a_variable_is_written_in_its_table_alone() -> None:
    assert [each for each in written() if re.search(r"HOLDFAST_\w", each[0])] == []


def test_every_variable_that_is_mentioned_exists() -> None:
    known = {*COMMANDS, *MARKS, *map(variable, SETTINGS)}
    for place, text in texts().items():
        named = {variable(each) for each in re.findall(r"""\bvariable\(["'](\w+)["']\)""", text)}
        assert named | set(re.findall(r"\bHOLDFAST_[A-Z_]*[A-Z]\b", text)) <= known, place


def test_a_second_place_is_seen() -> None:
    module = '"""X-Turn-Id"""\na = "X-Turn-Id"\nb = b"if-match x-deny".split()\nc = "X-Deny: y"'
    found = [each for text in constants(module) for each in headers_in(text)]
    assert found == ["x-turn-id", "if-match", "x-deny"]
