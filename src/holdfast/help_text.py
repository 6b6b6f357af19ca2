"""What `holdfast --help` prints, kept ready: the command line itself needs click, which takes longer than all the rest.

`tests/cli/test_help_text.py` compares it with what click would print.
"""

from __future__ import annotations

HELP = """\
Usage: holdfast [OPTIONS] COMMAND [ARGS]...

  AI agents over the OpenAI API, with conversations that hold: every turn is a
  transaction.

Options:
  --version   Show the version and exit.
  --debug     Show where an error came from.
  -h, --help  Show this message and exit.

Commands:
  acp         Let an editor talk to an agent, over stdio.
  agents      Look at agent files: check, list, schema, login.
  approvals   Decide on calls that wait for a person.
  chat        Talk to an agent.
  completion  Print a script for shell completion.
  connect     Print the settings of a client for a server.
  db          Look after a database: migrate, verify, back up, move, count,
              prune.
  demo        See in two minutes what makes it different.
  doctor      Check this machine, the store and the agents, and say how to fix
              problems.
  init        Write a first agent, with a tool of its own.
  keys        Make, list and revoke API keys.
  mcp         Offer agents to an MCP host over stdin and stdout.
  run         Run one turn, for scripts.
  serve       Serve agents over the OpenAI API.
  sessions    Look after conversations: list, search, show, move, fork,
              rewind, delete.
  status      See what goes on: turns that run, wait for a person, broke off
              or failed.
  turns       See the outcome of turns; stop or continue one.
"""
