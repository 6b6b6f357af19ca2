"""The file operations of the `filesystem` toolset: plain functions from arguments to text for the model."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal, TypeAlias

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import Image, Inline, Part, Text
from holdfast.tools.files.reserved_files import ReservedState
from holdfast.tools.files.rooted_paths import (
    PathRefused,
    RootedDirectories,
    open_directory,
    read_in,
)

_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj"})
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_LINE_CHARS_MAX = 300


Kind: TypeAlias = Literal["directory", "file", "link", "special"]


class Edit(Value):
    """A text to find in a file, and its replacement."""

    old: str
    new: str


class FoundFile(Value):
    """A file or directory that a walk has found."""

    path: str
    """Relative to the directory that was walked."""
    name: str
    directory: int
    """The open descriptor of the directory that contains it."""
    depth: int
    kind: Kind
    size: int
    reserved: bool = False
    """It is reserved for the server: its name is listed, its content is not read."""

    @property
    def is_directory(self) -> bool:
        return self.kind == "directory"


def read_part(rooted: RootedDirectories, path: str, *, line: int = 1, lines: int = 0) -> Part:
    """A file's text, some of its lines, or a picture. Raises PathRefused or OSError."""
    data = rooted.read(path)
    kind = _image_kind(data)
    if kind:
        return Image(source=Inline(media_type=kind, data=data))
    if _is_binary(data):
        raise PathRefused(f"{path!r} is not text ({len(data)} bytes)")
    text = data.decode(errors="replace")
    if line == 1 and not lines:
        return Text(text=text or "[the file is empty]")
    every = text.splitlines(keepends=True)
    end = line - 1 + lines if lines else len(every)
    chosen = "".join(every[line - 1 : end])
    return Text(text=chosen or f"[the file has {len(every)} lines]")


def write_text(rooted: RootedDirectories, path: str, content: str) -> str:
    data = content.encode()
    if len(data) > limits.file_bytes_max:
        raise PathRefused(
            f"that is {len(data)} bytes, and at most {limits.file_bytes_max} are written"
        )
    is_new = rooted.write(path, data)
    return f"{'Wrote' if is_new else 'Replaced'} {path} ({len(data)} bytes)."


def edit_text(rooted: RootedDirectories, path: str, edits: Sequence[Edit]) -> str:
    """Apply all of the edits, or none of them. Raises PathRefused or OSError."""
    try:
        text = rooted.read(path).decode()
    except UnicodeDecodeError as error:
        raise PathRefused(f"{path!r} is not UTF-8 text, and is not edited") from error
    rooted.write(path, edited(path, text, edits).encode(), make_parents=False)
    return f"Edited {path} ({len(edits)} change{'s' if len(edits) != 1 else ''})."


def edited(path: str, text: str, edits: Sequence[Edit]) -> str:
    """The text with all of the edits. Raises PathRefused if one of them does not fit."""
    for n, edit in enumerate(edits, start=1):
        times = text.count(edit.old) if edit.old else 0
        if times != 1:
            where = f"{times} times" if times else "not at all"
            raise PathRefused(
                f"edit {n}: the old text is in {path!r} {where}; give it exactly, with enough around it to be "
                "there once. Nothing was changed"
            )
        text = text.replace(edit.old, edit.new)
    return text


def list_directory(rooted: RootedDirectories, path: str) -> str:
    with rooted.directory(path) as (directory, shown, held):
        entries = list(_entries(directory, held, "", 1))
        lines = [_line(each) for each in entries[: limits.file_entries_max]]
    more = len(entries) - len(lines)
    if more > 0:
        lines.append(f"[… and {more} more …]")
    return "\n".join(lines) or f"[{shown} is empty]"


def directory_tree(
    rooted: RootedDirectories, path: str, *, depth: int, skip_version_control: bool
) -> str:
    lines: list[str] = []
    with rooted.directory(path) as (directory, shown, held):
        for each in walk(
            directory, held, depth_max=depth, skip_version_control=skip_version_control
        ):
            if len(lines) == limits.file_entries_max:
                lines.append(f"[… only the first {limits.file_entries_max} entries …]")
                break
            lines.append(f"{'  ' * (each.depth - 1)}{_line(each)}")
    return "\n".join(lines) or f"[{shown} is empty]"


def search_names(
    rooted: RootedDirectories,
    path: str,
    pattern: str,
    *,
    skip_version_control: bool,
    stopped: threading.Event,
) -> str:
    """Files and directories whose name or path matches a shell pattern."""
    found: list[str] = []
    with rooted.directory(path) as (directory, shown, held):
        for each in walk(directory, held, skip_version_control=skip_version_control):
            if stopped.is_set() or len(found) == limits.file_matches_max:
                break
            if fnmatchcase(each.name, pattern) or fnmatchcase(each.path, pattern):
                found.append(_below(shown, each.path) + ("/" if each.is_directory else ""))
    return _matches(found)


def search_content(
    rooted: RootedDirectories,
    path: str,
    query: str,
    *,
    pattern: str = "*",
    ignore_case: bool = False,
    skip_version_control: bool,
    stopped: threading.Event,
) -> str:
    """Lines that contain a text: `file:line: the line`. Binary and large files are left out."""
    wanted = query.casefold() if ignore_case else query
    found: list[str] = []
    read = 0
    with rooted.directory(path) as (directory, shown, held):
        for each in walk(directory, held, skip_version_control=skip_version_control):
            if stopped.is_set() or len(found) >= limits.file_matches_max:
                break
            if each.kind != "file" or each.reserved or not fnmatchcase(each.name, pattern):
                continue
            if read + each.size > limits.file_search_bytes_max:
                found.append(f"[… stopped after {read} bytes …]")
                break
            read += each.size
            read_now = partial(read_in, each.directory, each.name, held)
            lines = _lines_with(read_now, wanted, ignore_case=ignore_case)
            if lines:  # the file may have become reserved since the search began
                read_anew = partial(rooted.read, os.path.join(path, each.path))
                lines = _lines_with(read_anew, wanted, ignore_case=ignore_case)
            found += [f"{_below(shown, each.path)}:{line}" for line in lines]
    return _matches(found)


def walk(
    directory: int,
    held: ReservedState,
    *,
    depth_max: int = limits.file_tree_depth_max,
    skip_version_control: bool,
    under: str = "",
    depth: int = 1,
) -> Iterator[FoundFile]:
    """Everything below an open directory, sorted by name, a directory before its content. Links are not followed."""
    for each in _entries(directory, held, under, depth):
        if skip_version_control and each.name in _VERSION_CONTROL:
            continue
        yield each
        if not each.is_directory or each.reserved or depth >= depth_max:
            continue
        try:
            inner = open_directory(directory, each.name)
        except OSError:
            continue  # removed, replaced by a link, or not readable
        try:
            yield from walk(
                inner,
                held,
                depth_max=depth_max,
                skip_version_control=skip_version_control,
                under=f"{each.path}/",
                depth=depth + 1,
            )
        finally:
            os.close(inner)


def _entries(directory: int, held: ReservedState, under: str, depth: int) -> Iterator[FoundFile]:
    where = os.fstat(directory)
    for name in sorted(os.listdir(directory)):
        try:
            there = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            continue  # removed meanwhile
        yield FoundFile(
            path=f"{under}{name}",
            name=name,
            directory=directory,
            depth=depth,
            kind=_kind(there.st_mode),
            size=there.st_size if stat.S_ISREG(there.st_mode) else 0,
            reserved=held.has_file(there)
            or (not stat.S_ISDIR(there.st_mode) and held.has_name(where, name)),
        )


def _kind(mode: int) -> Kind:
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISREG(mode):
        return "file"
    return "link" if stat.S_ISLNK(mode) else "special"


def _lines_with(read: Callable[[], bytes], wanted: str, *, ignore_case: bool) -> list[str]:
    try:
        data = read()
    except (OSError, PathRefused):
        return []
    if _is_binary(data):
        return []
    return [
        f"{number}: {line.strip()[:_LINE_CHARS_MAX]}"
        for number, line in enumerate(data.decode(errors="replace").splitlines(), start=1)
        if wanted in (line.casefold() if ignore_case else line)
    ]


def _line(found: FoundFile) -> str:
    if found.is_directory:
        return f"{found.name}/"
    return f"{found.name} ({f'{found.size} bytes' if found.kind == 'file' else found.kind})"


def _below(shown: str, path: str) -> str:
    return path if shown == "." else f"{shown}/{path}"


def _matches(found: Sequence[str]) -> str:
    lines = list(found[: limits.file_matches_max])
    if len(found) >= limits.file_matches_max:
        lines.append(f"[… only the first {limits.file_matches_max}; search for less …]")
    return "\n".join(lines) or "[nothing found]"


def _image_kind(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if data.startswith(magic)), "")


def _is_binary(data: bytes) -> bool:
    return b"\0" in data[:8192]
