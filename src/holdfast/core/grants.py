"""Grants: approvals that are remembered for an agent, so that no person is asked about the same call again.

1. A grant is for one tool of one agent, in every session or in one, as that tool was when a person was asked about it.
   If the tool's origin, description or schema has changed since, a person is asked again.
2. A grant is for exactly the arguments that were approved, unless the person allowed any arguments.
3. A grant answers an `ask` rule and no other: a call that a rule denies stays denied.
4. A grant is a row that the server writes when a person decides. Nothing in a request, an import or an annotation is
   read as a grant, and a fork or a rewind, which is another session, does not inherit it.
"""

from __future__ import annotations

import msgspec

from holdfast.core.codec import Value
from holdfast.ids import SessionId


class Grant(Value):
    """One tool that may run without an approval."""

    tool: str
    fingerprint: str
    """The fingerprint of the tool when a person was asked; see `tools.tool.fingerprint`."""
    arguments: str | None = None
    """As `canonical` writes them; None: any."""

    def covers(self, *, tool: str, fingerprint: str, arguments: str) -> bool:
        """Whether this grant allows a call of this tool with these arguments."""
        same = self.tool == tool and self.fingerprint == fingerprint and bool(fingerprint)
        return same and (self.arguments is None or self.arguments == canonical(arguments))


def holder(agent: str, session_id: SessionId) -> str:
    """The holder under which a grant for one session is stored. The holder of a grant for every session is its agent.

    No agent's name has a `/`, so the two never collide.
    """
    return f"{session_id}/{agent}"


def held_by(text: str) -> tuple[str, str | None]:
    """The agent of a grant with this holder, and the session that it is bound to; None: it holds in every session."""
    session_id, slash, agent = text.partition("/")
    return (agent, session_id) if slash and session_id.startswith("conv_") else (text, None)


def canonical(arguments: str) -> str | None:
    """The arguments as JSON with sorted keys, so that they can be compared; None if they are not JSON."""
    try:
        value: object = msgspec.json.decode(arguments)
        return msgspec.json.encode(value, order="sorted").decode()
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
