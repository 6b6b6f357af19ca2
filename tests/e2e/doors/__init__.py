"""Every protocol that leads to a turn, behind one interface, so that tests can make the same claims about all of them."""

from __future__ import annotations

from tests.e2e.doors.a2a import A2ADoor
from tests.e2e.doors.acp import AcpDoor
from tests.e2e.doors.chat import ChatDoor
from tests.e2e.doors.door import Door
from tests.e2e.doors.messages import MessagesDoor
from tests.e2e.doors.responses import ResponsesDoor
from tests.e2e.doors.tool_host import McpDoor, McpSessionDoor, McpTaskDoor

DOORS: tuple[Door, ...] = (ChatDoor(), ResponsesDoor(), MessagesDoor(), AcpDoor(), A2ADoor())
"""One of each. A new protocol adds a module to this package, and its door to this list."""

DOORS += (McpDoor(), McpTaskDoor(), McpSessionDoor())
