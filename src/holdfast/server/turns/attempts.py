"""How a request is known again.

With an idempotency key it is the same request whoever's credentials it comes with, as long as they are of the same
tenant: a client that has been given a new API key still gets its answer. Without one, a retry is recognised by what
it says and by who says it, since two people may well say the same.
"""

from __future__ import annotations

from hashlib import sha256

from holdfast.server.http.routing import HttpCall
from holdfast.store.outcomes import Attempt
from holdfast.wire.headers import HEADERS, ConversationHeaders

SHAPING = tuple(each.name for each in HEADERS if each.shapes_answer)
"""Headers that an answer depends on. Retry counters, tracing and busy policy are not among them."""


def attempt_of(call: HttpCall, naming: ConversationHeaders) -> Attempt:
    """What tells this request from others."""
    exchange = call.exchange
    shape = sha256()
    for part in (
        call.tenant,
        "" if naming.idempotency_key else _credentials(call),
        exchange.method,
        exchange.path,
        str(naming.name),
        *(exchange.headers.get(name, "") for name in SHAPING),
    ):
        piece = part.encode()
        shape.update(len(piece).to_bytes(4) + piece)
    shape.update(call.body)
    return Attempt(
        request_hash=shape.digest(),
        key=naming.idempotency_key,
        client_attempt=naming.client_attempt,
    )


def _credentials(call: HttpCall) -> str:
    """Who says it; where nobody needs a key, whoever they say that they are."""
    return call.caller.key_id or call.exchange.headers.get("authorization", "")
