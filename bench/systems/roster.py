"""Everybody who takes part, in the order of the table."""

from __future__ import annotations

from collections.abc import Sequence

from systems.agent_framework import (
    AgentFramework,
    AgentFrameworkEachCall,
    AgentFrameworkSnapshots,
)
from systems.agno import Agno, AgnoCheckpoints, AgnoQueue
from systems.base import System
from systems.google_adk import Adk, AdkResumable
from systems.harnessed import AgentsSdkAfterTurn, AgentsSdkSqlAlchemy, AgentsSdkSqlite
from systems.holdfast import Holdfast, HoldfastPostgres
from systems.langgraph import (
    LangGraph,
    LangGraphExit,
    LangGraphPatched,
    LangGraphPostgres,
    LangGraphPostgresSync,
    LangGraphResumed,
    LangGraphRewound,
    LangGraphSync,
)
from systems.langgraph_dev import (
    LangGraphDev,
    LangGraphDevInterrupt,
    LangGraphDevReject,
    LangGraphDevRollback,
    LangGraphDevSqlite,
)
from systems.litellm import LiteLlm
from systems.ogx import Ogx, OgxBackground, OgxChain
from systems.pydantic_ai import PydanticAi, PydanticAiDbos, PydanticAiKept, PydanticAiSteps

SYSTEMS: Sequence[System] = (
    Holdfast(),
    HoldfastPostgres(),
    AgentsSdkSqlite(),
    AgentsSdkAfterTurn(),
    AgentsSdkSqlAlchemy(),
    LiteLlm(),
    Ogx(),
    OgxChain(),
    OgxBackground(),
    PydanticAi(),
    PydanticAiKept(),
    PydanticAiSteps(),
    PydanticAiDbos(),
    AgentFramework(),
    AgentFrameworkEachCall(),
    AgentFrameworkSnapshots(),
    LangGraph(),
    LangGraphSync(),
    LangGraphExit(),
    LangGraphPatched(),
    LangGraphResumed(),
    LangGraphRewound(),
    LangGraphPostgres(),
    LangGraphPostgresSync(),
    LangGraphDev(),
    LangGraphDevReject(),
    LangGraphDevInterrupt(),
    LangGraphDevRollback(),
    LangGraphDevSqlite(),
    Adk(),
    AdkResumable(),
    Agno(),
    AgnoCheckpoints(),
    AgnoQueue(),
)


def named(name: str) -> list[System]:
    """The variants of one system. Raises SystemExit with the names that there are."""
    found = [each for each in SYSTEMS if each.name == name]
    if not found:
        names = ", ".join(dict.fromkeys(each.name for each in SYSTEMS))
        raise SystemExit(f"there is no {name!r}; there are {names}")
    return found
