"""The web console: plain files that a browser runs as they are. There is no build step.

`load` reads and compresses each file once. `build` is a digest over all files, and is part of every URL but the page's
own: a file under such a URL never changes, so a browser may keep it without asking again.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

HERE = Path(__file__).parent
PAGE = "index.html"
MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The kinds of files that are served. Other files of this folder, such as this module, are not."""

BUILD = b"/console/build/"
"""The path with which the page refers to its files; `load` puts the digest in place of `build`."""


class ConsoleFile(Struct, frozen=True):
    """One file, plain and compressed."""

    name: str
    media_type: str
    plain: bytes
    squeezed: bytes
    etag: str


class Files(Struct, frozen=True):
    """All files of the console."""

    build: str
    page: ConsoleFile
    others: Mapping[str, ConsoleFile]
    """By their paths inside the folder."""


def load(here: Path = HERE) -> Files:
    """Read every file of the console."""
    paths = sorted(path for path in here.rglob("*") if path.suffix in MEDIA_TYPES)
    bodies = {path.relative_to(here).as_posix(): path.read_bytes() for path in paths}
    whole = b"".join(name.encode() + b"\0" + body + b"\0" for name, body in bodies.items())
    build = sha256(whole).hexdigest()[:16]
    page = bodies.pop(PAGE).replace(BUILD, b"/console/%b/" % build.encode())
    return Files(
        build=build,
        page=_file(PAGE, page),
        others={name: _file(name, body) for name, body in bodies.items()},
    )


def _file(name: str, body: bytes) -> ConsoleFile:
    return ConsoleFile(
        name=name,
        media_type=MEDIA_TYPES[Path(name).suffix],
        plain=body,
        squeezed=gzip.compress(body, 9, mtime=0),
        etag=f'"{sha256(body).hexdigest()[:16]}"',
    )
