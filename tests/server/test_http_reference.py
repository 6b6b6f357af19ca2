"""The page about the HTTP API names every endpoint, with the scope that it needs, and nothing else."""

from __future__ import annotations

import re

from holdfast.testing import ScriptedModel
from tests import repository
from tests.server.stubs import agent, serving

PAGE = repository.ROOT / "docs" / "reference" / "http.md"


async def test_the_page_has_every_route_and_no_other() -> None:
    told: dict[str, str] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\| (`[A-Z]+ /[^|]*`) \| (?:`(\w+)`)? *\|", line):
            told |= dict.fromkeys(re.findall(r"`([^`]+)`", found[1]), found[2] or "")
    async with serving(agent(ScriptedModel())) as server:
        there = {each.label: each.scope or "" for each in server.app.routes}
    assert told == there
