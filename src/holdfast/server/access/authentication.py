"""Who comes in: from an API key to a tenant, and to what it may do there.

1. A key is compared by its hash and in constant time; what a wrong one is told does not depend on why it is wrong.
2. What is known about a key is `key_cache_s` old at most, so one that was revoked is refused on every replica within
   a second, and what it has open ends (`access/key_watch.py`). A turn that has begun goes on: it was asked for while the key
   was good.
3. `auto` lets everybody in as tenant `local` as long as there has never been a key. The first one closes the door
   for good, for what is open, too: a store whose keys are all revoked is one that nobody may use, not one that
   everybody may.
4. Beyond loopback nothing is open unless somebody says so (`off`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hmac import compare_digest

from holdfast import limits
from holdfast.config import Auth
from holdfast.errors import InvalidValue
from holdfast.ids import KeyId, Tenant
from holdfast.server.http.exchange import Exchange
from holdfast.server.http.routing import Caller, Scope
from holdfast.store.api_keys import parse_key
from holdfast.store.rows import ApiKeyRow
from holdfast.store.store import Store
from holdfast.wire.problems import Problem, Refused

LOCAL = Tenant("local")
"""Whose everything is, where nobody needs a key."""

ANYBODY = Caller(tenant=LOCAL)

NOT_A_DIGEST = bytes(32)
"""Compared with where there is no key, so that it takes as long as where there is one."""


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


async def open_door(
    store: Store,
    auth: Auth,
    *,
    beyond_loopback: bool,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> Authenticator:
    """The door of a server. Raises InvalidValue if it would stand open to others, and nobody said so."""
    if auth != "auto" or not beyond_loopback:
        return Authenticator(store, auth, now_ms=now_ms)
    if not await store.api_keys(limit=1):
        raise InvalidValue(
            "listening beyond this machine lets others in, and there is no API key yet; make one with "
            "`holdfast keys create`, listen on 127.0.0.1, or say --auth off if something in front checks who comes in"
        )
    return Authenticator(store, "required", now_ms=now_ms)


class Authenticator:
    """Lets requests in, each as somebody."""

    def __init__(
        self,
        store: Store,
        auth: Auth,
        *,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """`clock` says how old a row is, `now_ms` whether a key has expired."""
        self._store = store
        self._auth: Auth = auth
        self._clock = clock
        self._now_ms = now_ms
        self._rows: dict[KeyId, tuple[ApiKeyRow, float]] = {}
        self._open_until = float("-inf")

    async def admit(self, exchange: Exchange, needed: Scope) -> Caller:
        """Who asks, if they may. Raises Refused: 401 for a key that is none, 403 for one that may not."""
        if await self._lets_anybody_in():
            return ANYBODY
        row = await self._find(exchange.headers.get("authorization", ""))
        caller = Caller(tenant=row.tenant, key_id=row.key_id, scopes=row.scopes)
        if not may(caller.scopes, needed):
            raise Refused(insufficient(caller, needed))
        return caller

    async def _lets_anybody_in(self) -> bool:
        return self._auth == "off" or (self._auth == "auto" and await self._is_open())

    async def _is_open(self) -> bool:
        now = self._clock()
        if now >= self._open_until and not await self._store.api_keys(limit=1):
            self._open_until = now + limits.key_cache_s
        if now < self._open_until:
            return True
        self._auth = "required"  # and never open again
        return False

    async def _find(self, authorization: str) -> ApiKeyRow:
        scheme, _, text = authorization.partition(" ")
        shown = parse_key(text.strip()) if scheme.lower() == "bearer" else None
        if shown is None:
            raise Refused(_unknown("no API key" if not text else "an incorrect API key"))
        row = await self._row(shown.key_id)
        if not compare_digest(shown.digest, row.digest if row else NOT_A_DIGEST) or row is None:
            raise Refused(_unknown("an incorrect API key"))
        problem = self._fault(row)
        if problem is not None:
            raise Refused(problem)
        return row

    async def judge(self, key_id: KeyId | None) -> Problem | None:
        """What is wrong by now with a key that was good, or with having none, if anything."""
        if key_id is None:
            return None if await self._lets_anybody_in() else _unknown("no API key")
        return self._fault(await self._row(key_id))

    def _fault(self, row: ApiKeyRow | None) -> Problem | None:
        if row is None or row.revoked_ms is not None:
            return _unknown("an API key that was revoked")
        if row.expires_ms is not None and row.expires_ms <= self._now_ms():
            return _unknown("an API key that has expired")
        return None

    async def _row(self, key_id: KeyId) -> ApiKeyRow | None:
        now = self._clock()
        found = self._rows.get(key_id)
        if found is not None and now < found[1]:
            return found[0]
        row = await self._store.api_key(key_id)
        if row is None:  # not remembered: whoever guesses would only push others out
            self._rows.pop(key_id, None)
            return None
        if len(self._rows) >= limits.key_cache_max:
            self._rows.clear()
        # Its age counts from before it was read: it may have been revoked while it was.
        self._rows[key_id] = row, now + limits.key_cache_s
        return row


def may(scopes: tuple[str, ...], needed: Scope) -> bool:
    """Whether a key with these scopes may do what needs that one."""
    return needed in scopes or ("admin" in scopes and needed != "metrics")


def _unknown(shown: str) -> Problem:
    return Problem(
        status=401,
        code="invalid_api_key",
        message=f"{shown} was provided; send one as 'Authorization: Bearer hf_…'. "
        "Whoever runs this server makes them with `holdfast keys create`",
        should_retry=False,
        more_headers=(("www-authenticate", "Bearer"),),
    )


def insufficient(caller: Caller, needed: Scope) -> Problem:
    """What somebody is told whose key does not allow it."""
    return Problem(
        status=403,
        code="insufficient_scope",
        message=f"this needs a key with the scope '{needed}', and {caller.key_id} has "
        f"{', '.join(caller.scopes) or 'none'}",
        kind="permission_error",
        should_retry=False,
        more_headers=(
            ("www-authenticate", f'Bearer error="insufficient_scope", scope="{needed}"'),
        ),
    )
