"""What is declared in a table is written nowhere else: the names of headers, and variables of the environment.

Prose may mention a name, in docstrings, help and messages; then it has to be one that exists.
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

PENDING = {
    "client/events.py",
    "client/requests.py",
    "server/api.py",
    "server/openapi.py",
    "server/openapi_operations.py",
}
"""Files that are about to be made of the tables, and still repeat them."""

HEADER = re.compile(r"(?<![\w/|-])x(?:-[a-z0-9]+)+\b", re.IGNORECASE)
_WORDS = re.compile(r"[\w-]+(?:\s+[\w-]+)*")

STANDARD = {"authorization", "content-disposition", "content-type", "etag", "traceparent"}
"""Names that mean something in other places as well: at models' servers, in the console's files, in logs."""

KNOWN = {name for each in HEADERS for name in (each.name, *each.aliases)} | set(SENT_BY_SDKS)
KNOWN -= STANDARD


def headers_in(text: str) -> Iterator[str]:
    """The headers that a constant consists of: one, or a list of words."""
    if _WORDS.fullmatch(text.strip()):
        words = text.lower().split()
        yield from (each for each in words if HEADER.fullmatch(each) or each in KNOWN)


def constants(tree: ast.Module) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose:
            if isinstance(node.value, str | bytes):
                text = node.value
                yield text.decode("latin-1") if isinstance(text, bytes) else text


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name not in TABLES | PENDING:
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def test_a_variable_is_written_in_its_table_alone() -> None:
    found = [
        (name, text)
        for name, tree in modules()
        for text in constants(tree)
        if re.search(r"HOLDFAST_\w", text)
    ]
    assert found == []


def test_every_variable_that_prose_mentions_and_every_setting_that_the_code_names_exists() -> None:
    known = {*COMMANDS, *MARKS, *map(variable, SETTINGS)}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        named = {variable(each) for each in re.findall(r"""\bvariable\(["'](\w+)["']\)""", text)}
        assert named | set(re.findall(r"\bHOLDFAST_[A-Z_]*[A-Z]\b", text)) <= known, path


@cache
def written() -> list[tuple[str, str]]:
    """Every header that is written outside the table, and where."""
    return [
        (header, name)
        for name, tree in modules()
        for text in constants(tree)
        for header in headers_in(text)
    ]


def test_a_header_that_is_in_the_table_is_written_there_alone() -> None:
    assert [each for each in written() if each[0] in KNOWN] == []


def test_a_header_of_others_is_written_in_one_place() -> None:
    count = Counter(header for header, _ in written())
    assert [header for header, times in count.items() if times > 1] == []


def test_a_second_place_is_seen() -> None:
    tree = ast.parse(
        '"""X-Turn-Id"""\na = "X-Turn-Id"\nb = b"if-match x-deny".split()\nc = "with X-Deny: y"'
    )
    found = [header for text in constants(tree) for header in headers_in(text)]
    assert found == ["x-turn-id", "if-match", "x-deny"]


def test_every_header_that_prose_and_the_console_mention_exists() -> None:
    known = KNOWN | {header for header, _ in written()}
    for path in sorted([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.js")]):
        place = path.relative_to(SOURCE).as_posix()
        found = {each.lower() for each in HEADER.findall(path.read_text(encoding="utf-8"))}
        assert place in TABLES | PENDING or found <= known, f"{place}: {found - known}"
