"""Authentication: from the API key of a request to its tenant and scopes.

1. A key is compared by its hash and in constant time; the refusal of a wrong key does not tell why it is wrong.
2. A cached key is at most `key_cache_s` old, so a revoked key is refused on every replica within a second, and its open
   requests end (`access/key_watch.py`). A turn that has begun goes on: the key was good when the client asked for it.
3. `auto` needs no key, and makes every caller tenant `local`, as long as the store has never had a key. From the first
   key on, every request needs one, open requests included: a store whose keys are all revoked is closed to all clients,
   not open to all.
4. Beyond loopback a key is always needed, unless the operator says `off`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hmac import compare_digest

from holdfast import limits
from holdfast.config import Auth
from holdfast.errors import InvalidValue
from holdfast.ids import LOCAL, KeyId
from holdfast.server.http.exchange import Exchange
from holdfast.server.http.routing import Caller, Scope
from holdfast.sessions.ambient import wall_clock_ms
from holdfast.store.api_keys import parse_key
from holdfast.store.rows import ApiKeyRow
from holdfast.store.store import Store
from holdfast.wire.headers import API_KEY, AUTHORIZATION
from holdfast.wire.problems import Problem, Refused, permanent

ANYBODY = Caller(tenant=LOCAL)

NOT_A_DIGEST = bytes(32)
"""Compared with the shown key if there is no such key, so that it takes as long as if there were one."""


async def make_authenticator(
    store: Store,
    auth: Auth,
    *,
    beyond_loopback: bool,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> Authenticator:
    """The authenticator of a server. Raises InvalidValue if other machines could use the server without a key, and the
    operator has not said `off`."""
    if auth != "auto" or not beyond_loopback:
        return Authenticator(store, auth, now_ms=now_ms)
    if not await store.api_keys(limit=1):
        raise InvalidValue(
            "listening beyond this machine lets others in, and there is no API key yet; make one with "
            "`holdfast keys create`, listen on 127.0.0.1, or say --auth off if something in front checks who comes in"
        )
    return Authenticator(store, "required", now_ms=now_ms)


class Authenticator:
    """Finds the caller of each request by its API key, or refuses the request."""

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
        """The caller of a request. Raises Refused: 401 without a valid key, 403 if the key lacks the `needed` scope."""
        if await self._lets_anybody_in():
            return ANYBODY
        row = await self._find(exchange.headers)
        caller = Caller(
            tenant=row.tenant,
            key_id=row.key_id,
            scopes=row.scopes,
            conversation_from=row.conversation_from,
        )
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

    async def _find(self, headers: Mapping[str, str]) -> ApiKeyRow:
        shown = next(filter(None, map(parse_key, credentials_in(headers))), None)
        if shown is None:
            given = AUTHORIZATION.name in headers or API_KEY.name in headers
            raise Refused(_unknown("an incorrect API key" if given else "no API key"))
        row = await self._row(shown.key_id)
        if not compare_digest(shown.digest, row.digest if row else NOT_A_DIGEST) or row is None:
            raise Refused(_unknown("an incorrect API key"))
        problem = self._fault(row)
        if problem is not None:
            raise Refused(problem)
        return row

    async def judge(self, key_id: KeyId | None) -> Problem | None:
        """Why an open request with this key, or without one, must end by now; None if it may go on."""
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
        if row is None:  # not cached: a client that guesses keys would push out the real ones
            self._rows.pop(key_id, None)
            return None
        if len(self._rows) >= limits.key_cache_max:
            self._rows.clear()
        # The row's age counts from before the read: the key may have been revoked during it.
        self._rows[key_id] = row, now + limits.key_cache_s
        return row


def credentials_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """What may be an API key in these headers: the bearer token, then `x-api-key`, as Anthropic's clients send it."""
    scheme, _, text = headers.get(AUTHORIZATION.name, "").partition(" ")
    bearer = text.strip() if scheme.lower() == "bearer" else ""
    return tuple(filter(None, (bearer, headers.get(API_KEY.name, "").strip())))


def may(scopes: tuple[str, ...], needed: Scope) -> bool:
    """Whether a key with these scopes allows what needs this scope."""
    return needed in scopes or "admin" in scopes


def _unknown(shown: str) -> Problem:
    return permanent(
        401,
        "invalid_api_key",
        f"{shown} was provided; send one as 'Authorization: Bearer hf_…' or 'x-api-key: hf_…'. "
        "The operator of this server makes them with `holdfast keys create`",
        more_headers=(("www-authenticate", "Bearer"),),
    )


def insufficient(caller: Caller, needed: Scope) -> Problem:
    """The answer to a caller whose key lacks the needed scope."""
    return permanent(
        403,
        "insufficient_scope",
        f"this needs a key with the scope '{needed}', and {caller.key_id} has "
        f"{', '.join(caller.scopes) or 'none'}",
        kind="permission_error",
        more_headers=(
            ("www-authenticate", f'Bearer error="insufficient_scope", scope="{needed}"'),
        ),
    )
