"""The parameters of a step: the agent's, with those of the request on top."""

from __future__ import annotations

from itertools import islice

import msgspec

from holdfast.core.items import Path, ToolCall
from holdfast.core.turns.events import Parameters
from holdfast.core.turns.turn import Turn

_NOTHING = Parameters()


def parameters_for(agent: Parameters, turn: Turn, path: Path) -> Parameters:
    """The parameters for the next step of a branch. Sub-agents keep their own.

    A `tool_choice` that forces a call holds until the model has made one: otherwise the turn would never end. A client
    that brings tools and requires a call means one of them, and its call ends the turn: until then the agent may use
    its own tools, but not answer.
    """
    parameters = agent if path else merged(agent, turn.request.parameters)
    if parameters.tool_choice is None or not _has_called(turn, path):
        return parameters
    if not path and turn.request.client_tools and turn.request.parameters.tool_choice == "required":
        return parameters
    choice = unforced(parameters.tool_choice)
    return msgspec.structs.replace(parameters, tool_choice=choice)


def merged(agent: Parameters, request: Parameters) -> Parameters:
    """The request's parameters, and the agent's where the request has none; `others` are merged by name."""
    if request == _NOTHING:  # nearly always
        return agent
    said = {
        name: value
        for name in Parameters.__struct_fields__
        if (value := getattr(request, name)) not in (None, ())
    }
    others = {**dict(agent.others), **dict(request.others)}
    return msgspec.structs.replace(agent, **{**said, "others": tuple(others.items())})


def unforced(choice: str) -> str:
    """The same `tool_choice`, with the model free to call no tool."""
    if choice in ("none", "auto"):
        return choice
    try:
        asked: object = msgspec.json.decode(choice)
    except msgspec.DecodeError:
        return "auto"
    if not isinstance(asked, dict) or asked.get("type") != "allowed_tools":
        return "auto"
    # The allowed tools stay as they are: nested in Chat Completions, flat in Responses.
    inner = asked.get("allowed_tools")
    if isinstance(inner, dict):
        return msgspec.json.encode({**asked, "allowed_tools": {**inner, "mode": "auto"}}).decode()
    return msgspec.json.encode({**asked, "mode": "auto"}).decode()


def _has_called(turn: Turn, path: Path) -> bool:
    """Whether the model has called a tool in this turn. Calls that the request brought along do not count."""
    return any(
        isinstance(item, ToolCall) and item.path == path and item.state == "complete"
        for item in islice(turn.items, len(turn.request.input), None)
    )
