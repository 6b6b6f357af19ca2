"""The `session_end` hooks of an agent, which run after one of its sessions was deleted.

Only a deletion ends a session: until then it can always be continued. Deleting loads no agent, so the hooks of an
agent that is not served do not run; nor do any hooks for a session without a committed turn. The session is already
gone when its hooks run: they run once, or not at all if the server dies in between, and they cannot prevent it.
"""

from __future__ import annotations

from holdfast.server.agents.directory import Directory
from holdfast.store.rows import SessionRow
from holdfast.tools.hooks import run_hook


class SessionEndHooks:
    """Runs `session_end` hooks. One instance serves every request."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def run(self, ended: SessionRow) -> None:
        """Run the hooks for a session that was deleted; `ended` is its row as it was."""
        if ended.state != "live" or not ended.head:
            return
        agent = self._directory.resident(
            ended.source_key, ended.agent, source_name=ended.source_name or ""
        )
        if agent is None:
            return
        facts = {"session_id": str(ended.id), "agent_name": agent.name, "reason": "deleted"}
        for hook in agent.hooks.of("session_end"):
            verdict = await run_hook(agent.hooks, hook, "session_end", facts, mark=str(ended.id))
            which = "session_end", hook.command
            if verdict.trouble:
                subject = f"{agent.name}: a session_end hook"
                agent.hook_troubles.failed(which, subject, verdict.trouble)
            else:
                agent.hook_troubles.worked(which)
