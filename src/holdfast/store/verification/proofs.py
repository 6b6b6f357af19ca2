"""Proofs of rows: checksums that are written with a row, and tell `verify` that it is not what was written.

1. A proof covers columns that promises rest on, and that no server changes without writing the proof anew. Leases, caches
   and times that the database fills in are not covered.
2. It lies in a column of its own that may be empty, and is no field of the row: operations decide nothing by it, and
   exports leave it out. Servers that do not know it leave it empty; a row without it is taken for an older server's.
3. Drivers make the proofs of each row that they insert. An operation that changes covered columns brings the new one.
4. It shows damage, not forgery: 32 bits (CRC-32), which whatever writes the row as it should makes anew.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any
from zlib import crc32

from msgspec import Struct

from holdfast.core.codec import encode
from holdfast.core.turns.events import Usage
from holdfast.store.rows import GrantRow


class Proof(Struct, frozen=True):
    """A checksum in a column of its own. `of` makes it of a row; None for a row that has none yet."""

    column: str
    of: Callable[[Any], int | None]


def over(*columns: str) -> Callable[[Any], int]:
    """Makes a proof over some columns. Proofs that every turn writes have functions of their own, which take half as long."""
    found = attrgetter(*columns)
    return lambda row: crc32(encode(found(row)))


# ── what a session or turn begins with, and what it comes to ─────────────────────────────────


def _agent(row: Any) -> int | None:
    known = row.source_key, row.entry_agent, row.opening
    return agent_proof(*known, row.source_name) if all(known) else None


def agent_proof(
    source_key: str, entry_agent: str, opening: str, source_name: str | None = None
) -> int:
    """Of a session that knows whose it is: none of the first three is empty, and only `rebind` changes them. A source
    without a given name has the proof that servers made before there were names."""
    known = (source_key, entry_agent, opening)
    return crc32(encode(known if source_name is None else (*known, source_name)))


def _turn(row: Any) -> int:
    # Most turns are no retries, and go on with none.
    ids = row.session_id
    if row.retry_of or row.continues:
        ids = f"{ids} {row.retry_of} {row.continues}"
    if row.family:
        ids = f"{ids} {row.family}"
    return crc32(row.request_hash, crc32(ids.encode(), row.client_attempt))


def _end(row: Any) -> int | None:
    if row.state not in ("committed", "discarded"):
        return None
    return end_proof(
        row.state,
        row.ended_by,
        row.detail,
        row.lease_token,
        row.agent,
        row.start,
        row.end,
        row.rev,
        row.links,
        row.usage,
        (row.answer, row.prefix, row.answer_id),
    )


def end_proof(
    state: str,
    ended_by: str | None,
    detail: str,
    lease_token: int,
    agent: str,
    start: int,
    end: int,
    rev: int,
    links: int | None,
    usage: Usage,
    digests: tuple[bytes | None, ...] = (),
) -> int:
    """Of a turn that has ended. Its items, changes and place in the history are in the chain. `digests` are those by
    which a family finds it."""
    told = (state, ended_by, detail, lease_token, agent, start, end, rev, links, usage)
    return crc32(encode((*told, *digests) if any(digests) else told))


def _session(row: Any) -> int:
    known = (row.tenant, row.id, row.lineage, row.anonymous, row.created_ms)
    return crc32(encode((*known, row.family) if row.family else known))


SESSION = Proof("proof", _session)
AGENT = Proof("agent_proof", _agent)
TURN = Proof("proof", _turn)
END = Proof("end_proof", _end)

# ── what belongs to them ─────────────────────────────────────────────────────────────────────


def _claim(row: Any) -> int:
    led = f"{row.tenant} {row.key} {row.turn_id} {row.steer}".encode()
    return crc32(row.request_hash, crc32(led))


def _journal(row: Any) -> int | None:
    if not row.token:
        return None  # the request of a queued turn is written anew when the turn begins
    return crc32(row.records, crc32(row.turn_id.encode(), (row.token << 16) + row.n))


def _key(row: Any) -> int:
    known = (row.key, row.session_id, row.generation)
    return crc32(encode((*known, row.standing) if row.standing else known))


KEY = Proof("proof", _key)
CLAIM = Proof("proof", _claim)
SIGNAL = Proof("proof", over("turn_id", "n", "kind", "at_ms", "payload"))
JOURNAL = Proof("proof", _journal)
ANNOTATION = Proof("proof", over("session_id", "rev", "item", "at_ms", "patch"))

# ── rows of no turn ──────────────────────────────────────────────────────────────────────────

MEMORY = Proof("proof", over("tenant", "agent", "memory_id", "text", "turn_id"))


def _api_key(row: Any) -> int:
    known = (
        row.key_id,
        row.tenant,
        row.name,
        row.scopes,
        row.digest,
        row.expires_ms,
        row.revoked_ms,
    )
    return crc32(encode((*known, row.conversation_from) if row.conversation_from else known))


API_KEY = Proof("proof", _api_key)
SEAL_KEY = Proof("proof", over("key_id", "secret"))
GRANT = Proof("proof", over(*GrantRow.__struct_fields__))
