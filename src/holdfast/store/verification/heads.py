"""The heads of all chains, kept outside of the store: what it cannot show by itself is that it was set back.

    {"type":"holdfast","format":"heads","version":[1,0]}
    {"tenant":"local","session_id":"conv_…","version":7,"link":"…","rev":2,"notes":"…"}
    {"type":"last","sessions":1}

A store that has gone on since has these versions and revisions still, with the same links. A session that was deleted
since has its tombstone. So whatever else is found was set back, lost or replaced:

  session_lost    there is no such session, and no tombstone of it
  set_back        a session is at an earlier version or revision than it was
  head_replaced   a session has another turn at that version, or other annotations up to that revision
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from hashlib import sha256

import msgspec

from holdfast.core.codec import Decoder, Value, encode
from holdfast.core.history.checks import Violation
from holdfast.errors import InvalidValue
from holdfast.ids import SessionId, Tenant, Version
from holdfast.store.rows import AnnotationRow
from holdfast.store.store import Store
from holdfast.store.verification.findings import Finding

HEADER = b'{"type":"holdfast","format":"heads","version":[1,0]}\n'
PAGE = 500
"""Ids in one read."""


class Head(Value):
    """Where the chain of a live session stood, in hexadecimal digits."""

    tenant: Tenant
    session_id: SessionId
    version: Version
    link: str
    rev: int
    notes: str
    """A digest of its own annotations up to `rev`."""


_head: Decoder[Head] = Decoder(Head)


async def heads(store: Store) -> AsyncIterator[Head]:
    """The head of each live session, tenant by tenant."""
    for tenant in await store.tenants():
        after: SessionId | None = None
        while page := await store.session_ids(tenant, after=after, limit=PAGE):
            for session_id in page:
                found = await store.chain_end(tenant, session_id)
                if found is not None and found.session.state == "live":
                    yield Head(
                        tenant=tenant,
                        session_id=session_id,
                        version=found.session.head,
                        link=(found.link or b"").hex(),
                        rev=found.session.meta_rev,
                        notes=_digest(found.annotations),
                    )
            after = page[-1]


def _digest(annotations: Iterable[AnnotationRow]) -> str:
    told = [(each.rev, each.item, each.patch, each.at_ms) for each in annotations]
    return sha256(encode(told)).hexdigest()


async def written(store: Store) -> AsyncIterator[bytes]:
    """The lines of a file of heads."""
    yield HEADER
    sessions = 0
    async for head in heads(store):
        sessions += 1
        yield encode(head) + b"\n"
    yield _last(sessions)


def _last(sessions: int) -> bytes:
    return b'{"type":"last","sessions":%d}\n' % sessions


def read(lines: Iterable[bytes]) -> Iterator[Head]:
    """The heads of a file. Raises InvalidValue if it is none, or not whole."""
    rest = iter(lines)
    if next(rest, b"") != HEADER:
        raise InvalidValue("this is no file of heads: it does not begin as one")
    for sessions, line in enumerate(rest):
        if line == _last(sessions):
            return
        try:
            yield _head.strict(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            why = f"line {sessions + 2} of the heads cannot be read: {error}"
            raise InvalidValue(why) from error
    raise InvalidValue("the file of heads is cut off")


async def compared(store: Store, kept: Iterable[Head]) -> AsyncIterator[Finding]:
    """What of these heads is not in the store any more."""
    for head in kept:
        for code, what in await _judged(store, head):
            violation = Violation(code=code, where=head.session_id, what=what)
            yield Finding(violation=violation, tenant=head.tenant, session_id=head.session_id)


async def _judged(store: Store, head: Head) -> list[tuple[str, str]]:
    found = await store.chain_end(head.tenant, head.session_id, version=head.version, rev=head.rev)
    if found is None:
        return [("session_lost", f"it was at version {head.version}, and does not exist")]
    session = found.session
    if session.state == "deleted":
        return []
    if session.head < head.version or session.meta_rev < head.rev:
        now = f"version {session.head} and revision {session.meta_rev}"
        was = f"version {head.version} and revision {head.rev}"
        return [("set_back", f"it is at {now}, and was at {was}")]
    same = (found.link or b"").hex() == head.link and _digest(found.annotations) == head.notes
    what = f"what it has up to version {head.version} is not what it had"
    return [] if same else [("head_replaced", what)]
