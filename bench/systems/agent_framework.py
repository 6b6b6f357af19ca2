"""Microsoft's Agent Framework, with the stores of its own that need no cloud."""

from __future__ import annotations

from systems.harnessed import Harnessed


class AgentFramework(Harnessed):
    name = "agent-framework"
    title = "Microsoft Agent Framework"
    variant = "FileHistoryProvider"
    configured = (
        "`agent.run(text, session=agent.create_session(session_id=id))` with "
        "`context_providers=[FileHistoryProvider(path)]`, behind FastAPI."
    )
    environment = "agent-framework"
    packages = ("agent-framework-core", "agent-framework-openai", "openai")
    script = "serve_agent_framework.py"


class AgentFrameworkEachCall(AgentFramework):
    variant = "FileHistoryProvider, after each model call"
    configured = "The same, with `require_per_service_call_history_persistence=True`."
    choice = "each call"


class AgentFrameworkSnapshots(AgentFramework):
    variant = "FileSessionStore"
    configured = (
        "`agent.run(text, session=await store.get(id))`, then `store.set(id, session)`, on a `FileSessionStore`: "
        "sessions hold their messages, and are serialised as a whole; behind FastAPI."
    )
    choice = "snapshots"
