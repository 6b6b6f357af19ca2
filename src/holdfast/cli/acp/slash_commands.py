"""Slash commands in a prompt: those that an agent file declares, and two of our own."""

from __future__ import annotations

from holdfast.cli.acp.editor_session import EditorSession
from holdfast.core.codec import Value
from holdfast.wire.acp.blocks import AcpText, Prompt
from holdfast.wire.acp.updates import CommandHint, OfferedCommand

COMPACT = "compact"
RETRY = "retry"

OWN = (
    OfferedCommand(name=RETRY, description="Go on with the last turn, if it broke off."),
    OfferedCommand(
        name=COMPACT, description="Put a summary in place of what the model sees of older turns."
    ),
)


class OwnCommand(Value):
    """A command that we carry out; no agent is asked."""

    name: str


def offered(session: EditorSession) -> tuple[OfferedCommand, ...]:
    """The commands of a session. An agent's command stands in place of ours of the same name."""
    theirs = {
        each.name: OfferedCommand(
            name=each.name,
            description=each.description or each.instruction[:80],
            input=CommandHint(hint="more about it"),
        )
        for each in session.agent.commands
    }
    return (*theirs.values(), *(each for each in OWN if each.name not in theirs))


def expanded(session: EditorSession, prompt: Prompt) -> Prompt | OwnCommand:
    """The prompt with an agent's command replaced by its instruction; or the command of ours that it is.

    A text that begins with a slash and is no command stays as it is: it may be a path.
    """
    if not prompt or not isinstance(prompt[0], AcpText) or not prompt[0].text.startswith("/"):
        return prompt
    name, _, rest = prompt[0].text[1:].partition(" ")
    name = name.strip()
    for each in session.agent.commands:
        if each.name == name:
            words = f"{each.instruction}\n\n{rest.strip()}".strip()
            return (AcpText(text=words), *prompt[1:])
    if name in (COMPACT, RETRY):
        return OwnCommand(name=name)
    return prompt
