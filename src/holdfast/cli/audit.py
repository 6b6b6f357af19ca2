"""The audit log of the command line: the same lines as a server writes for HTTP requests."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import sys

from holdfast.environment import variable
from holdfast.observe.events import Field, audit, configure


def audit_command(action: str, /, **fields: Field) -> None:
    """Write a line of the audit log to stderr: the action, the user and the machine.

    It is JSON if servers here log JSON (`HOLDFAST_LOG_FORMAT`), so that one collector reads both.
    """
    is_json = os.environ.get(variable("log_format")) == "json"
    handler = configure("json" if is_json else "text", stream=sys.stderr)
    try:
        audit(action, by=_user(), host=socket.gethostname(), **fields)
    finally:
        logging.getLogger().removeHandler(handler)


def _user() -> str:
    """The name of the user who runs this command, or the user's number."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have none
        return f"uid {os.getuid()}"
