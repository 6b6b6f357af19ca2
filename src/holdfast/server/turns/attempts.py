"""Attempts: how the server recognises a request that it has received before.

With an idempotency key, a request is the same under any credentials of its tenant: a client with a new API key still
gets its answer. Without one, a retry is recognised by its content and its credentials, since two clients may well send
the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256

from holdfast.server.http.routing import HttpCall
from holdfast.sessions.ambient import wall_clock_ms
from holdfast.store.outcomes import Attempt
from holdfast.wire.conversation_names import UNCOUNTED
from holdfast.wire.headers import API_KEY, APPROVALS, AUTHORIZATION, HEADERS, ConversationHeaders

SHAPING = dict.fromkeys(each.name for each in HEADERS if each.shapes_answer)
"""Headers that change the answer. Retry counters, tracing and busy policy do not."""

_UNSHAPED = bytes(4 * len(SHAPING))
"""These headers, framed, of a request that has none of them: of nearly all."""


def attempt_of(
    call: HttpCall, naming: ConversationHeaders, *, now_ms: Callable[[], int] = wall_clock_ms
) -> Attempt:
    """The hash and the keys that tell this request from others."""
    exchange = call.exchange
    headers = exchange.headers
    shaping = _UNSHAPED
    if not SHAPING.keys().isdisjoint(headers):
        shaping = _framed(headers.get(name, "") for name in SHAPING)
    about = (
        call.tenant,
        "" if naming.idempotency_key else _credentials(call),
        exchange.method,
        exchange.path,
        str(naming.name),
    )
    shape = sha256(_framed(about) + shaping)
    if not naming.answer.asks_in_words:
        # Newer than the others: requests without it have the hash that older servers give them.
        shape.update(_framed((APPROVALS.name,)))
    shape.update(call.body)
    return Attempt(
        request_hash=shape.digest(),
        key=naming.idempotency_key,
        client_attempt=naming.client_attempt or _uncounted_attempt(call, now_ms),
    )


def _framed(parts: Iterable[str]) -> bytes:
    """These texts, each with its length in front."""
    return b"".join([len(each).to_bytes(4) + each for each in map(str.encode, parts)])


def _uncounted_attempt(call: HttpCall, now_ms: Callable[[], int]) -> int:
    """A number that grows with every attempt, for programs that repeat requests and do not count; 0 for all others.

    A server whose clock is behind does not recognise the attempt: it is answered by a turn of its own.
    """
    return 0 if UNCOUNTED.isdisjoint(call.exchange.headers) else now_ms()


def _credentials(call: HttpCall) -> str:
    """The caller's API key id; where no key is needed, the header with the key as it was sent."""
    headers = call.exchange.headers
    return call.caller.key_id or headers.get(AUTHORIZATION.name) or headers.get(API_KEY.name) or ""
