"""The live sources: which agents a server has, and which version of them a turn is played with.

1. A turn is played with the version that it began with. A replaced version is kept while a turn uses it, and a moment
   longer, since a turn may have chosen it and not yet begun.
2. A broken new version changes nothing: the old one goes on serving, and the problem is reported.
3. A session continues with its own source, found by `core.identity`: by its exact address, else by its given name or
   the stable part of its address, else not at all. It is never moved to another source by guessing; a request that names
   one of several candidates has chosen.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TypeAlias
from urllib.parse import urlsplit

from holdfast import limits
from holdfast.agents.agent import Agent, PromptCommand, Source, Team
from holdfast.agents.file.reserved_files import files_of_hooks
from holdfast.agents.remote_files import shown_key, source_shown
from holdfast.agents.sources import InvalidSource, Origin, SourceFolder, reserved_by
from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot
from holdfast.core.identity import (
    Ambiguous,
    FoundSource,
    Match,
    find_source,
    portable_key,
    portable_text,
)
from holdfast.core.turns.events import TurnRequest
from holdfast.errors import (
    AgentAmbiguous,
    AgentMismatch,
    AgentNotFound,
    AgentUnavailable,
    ModelNotFound,
    SourceUnusable,
    TurnFailed,
)
from holdfast.tools.files.reserved_files import ReservedFiles

# ── answers and reports ──────────────────────────────────────────────────────────────────────


class Listed(Value):
    """An agent that requests can name, with its model id."""

    id: str
    agent: str
    source: str
    """The source's name."""
    source_key: str = ""
    source_digest: str = ""
    description: str = ""
    welcome_message: str = ""
    commands: tuple[PromptCommand, ...] = ()
    is_entry: bool = False
    """Whether it answers if a request names no agent of its source."""


class Chosen(Value):
    """The agent that plays a turn, and its version."""

    agent: Agent
    source_key: str
    source_digest: str
    source_name: str = ""
    """The name that the operator gave the source."""


class Loaded(Value, tag="loaded"):
    """A source has a new version: new turns begin with it."""

    source: str
    digest: str
    warnings: tuple[str, ...] = ()


class Broken(Value, tag="broken"):
    """A source cannot be loaded. `serving`: an older version of it goes on serving."""

    source: str
    problems: tuple[str, ...]
    serving: bool


class Removed(Value, tag="removed"):
    """A source is gone; its running turns are finished."""

    source: str


class NotClosed(Value, tag="not_closed"):
    """An old version could not be closed properly. It plays no turns any more."""

    source: str
    problem: str


Report: TypeAlias = Loaded | Broken | Removed | NotClosed

# ── sources and their versions ───────────────────────────────────────────────────────────────


class _Version:
    """One loaded version of one source."""

    def __init__(self, source: Source, team: Team) -> None:
        self.source = source
        self.team = team
        self.files = team.files
        """The files that it reads and runs."""
        for agent in team.agents.values():
            self.files |= files_of_hooks(agent.hooks)
        self.turns = 0
        """How many turns are played with it now."""
        self.retired_at_s: float | None = None


class _Live:
    """A source with its current version and problems."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.current: _Version | None = None
        self.problems: tuple[str, ...] = ()
        self.tried = False
        self.due_at_s = 0.0

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def key(self) -> str:
        return self.source.key


class Registry:
    """The live sources of a server. Call `refresh` first: it loads them."""

    def __init__(
        self,
        origins: Sequence[Origin],
        *,
        aliases: Mapping[str, str] | None = None,
        report: Callable[[Report], None] = lambda report: None,
        now_s: Callable[[], float] = time.monotonic,
        reserved: ReservedFiles = ReservedFiles(),  # noqa: B008
    ) -> None:
        """`aliases`: model name → model id, for clients with hard-wired names; a name may be a pattern, such as
        `claude-*`, and the first that fits counts. `reserved`: files that no tool may
        touch, besides the files of the sources.

        Raises InvalidSource if an origin is given twice.
        """
        keys = Counter(origin.key for origin in origins)
        for key, times in keys.items():
            if times > 1:
                raise InvalidSource(f"{shown_key(key)!r} is given {times} times; give it once")
        self._origins = tuple(origins)
        self._aliases = dict(aliases or {})
        self._report = report
        self._reserved = reserved
        self._now_s = now_s
        self._broken_origins: dict[str, Broken] = {}
        self._live: dict[str, _Live] = {}
        self._versions: list[_Version] = []
        self._ids: dict[str, tuple[_Live, Agent]] = {}
        self._changing = asyncio.Lock()

    def reserved(self) -> ReservedFiles:
        """The files that no tool may touch: all files that a source consists of, reads or runs, in every version."""
        found = self._reserved
        for origin in self._origins:
            found |= reserved_by(origin)
        for version in self._versions:
            found |= version.files
        return found

    # ── the agents ──

    def listing(self) -> tuple[Listed, ...]:
        """All agents, in the order of their sources; the entry agent of each source comes first."""
        return tuple(
            Listed(
                id=model,
                agent=agent.name,
                source=live.name,
                source_key=live.key,
                source_digest=_team(live).digest,
                description=agent.description,
                welcome_message=agent.welcome_message,
                commands=agent.commands,
                is_entry=agent.name == _team(live).entry,
            )
            for model, (live, agent) in self._ids.items()
        )

    def find(self, model: str) -> Listed:
        """The agent that a model id, or an alias of one, names. Raises ModelNotFound."""
        live, agent = self._named(model, at_home=None)
        return next(
            each
            for each in self.listing()
            if (each.source_key, each.agent) == (live.key, agent.name)
        )

    def broken(self, *, portable: bool = False) -> tuple[Broken, ...]:
        """The present problems: directories that cannot be read, sources that cannot be loaded. If `portable`, without
        the directories of this machine."""
        sources = {
            live.key: Broken(
                source=live.name, problems=live.problems, serving=live.current is not None
            )
            for live in self._live.values()
            if live.problems
        }
        found = {**self._broken_origins, **sources}
        if portable:
            found = {key: _portable(each, key) for key, each in found.items()}
        return tuple(found.values())

    # ── the agent of a session ──

    def choose(self, model: str, snapshot: Snapshot | None = None) -> Chosen:
        """Choose the agent that answers a request for `model` in this session, or in a new one.

        A request that names the session's entry agent, or no agent, continues with the session's current agent; one
        that names another agent of its source switches. Raises ModelNotFound, AgentNotFound, AgentAmbiguous,
        AgentMismatch.
        """
        if snapshot is None or not snapshot.source_key:
            live, agent = self._named(model, at_home=None)
            return _chosen(live, agent)
        home = self._home_of(snapshot, model)
        if model:
            live, agent = self._named(model, at_home=home)
            if live is not home:
                raise AgentMismatch(
                    model,
                    source=source_shown(snapshot.source_key, snapshot.source_name),
                    known=tuple(_team(home).agents),
                    session=snapshot.session_id,
                )
            if agent.name != snapshot.entry_agent:
                return _chosen(home, agent)
        return _chosen(home, _current_agent(home, snapshot))

    def resident(self, source_key: str, agent: str, *, source_name: str = "") -> Agent | None:
        """The agent of a session with that source in its current version; None if it is not served. Loads nothing."""
        match self._match(source_key, source_name):
            case FoundSource(key=key) if self._live[key].current is not None:
                return _team(self._live[key]).agents.get(agent)
            case _:
                return None

    def home_key(self, snapshot: Snapshot) -> str | None:
        """The key of the live source that a session continues with; None if there is none, or several could be it."""
        found = self._match(snapshot.source_key, snapshot.source_name)
        return found.key if isinstance(found, FoundSource) else None

    def _home_of(self, snapshot: Snapshot, model: str) -> _Live:
        """The live source that a session continues with; one of several candidates, if `model` is an agent of it."""
        try:
            return self._home(
                snapshot.source_key,
                snapshot.source_name,
                snapshot.agent,
                session=snapshot.session_id,
                model=model,
            )
        except AgentAmbiguous as error:
            live = self._variant(model, snapshot)
            if live is None:
                raise error
            return live

    def _variant(self, model: str, snapshot: Snapshot) -> _Live | None:
        """The source that a model id names, if it is among those that have the identity of the session's source."""
        try:
            live, _ = self._named(model, at_home=None)
        except ModelNotFound:
            return None
        match self._match(snapshot.source_key, snapshot.source_name):
            case Ambiguous(keys=keys) if live.key in keys:
                return live
            case _:
                return None

    def _match(self, source_key: str, source_name: str) -> Match:
        if source_key in self._live:  # nearly always, and this runs for every request
            return FoundSource(key=source_key, exact=True)
        given = {live.key: live.source.given_name for live in self._live.values()}
        return find_source(source_key, self._live, name=source_name, names=given)

    def _home(
        self, source_key: str, source_name: str, agent: str, *, session: str = "", model: str = ""
    ) -> _Live:
        """The live source that a session continues with. Raises AgentAmbiguous, AgentNotFound."""
        match self._match(source_key, source_name):
            case Ambiguous(keys=keys):
                variants = tuple(
                    model_id
                    for model_id, (live, each) in self._ids.items()
                    if live.key in keys and each.name == agent
                )
                place = source_shown(source_key, source_name)
                variants = variants or tuple(_listed_key(key, keys) for key in keys)
                raise AgentAmbiguous(agent, source=place, candidates=variants, session=session)
            case FoundSource(key=key) if self._live[key].current is not None:
                return self._live[key]
            case FoundSource():
                why = "that source cannot be loaded now"
            case _:
                why = "that source is not served any more"
        place = source_shown(source_key, source_name)
        raise AgentNotFound(agent, source=place, why=why, session=session, model=model)

    def _named(self, model: str, *, at_home: _Live | None) -> tuple[_Live, Agent]:
        """The agent that a model name means; the agents of a session's own source come first."""
        for name in (model, self._meant_by(model)):
            if at_home is not None and name in _team(at_home).agents:
                return at_home, _team(at_home).agents[name]
            if name in self._ids:
                return self._ids[name]
            for live in self._live.values():
                for agent in _agents(live):
                    if name in (f"{live.name}/{agent.name}", f"{live.key}/{agent.name}"):
                        if self._is_only(live, name):
                            return live, agent
        return self._only_agent(model)

    def _meant_by(self, model: str) -> str:
        """The model id that a hard-wired name stands for; empty if it is none."""
        exact = self._aliases.get(model)
        if exact is not None:
            return exact
        fitting = (agent for name, agent in self._aliases.items() if fnmatchcase(model, name))
        return next(fitting, "")

    def _is_only(self, live: _Live, name: str) -> bool:
        """Whether a qualified name means this source and no other."""
        namesakes = [each for each in self._live.values() if each.name == live.name]
        return name.startswith(f"{live.key}/") or len(namesakes) == 1

    def _only_agent(self, model: str) -> tuple[_Live, Agent]:
        """The entry agent of the only source, if no model is named, or of the only source of this name, if no agent has
        it. Raises ModelNotFound."""
        known = tuple(self._ids)
        loaded = [live for live in self._live.values() if live.current is not None]
        if not model and len(loaded) == 1:
            team = _team(loaded[0])
            return loaded[0], team.agents[team.entry]
        bare = model.rpartition("/")[2]
        namesakes = [agent for _, agent in self._ids.values() if agent.name == bare]
        if not model:
            raise ModelNotFound(model, known=known, why="is not named, and there are several")
        if len(namesakes) > 1:
            raise ModelNotFound(model, known=known, why="could be several agents")
        sources = [live for live in loaded if live.name == model]
        if len(sources) == 1 and not namesakes:
            team = _team(sources[0])
            return sources[0], team.agents[team.entry]
        raise ModelNotFound(model, known=known)

    # ── playing turns ──

    @contextmanager
    def team_for(self, request: TurnRequest) -> Iterator[Team]:
        """The agents that a turn is played with: the version it began with, else the current one. That version stays
        open until the context ends. Raises TurnFailed."""
        version = self._version(request.source_key, request.source_digest)
        if version is None:
            try:
                live = self._home(request.source_key, request.source_name, request.agent)
            except AgentUnavailable as error:
                raise TurnFailed("model_error", str(error), reason=error.code) from error
            version = self._version(live.key, request.source_digest) or live.current
            assert version is not None, "a home has a version"
        version.turns += 1
        try:
            yield version.team
        finally:
            version.turns -= 1

    def _version(self, source_key: str, digest: str) -> _Version | None:
        """The newest loaded version with exactly this key and content."""
        for version in reversed(self._versions):
            if version.source.key == source_key and version.team.digest == digest:
                return version
        return None

    # ── loading ──

    async def refresh(self, *, only_due: bool = False) -> tuple[Report, ...]:
        """Load new and changed sources, drop removed ones, and return a report of each change.

        Safe to repeat, and to cancel. `only_due` checks only the sources whose poll time has come.
        """
        async with self._changing:
            reports = self._listed_anew()
            due = [live for live in self._live.values() if self._is_due(live, only_due=only_due)]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._refreshed(live)) for live in due]
            reports += [report for task in tasks for report in task.result()]
            reports += await self._close(self._unused())
        for report in reports:
            self._report(report)
        return tuple(reports)

    async def watch(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Wait for `file_poll_s`, then refresh each source whose poll time has come. The supervisor repeats this."""
        await sleep(limits.file_poll_s)
        await self.refresh(only_due=True)

    async def close(self) -> None:
        """Close every version, also versions in use: to be called when no turn is played any more."""
        async with self._changing:
            versions, self._versions = self._versions, []
            self._live, self._ids = {}, {}
            for report in await self._close(versions):
                self._report(report)

    def _listed_anew(self) -> list[Report]:
        """Update the list of sources. There is no `await` in here, so `listing` never sees half of an update."""
        sources: dict[str, Source] = {}
        reports: list[Report] = []
        for origin in self._origins:
            found, problems = self._sources_of(origin)
            if len(sources) + len(found) > limits.sources_max:
                problems = (f"{origin.key}: more than {limits.sources_max} sources are too many",)
                found = ()
            known = self._broken_origins.pop(origin.key, None)
            if problems:
                told = Broken(source=origin.key, problems=problems, serving=bool(found))
                self._broken_origins[origin.key] = told
                if known is None or known.problems != problems:
                    reports.append(told)
            for source in found:
                sources.setdefault(source.key, source)
        for key in [key for key in self._live if key not in sources]:
            gone = self._live.pop(key)
            self._retire(gone.current)
            reports.append(Removed(source=gone.name))
        self._live = {key: self._live.get(key) or _Live(each) for key, each in sources.items()}
        self._ids = _ids(self._live.values())
        return reports

    def _sources_of(self, origin: Origin) -> tuple[tuple[Source, ...], tuple[str, ...]]:
        """The present sources of an origin, and its problems."""
        if not isinstance(origin, SourceFolder):
            return (origin,), ()
        try:
            return origin.sources(), ()
        except SourceUnusable as error:
            # A directory that cannot be read is not empty: its known sources go on serving.
            return tuple(live.source for live in self._live.values() if origin.holds(live.key)), (
                error.problems
            )

    def _is_due(self, live: _Live, *, only_due: bool) -> bool:
        if not live.tried:
            return True
        if live.source.poll_s is None:
            return False
        return not only_due or self._now_s() >= live.due_at_s

    async def _refreshed(self, live: _Live) -> list[Report]:
        live.due_at_s = self._now_s() + (live.source.poll_s or 0.0)
        try:
            if live.tried and not await live.source.changed():
                live.problems = ()
                return []
            team = await live.source.load()
        except SourceUnusable as error:
            return self._broken(live, error.problems)
        except (
            Exception
        ) as error:  # a bug in a factory or a toolset must not end the watch over the other sources
            words = f"{shown_key(live.key)}: it cannot be loaded: {type(error).__name__}: {error}"
            return self._broken(live, (words,))
        finally:
            live.tried = True
        self._retire(live.current)
        team.reserved = self.reserved
        live.current, live.problems = _Version(live.source, team), ()
        self._versions.append(live.current)
        self._ids = _ids(self._live.values())
        return [Loaded(source=live.name, digest=team.digest, warnings=team.warnings)]

    def _broken(self, live: _Live, problems: tuple[str, ...]) -> list[Report]:
        if problems == live.problems:
            return []  # reported already
        live.problems = problems
        return [Broken(source=live.name, problems=problems, serving=live.current is not None)]

    def _retire(self, version: _Version | None) -> None:
        if version is not None:
            version.retired_at_s = self._now_s()

    def _unused(self) -> list[_Version]:
        """Retired versions that no turn uses, and that no turn can have chosen lately."""
        now_s = self._now_s()
        unused = [
            version
            for version in self._versions
            if version.turns == 0
            and version.retired_at_s is not None
            and now_s - version.retired_at_s >= limits.version_keep_s
        ]
        self._versions = [version for version in self._versions if version not in unused]
        return unused

    async def _close(self, versions: Iterable[_Version]) -> list[Report]:
        reports: list[Report] = []
        for version in versions:
            try:
                await version.team.close()
            except Exception as error:  # a foreign tool's error must not stop the server
                words = f"{type(error).__name__}: {error}"
                reports.append(NotClosed(source=version.source.name, problem=words))
        return reports

    def __repr__(self) -> str:
        return f"<Registry {', '.join(self._ids) or 'empty'}>"


# ── small things ─────────────────────────────────────────────────────────────────────────────


def _team(live: _Live) -> Team:
    assert live.current is not None, "only a loaded source has agents"
    return live.current.team


def _agents(live: _Live) -> tuple[Agent, ...]:
    """The agents of a source, its entry agent first: it answers requests that name no agent."""
    if live.current is None:
        return ()
    team = live.current.team
    return tuple(sorted(team.agents.values(), key=lambda agent: agent.name != team.entry))


def _chosen(live: _Live, agent: Agent) -> Chosen:
    return Chosen(
        agent=agent,
        source_key=live.key,
        source_digest=_team(live).digest,
        source_name=live.source.given_name,
    )


def _current_agent(home: _Live, snapshot: Snapshot) -> Agent:
    """The session's current agent; its entry agent, if the current one is gone from the source."""
    team = _team(home)
    for name in (snapshot.agent, snapshot.entry_agent):
        if name in team.agents:
            return team.agents[name]
    raise AgentNotFound(
        snapshot.agent,
        source=source_shown(snapshot.source_key, snapshot.source_name),
        why="that source has no such agent any more; name one that /v1/models lists",
    )


def _portable(broken: Broken, key: str) -> Broken:
    return Broken(
        source=portable_key(broken.source),
        problems=tuple(portable_text(each, of=key) for each in broken.problems),
        serving=broken.serving,
    )


def _ids(sources: Collection[_Live]) -> dict[str, tuple[_Live, Agent]]:
    """Model ids: the agent's name where only one has it, else with its source's name, else with its key."""
    pairs = [(live, agent) for live in sources for agent in _agents(live)]
    agents = Counter(agent.name for _, agent in pairs)
    names = Counter({live.key: live.name for live, _ in pairs}.values())
    ids: dict[str, tuple[_Live, Agent]] = {}
    for live, agent in pairs:
        if agents[agent.name] == 1:
            model = agent.name
        elif names[live.name] == 1:
            model = f"{live.name}/{agent.name}"
        else:
            model = f"{_listed_key(live.key, [each.key for each in sources])}/{agent.name}"
        while model in ids:  # addresses that differ only in their hidden part
            model += "~"
        ids[model] = (live, agent)
    return ids


def _listed_key(key: str, among: Iterable[str]) -> str:
    """A source's key for listings: of a URL without the user part, but with the query, which tells variants apart; of
    a file only as many directories as are needed to tell it from the others."""
    if key.startswith("/"):
        names, others = key.split("/"), [each for each in among if each != key]
        tails = ("/".join(names[-n:]) for n in range(1, len(names)))
        return next((x for x in tails if not any(o.endswith(f"/{x}") for o in others)), key)
    if "://" not in key:
        return key
    try:
        parts = urlsplit(key)
    except ValueError:
        return key
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
