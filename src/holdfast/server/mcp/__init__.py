"""Agents as an MCP server, at `/mcp`: every agent is a tool, and what it answers is a turn like any other.

No request depends on the process that answered another one: turns and what waits are in the store, and what a client
brings back (a task id, the state of a question, a session id) says all that is needed.
"""
