"""YAML is read with bounds, without executing anything, and every complaint has a line."""

from __future__ import annotations

import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.agents.file.document import (
    Document,
    Plain,
    UnreadableDocument,
    meaning,
    read_document,
)


def read(text: str) -> Plain:
    return read_document(text.encode()).value


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        # text by YAML 1.2, and something else by 1.1
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("NO", "NO"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("=", "="),
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1e999", "1e999"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("9" * 5000, "9" * 5000),
        ("١", "١"),
        ("openai/gpt-5", "openai/gpt-5"),
    ],
)
def test_what_a_plain_word_means(word: str, value: object) -> None:
    found = meaning(word)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: [x, '1', \"2\", !!str 3]", {"a": 1, "b": ["x", "1", "2", "3"]}),
        ("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
        ("a: >-\n  one\n  line\n", {"a": "one line"}),
        ("1: a\ntrue: b\nnull: c", {"1": "a", "true": "b", "null": "c"}),
        ("a: &x {k: v}\nb: *x", {"a": {"k": "v"}, "b": {"k": "v"}}),
        ("a: &x {k: v, l: w}\nb: {<<: *x, k: u}", {"a": {"k": "v", "l": "w"}, "b": {"k": "u", "l": "w"}}),
        ("a: &x {k: v}\nb: {<<: [*x, {m: n}]}", {"a": {"k": "v"}, "b": {"k": "v", "m": "n"}}),
        ("\ufeffa: 1", {"a": 1}),
        ("a:", {"a": None}),
        ("# nothing but this\na: 1 # and this", {"a": 1}),
        ("just text", "just text"),
    ],
)  # fmt: skip
def test_documents_become_plain_values(text: str, value: object) -> None:
    assert read(text) == value


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 20)
)
LONG_BOMB = f"a: &a '{'x' * 100_000}'\nb: [{', '.join(['*a'] * 100)}]"
DEEP_BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [[[*a{n - 1}]]]\n" for n in range(1, 2000))

BAD = [
    ("a: 1\nb: 2\na: 3", 3, "the key 'a' is already there on line 1"),
    ("a:\n  b: 1\n  b: 2", 3, "the key 'b' is already there on line 2"),
    ("{a: 1, 'a': 2}", 1, "the key 'a' is already there on line 1"),
    ("a: &x {}\nb: {<<: *x, <<: *x}", 2, "the key '<<' is already there"),
    ("a: {<<: text}", 1, "'<<' merges mappings"),
    ("", 1, "there is nothing in it"),
    ("# only this", 1, "there is nothing in it"),
    ("a: 1\n---\nb: 2", 2, "there is a second document"),
    ("a: [1, 2", 2, "this is not YAML"),
    ("a: 'no end", 1, "this is not YAML"),
    ("a:\n\tb: 1", 2, "this is not YAML"),
    ("a: 1\nb: \x01", 2, "a character that it does not allow"),
    ("a: 1\nb: \x00", 2, "a character that it does not allow"),
    ('a: "\\ud800"', 1, "this is not YAML"),
    ("a: *nobody", 1, "no anchor is called 'nobody'"),
    ("a: &a [*a]", 1, "the alias 'a' contains itself"),
    ("a: &a\n  b: *a", 2, "the alias 'a' contains itself"),
    ("? [a]\n: b", 1, "a key has to be plain text"),
    ("? {a: b}\n: c", 1, "a key has to be plain text"),
    ("a: &x y\n*x : b", 2, "a key has to be plain text"),
    ("a: !!python/object/apply:os.system [echo]", 1, "the tag"),
    ("a: !!python/name:os.system", 1, "the tag"),
    ("a: !!python/object/new:os.system [echo]", 1, "the tag"),
    ("a: !!binary aGk=", 1, "the tag"),
    ("a: !!set {b}", 1, "the tag"),
    ("a: !!timestamp 2024-01-01", 1, "the tag"),
    ("a: !mine b", 1, "the tag"),
    ("[" * 100_000, 1, "nested more than 32 levels deep"),
    ("- " * 100_000, 1, "nested more than 32 levels deep"),
    ("{" * 100_000, 1, "a key has to be plain text"),
    ("{a: " * 100_000, 1, "nested more than 32 levels deep"),
    (BOMB, 6, "its aliases unfold to more than we read"),
    (LONG_BOMB, 2, "its aliases unfold to more than we read"),
    (DEEP_BOMB, 12, "nested more than 32 levels deep"),
    ("a: 1\n" * 300_000, 1, "it has 1500000 bytes"),
]


@pytest.mark.parametrize(
    ("text", "line", "words"), BAD, ids=[f"{n} {each[2]}" for n, each in enumerate(BAD)]
)
def test_what_is_not_read_is_told_with_its_line(text: str, line: int, words: str) -> None:
    began = time.process_time()
    with pytest.raises(UnreadableDocument) as raised:
        read(text)
    assert raised.value.mark.line == line
    assert words in raised.value.words
    assert time.process_time() - began < 2


def test_text_in_another_encoding_is_told_with_its_line() -> None:
    with pytest.raises(UnreadableDocument) as raised:
        read_document("a: b\nc: größe".encode("latin-1"))
    assert (raised.value.mark.line, raised.value.words) == (2, "it is not UTF-8 text")


def test_every_value_has_a_line() -> None:
    document = read_document(b"a:\n  b: 1\n  c:\n    - x\n    - y: z\nd: &e\n  f: 1\ng: *e\n")
    assert document.mark(()).line == 1
    assert document.mark(("a", "b")).line == 2
    assert document.mark(("a", "c", 0)).line == 4
    assert document.mark(("a", "c", 1, "y")).line == 5
    assert document.mark(("a", "c", 1, "nowhere", "at all")).line == 5
    assert document.mark(("g",)).line == 8
    assert document.mark(("g", "f")).line == 7


def test_no_complaint_repeats_a_value() -> None:
    for text in ("a: 'sk-secret", "a: sk-secret: b", "a: [sk-secret", "a: sk-secret\n\x01"):
        with pytest.raises(UnreadableDocument) as raised:
            read(text)
        assert "sk-secret" not in raised.value.words


words = st.sampled_from(
    ["a", "b", ": ", ":", "- ", "\n", "  ", "[", "]", "{", "}", ",", "&x ", "*x", "!!str ", "!t ", "'", '"', "|", ">",
     "#", "---", "...", "?", "<<: ", "1", "~", "\t", "%", "\\", "é", "\x07", "!!python/object/apply:os.abort []"]
)  # fmt: skip


def outcome(data: bytes) -> Document | UnreadableDocument:
    try:
        return read_document(data)
    except UnreadableDocument as error:
        return error


@given(st.lists(words, max_size=40).map("".join) | st.text(max_size=60))
def test_random_text_is_read_or_told_and_nothing_else(text: str) -> None:
    found = outcome(text.encode(errors="replace"))
    assert isinstance(found, Document) or min(found.mark.line, found.mark.column) >= 1


@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_told_and_nothing_else(data: bytes) -> None:
    found = outcome(data)
    assert isinstance(found, Document) or found.words


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "ключ", "key"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(plain)
def test_what_the_library_writes_comes_back(value: Plain) -> None:
    text = yaml.safe_dump(value, allow_unicode=True, default_style='"')
    text = (
        text.replace("!!int ", "")
        .replace("!!float ", "")
        .replace("!!bool ", "")
        .replace("!!null ", "")
    )
    found = read(text)
    assert _texts(found) == _texts(value)


def _texts(value: Plain) -> object:
    """Quoted scalars come back as text; compared as such."""
    match value:
        case dict():
            return {key: _texts(each) for key, each in value.items()}
        case list():
            return [_texts(each) for each in value]
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return float(value)
        case str():
            try:
                return float(value)
            except ValueError:
                return value


def test_a_large_file_is_read_in_good_time() -> None:
    text = "\n".join(f"key{n}: {{value: {n}, text: some words}}" for n in range(20_000))
    assert len(text) < limits.agent_file_bytes_max
    began = time.process_time()
    assert isinstance(read(text), dict)
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"a: 1\n b: 2", (2, 3)),
        (b"a: [1,\n  ]]", (2, 4)),
        ("\ufeffä: \x01".encode(), (1, 4)),
        ("a: 1\näö: ".encode() + b"\xff", (2, 5)),
        (b"a: &x [*x]", (1, 8)),
    ],
)
def test_a_complaint_has_a_column_in_characters(data: bytes, place: tuple[int, int]) -> None:
    with pytest.raises(UnreadableDocument) as raised:
        read_document(data)
    assert (raised.value.mark.line, raised.value.mark.column) == place
