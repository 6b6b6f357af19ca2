"""Holdfast: AI agents over the OpenAI API, with conversations that hold. Every turn is a transaction.

The public names. Each is loaded from its module at its first use: the command line imports this package, and would
otherwise load a store to print its help (tests/architecture.py lists the other modules that may load late).
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = (
    False  # type checkers know the name; to load `typing` for it would double the time of `--help`
)
if TYPE_CHECKING:
    from holdfast.agents.agent import Agent as Agent
    from holdfast.agents.agent import Team as Team
    from holdfast.client.aio import AsyncClient as AsyncClient
    from holdfast.client.sync import Client as Client
    from holdfast.core.history.conversation import Snapshot as Snapshot
    from holdfast.core.history.reconciliation import Incoming as Incoming
    from holdfast.core.items import AssistantMessage as AssistantMessage
    from holdfast.core.items import UserMessage as UserMessage
    from holdfast.core.items import plain_text as plain_text
    from holdfast.core.items import text_of as text_of
    from holdfast.core.policy import Policy as Policy
    from holdfast.core.ports import OpenTurn as OpenTurn
    from holdfast.core.ports import Play as Play
    from holdfast.errors import HoldfastError as HoldfastError
    from holdfast.errors import TurnFailed as TurnFailed
    from holdfast.ids import LOCAL as LOCAL
    from holdfast.ids import IdempotencyKey as IdempotencyKey
    from holdfast.ids import SessionId as SessionId
    from holdfast.ids import SessionKey as SessionKey
    from holdfast.ids import Tenant as Tenant
    from holdfast.ids import Version as Version
    from holdfast.server.agents.model_factory import model as model
    from holdfast.sessions.manual_turns import ManualTurn as ManualTurn
    from holdfast.sessions.manual_turns import nobody_plays as nobody_plays
    from holdfast.sessions.manual_turns import played as played
    from holdfast.sessions.session_requests import Ask as Ask
    from holdfast.sessions.session_requests import Ending as Ending
    from holdfast.sessions.sessions import Sessions as Sessions
    from holdfast.sessions.turns.watch import Watch as Watch
    from holdfast.store.outcomes import Attempt as Attempt
    from holdfast.store.store import Store as Store
    from holdfast.store.store_url import open_store as open_store
    from holdfast.tools.function import FunctionToolset as FunctionToolset
    from holdfast.tools.function import tool as tool

HOMES = {
    "Agent": "holdfast.agents.agent",
    "Ask": "holdfast.sessions.session_requests",
    "AssistantMessage": "holdfast.core.items",
    "AsyncClient": "holdfast.client.aio",
    "Attempt": "holdfast.store.outcomes",
    "Client": "holdfast.client.sync",
    "Ending": "holdfast.sessions.session_requests",
    "ManualTurn": "holdfast.sessions.manual_turns",
    "FunctionToolset": "holdfast.tools.function",
    "HoldfastError": "holdfast.errors",
    "IdempotencyKey": "holdfast.ids",
    "Incoming": "holdfast.core.history.reconciliation",
    "LOCAL": "holdfast.ids",
    "OpenTurn": "holdfast.core.ports",
    "Play": "holdfast.core.ports",
    "Policy": "holdfast.core.policy",
    "SessionId": "holdfast.ids",
    "SessionKey": "holdfast.ids",
    "Sessions": "holdfast.sessions.sessions",
    "Snapshot": "holdfast.core.history.conversation",
    "Store": "holdfast.store.store",
    "Team": "holdfast.agents.agent",
    "Tenant": "holdfast.ids",
    "TurnFailed": "holdfast.errors",
    "UserMessage": "holdfast.core.items",
    "Version": "holdfast.ids",
    "Watch": "holdfast.sessions.turns.watch",
    "model": "holdfast.server.agents.model_factory",
    "nobody_plays": "holdfast.sessions.manual_turns",
    "open_store": "holdfast.store.store_url",
    "plain_text": "holdfast.core.items",
    "played": "holdfast.sessions.manual_turns",
    "text_of": "holdfast.core.items",
    "tool": "holdfast.tools.function",
}
"""Public name → the module that has it."""

if not TYPE_CHECKING:  # with __getattr__, a type checker would accept every name

    def __getattr__(name: str) -> object:
        if name not in HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
