"""Nothing that a client is shown says where on the server's machine a file lies."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.models.demo.demo_model import DemoModel
from holdfast.server.agents.source_directory import load_directory
from holdfast.store.memory_store import MemoryStore
from tests.server.agents.test_source_directory import ALONE
from tests.server.stubs import serving


async def test_feeds_exports_and_lists_show_a_files_name_and_not_where_it_lies(
    tmp_path: Path,
) -> None:
    file = tmp_path / "butler.yaml"
    file.write_text(ALONE)
    directory = await load_directory([str(file)], make_model=lambda config: DemoModel(pace_s=0))
    store = MemoryStore()
    keyed = {"X-Conversation-Id": "trip", "Idempotency-Key": "k"}
    try:
        async with serving(directory=directory, store=store) as server:
            model = directory.entries()[0].id
            answer = await server.chat("Hi", headers=keyed, model=model)
            events = await server.get(f"/api/turns/{answer.headers['x-turn-id']}/events")
            export = await server.get("/api/sessions/trip/export")
            shown = [
                await server.get(f"/api/{each}")
                for each in ("agents", "sessions", "sessions/trip", "sessions/trip/turns")
            ]
            assert events.events[0]["event"]["request"]["source_key"] == "butler.yaml"
            for each in (events, export, *shown):
                assert str(tmp_path).encode() not in each.body

            again = await server.request("POST", "/api/sessions/import", data=export.body)
            assert again.json["there_already"], "what has gone out is known when it comes back"

        async with serving(directory=directory, store=MemoryStore()) as elsewhere:
            await elsewhere.request("POST", "/api/sessions/import", data=export.body)
            went_on = await elsewhere.chat("And?", to="trip", model=model)
            assert went_on.headers["x-conversation-base"] == "1"
    finally:
        await directory.close()
    assert msgspec.json.decode(export.body.splitlines()[1])["source_key"] == "butler.yaml"
