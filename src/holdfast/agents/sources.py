"""The sources of agents: a file, a directory of files, a URL, a Python module, or built in.

A source has an exact key, which sessions store, and a name, which people use:

    support.yaml                      /data/agents/support.yaml      support
    agents/                           one source for each file in it
    https://example.org/team.yaml     as it is                      team
    shop.agents:team                  as it is                      shop
    demo                              demo                          demo
    NAME=REF                          that of REF                   NAME

A file's key is its absolute path with symbolic links unresolved: `./a.yaml` and `a.yaml` are one source, and a link
that a deploy moves keeps its key.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast import limits
from holdfast.agents import demo
from holdfast.agents.agent import Agent, ModelFactory, Source, Team
from holdfast.agents.file.agent_file import Checked, assemble, check_agent_file, check_models
from holdfast.agents.remote_files import Fetched, Fetcher, FetchFailed, shown
from holdfast.core.codec import Value
from holdfast.core.identity import split_name
from holdfast.errors import HoldfastError, InvalidValue, SourceUnusable
from holdfast.tools.files.reserved_files import NamePattern, ReservedFiles
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.wire.body_parser import BodyDecoder

SUFFIXES = (".yaml", ".yml")
_SECRETS = ".env"
_READS_MAX = 3
_FRESH_S = 2.0

_MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_WEB = re.compile(r"https?://", re.IGNORECASE)


class InvalidSource(InvalidValue):
    """A reference that names no source."""

    code = "invalid_source"


class Supplies(Value):
    """The settings and helpers that sources are loaded with."""

    make_model: ModelFactory
    environment: Mapping[str, str] = {}
    fetcher: Fetcher = Fetcher()
    cache: Path | None = None
    """The folder for copies of remote files, for when the network fails; None keeps none."""
    trust_remote: bool = False
    """Whether a file from a URL may declare commands, and decide where the server's API keys are sent."""
    sandbox: Sandbox = msgspec.field(default_factory=Sandbox)
    """The sandbox that commands of agents run in."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


# ── references ───────────────────────────────────────────────────────────────────────────────


class SourceFolder:
    """A directory of agent files: one source for each file. It is read anew every time."""

    def __init__(self, path: Path, supplies: Supplies) -> None:
        self.key = str(path)
        self._path = path
        self._supplies = supplies
        self._known: dict[str, FileSource] = {}

    def sources(self) -> tuple[FileSource, ...]:
        """The present sources, sorted by name. Raises SourceUnusable if the directory cannot be read."""
        try:
            names = sorted(
                entry.name
                for entry in os.scandir(self._path)
                if entry.name.endswith(SUFFIXES) and not entry.name.startswith(".")
            )
        except OSError as error:
            raise SourceUnusable(
                self.key, f"{self.key}: it cannot be read: {error.strerror}"
            ) from error
        if len(names) > limits.sources_max:
            words = f"{self.key}: it has {len(names)} agent files, at most {limits.sources_max}"
            raise SourceUnusable(self.key, words)
        self._known = {
            name: self._known.get(name) or FileSource(self._path / name, self._supplies)
            for name in names
        }
        return tuple(self._known.values())

    def holds(self, key: str) -> bool:
        """Whether this is the key of a file in this directory."""
        return os.path.dirname(key) == self.key

    def __repr__(self) -> str:
        return f"<SourceFolder {self.key}>"


Origin: TypeAlias = Source | SourceFolder
"""An argument of the operator: one source, or a directory of sources."""


def parse_source(text: str, supplies: Supplies) -> Origin:
    """The source or directory that `[NAME=]REF` names. Loads nothing. Raises InvalidSource."""
    given, reference = split_name(text)
    if given:
        if os.path.isdir(reference):
            raise InvalidSource(
                f"{reference!r} is a directory, and each file in it has its own name; leave out '{given}='"
            )
        return _source(reference, supplies, name=given)
    if os.path.isdir(text):
        return SourceFolder(_absolute(text), supplies)
    return _source(text, supplies, name="")


def _source(reference: str, supplies: Supplies, *, name: str) -> Source:
    if reference == demo.NAME:
        return DemoSource(supplies, name=name)
    if _WEB.match(reference):
        return UrlSource(reference, supplies, name=name)
    if reference.endswith(SUFFIXES) or os.path.isfile(reference):
        return FileSource(_absolute(reference), supplies, name=name)
    if _MODULE.fullmatch(reference):
        return ModuleSource(reference, name=name)
    raise InvalidSource(
        f"{shown(reference) if '://' in reference else reference!r} names no agents: give a YAML file, "
        "a directory of them, an http(s) URL, a Python 'module:attribute', or 'demo'"
    )


def _absolute(text: str) -> Path:
    return Path(os.path.abspath(text))


def reserved_by(origin: Origin) -> ReservedFiles:
    """The files of a source, whether they exist or not, and a `.env` beside them: no tool may touch them."""
    match origin:
        case FileSource():
            beside = os.path.join(os.path.dirname(origin.key), _SECRETS)
            return ReservedFiles(files=frozenset({origin.key, beside}))
        case SourceFolder():
            return ReservedFiles(
                files=frozenset({os.path.join(origin.key, _SECRETS)}),
                names=frozenset(
                    NamePattern(directory=origin.key, end=suffix) for suffix in SUFFIXES
                ),
            )
        case UrlSource(cache=Path() as cache):
            return ReservedFiles(trees=frozenset({str(cache)}))
        case ModuleSource():
            return origin.files
        case _:
            return ReservedFiles()


# ── files ────────────────────────────────────────────────────────────────────────────────────


class FileSource:
    """An agent file on this machine."""

    poll_s: float | None = limits.file_poll_s

    def __init__(self, path: Path, supplies: Supplies, *, name: str = "") -> None:
        self.key = self.place = str(path)
        self.given_name = name
        self.name = name or _plain_name(path.stem)
        self._path = path
        self._supplies = supplies
        self._seen: tuple[int, ...] = ()
        self._digest = ""
        self._failed: SourceUnusable | None = None
        """Why the remembered content could not be loaded."""
        self._beside: dict[str, _Neighbour] = {}
        """The files beside it that are a part of it, as they were."""

    async def load(self) -> Team:
        data, seen = await asyncio.to_thread(self._read)
        checked = self._checked(data)
        beside = checked.file.beside if checked.file else ()
        self._beside = await asyncio.to_thread(lambda: {path: _neighbour(path) for path in beside})
        try:
            team = await assemble(checked.usable(), self._supplies.make_model)
        except SourceUnusable as error:
            if not checked.may_pass:
                self._remember(data, seen, error)
            raise
        self._remember(data, seen, None)
        return team

    def _remember(self, data: bytes, seen: tuple[int, ...], failed: SourceUnusable | None) -> None:
        """Remember this content: it is not loaded again until the file has other content."""
        self._seen, self._failed = seen, failed
        self._digest = hashlib.sha256(data).hexdigest()

    async def changed(self) -> bool:
        if self._look() != self._seen or self._is_fresh():
            data, seen = await asyncio.to_thread(self._read)
            if hashlib.sha256(data).hexdigest() != self._digest:
                return True
            self._seen = seen
        if self._beside:
            is_other = await asyncio.to_thread(self._has_other_neighbours)
            if is_other:
                return True
        if self._failed is not None:
            raise self._failed
        return False

    def _has_other_neighbours(self) -> bool:
        """Whether a file beside it holds something else. Its content is read only if its time or size tells to."""
        now_s = self._supplies.now().timestamp()
        for path, before in self._beside.items():
            if _stamp(path) == before.stamp and not before.is_fresh(now_s):
                continue
            now = self._beside[path] = _neighbour(path)
            if now.digest != before.digest:
                self._beside[path] = before  # until it is loaded
                return True
        return False

    async def check(self) -> Checked:
        """Check the file; nothing in it is executed. Raises SourceUnusable if it cannot be read."""
        data, _ = await asyncio.to_thread(self._read)
        return await check_models(self._checked(data), self._supplies.make_model)

    def _checked(self, data: bytes) -> Checked:
        return check_agent_file(
            data,
            place=self.key,
            directory=self._path.parent,
            environment=self._supplies.environment,
            sandbox=self._supplies.sandbox,
        )

    def _look(self) -> tuple[int, ...]:
        """The file's identity, times and size, which change with its content."""
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise SourceUnusable(
                self.key, f"{self.key}: it cannot be read: {error.strerror}"
            ) from error
        if not stat.S_ISREG(found.st_mode):
            raise SourceUnusable(self.key, f"{self.key}: it is not a file")
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    def _is_fresh(self) -> bool:
        """Whether it was written so lately that the next write could have the same timestamp."""
        return abs(self._supplies.now().timestamp() - self._seen[2] / 1e9) < _FRESH_S

    def _read(self) -> tuple[bytes, tuple[int, ...]]:
        """The file's content and its `_look`; read again if another program writes it meanwhile."""
        data: bytes = b""
        seen: tuple[int, ...] = ()
        for _ in range(_READS_MAX):
            seen = self._look()
            try:
                with open(self._path, "rb") as file:
                    data = file.read(limits.agent_file_bytes_max + 1)
            except OSError as error:
                raise SourceUnusable(
                    self.key, f"{self.key}: it cannot be read: {error.strerror}"
                ) from error
            if self._look() == seen:
                break
        return data, seen

    def __repr__(self) -> str:
        return f"<FileSource {self.name} {self.key}>"


class _Neighbour(Value):
    """A file beside an agent file, as it was."""

    stamp: tuple[int, ...]
    """Its identity, times and size; empty if it was not there."""
    digest: bytes

    def is_fresh(self, now_s: float) -> bool:
        """Whether it was written so lately that the next write could have the same time."""
        return bool(self.stamp) and abs(now_s - self.stamp[2] / 1e9) < _FRESH_S


def _stamp(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _neighbour(path: str) -> _Neighbour:
    stamp = _stamp(path)
    try:
        with open(path, "rb") as file:
            data = file.read(limits.beside_bytes_max)
    except OSError:
        data = b""
    return _Neighbour(stamp=stamp, digest=hashlib.sha256(data).digest() if data else b"")


# ── URLs ─────────────────────────────────────────────────────────────────────────────────────


class _Copy(Value):
    """A copy of a remote file, on disk. It does not contain the URL, which may hold a token."""

    body: bytes
    etag: str = ""
    last_modified: str = ""
    fetched_at: str = ""


_copies: BodyDecoder[_Copy] = BodyDecoder(_Copy)


class UrlSource:
    """An agent file on a web server.

    A copy of the last loaded version is kept on disk. It is served, with a warning, when the server cannot be reached.
    """

    poll_s: float | None = limits.url_poll_s

    def __init__(self, url: str, supplies: Supplies, *, name: str = "") -> None:
        self.key = url
        self.given_name = name
        self.name = name or _name_of_url(url)
        self._supplies = supplies
        self.cache = supplies.cache
        self.place = shown(url)
        """The URL without its secret parts: it may be shown to every client."""
        self._loaded: _Copy | None = None
        self._newer: _Copy | None = None
        """Fetched by `changed`, and not loaded yet."""
        self._refused: tuple[bytes, SourceUnusable] | None = None
        """The last content that could not be loaded, and why."""

    async def load(self) -> Team:
        copy, note = await self._current()
        checked = self._checked(copy.body)
        try:
            team = await assemble(checked.usable(), self._supplies.make_model)
        except SourceUnusable as error:
            self._refused = None if checked.may_pass else (copy.body, error)
            raise
        team.warnings = (*note, *team.warnings)
        self._loaded, self._refused = copy, None
        if not note:
            self._save(copy)
        return team

    async def changed(self) -> bool:
        try:
            newer = await self._fetch(self._loaded)
        except FetchFailed as error:
            raise SourceUnusable(self.place, str(error)) from error
        if newer is None:
            return False
        if self._loaded is not None and newer.body == self._loaded.body:
            self._loaded = newer
            return False
        if self._refused is not None and newer.body == self._refused[0]:
            refused = self._refused[1]
            raise SourceUnusable(refused.source, *refused.problems)
        self._newer = newer
        return True

    async def check(self) -> Checked:
        """Check the file; nothing in it is executed. Raises SourceUnusable if it cannot be read."""
        copy, _ = await self._current()
        return await check_models(self._checked(copy.body), self._supplies.make_model)

    async def _current(self) -> tuple[_Copy, tuple[str, ...]]:
        """The current content, and a warning if it is an old copy."""
        if self._newer is not None:
            newer, self._newer = self._newer, None
            return newer, ()
        kept = self._saved()
        try:
            fetched = await self._fetch(kept)
        except FetchFailed as error:
            if kept is None or not error.transient:
                raise SourceUnusable(self.place, str(error)) from error
            when = kept.fetched_at or "an unknown time"
            return kept, (f"{error}; the copy of {when} is served instead",)
        if fetched is None:
            assert kept is not None, "only a known copy can be unchanged"
            return kept, ()
        return fetched, ()

    async def _fetch(self, known: _Copy | None) -> _Copy | None:
        """The current content; None if it is the same as `known`. Raises FetchFailed."""
        etag, last_modified = (known.etag, known.last_modified) if known else ("", "")
        fetched = await self._supplies.fetcher.fetch(
            self.key, etag=etag, last_modified=last_modified
        )
        if fetched.body is None:
            if known is None:
                raise FetchFailed(self.key, "it says 'not modified', unasked", transient=False)
            return None
        return self._copy(fetched, fetched.body)

    def _copy(self, fetched: Fetched, body: bytes) -> _Copy:
        return _Copy(
            body=body,
            etag=fetched.etag,
            last_modified=fetched.last_modified,
            fetched_at=self._supplies.now().isoformat(timespec="seconds"),
        )

    def _checked(self, body: bytes) -> Checked:
        return check_agent_file(
            body,
            place=self.place,
            directory=Path.cwd(),
            environment=self._supplies.environment,
            trusted=self._supplies.trust_remote,
            sandbox=self._supplies.sandbox,
        )

    # ── the copy on disk ──

    @property
    def _path(self) -> Path | None:
        cache = self._supplies.cache
        digest = hashlib.sha256(self.key.encode(errors="surrogatepass")).hexdigest()
        return cache / f"{digest}.json" if cache else None

    def _saved(self) -> _Copy | None:
        """The copy on disk; None if there is no readable one."""
        try:
            if self._path is None or self._path.stat().st_size > 2 * limits.agent_file_bytes_max:
                return None
            return _copies.decode(self._path.read_bytes())
        except (OSError, ValueError):
            return None

    def _save(self, copy: _Copy) -> None:
        """Write the copy to disk. The source is served also if that fails."""
        if self._path is None:
            return
        fresh = self._path.with_suffix(f".{os.getpid()}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.encode(copy))
            os.replace(fresh, self._path)
        except OSError:
            return

    def __repr__(self) -> str:
        return f"<UrlSource {self.name} {self.place}>"


# ── Python ───────────────────────────────────────────────────────────────────────────────────


class ModuleSource:
    """A Team or an Agent in a Python module, or a function without arguments that makes one.

    Importing runs the module: name only modules that you trust. It is loaded once in the life of the server.
    """

    poll_s: float | None = None

    def __init__(self, reference: str, *, name: str = "") -> None:
        self.key = reference
        self._module, _, self._attribute = reference.partition(":")
        self.files = ReservedFiles()
        """Its files that run in this process. Known once it is loaded."""
        self.given_name = name
        self.name = name or self._module.partition(".")[0]

    async def load(self) -> Team:
        try:
            team = _as_team(await self._value())
        except SourceUnusable:
            raise
        except Exception as error:  # foreign code: every error of it makes the source unusable
            words = f"{self.key}: it cannot be loaded: {type(error).__name__}: {error}"
            raise SourceUnusable(self.key, words) from error
        if team is None:
            words = f"{self.key}: expected a Team, an Agent, or a function that makes one"
            raise SourceUnusable(self.key, words)
        team.digest = team.digest or self._digest()
        self.files = self._files()
        return team

    async def changed(self) -> bool:
        return False

    def _files(self) -> ReservedFiles:
        """Its package, and the modules that were imported from its directory: all of that may run in this process."""
        top = sys.modules.get(self._module.partition(".")[0])
        trees = tuple(map(os.path.abspath, getattr(top, "__path__", ())))
        lies = trees[0] if trees else os.path.abspath(getattr(top, "__file__", None) or "")
        files = (getattr(each, "__file__", None) for each in tuple(sys.modules.values()))
        beside = (each for each in files if each and os.path.dirname(each) == os.path.dirname(lies))
        return ReservedFiles(readable=frozenset({*beside, *trees}))

    async def _value(self) -> object:
        here = os.getcwd()
        if here not in sys.path:  # as `python -m` does; a console script would not find it
            sys.path.insert(0, here)
        value: object = importlib.import_module(self._module)
        for attribute in self._attribute.split("."):
            value = getattr(value, attribute)
        if callable(value) and not isinstance(value, Team | Agent):
            value = value()
        return await value if inspect.isawaitable(value) else value

    def _digest(self) -> str:
        """The digest of the module's source, so that the same code is the same version."""
        file = getattr(sys.modules.get(self._module), "__file__", None) or ""
        try:
            source = Path(file).read_bytes()
        except OSError:
            source = b""
        return hashlib.sha256(self.key.encode() + b"\0" + source).hexdigest()

    def __repr__(self) -> str:
        return f"<ModuleSource {self.name} {self.key}>"


def _as_team(value: object) -> Team | None:
    match value:
        case Team():
            return value
        case Agent():
            return Team({value.name: value}, entry=value.name)
        case _:
            return None


# ── built in ─────────────────────────────────────────────────────────────────────────────────


class DemoSource:
    """The demo agent."""

    key = demo.NAME
    poll_s: float | None = None

    def __init__(self, supplies: Supplies, *, name: str = "") -> None:
        self.given_name = name
        self.name = name or demo.NAME
        self._supplies = supplies

    async def load(self) -> Team:
        try:
            return demo.demo_team(self._supplies.make_model, now=self._supplies.now)
        except HoldfastError as error:
            raise SourceUnusable(self.key, f"{self.key}: {error}") from error

    async def changed(self) -> bool:
        return False


# ── names ────────────────────────────────────────────────────────────────────────────────────


def _name_of_url(url: str) -> str:
    """The last segment of its path, without the suffix; its host if it has none."""
    try:
        parts = urlsplit(url)
        last = unquote(parts.path.rstrip("/").rpartition("/")[2])
        host = parts.hostname or ""
    except ValueError:
        return "url"
    for suffix in SUFFIXES:
        last = last.removesuffix(suffix)
    return _plain_name(last) or _plain_name(host) or "url"


def _plain_name(text: str) -> str:
    """A name that can stand before the '/' of a model id."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-")[:64]
