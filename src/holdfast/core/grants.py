"""What people have allowed an agent for good, so that it is not asked about again.

1. A grant is about one tool of one agent, everywhere or in one session, as that tool was when a person was asked about it: a tool that has come to
   be another one, by where it comes from, its description or its schema, is asked about again.
2. It is about the very arguments that were approved, unless the person said any.
3. It answers the question and no other rule: what a rule refuses stays refused.
4. It is a row that the server writes when a person decides. Nothing that a client, an import or an annotation can
   bring is read as one, and a fork or a rewind, which is another session, does not have it.
"""

from __future__ import annotations

import msgspec

from holdfast.core.codec import Value
from holdfast.ids import SessionId


class Grant(Value):
    """One tool that may run without asking."""

    tool: str
    fingerprint: str
    """What the tool was like; see `tools.base.fingerprint`."""
    arguments: str | None = None
    """As `canonical` writes them; None: any."""

    def covers(self, *, tool: str, fingerprint: str, arguments: str) -> bool:
        """Whether a call may run by this."""
        same = self.tool == tool and self.fingerprint == fingerprint and bool(fingerprint)
        return same and (self.arguments is None or self.arguments == canonical(arguments))


def holder(agent: str, session_id: SessionId) -> str:
    """Whom a grant for one session is kept for, where a grant for every session is kept for its agent.

    No agent's name has a `/`, so neither is ever found as the other.
    """
    return f"{session_id}/{agent}"


def held_by(text: str) -> tuple[str, str | None]:
    """The agent that a grant is for, and the session that it is bound to; None: it holds in every session."""
    session_id, slash, agent = text.partition("/")
    return (agent, session_id) if slash and session_id.startswith("conv_") else (text, None)


def canonical(arguments: str) -> str | None:
    """The same arguments, written in the one way that they can be compared in; None if they are not JSON."""
    try:
        value: object = msgspec.json.decode(arguments)
        return msgspec.json.encode(value, order="sorted").decode()
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
