"""The built-in agent: on the demo model, with tools that let people see things happen.

`list_notes` and `get_time` only read. `add_note` acts: it changes the session, with the turn that it belongs to, or
not at all. Try it, break the turn off, and look at the notes again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from holdfast.agents.agent import Agent, ModelConfig, ModelFactory, Team
from holdfast.core.items import Permissions, Text
from holdfast.core.turns.events import StateSet
from holdfast.tools.function import FunctionToolset, tool
from holdfast.tools.tool import ToolOutput, ToolRun

NAME = "demo"
MODEL = ModelConfig(provider="demo", model="parrot")
DIGEST = "demo-1"
"""To be counted up when the agent's behaviour changes."""

_NOTE = "note_"
_NOTES_MAX = 100


def demo_team(make_model: ModelFactory, *, now: Callable[[], datetime]) -> Team:
    """The demo agent, on the model that the factory has for it."""
    agent = Agent(
        NAME,
        make_model(MODEL),
        description="Shows what Holdfast does. Needs no key and no network.",
        instruction="You are the demo agent of Holdfast.",
        welcome_message="Say hello, ask me to call add_note, or to fail in the middle of a turn.",
        toolsets=(_toolset(now),),
        permissions=Permissions(allow=("add_note",)),
    )
    return Team({NAME: agent}, entry=NAME, digest=DIGEST)


def _toolset(now: Callable[[], datetime]) -> FunctionToolset:
    @tool(read_only=True, idempotent=True)
    async def get_time() -> str:
        """What time it is, in UTC."""
        return now().isoformat(timespec="seconds")

    @tool(read_only=True, idempotent=True)
    async def list_notes(run: ToolRun) -> str:
        """The notes of this conversation."""
        notes = _notes_of(run)
        return "\n".join(f"{n}. {each}" for n, each in enumerate(notes, 1)) or "no notes yet"

    @tool(idempotent=True)
    async def add_note(text: str, run: ToolRun) -> ToolOutput:
        """Add a note to this conversation. It is kept if this turn is.

        text: What to write down.
        """
        if len(_notes_of(run)) >= _NOTES_MAX:
            words = f"there are {_NOTES_MAX} notes already; that is enough for a demo"
            return ToolOutput(content=(Text(text=words),), outcome="error")
        # Under the call's own key: two concurrent calls do not overwrite each other, and a call that runs twice
        # writes one note.
        value = msgspec.json.encode(text[:1000]).decode()
        change = StateSet(name=f"{_NOTE}{run.call_key}", value=value)
        return ToolOutput(content=(Text(text=f"noted: {text[:1000]}"),), changes=(change,))

    return FunctionToolset(get_time, list_notes, add_note)


def _notes_of(run: ToolRun) -> list[str]:
    """In the order of their calls: keys sort by time."""
    return [
        msgspec.json.decode(value, type=str)
        for name, value in sorted(run.state.items())
        if name.startswith(_NOTE)
    ]
