"""Telling the hooks of an agent that one of its sessions has come to its end: somebody has deleted it.

A session ends in no other way: it can always go on. Deleting loads no agent, so an agent that is not served is not
told; and nobody is told of a session without a turn that was kept. The session is gone when its hooks run: they run
once, or, if the server dies in between, not at all, and have no say in it.
"""

from __future__ import annotations

import logging

from holdfast.server.agents.directory import Directory
from holdfast.store.rows import SessionRow
from holdfast.tools.hooks import run_hook

log = logging.getLogger("holdfast.hooks")


class SessionEndHooks:
    """Runs `session_end` hooks. One instance serves every request."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def say(self, ended: SessionRow) -> None:
        """A session was deleted; this is its row as it was."""
        if ended.state != "live" or not ended.head:
            return
        agent = self._directory.resident(ended.source_key, ended.agent)
        if agent is None:
            return
        facts = {"session_id": str(ended.id), "agent_name": agent.name, "reason": "deleted"}
        for hook in agent.hooks.session_end:
            verdict = await run_hook(agent.hooks, hook, "session_end", facts, mark=str(ended.id))
            if verdict.trouble:
                log.warning("%s: a session_end hook %s", agent.name, verdict.trouble)
