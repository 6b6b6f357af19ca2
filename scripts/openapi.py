"""Print the document that `GET /openapi.json` answers with; `make openapi` keeps it in docs/reference."""

from __future__ import annotations

import asyncio
import sys

from holdfast import Sessions, nobody_plays
from holdfast.server.agents import load_directory
from holdfast.server.app import App
from holdfast.server.openapi import document, rendered
from holdfast.server.openapi_operations import DESCRIPTION
from holdfast.store.memory import MemoryStore


async def main() -> None:
    directory = await load_directory(["demo"])
    app = App(Sessions(MemoryStore(), nobody_plays), directory)
    sys.stdout.buffer.write(rendered(document(app.routes, DESCRIPTION)))
    await directory.close()


asyncio.run(main())
