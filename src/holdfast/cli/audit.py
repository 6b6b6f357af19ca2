"""What somebody does at a command line, for the same log as what is done over HTTP."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import sys

from holdfast.environment import variable
from holdfast.observe.events import Field, audit, configure


def audit_command(action: str, /, **fields: Field) -> None:
    """Write a line of the audit log to stderr: what was done, and by whom on which machine.

    In JSON if the servers here log that (`HOLDFAST_LOG_FORMAT`), so that one collector reads both.
    """
    is_json = os.environ.get(variable("log_format")) == "json"
    handler = configure("json" if is_json else "text", stream=sys.stderr)
    try:
        audit(action, by=_user(), host=socket.gethostname(), **fields)
    finally:
        logging.getLogger().removeHandler(handler)


def _user() -> str:
    """Who runs this, by name if the machine knows one."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have none
        return f"uid {os.getuid()}"
