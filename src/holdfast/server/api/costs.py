"""`GET /api/costs`: what the agents of a tenant have used today, by the turns in the store.

So it is the same on every server, and after a restart. Turns are read once: from the newest back to midnight with the
first question, and from there on only those of the last minute and those that had not ended.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast import limits
from holdfast.core.turns.events import Usage
from holdfast.ids import Tenant, TurnId
from holdfast.server.http.routing import AnswerDescription, HttpCall, Route
from holdfast.sessions.ambient import wall_clock_ms
from holdfast.store.rows import TurnRow
from holdfast.store.store import Store
from holdfast.wire.api.objects import UsageObject
from holdfast.wire.api.overview import AgentCost, Costs

DAY_S = 86_400
LATE_MS = 60_000
"""How late a turn may appear in the store: a turn is minted before it begins, and by the clock of its node."""


class _Day(Struct):
    """The turns of a tenant that began on one day, as far as they were read."""

    since_s: int
    agents: dict[str, tuple[int, Usage]]
    read_ms: int = 0
    """Turns that were minted before this are read."""
    read: set[TurnId] = set()
    """Turns since then that are read, too."""
    unsettled: set[TurnId] = set()
    whole: bool = True

    def add(self, row: TurnRow) -> None:
        if row.state in ("open", "queued"):
            self.unsettled.add(row.turn_id)
            return
        self.unsettled.discard(row.turn_id)
        turns, used = self.agents.get(row.agent, (0, Usage()))
        self.agents[row.agent] = (turns + 1, used + row.usage)


class CostsApi:
    """The endpoint. One instance serves every request."""

    def __init__(self, store: Store, *, currency: str = "") -> None:
        self._store = store
        self._currency = currency
        self._days: dict[Tenant, _Day] = {}

    @Route("GET /api/costs", "read", "listCosts", AnswerDescription("By agent.", Costs))
    async def costs(self, call: HttpCall) -> None:
        """What the turns of today have used, by agent. A day begins at midnight, UTC."""
        day = await self._today(call.tenant)
        found = sorted(day.agents.items(), key=lambda each: -each[1][1].cost_micros)
        agents = tuple(
            AgentCost(agent=agent, turns=turns, usage=UsageObject.of(used))
            for agent, (turns, used) in found
        )
        await call.say(
            Costs(since=float(day.since_s), currency=self._currency, whole=day.whole, agents=agents)
        )

    async def _today(self, tenant: Tenant) -> _Day:
        now_ms = wall_clock_ms()
        since_s = now_ms // 1000 // DAY_S * DAY_S
        before = self._days.get(tenant)
        if before is None or before.since_s != since_s:
            before = _Day(since_s=since_s, agents={}, read_ms=since_s * 1000)
        # A copy, since another request may read meanwhile: the last one to end is kept, and each is right.
        day = _Day(
            since_s=since_s,
            agents=dict(before.agents),
            read_ms=before.read_ms,
            read=set(before.read),
            unsettled=set(before.unsettled),
            whole=before.whole,
        )
        for turn_id in tuple(day.unsettled):
            row = await self._store.turn(tenant, turn_id)
            if row is None:
                day.unsettled.discard(turn_id)
            else:
                day.add(row)
        await self._read_new(tenant, day)
        day.read_ms = max(day.read_ms, now_ms - LATE_MS)
        day.read = {each for each in day.read if each.minted_at_ms >= day.read_ms}
        if len(self._days) >= limits.cost_tenants_max and tenant not in self._days:
            self._days.pop(next(iter(self._days)))
        self._days[tenant] = day
        return day

    async def _read_new(self, tenant: Tenant, day: _Day) -> None:
        """Add the turns of the day that are not read yet."""
        before, left = None, limits.cost_turns_max
        while left > 0:
            rows = await self._store.recent_turns(tenant, before=before, limit=limits.page_size_max)
            for row in rows:
                if row.turn_id.minted_at_ms < day.read_ms:
                    return
                if row.turn_id not in day.read:
                    day.read.add(row.turn_id)
                    day.add(row)
            if len(rows) < limits.page_size_max:
                return
            before, left = rows[-1].turn_id, left - len(rows)
        day.whole = False
