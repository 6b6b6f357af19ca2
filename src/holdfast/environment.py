"""Variables of the environment that are ours. Each name is written here alone, or made here of a setting's name."""

from __future__ import annotations

PREFIX = "HOLDFAST_"


def variable(setting: str) -> str:
    """The variable that a setting of `holdfast.config` is read from."""
    return f"{PREFIX}{setting.upper()}"


SERVER = "HOLDFAST_SERVER"
API_KEY = "HOLDFAST_API_KEY"
COMMANDS = {
    SERVER: "The server that a command talks to, in place of a store.",
    API_KEY: "The API key that the server wants.",
}
"""Variables of commands that talk to a server, and what each says."""

CALL_KEY = "HOLDFAST_CALL_KEY"
MCP_SERVER = "HOLDFAST_MCP_SERVER"
MARKS = {
    CALL_KEY: "The stable key of the call that a command of an agent runs for.",
    MCP_SERVER: "Which MCP server a process belongs to.",
}
"""Variables that a server gives to the processes that it starts; one of them may start another server."""
