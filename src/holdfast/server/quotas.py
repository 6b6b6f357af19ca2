"""How much one tenant, or one key, may ask for: what keeps one of them from being all that a server does.

Requests are counted by a token bucket that a minute fills; turns, streams and watchers by how many there are at once.
All of it is of this process: with three replicas a tenant may do three times as much. That is on purpose. A count that
replicas share would be a question to the store for every request, to bound what is there to be bounded anyway.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from math import floor
from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.config import Quota
from holdfast.core.codec import Value
from holdfast.ids import Tenant
from holdfast.server.exchange import Exchange
from holdfast.server.routing import Caller, Load
from holdfast.wire.problems import Problem, Refused

BUCKETS_MAX = 10_000
"""Tenants and keys whose pace is remembered. One who has rested for a minute need not be."""

Payer: TypeAlias = tuple[Literal["tenant", "key"], str]
"""Whose account something goes on."""


# ── the decision ─────────────────────────────────────────────────────────────────────────────


class Bucket(Value):
    """What was left at a moment."""

    tokens: float
    at_s: float


class Drawn(Value):
    """What became of one request: let through if `wait_s` is 0."""

    bucket: Bucket
    remaining: int
    reset_s: float
    """Until nothing is missing any more."""
    wait_s: float


def draw(bucket: Bucket | None, *, per_minute: int, now_s: float) -> Drawn:
    """Take one token, if there is one."""
    rate = per_minute / 60
    held = float(per_minute)
    if bucket is not None:
        held = min(held, bucket.tokens + max(0.0, now_s - bucket.at_s) * rate)
    if held < 1:
        left, wait_s = held, (1 - held) / rate
    else:
        left, wait_s = held - 1, 0.0
    return Drawn(
        bucket=Bucket(tokens=left, at_s=now_s),
        remaining=floor(left),
        reset_s=(per_minute - left) / rate,
        wait_s=wait_s,
    )


# ── keeping count ────────────────────────────────────────────────────────────────────────────


class Quotas:
    """The accounts of everybody who comes in."""

    def __init__(
        self,
        *,
        tenant: Quota = Quota(),  # noqa: B008
        key: Quota = Quota(),  # noqa: B008
        playing: Callable[[Tenant], int] = lambda _: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`playing` says how many turns of a tenant go on whoever waits for them: in the background, or
        because their client has gone and they are to be finished."""
        self._tenant = tenant
        self._key = key
        self._playing = playing
        self._clock = clock
        self._buckets: dict[Payer, Bucket] = {}
        self._held: Counter[tuple[Payer, Load]] = Counter()

    def enter(self, exchange: Exchange, caller: Caller) -> Visit:
        """Count a request. Raises Refused (429) if it is one too many; it then counts for nobody."""
        now_s = self._clock()
        drawn = {
            payer: (limit, draw(self._buckets.get(payer), per_minute=limit, now_s=now_s))
            for payer, quota in self._payers(caller)
            if (limit := quota.requests_per_minute) is not None
        }
        if drawn:
            limit, tightest = min(
                drawn.values(), key=lambda each: (-each[1].wait_s, each[1].remaining)
            )
            exchange.about |= _told(limit, tightest)
            if tightest.wait_s:
                raise Refused(_too_fast(limit, tightest.wait_s))
            if len(self._buckets) > BUCKETS_MAX:
                self._forget(now_s)
            self._buckets.update((payer, each.bucket) for payer, (_, each) in drawn.items())
        return Visit(self, caller)

    def occupy(self, caller: Caller, load: Load) -> None:
        payers = self._payers(caller)
        for payer, quota in payers:
            most: int | None = getattr(quota, load)
            if most is not None and self._now(payer, load) >= most:
                raise Refused(_too_many(payer, load, most))
        for payer, _ in payers:
            self._held[payer, load] += 1

    def _now(self, payer: Payer, load: Load) -> int:
        """How many there are; of turns, whichever is more of those waited for and those played."""
        held, (whose, name) = self._held[payer, load], payer
        if load != "turns" or whose != "tenant":
            return held
        return max(held, self._playing(Tenant(name)))

    def leave(self, caller: Caller, loads: list[Load]) -> None:
        for load in loads:
            for payer, _ in self._payers(caller):
                self._held[payer, load] -= 1
                if not self._held[payer, load]:
                    del self._held[payer, load]

    def _payers(self, caller: Caller) -> list[tuple[Payer, Quota]]:
        payers: list[tuple[Payer, Quota]] = [(("tenant", caller.tenant), self._tenant)]
        if caller.key_id is not None:
            payers.append((("key", caller.key_id), self._key))
        return payers

    def _forget(self, now_s: float) -> None:
        """Whoever has not been here for a minute has a full bucket, and needs none."""
        self._buckets = {
            payer: bucket for payer, bucket in self._buckets.items() if now_s - bucket.at_s < 60
        }


class Visit(Struct, frozen=True):
    """One request, and what it occupies until it ends."""

    quotas: Quotas
    caller: Caller
    occupied: list[Load] = []

    def occupy(self, load: Load) -> None:
        """Take a place among the turns, streams or watchers. Raises Refused (429)."""
        self.quotas.occupy(self.caller, load)
        self.occupied.append(load)

    def end(self) -> None:
        self.quotas.leave(self.caller, self.occupied)
        self.occupied.clear()


def _told(limit: int, drawn: Drawn) -> dict[str, str]:
    return {
        "x-ratelimit-limit-requests": str(limit),
        "x-ratelimit-remaining-requests": str(drawn.remaining),
        "x-ratelimit-reset-requests": f"{drawn.reset_s:.3f}s",
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


def _too_many(payer: Payer, load: Load, most: int) -> Problem:
    return Problem(
        status=429,
        code="concurrency_limit_exceeded",
        message=f"this {payer[0]} has {most} {load} at once, and may not have more; "
        "wait until one of them has ended",
        kind="requests",
        retry_after_s=1.0,
        should_retry=True,
    )
