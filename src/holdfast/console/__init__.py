"""The web console: plain files that a browser runs as they lie here. Nothing of it is built.

`load` reads them once and squeezes them once. `build` is a digest over all of them and is part of every address but
the page's own: whatever a browser has under such an address is what it would get again, so it need not ask.
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
"""What is served. Whatever else lies here, such as this module, is not."""

BUILD = b"/console/build/"
"""How the page names its files; the digest takes the place of the word."""


class ConsoleFile(Struct, frozen=True):
    """One file, as it is and squeezed."""

    name: str
    media_type: str
    plain: bytes
    squeezed: bytes
    etag: str


class Files(Struct, frozen=True):
    """All of them."""

    build: str
    page: ConsoleFile
    others: Mapping[str, ConsoleFile]
    """By their names, with slashes."""


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
