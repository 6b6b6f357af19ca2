"""The directory of agents that a server loads from its sources and reloads when they change."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import assert_never

from holdfast.agents.agent import Agent, ModelFactory, Team
from holdfast.agents.registry import (
    Broken,
    Chosen,
    Listed,
    Loaded,
    NotClosed,
    Registry,
    Removed,
    Report,
)
from holdfast.agents.remote_files import Fetcher
from holdfast.agents.sources import Supplies, parse_source
from holdfast.config import TenantAgents
from holdfast.core.history.conversation import Snapshot
from holdfast.core.turns.events import TurnRequest
from holdfast.errors import (
    AgentAmbiguous,
    AgentMismatch,
    AgentUnavailable,
    ModelNotFound,
    SourceUnusable,
)
from holdfast.ids import Tenant
from holdfast.observe.supervisor import SupervisedTask, TaskSupervisor
from holdfast.server.agents.directory import choice_of
from holdfast.server.agents.model_factory import ServerModels
from holdfast.sessions.session_requests import AgentChoice, Ask
from holdfast.tools.files.reserved_files import ReservedFiles
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.web.address_guard import AddressGuard

log = logging.getLogger("holdfast.agents")


class AgentDirectory:
    """A `Directory` over a registry of live sources."""

    def __init__(
        self,
        registry: Registry,
        models: ServerModels | None = None,
        tenants: TenantAgents = TenantAgents(),  # noqa: B008
        supervisor: TaskSupervisor | None = None,
    ) -> None:
        self._registry = registry
        self._tenants = tenants
        self._models = models
        self._supervisor = supervisor or TaskSupervisor()
        self._watching: SupervisedTask | None = None

    def entries(self, tenant: Tenant | None = None) -> tuple[Listed, ...]:
        return tuple(
            each
            for each in self._registry.listing()
            if tenant is None or self._tenants.allows(tenant, each.id)
        )

    def broken(self, tenant: Tenant | None = None) -> tuple[Broken, ...]:
        if tenant is not None and self._tenants.bounds(tenant):
            return ()  # a broken source does not say which agents it has, so not whether the tenant may use them
        return self._registry.broken(portable=tenant is not None)

    def choose(self, ask: Ask, snapshot: Snapshot | None = None) -> AgentChoice:
        chosen = self._chosen(ask.agent, ask.tenant, snapshot)
        return choice_of(
            chosen.agent,
            ask,
            source_key=chosen.source_key,
            source_digest=chosen.source_digest,
            source_name=chosen.source_name,
        )

    def _chosen(self, model: str, tenant: Tenant, snapshot: Snapshot | None) -> Chosen:
        try:
            chosen = self._registry.choose(model, snapshot)
        except ModelNotFound as error:
            if not self._tenants.bounds(tenant):
                raise
            raise self._not_found(model, tenant, why=error.why) from error
        except AgentMismatch as error:
            if not self._tenants.bounds(tenant):
                raise
            raise self._mismatch(error, tenant, snapshot) from error
        except AgentAmbiguous as error:
            if not self._tenants.bounds(tenant):
                raise
            own = tuple(each for each in error.candidates if self._tenants.allows(tenant, each))
            raise AgentAmbiguous(
                error.agent, source=error.source, candidates=own, session=error.session
            ) from error
        if self._tenants.bounds(tenant) and not self._is_for(tenant, chosen, snapshot):
            raise self._not_found(model or chosen.agent.name, tenant)
        return chosen

    def _is_for(self, tenant: Tenant, chosen: Chosen, snapshot: Snapshot | None) -> bool:
        """Whether a tenant may use this agent: by its name, or because an agent that it may use can hand over to it.
        The session's own word for a handover is not enough: the session may have been imported from a file."""
        own = {
            each.agent
            for each in self._registry.listing()
            if each.source_key == chosen.source_key and self._tenants.allows(tenant, each.id)
        }
        name = chosen.agent.name
        if snapshot is None or name != snapshot.agent or snapshot.entry_agent not in own:
            return name in own
        reached = [snapshot.entry_agent]
        for each in reached:
            agent = self._registry.resident(chosen.source_key, each)
            more = agent.handoffs if agent is not None else ()
            reached += [other for other in more if other not in reached]
        return name in own or name in reached

    def _not_found(
        self, model: str, tenant: Tenant, *, why: str = "does not exist"
    ) -> ModelNotFound:
        known = tuple(each.id for each in self.entries(tenant))
        return ModelNotFound(model, known=known, why=why)

    def _mismatch(
        self, error: AgentMismatch, tenant: Tenant, snapshot: Snapshot | None
    ) -> AgentUnavailable:
        """The same refusal, naming only agents that the tenant may use: others do not exist for it."""
        if not self._is_for(tenant, self._registry.choose(error.model), None):
            return self._not_found(error.model, tenant)
        home = self._registry.home_key(snapshot) if snapshot else None
        known = tuple(
            each.agent
            for each in self._registry.listing()
            if each.source_key == home and self._tenants.allows(tenant, each.id)
        )
        return AgentMismatch(error.model, source=error.source, known=known, session=error.session)

    def history_items_max(self, snapshot: Snapshot) -> int | None:
        try:
            return self._registry.choose("", snapshot).agent.history_items_max
        except AgentUnavailable:
            return None

    def resident(self, source_key: str, agent: str, *, source_name: str = "") -> Agent | None:
        return self._registry.resident(source_key, agent, source_name=source_name)

    def team_for(self, request: TurnRequest) -> AbstractContextManager[Team]:
        return self._registry.team_for(request)

    async def refresh(self) -> None:
        await self._registry.refresh()

    def start_watching(self) -> None:
        """Load new versions of sources as they appear, until `close`."""
        self._watching = self._supervisor.keep("sources", self._registry.watch)

    async def close(self) -> None:
        """Stop watching, and close every agent. Call it when no turn is played any more."""
        if self._watching is not None:
            await self._supervisor.stop(self._watching)
        await self._registry.close()
        if self._models is not None:
            await self._models.close()


async def load_directory(
    sources: Sequence[str],
    *,
    aliases: Mapping[str, str] | None = None,
    environ: Mapping[str, str] = os.environ,
    make_model: ModelFactory | None = None,
    cache: Path | None = None,
    trust_remote: bool = False,
    reserved: ReservedFiles = ReservedFiles(),  # noqa: B008
    tenants: TenantAgents = TenantAgents(),  # noqa: B008
    sandbox: Sandbox | None = None,
    supervisor: TaskSupervisor | None = None,
) -> AgentDirectory:
    """Load the agents of these sources, and watch them for changes.

    Copies of remote sources are kept in `cache`, if there is one. With `trust_remote` they may be fetched from any
    address, and may do what files on this machine may. No tool reaches `reserved` files. Commands run in `sandbox`,
    which learns here which files no command may change.

    A source that cannot be loaded is logged, and the others are served without it; once it is corrected, it is served
    too. Raises SourceUnusable, with everything that is wrong, if there is no agent to serve.
    """
    models = None if make_model else ServerModels(environ)
    supplies = Supplies(
        make_model=make_model or models or ServerModels(environ),
        environment=environ,
        fetcher=Fetcher(AddressGuard(allow_private=trust_remote)),
        cache=cache,
        trust_remote=trust_remote,
        sandbox=sandbox or Sandbox(),
    )
    origins = [parse_source(each, supplies) for each in sources]
    early: list[Report] = []
    is_starting = True

    def log_or_hold(report: Report) -> None:
        # If no agent can be served, the error that is raised has all reports; they are not logged as well.
        if is_starting:
            early.append(report)
        else:
            log_report(report)

    registry = Registry(origins, aliases=aliases, report=log_or_hold, reserved=reserved)
    supplies.sandbox.reserved = registry.reserved
    directory = AgentDirectory(registry, models, tenants, supervisor)
    try:
        await registry.refresh()
        if not registry.listing():
            names = ", ".join(sources)
            problems = [line for each in registry.broken() for line in each.problems]
            raise SourceUnusable(names, *(problems or [f"{names}: no agents are there"]))
    except BaseException:
        await directory.close()
        raise
    is_starting = False
    for report in early:
        log_report(report)
    directory.start_watching()
    return directory


def log_report(report: Report) -> None:
    """Log what happened to a source."""
    match report:
        case Loaded(source=source, digest=digest, warnings=warnings):
            log.info("%s: version %s is loaded", source, digest[:12])
            for warning in warnings:
                log.warning("%s", warning)
        case Broken(source=source, problems=problems, serving=serving):
            what = "the old version goes on" if serving else "it is not served"
            log.error("%s: %s: %s", source, what, "; ".join(problems))
        case Removed(source=source):
            log.warning("%s: it is gone, and is not served any more", source)
        case NotClosed(source=source, problem=problem):
            log.warning("%s: an old version could not be closed: %s", source, problem)
        case _:
            assert_never(report)
