"""Quotas: bounds on what one tenant, or one key, may use, so that no tenant takes the whole server.

Requests are counted by a token bucket that refills in a minute; turns, streams and watchers by how many there are at
once. The counts are of one machine's server, all its workers together (`access/quota_usage.py`): with three replicas a
tenant may use three times as much. That is on purpose: a count that replicas share would cost a query to the store for
every request, while each machine's load is bounded already.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import floor

from msgspec import Struct

from holdfast.config import Quota
from holdfast.core.codec import Value
from holdfast.ids import Tenant
from holdfast.server.access.quota_usage import Bucket, Payer, ProcessQuotaUsage, QuotaUsage
from holdfast.server.http.exchange import Exchange
from holdfast.server.http.routing import Caller, Load
from holdfast.wire.headers import RATE_LIMIT, RATE_REMAINING, RATE_RESET
from holdfast.wire.problems import Problem, Refused, too_many

# ── the decision ─────────────────────────────────────────────────────────────────────────────


class QuotaDraw(Value):
    """The decision about one request: admitted if `wait_s` is 0."""

    bucket: Bucket
    remaining: int
    reset_s: float
    """How long until the bucket is full again."""
    wait_s: float


def draw(bucket: Bucket | None, *, per_minute: int, now_s: float) -> QuotaDraw:
    """Take one token, if there is one."""
    rate = per_minute / 60
    held = float(per_minute)
    if bucket is not None:
        held = min(held, bucket.tokens + max(0.0, now_s - bucket.at_s) * rate)
    if held < 1:
        left, wait_s = held, (1 - held) / rate
    else:
        left, wait_s = held - 1, 0.0
    return QuotaDraw(
        bucket=Bucket(tokens=left, at_s=now_s),
        remaining=floor(left),
        reset_s=(per_minute - left) / rate,
        wait_s=wait_s,
    )


# ── keeping count ────────────────────────────────────────────────────────────────────────────


class Quotas:
    """The quotas of all tenants and keys."""

    def __init__(
        self,
        *,
        tenant: Quota = Quota(),  # noqa: B008
        key: Quota = Quota(),  # noqa: B008
        playing: Callable[[Tenant], int] = lambda _: 0,
        clock: Callable[[], float] = time.monotonic,
        usage: QuotaUsage | None = None,
    ) -> None:
        """`playing` says how many turns of a tenant run here, whether or not a client waits for them: some run in the
        background, some are finished after their client has disconnected."""
        self._tenant = tenant
        self._key = key
        self._bounds_any = not tenant == key == Quota()
        self._playing = playing
        self._clock = clock
        self._usage = usage or ProcessQuotaUsage(clock=clock)
        self._noted: dict[Payer, int] = {}
        """How many turns of each tenant the usage counts as played here; tenants without any are left out."""

    def enter(self, exchange: Exchange, caller: Caller) -> QuotaSlot:
        """Count a request. Raises Refused (429) if it is one too many, and then counts it for no payer."""
        bounded = self._bounded(caller, "requests_per_minute")
        if bounded:
            with self._usage.opened():
                limit, tightest = self._draw(bounded)
            exchange.about |= _limit_headers(limit, tightest)
            if tightest.wait_s:
                raise Refused(_too_fast(limit, tightest.wait_s))
        return QuotaSlot(self, caller)

    def _draw(self, bounded: list[tuple[Payer, int]]) -> tuple[int, QuotaDraw]:
        """Draw a token from each payer if all have one; returns the tightest limit and its draw."""
        usage, now_s = self._usage, self._clock()
        drawn = {
            payer: (limit, draw(usage.bucket(payer), per_minute=limit, now_s=now_s))
            for payer, limit in bounded
        }
        limit, tightest = min(drawn.values(), key=lambda each: (-each[1].wait_s, each[1].remaining))
        if not tightest.wait_s:
            for payer, (_, each) in drawn.items():
                usage.put(payer, each.bucket)
        return limit, tightest

    def occupy(self, caller: Caller, load: Load) -> None:
        """Count one more turn, stream or watcher. Raises Refused (429) if the caller has as many as it may have."""
        bounded = self._bounded(caller, load)
        if not bounded:
            return
        with self._usage.opened():
            for payer, most in bounded:
                if self._now(payer, load) >= most:
                    words = f"this {payer[0]} has {most} {load} at once, and may not have more; "
                    raise Refused(too_many(f"{words}wait until one of them has ended"))
            for payer, _ in bounded:
                self._usage.add(payer, load, 1)

    def _now(self, payer: Payer, load: Load) -> int:
        """The payer's count now. A tenant's turns are counted twice, by the requests that wait for them and as they are played:
        the larger count holds."""
        held = self._usage.count(payer, load)
        if load != "turns" or payer[0] != "tenant":
            return held
        self._note_playing(payer)
        return max(held, self._usage.count(payer, "playing"))

    def leave(self, caller: Caller, loads: list[Load]) -> None:
        counted = [(payer, load) for load in loads for payer, _ in self._bounded(caller, load)]
        if counted:
            with self._usage.opened():
                for payer, load in counted:
                    self._usage.add(payer, load, -1)
                    if load == "turns" and payer[0] == "tenant":
                        self._note_playing(payer)

    def refresh(self) -> None:
        """Update the counts of played turns, so that the other workers see which ones have ended."""
        if self._noted:
            with self._usage.opened():
                for payer in tuple(self._noted):
                    self._note_playing(payer)

    def _note_playing(self, payer: Payer) -> None:
        playing, noted = self._playing(Tenant(payer[1])), self._noted.pop(payer, 0)
        if playing != noted:
            self._usage.add(payer, "playing", playing - noted)
        if playing:
            self._noted[payer] = playing

    def _bounded(self, caller: Caller, what: str) -> list[tuple[Payer, int]]:
        """The payers that have a bound on `what`, each with its bound."""
        if not self._bounds_any:
            return []
        return [
            (payer, bound)
            for payer, quota in self._payers(caller)
            if (bound := getattr(quota, what)) is not None
        ]

    def _payers(self, caller: Caller) -> list[tuple[Payer, Quota]]:
        payers: list[tuple[Payer, Quota]] = [(("tenant", caller.tenant), self._tenant)]
        if caller.key_id is not None:
            payers.append((("key", caller.key_id), self._key))
        return payers


class QuotaSlot(Struct, frozen=True):
    """What one request occupies until it ends."""

    quotas: Quotas
    caller: Caller
    occupied: list[Load] = []

    def occupy(self, load: Load) -> None:
        """Count this request as a turn, stream or watcher. Raises Refused (429) if the quota is used up."""
        self.quotas.occupy(self.caller, load)
        self.occupied.append(load)

    def end(self) -> None:
        self.quotas.leave(self.caller, self.occupied)
        self.occupied.clear()


def _limit_headers(limit: int, drawn: QuotaDraw) -> dict[str, str]:
    return {
        RATE_LIMIT.name: str(limit),
        RATE_REMAINING.name: str(drawn.remaining),
        RATE_RESET.name: f"{drawn.reset_s:.3f}s",
    }


def _too_fast(limit: int, wait_s: float) -> Problem:
    return Problem(
        status=429,
        code="rate_limit_exceeded",
        message=f"more than {limit} requests a minute; the next one is welcome in {wait_s:.1f} s",
        kind="requests",
        retry_after_s=wait_s,
        should_retry=True,
    )
