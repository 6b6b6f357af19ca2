"""Every bound in Holdfast, with its unit and its reason.

A bound is here if passing it changes what a client, an operator or a neighbour sees.
Names end in their unit; `_max` bounds a count or a size. Nothing here is read from the environment:
`config.py` may lower or raise some of them, and says so there.
"""

from __future__ import annotations

from typing import Final

# ── names ────────────────────────────────────────────────────────────────────────────────────

session_key_chars_max: Final = 200
"""Long enough for a URL or two UUIDs; short enough for an index entry and a log line."""

idempotency_key_chars_max: Final = 255
"""What the IETF draft's examples and every known client stay under."""

tool_name_chars_max: Final = 64
"""The tightest bound among the providers we speak to."""

# ── a turn ───────────────────────────────────────────────────────────────────────────────────

turn_deadline_s: Final = 540.0
"""A minute less than the 600 s after which OpenAI SDKs give up and retry."""

steps_max: Final = 50
"""Model calls in one branch of a turn; past this an agent is going in circles."""

calls_max: Final = 500
"""Tool calls in a whole turn, over all its branches."""

calls_per_step_max: Final = 128
"""What the largest providers accept in one message."""

branch_depth_max: Final = 8
"""Sub-agents of sub-agents of …; deeper is a cycle that nobody meant."""

output_chars_max: Final = 2_000_000
"""Text of one turn, all branches together. Bounds memory per open turn."""

crash_attempts_max: Final = 3
"""A turn that has taken three nodes down is not given a fourth."""

# ── values inside items and settings ─────────────────────────────────────────────────────────

opaque_bytes_max: Final = 256 * 1024
"""One provider extra (signature, encrypted reasoning) or evaluation result."""

opaques_max: Final = 16
"""Extras on one item."""

attributes_max: Final = 16
attribute_name_chars_max: Final = 64
attribute_value_chars_max: Final = 512
"""OpenAI's `metadata` bounds, so that either API can show the other's values."""

title_chars_max: Final = 200

state_value_bytes_max: Final = 256 * 1024
"""One named value of session state, such as a to-do list."""

inline_bytes_max: Final = 64 * 1024
"""A file or image up to this size may stay inside its item; larger ones become blobs."""

# ── the store ────────────────────────────────────────────────────────────────────────────────

lease_ttl_s: Final = 15.0
lease_renew_s: Final = 5.0
"""Two renewals may fail before a node counts as dead."""

signal_poll_s: Final = 0.5
"""How stale a cancel may be when every hint is lost."""

cancel_grace_s: Final = 10.0
"""An owner that ignores a cancel for this long is fenced and its turn closed from the journal."""

idempotency_keep_s: Final = 24 * 3600.0
"""From the end of the turn. What OpenAI and Stripe document, and what clients expect."""

discarded_keep_s: Final = 7 * 24 * 3600.0
"""A discarded turn stays readable for a week: long enough to find out what went wrong."""

anonymous_keep_s: Final = 30 * 24 * 3600.0
"""Lines that nobody named."""

dead_node_keep_s: Final = 24 * 3600.0
"""A node's row outlives it by a day, for whoever wonders what happened to it."""

recognised_retry_s: Final = 60.0
"""How long after its end an SDK's keyless retry can still be told apart from a new request."""

page_size_max: Final = 100
page_size_default: Final = 20
"""Listings, as in OpenAI's own."""

prune_batch_max: Final = 500
"""Rows that one retention step removes: a few milliseconds of the writer, then turns go first."""

# ── sessions ─────────────────────────────────────────────────────────────────────────────────

lane_wait_s: Final = 30.0
lane_waiting_max: Final = 8
"""Beyond this a client is better served by an honest 409 than by a long wait."""

retries_waiting_max: Final = 1024
"""Requests with one idempotency key that wait for the first of them to be admitted."""

busy_poll_s: Final = 0.25
"""How often a waiter looks whether another process has let a session go. A plain read."""

sweep_s: Final = 2.0
"""How often a node looks for turns that a dead one has left. TTL + this bounds how long they wait."""

snapshot_cache_bytes: Final = 64 * 1024 * 1024
"""Of encoded items. Missing the cache costs a read of the history, nothing else."""

history_cache_bytes: Final = 64 * 1024 * 1024
"""Of histories as models see them, encoded. Missing it costs encoding the history again."""

calls_side_by_side_max: Final = 8
"""Tool calls of one turn that run at the same time; the others wait their turn."""

tool_output_chars_max: Final = 50_000
"""What a model is shown of one tool's output; the whole of it goes to a blob."""

feed_events_max: Final = 50_000
"""Events of one turn in its owner's memory, about 10 MB. Older ones are merged, or read from the journal."""

feed_keep_s: Final = 30.0
"""How long the events of an ended turn stay in its owner's memory, for watchers who are late."""

commit_retry_s: Final = 10.0
"""How long a commit whose store does not answer is tried again. Less than a TTL: the turn is ours then."""

drain_grace_s: Final = 20.0
"""How long a shutdown lets running turns go on before they are handed over."""
