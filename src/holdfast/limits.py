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
"""A turn that has taken three nodes down, or broken on one of them three times, is not given a fourth."""

continuations_max: Final = 3
"""How often in a row a retry may continue a turn that was kept unfinished: what failed four times needs a person."""

# ── values inside items and settings ─────────────────────────────────────────────────────────

opaque_bytes_max: Final = 256 * 1024
"""One provider extra (signature, encrypted reasoning) or evaluation result."""

echo_bytes_max: Final = 16 * 1024
"""What is kept with a turn to repeat its request later; beyond this without its tools and instructions."""

opaques_max: Final = 16
"""Extras on one item."""

conversation_items_max: Final = 20
"""Items that can be added to a conversation at once, as OpenAI has it."""

attributes_max: Final = 16
attribute_name_chars_max: Final = 64
attribute_value_chars_max: Final = 512
"""OpenAI's `metadata` bounds, so that either API can show the other's values."""

grants_max: Final = 256
"""Approvals that are remembered for one agent: all of them are read when a tool is asked about."""
grant_arguments_bytes_max: Final = 16 * 1024
"""Of arguments that an approval is remembered for."""
granted_tools_max: Final = 256
"""Tools of one session that a person need not be asked about again."""

approval_s: Final = 24 * 3600.0
"""How long a person may think about a call that waits for an approval; after that it can only be refused."""

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

clock_leap_s: Final = 3600.0
"""A clock that has moved on by more than this since the store last looked, which it does every `prune_s`, was set, or
nothing ran meanwhile."""
clock_trust_s: Final = 24 * 3600.0
"""For how long a store must have been in use after that before anything is deleted, or expires, because of it."""

blobs_judged_max: Final = 8
"""Blobs of which one retention step looks whether an item names them: each has a session's items looked through."""

dead_node_keep_s: Final = 24 * 3600.0
"""A node's row outlives it by a day, for whoever wonders what happened to it."""

recognised_retry_s: Final = 60.0
"""How long after its end an SDK's keyless retry can still be told apart from a new request."""

recognised_versions: Final = 64
"""How many of a session's last versions are searched for the turn of an SDK's keyless retry."""

unfinished_retry_s: Final = 600.0
"""How long after its end the same request without a key continues an unfinished turn: a person who tries again does it
within minutes, and a job that says the same every day is no retry."""

page_size_max: Final = 100
page_size_default: Final = 20
"""Listings, as in OpenAI's own."""

query_chars_max: Final = 400
"""What somebody looks for: a sentence, not a document."""

listed_by_key_max: Final = 1000
"""Sessions that keys with one beginning may mean to be looked up one by one; of more, the list is walked."""

search_word_chars_max: Final = 64
"""The part of a word that counts. No word of a language is longer; keys and encoded pictures are."""

search_text_chars_max: Final = 500_000
"""The part of a message that is searched: in the slowest scripts a third of a second, in others a few milliseconds."""

search_hits_max: Final = 1000
"""Places that an index may name for one page. Words that are in more of them are found by looking around."""

search_items_max: Final = 1000
search_bytes_max: Final = 4 * 1024 * 1024
search_s: Final = 0.25
"""Items, their bytes, and a processor's time for one page of search results. Then it ends, with a cursor."""

searches_waiting_max: Final = 8
"""Searches of one tenant that wait for the one before. One search runs at a time, and tenants take turns."""

index_step_bytes_max: Final = 64 * 1024
"""Of items, for one step of indexing: a few milliseconds of the writer, then turns go first."""

index_s: Final = 1.0
"""How often a node looks whether there is something to index."""

prune_batch_max: Final = 500
"""Rows that one retention step removes: a few milliseconds of the writer, then turns go first."""

prune_s: Final = 300.0
"""How often a node looks whether something may go. What may go has lain there for a day or more."""

upkeep_pause_s: Final = 0.02
"""Between two steps of upkeep: whoever waits to write goes first."""

import_line_bytes_max: Final = 32 * 1024 * 1024
"""One line of an export: an item, twice over for what JSON escapes."""

import_session_bytes_max: Final = 1024 * 1024 * 1024
"""One session of an export. It is put together in memory before it is taken in whole."""

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

cache_bytes: Final = 192 * 1024 * 1024
"""Of all that one process remembers only to be quicker: the shares below add up to it. A server that was busy for long
needs so much more memory than one that has just started, and no more than that."""

snapshot_cache_bytes: Final = 52 * 1024 * 1024
"""Of sessions as they stand. Missing the cache costs a read of the history, nothing else."""

history_cache_bytes: Final = 52 * 1024 * 1024
"""Of histories as models see them, encoded. Missing it costs encoding the history again."""

page_cache_bytes: Final = 48 * 1024 * 1024
"""Of pages of a SQLite file, over its three connections. The hot part of the indexes fits; the rest is the kernel's to
cache."""

ended_turns_bytes: Final = 16 * 1024 * 1024
"""Of turns that have ended, for watchers who are late. Who is too late reads the store."""

known_names_bytes: Final = 24 * 1024 * 1024
"""Of what is remembered by name: the sessions of keys, API keys, rows of sessions, sizes of prompts."""

known_keys_max: Final = 16_384
"""Keys whose session is remembered; some 400 bytes each."""

known_rows_max: Final = 4_096
"""Sessions of a PostgreSQL store whose row is remembered; some 2 KB each."""

compact_at_share: Final = 0.8
"""Of a model's window: a prompt that would be larger has its past summed up first. The rest is for the answer,
and for what an estimate may be wrong by."""

compact_keep_share: Final = 0.3
"""Of a model's window: the newest turns, as many as fit into this, stay as they were said."""

summary_chars_max: Final = 20_000
"""One summary. A model that writes more is repeating the conversation."""

gauge_entries_max: Final = 8_192
"""Sessions whose prompts' sizes are remembered; about 200 bytes each."""

calls_side_by_side_max: Final = 8
"""Tool calls of one turn that run at the same time; the others wait their turn."""

tool_output_chars_max: Final = 50_000
"""What a model is shown of one tool's output; the whole of it goes to a blob."""

feed_events_max: Final = 50_000
"""Events of one turn at hand in its owner's memory, about 10 MB. Older ones are packed, or read from the journal."""

feed_keep_s: Final = 30.0
"""How long an ended turn stays in its owner's memory, for watchers who are late: unless others need the room."""

store_retry_s: Final = 60.0
"""How long a turn whose store does not answer keeps trying before it is left to recovery. Longer than a TTL and
a database's fail-over: nobody takes a turn from its holder until a TTL after the store is back, and if somebody
does, the fence refuses what comes late."""

background_turns_max: Final = 64
"""Turns that nobody waits for, played by one node at a time. The others lie in the store until a node has room."""

background_queued_max: Final = 1000
background_queued_tenant_max: Final = 500
"""Such turns that wait, of all tenants and of one: more would not be played while anybody remembers them."""

background_turns_tenant_least: Final = 2
background_queued_tenant_least: Final = 10
"""What each tenant may have of both, however much others have: nobody's place is taken by another."""

background_deadline_s: Final = 3600.0
"""From the request to the end of its turn, if nobody waits for it; the time before it is played included."""

drain_grace_s: Final = 20.0
"""How long a shutdown lets running turns go on before they are handed over."""

# ── the server ───────────────────────────────────────────────────────────────────────────────

body_bytes_max: Final = 4 * 1024 * 1024
"""A request to `/v1`: a long conversation in full, or a few pictures."""

request_items_max: Final = 10_000
request_parts_max: Final = 10_000
"""Messages or items of one request, and parts and calls in all of them: more than any model's window holds. What is
read of a body is read in one go, and nobody else is answered meanwhile: so many take some fifty milliseconds."""

body_memory_ratio: Final = 20
"""What a byte of a body takes in memory while it is read, if it is made of small messages. Measured: 74 MB for 3.8 MB."""
bodies_memory_share: Final = 4
"""The bodies that are being read may take this part of a process's memory, all together: one in so many."""
small_body_bytes: Final = 64 * 1024
"""A body that is never refused for lack of memory."""

api_body_bytes_max: Final = 1024 * 1024
"""Bodies under `/api`, which carry settings and notes, not conversations."""

import_body_bytes_max: Final = 16 * 1024 * 1024
"""An import over HTTP. Larger files are for `holdfast db import`, which reads them line by line."""

key_cache_s: Final = 0.5
"""How old what we know about an API key may be: one that is revoked is refused everywhere within a second, and what
it has open ends."""

key_cache_max: Final = 4_096
"""API keys that are remembered for that long; some 800 bytes each."""

files_wanted: Final = 65_536
"""Open files that a server asks for at start, as far as the hard limit goes. Half of those that it gets are for
connections, a quarter of these for one address; the others for models, tools and the store."""

notice_s: Final = 60.0
"""How often a state that lasts is told in the log."""

request_head_s: Final = 20.0
request_body_s: Final = 60.0
"""A request that has begun and does not come to its end holds a connection, and nothing else, for so long."""

request_head_bytes_max: Final = 64 * 1024
"""The line and the headers of a request. A browser's cookies fit; a story does not."""

keep_alive_s: Final = 5
"""How long a connection may rest between two requests."""

write_stall_s: Final = 60.0
"""How long a client may take nothing of what it is sent. After that it counts as gone."""

stream_patience_s: Final = 2.0
"""How long a stream keeps its status to itself, so that an early failure can be a plain one."""

heartbeat_s: Final = 15.0
"""Silence after which a stream says that it is alive: less than any proxy's patience."""

socket_lifetime_s: Final = 3600.0
"""A WebSocket, from its first message to its last, as OpenAI has it: clients make a new one after that."""

socket_idle_s: Final = 900.0
"""How long a WebSocket may lie there between two answers. Whoever comes back later makes a new one."""

socket_waiting_max: Final = 8
"""Messages of one WebSocket that wait for the answer before them."""

socket_held_max: Final = 8
socket_held_bytes_max: Final = 16 * 1024 * 1024
"""Responses that nobody stores, and that one WebSocket can go on from; and what all of them may weigh."""

ending_grace_s: Final = 5.0
"""After the turns have ended in a shutdown, how long their answers may take to reach their clients."""

workers_max: Final = 64
"""Processes behind one port. More cores than that are better served by several replicas."""

worker_steady_s: Final = 60.0
"""A worker that lived for so long did not die of how it was started."""

worker_restart_first_s: Final = 0.5
worker_restart_most_s: Final = 30.0
"""Between two workers that die young: twice as long each time, up to this."""

worker_stop_s: Final = 60.0
"""How long a worker may take to stop: its turns' grace, the last answers, its store. After that it is killed."""

files_look_s: Final = 1.0
"""How often it is looked whether files can still be opened."""
files_spare: Final = 4
"""So many files below the limit count as none: the event loop keeps some for itself."""

numbers_s: Final = 1.0
"""How often a worker shows its numbers to the others. One that is killed takes at most so much with it."""

# ── tools ────────────────────────────────────────────────────────────────────────────────────

tool_output_bytes_max: Final = 4 * 1024 * 1024
"""One tool's output in memory, and in the blob that holds the whole of it. Longer: only its two ends."""

tool_parts_max: Final = 64
"""Parts of one tool's output."""

tool_changes_max: Final = 64
"""What one call may want remembered."""

tool_timeout_s_max: Final = 3600.0

tool_threads_max: Final = 32
"""Threads of one synchronous tool, those included that nobody waits for any more: a thread cannot be stopped."""

state_name_chars_max: Final = 64
memory_text_bytes_max: Final = 16 * 1024
memory_id_chars_max: Final = 128

web_body_bytes_max: Final = 2 * 1024 * 1024
"""What is read of one page; the rest of it is left where it is."""
web_pages_max: Final = 10
"""Pages of one fetch."""

file_bytes_max: Final = 4 * 1024 * 1024
"""A file that a tool reads, writes or looks into. Larger ones are no reading for a model."""
file_path_chars_max: Final = 4096
file_links_max: Final = 40
"""Symbolic links on the way to one file, as Linux has it."""
file_entries_max: Final = 1000
"""Entries of one listing."""
file_matches_max: Final = 200
"""Places that one search tells."""
file_search_bytes_max: Final = 256 * 1024 * 1024
"""What one search reads before it gives up."""
file_tree_depth_max: Final = 32
files_at_once_max: Final = 20

api_document_bytes_max: Final = 4 * 1024 * 1024
api_operations_max: Final = 256
"""Operations of one OpenAPI document that become tools."""
api_schemas_max: Final = 500
"""Schemas that one operation refers to, directly or not."""
api_refresh_s: Final = 60.0
"""How soon a document that could not be read is tried again."""

mcp_idle_s: Final = 600.0
"""An MCP server that nobody has called for so long is stopped."""
mcp_start_s: Final = 60.0
"""From its start to its first answer; `npx` may have to fetch it first."""
mcp_backoff_s_max: Final = 30.0
"""Between two attempts at a server that does not start."""
mcp_tools_max: Final = 512
"""Tools of one server."""
mcp_text_chars_max: Final = 4000
"""What is kept of a server's instructions, of a tool's description, and of what a server prints about its troubles."""

script_flood_bytes_max: Final = 64 * 1024 * 1024
"""A command that has printed this much is stopped: nobody will read it."""

script_argument_bytes_max: Final = 96 * 1024
"""One argument as an environment variable; Linux refuses more than 128 KB in one string."""

script_kill_grace_s: Final = 2.0
"""Between SIGTERM and SIGKILL."""

sandbox_memory_bytes_max: Final = 4 * 1024**3
"""What a command and all that it starts may take, and each process of it."""
sandbox_processes_max: Final = 512
"""Processes and threads of a command at a time; one with more of them is ended."""
sandbox_files_max: Final = 4096
"""Descriptors of each process of a command."""
sandbox_file_bytes_max: Final = 4 * 1024**3
"""One file that a command writes."""
sandbox_memory_left_bytes: Final = 128 * 1024**2
sandbox_disk_left_bytes: Final = 256 * 1024**2
"""A command is ended when the machine has less left than this, or than half of what there was when it began."""

# ── agents ───────────────────────────────────────────────────────────────────────────────────

agent_file_bytes_max: Final = 1024 * 1024
agent_file_expanded_max: Final = 4 * 1024 * 1024
"""What a file weighs once its aliases are written out: characters, and 16 for each node."""
agent_file_depth_max: Final = 32
agent_file_problems_max: Final = 20
"""More than this at once helps nobody."""
agent_name_chars_max: Final = 64
agents_max: Final = 64
"""Agents in one file."""
agent_models_max: Final = 64
agent_toolsets_max: Final = 32
schema_parts_max: Final = 50_000
"""Parts of a tool's schema, each for every depth of the arguments. It takes 50 ms to count them, once."""
schema_visits_max: Final = 100_000
"""How often one place in a tool's arguments is looked at. Ordinary schemas stay below a hundred."""
schema_steps_max: Final = 5_000_000
"""Of checking a call's arguments: a validator takes 20 ns for one."""
schema_words_steps_max: Final = 10_000
"""Up to here mistakes are told one by one; to find the words takes 15 µs for a step."""
foreign_names_max: Final = 10_000
"""Names of tools that foreign toolsets of an agent have had while it was loaded; further ones are not offered."""
script_commands_max: Final = 64
hook_words_max: Final = 2_000
"""Of what a hook says when it blocks: the model reads it."""
hook_response_chars_max: Final = 64 * 1024
"""Of a tool's result, as a hook is given it."""
hook_arguments_bytes_max: Final = 256 * 1024
"""Of what a hook may change a call's arguments into."""
hooks_max: Final = 16
"""Hooks of an agent, for one kind of event."""
agent_commands_max: Final = 64
"""Named prompts of one agent."""
prompt_files_max: Final = 16
prompt_file_bytes_max: Final = 64 * 1024
"""A file that is added to an agent's instruction: it is sent with every request to the model."""
sources_max: Final = 256
"""Sources of one server, those in directories included."""

fetch_timeout_s: Final = 10.0
fetch_redirects_max: Final = 5

file_poll_s: Final = 1.0
url_poll_s: Final = 60.0
"""How often a live source is asked whether it has changed."""

version_keep_s: Final = 60.0
"""A version that was replaced is kept this long: a turn may have chosen it and not yet begun."""

# ── models ───────────────────────────────────────────────────────────────────────────────────

upstream_connect_s: Final = 10.0
"""Name, connection and TLS together. A server that is not there is worth finding out soon."""

upstream_first_byte_s: Final = 120.0
"""From the request to the first byte of an answer: large models read long prompts for a while."""

upstream_between_bytes_s: Final = 90.0
"""Silence in the middle of an answer. Reasoning models that show nothing still send comments."""

upstream_after_finish_s: Final = 5.0
"""An answer that is whole waits this long for its usage, and no longer."""

upstream_count_s: Final = 10.0
"""A provider that takes longer to count a prompt is not waited for: an estimate is at hand."""

upstream_event_bytes_max: Final = 4 * 1024 * 1024
"""One event of a model's stream. A token is 300 bytes; a whole answer in one event is rare and fits."""

upstream_body_bytes_max: Final = 32 * 1024 * 1024
"""An answer that a server gave in one piece although it was asked to stream."""

upstream_error_chars_max: Final = 1000
"""What is kept of an upstream's own words about an error."""

retry_attempts_max: Final = 3
"""How often a model is asked before a turn fails, as long as nothing was shown."""

retry_hint_s_max: Final = 30.0
"""An upstream that asks for more patience than this is not waited for; its hint goes to the client."""

retry_after_s_max: Final = 86_400.0
"""A client is not told to wait longer than this, and then to try again: a day later it asks anew."""
