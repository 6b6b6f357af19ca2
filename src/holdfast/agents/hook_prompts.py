"""The prompts of hooks that ask a model: text with places for the facts of an event, in the form of Go's templates.

Read are `{{ .ToolName }}`, `{{ .ToolInput.cmd }}`, and `{{ .ToolInput | toJSON }}` or `{{ toJSON .ToolInput }}`; with a
`-` inside of the braces, the white space beside them goes. Anything else is refused: a prompt that is filled in by half
would ask for something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from holdfast.tools.tool import Json

_PLACE = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*(-?)\}\}(\s*)", re.DOTALL)
_FACT = re.compile(
    r"(?:(?P<first>toJSON|toJson|json)\s+)?\.(?P<name>[A-Za-z]\w*)(?P<inner>(?:\.\w+)*)"
    r"(?:\s*\|\s*(?P<last>toJSON|toJson|json))?"
)

FACTS: Mapping[str, str] = {
    "SessionID": "session_id",
    "AgentName": "agent_name",
    "HookEventName": "hook_event_name",
    "Cwd": "cwd",
    "ToolName": "tool_name",
    "ToolUseID": "tool_use_id",
    "ToolInput": "tool_input",
    "ToolResponse": "tool_response",
    "ToolError": "tool_error",
    "Prompt": "prompt",
    "SteeringMessages": "steering_messages",
    "StopResponse": "stop_response",
    "Source": "source",
    "Reason": "reason",
    "Error": "error",
    "NotificationLevel": "notification_level",
    "NotificationMessage": "notification_message",
    "FromAgent": "from_agent",
    "ToAgent": "to_agent",
    "AgentSwitchKind": "agent_switch_kind",
    "Summary": "summary",
}
"""The facts of an event by their names in a template, and in what hooks are given."""


class UnfitPrompt(Exception):
    """A prompt with something that cannot be filled in; the message says what, and the way out."""


def check_prompt(text: str) -> None:
    """Raises UnfitPrompt."""
    filled_prompt(text, {})
    rest = _PLACE.sub("", text)
    if "{{" in rest or "}}" in rest:
        raise UnfitPrompt("there are braces without their other half")


def filled_prompt(text: str, facts: Mapping[str, Json]) -> str:
    """The prompt with the facts of an event; a fact that the event does not have leaves its place empty."""

    def place(found: re.Match[str]) -> str:
        before, left, inside, right, after = found.groups()
        words = "" if inside.startswith("/*") and inside.endswith("*/") else _fact(inside, facts)
        return f"{'' if left else before}{words}{'' if right else after}"

    return _PLACE.sub(place, text)


def _fact(inside: str, facts: Mapping[str, Json]) -> str:
    found = _FACT.fullmatch(inside)
    if found is None:
        raise UnfitPrompt(
            f"{{{{ {inside[:60]} }}}} is not filled in here: only facts are, as {{{{ .ToolName }}}} or "
            "{{ .ToolInput | toJSON }}; let a command ask the model"
        )
    if found["name"] not in FACTS:
        raise UnfitPrompt(f"there is no fact .{found['name']}; there are: {', '.join(FACTS)}")
    value: Json = facts.get(FACTS[found["name"]])
    for step in filter(None, found["inner"].split(".")):
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, str) and not (found["first"] or found["last"]):
        return value
    if value is None and not (found["first"] or found["last"]):
        return ""
    return msgspec.json.encode(value).decode()
