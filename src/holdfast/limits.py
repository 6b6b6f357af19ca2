"""Every bound in Holdfast, with its unit and its reason.

A bound is here if passing it changes what a client, an operator or another tenant sees.
Names end in their unit; `_max` bounds a count or a size. Nothing here is read from the environment:
`config.py` may lower or raise some of them, and says so there.
"""

from __future__ import annotations

from typing import Final

# ── names ────────────────────────────────────────────────────────────────────────────────────

session_key_chars_max: Final = 200
"""Long enough for a URL or two UUIDs; short enough for an index entry and a log line."""

idempotency_key_chars_max: Final = 255
"""The examples of the IETF draft and every known client stay under it."""

tool_name_chars_max: Final = 64
"""The tightest bound among the model providers."""

# ── a turn ───────────────────────────────────────────────────────────────────────────────────

turn_deadline_s: Final = 540.0
"""A minute less than the 600 s after which OpenAI SDKs give up and retry."""

steps_max: Final = 50
"""Model calls in one branch of a turn; past this an agent is going in circles."""

calls_max: Final = 500
"""Tool calls in a whole turn, over all its branches."""

calls_per_step_max: Final = 128
"""The largest providers accept so many in one message."""

branch_depth_max: Final = 8
"""Sub-agents of sub-agents of …; deeper is a cycle by mistake."""

output_chars_max: Final = 2_000_000
"""Text of one turn, all branches together. Bounds memory per open turn."""

crash_attempts_max: Final = 3
"""A turn that has crashed three nodes, or broken three times on one node, is not played a fourth time."""

continuations_max: Final = 3
"""How often in a row a retry may continue an unfinished turn: a turn that failed four times needs a person."""

# ── values inside items and settings ─────────────────────────────────────────────────────────

opaque_bytes_max: Final = 256 * 1024
"""One provider extra (signature, encrypted reasoning) or evaluation result."""

echo_bytes_max: Final = 16 * 1024
"""The echo of a request, stored with its turn; a larger one is stored without tools and instructions."""

opaques_max: Final = 16
"""Extras on one item."""

conversation_items_max: Final = 20
"""Items that can be added to a conversation at once, as OpenAI has it."""

attributes_max: Final = 16
attribute_name_chars_max: Final = 64
attribute_value_chars_max: Final = 512
"""OpenAI's `metadata` bounds, so that either API can show the other's values."""

grants_max: Final = 256
"""Remembered approvals of one agent: all of them are read when a tool call needs permission."""
grant_arguments_bytes_max: Final = 16 * 1024
"""The arguments in one remembered approval."""
granted_tools_max: Final = 256
"""Tools that a person has approved for the rest of one session."""

approval_s: Final = 24 * 3600.0
"""How long a call may wait for a person's approval; after that it can only be refused."""

title_chars_max: Final = 200

family_lines_shown_max: Final = 200
"""How many lines of a family its tree shows: the last active ones."""

family_candidates_max: Final = 100
"""How many turns of a family a request is compared with: the newest ones that have the same answer."""

family_comparisons_max: Final = 50_000
"""How many exchanges of a request are compared with a family's, and items of it read for that; then the request begins a
line of its own. All of it takes about a second of a busy core; a chat with 5,000 messages is compared several times."""

client_message_id_chars_max: Final = 200
"""An id that a client gives one of its own messages, as `X-History-Parent` and `X-History-Answer` have it."""

state_value_bytes_max: Final = 256 * 1024
"""One named value of session state, such as a to-do list."""

answer_parts_max: Final = 32
"""Pictures in one message of a model."""
inline_bytes_max: Final = 64 * 1024
"""A file or image up to this size may stay inside its item; larger ones become blobs."""

# ── the store ────────────────────────────────────────────────────────────────────────────────

lease_ttl_s: Final = 15.0
lease_renew_s: Final = 5.0
"""Two renewals may fail before a node counts as dead."""

signal_poll_s: Final = 0.5
"""How late a cancel may reach a turn when every hint is lost."""

cancel_grace_s: Final = 10.0
"""A node that ignores a cancel for this long is fenced, and its turn is closed from the journal."""

idempotency_keep_s: Final = 24 * 3600.0
"""How long an idempotency key is kept after the end of its turn: as OpenAI and Stripe document, and clients expect."""

discarded_keep_s: Final = 7 * 24 * 3600.0
"""A discarded turn stays readable for a week: long enough to find out what went wrong."""

anonymous_keep_s: Final = 30 * 24 * 3600.0
"""How long a conversation without a session key is kept after its last turn."""

clock_leap_s: Final = 3600.0
"""The store checks the clock every `prune_s`. If it moved by more than this, it was set, or no node ran meanwhile."""
clock_trust_s: Final = 24 * 3600.0
"""How long a store must be in use after such a leap before anything is deleted or expires because of it."""

blobs_judged_max: Final = 8
"""Blobs that one retention step checks for use: each check searches all items of a session."""

dead_node_keep_s: Final = 24 * 3600.0
"""A node's row is kept for a day after its end, for operators who investigate it."""

recognised_retry_s: Final = 60.0
"""How long after its end an SDK's keyless retry can still be told apart from a new request."""

recognised_versions: Final = 64
"""How many of a session's last versions are searched for the turn of an SDK's keyless retry."""

unfinished_retry_s: Final = 600.0
"""How long after the end of an unfinished turn the same request without a key continues it: a person tries again within
minutes, and a job that sends the same text every day is no retry."""

page_size_max: Final = 100
page_size_default: Final = 20
"""Listings, as in OpenAI's own."""

task_page_default: Final = 50
"""Tasks of a page, as the A2A protocol has it."""

query_chars_max: Final = 400
"""A search query: a sentence, not a document."""

listed_by_key_max: Final = 1000
"""A `key_prefix` that matches at most this many sessions looks each of them up; with more, the whole list is read."""

search_word_chars_max: Final = 64
"""The indexed part of a word. No word of a language is longer; keys and encoded pictures are."""

search_text_chars_max: Final = 500_000
"""The searched part of a message: it takes a third of a second in the slowest scripts, else a few milliseconds."""

search_hits_max: Final = 1000
"""Index entries that are read for one page of results. For more frequent words the items themselves are searched."""

search_items_max: Final = 1000
search_bytes_max: Final = 4 * 1024 * 1024
search_s: Final = 0.25
"""Items, their bytes, and processor time for one page of search results. Then the page ends, with a cursor."""

searches_waiting_max: Final = 8
"""Queued searches of one tenant. One search runs at a time, and tenants take turns."""

index_step_bytes_max: Final = 64 * 1024
"""Items that one indexing step reads: it holds the writer for a few milliseconds, then turns go first."""

index_s: Final = 1.0
"""How often a node looks for items to index."""

prune_batch_max: Final = 500
"""Rows that one retention step removes: it holds the writer for a few milliseconds, then turns go first."""

prune_s: Final = 300.0
"""How often a node looks for rows to remove. Such rows are a day old or more, so minutes do not matter."""

upkeep_pause_s: Final = 0.02
"""The pause between two steps of upkeep: waiting turns write first."""

import_line_bytes_max: Final = 32 * 1024 * 1024
"""One line of an export: twice the largest item, because JSON escapes some characters."""

import_session_bytes_max: Final = 1024 * 1024 * 1024
"""One session of an export. It is assembled in memory, and then imported as a whole."""

# ── sessions ─────────────────────────────────────────────────────────────────────────────────

lane_wait_s: Final = 30.0
lane_waiting_max: Final = 8
"""Beyond this a client is better served by an honest 409 than by a long wait."""

retries_waiting_max: Final = 1024
"""Requests with one idempotency key that wait until the first of them is admitted."""

busy_poll_s: Final = 0.25
"""How often a waiting request checks whether another process has released the session. A plain read."""

sweep_s: Final = 2.0
"""How often a node looks for turns of dead nodes. Such a turn waits at most the lease's TTL and this, where no more than
`sweepers_max` nodes are alive."""

sweepers_max: Final = 4
"""How many nodes look at all open turns in one `sweep_s`. Of more nodes, each looks less often, and at its own turns in
between: what sweeps cost the database does not grow with the nodes."""

sweep_count_s: Final = 30.0
"""How often a node counts the living nodes, which decides how often it sweeps."""

cache_bytes: Final = 192 * 1024 * 1024
"""All caches of one process together; the shares below add up to it. A busy server needs at most this much more memory
than one that has just started."""

snapshot_cache_bytes: Final = 52 * 1024 * 1024
"""The share of current snapshots. A miss costs one read of the history."""

history_cache_bytes: Final = 52 * 1024 * 1024
"""The share of histories, encoded for models. A miss costs encoding the history again."""

page_cache_bytes: Final = 48 * 1024 * 1024
"""The share of a SQLite file's pages, over its three connections. The hot part of the indexes fits; the kernel caches
the rest."""

ended_turns_bytes: Final = 16 * 1024 * 1024
"""The share of ended turns, for late watchers. Later ones read the store."""

known_names_bytes: Final = 24 * 1024 * 1024
"""The share of lookups: sessions by key, API keys, rows of sessions, sizes of prompts."""

known_keys_max: Final = 16_384
"""Cached session keys; some 400 bytes each."""

known_rows_max: Final = 4_096
"""Cached session rows of a PostgreSQL store; some 2 KB each."""

compact_at_share: Final = 0.8
"""Of a model's window: a prompt that would be larger gets a summary in place of its oldest turns. The rest is for the
answer, and for errors of the estimate."""

compact_keep_share: Final = 0.3
"""Of a model's window: the newest turns that fit into this share are not summarised."""

summary_chars_max: Final = 20_000
"""One summary. A model that writes more is repeating the conversation."""

gauge_entries_max: Final = 8_192
"""Sessions whose prompt sizes are cached; about 200 bytes each."""

calls_side_by_side_max: Final = 8
"""Tool calls of one turn that run at the same time; further calls wait."""

tool_output_chars_max: Final = 50_000
"""The part of one tool's output that the model sees; the whole output goes to a blob."""

feed_events_max: Final = 50_000
"""Events of one turn in the memory of its node, about 10 MB. Older ones are packed, or read from the journal."""

feed_keep_s: Final = 30.0
"""How long an ended turn stays in its node's memory for late watchers, unless other turns need the room."""

store_retry_s: Final = 60.0
"""How long a turn retries a store that does not answer, before it is left to recovery. Longer than a TTL and a
database's fail-over: no node takes the turn over until a TTL after the store is back, and if one does, the fence
refuses late writes."""

background_turns_max: Final = 64
"""Background turns that one node plays at the same time. Further ones are queued in the store until a node has room."""

background_queued_max: Final = 1000
background_queued_tenant_max: Final = 500
"""Queued background turns, of all tenants and of one tenant: with more, a turn would wait too long to be of use."""

background_turns_tenant_least: Final = 2
background_queued_tenant_least: Final = 10
"""Running and queued background turns that are reserved for each tenant, however busy the other tenants are."""

background_deadline_s: Final = 3600.0
"""From the request to the end of a background turn, its time in the queue included."""

drain_grace_s: Final = 20.0
"""How long a shutdown lets running turns go on before other nodes take them over."""

drain_store_s: Final = 10.0
"""How long turns that have stopped in a shutdown ask a store that does not answer for their end. With what comes before
and after, less than the minute after which systemd and Kubernetes kill a server, as they are set up in our guides."""

resign_s: Final = 5.0
"""How long a node that leaves waits for a store that does not answer to take its last notes and the end of its lease:
without them the lease expires by itself."""

# ── the server ───────────────────────────────────────────────────────────────────────────────

mcp_task_after_s: Final = 0.5
"""An MCP client that takes tasks gets one for a call that is not answered by then."""

mcp_elicitation_s: Final = 600.0
"""How long a call of an MCP client before 2026-07-28 stays open for its user's decision; it can be made later, too."""

mcp_list_keep_s: Final = 5.0
"""How long an MCP client may use a list again: agent files are reloaded as fast."""

mcp_resource_chars_max: Final = 1_000_000
"""The text of a conversation as a resource: more fits into no model."""

body_bytes_max: Final = 4 * 1024 * 1024
"""A request to `/v1`: a long conversation in full, or a few pictures."""

request_items_max: Final = 10_000
request_parts_max: Final = 10_000
"""Messages or items of one request, and parts and calls in all of them: more than any model's window holds. A body is
parsed in one step, and other requests wait meanwhile: so many parts take some fifty milliseconds."""

body_memory_ratio: Final = 20
"""Bytes of memory for each byte of a body of small messages while it is parsed. Measured: 74 MB for 3.8 MB."""
bodies_memory_share: Final = 4
"""All bodies that are being parsed may take one part in this many of a process's memory."""
small_body_bytes: Final = 64 * 1024
"""A body that is never refused for lack of memory."""

api_body_bytes_max: Final = 1024 * 1024
"""Bodies under `/api`, which carry settings and notes, not conversations."""

import_body_bytes_max: Final = 16 * 1024 * 1024
"""An import over HTTP. Larger files are for `holdfast db import`, which reads them line by line."""

acp_message_bytes_max: Final = 32 * 1024 * 1024
"""One message of an editor: a prompt with pictures, or the text of a large file."""

key_cache_s: Final = 0.5
"""How long a key's row is cached: a revoked key is refused everywhere within a second, and its open requests end."""

key_cache_max: Final = 4_096
"""Cached API keys; some 800 bytes each."""

files_wanted: Final = 65_536
"""Open files that a server asks the system for at start, up to the hard limit. Half of what it gets is for connections,
a quarter of that half for one client address; the other half is for models, tools and the store."""

log_waiting_bytes_max: Final = 256 * 1024
"""Log lines that wait in memory while no program reads the log. Further lines are lost, and are counted: requests do not
wait for a reader."""

notice_s: Final = 60.0
"""How often the log repeats a state that lasts."""

request_head_s: Final = 20.0
request_body_s: Final = 60.0
"""How long the head and the body of a request may take to arrive. Until then it holds only a connection."""

request_head_bytes_max: Final = 64 * 1024
"""The request line and the headers. A browser's cookies fit."""

keep_alive_s: Final = 5
"""How long a connection may be idle between two requests."""

write_stall_s: Final = 60.0
"""How long a client may read nothing of its answer. After that it counts as gone."""

stream_patience_s: Final = 2.0
"""How long a stream delays its status line, so that an early failure can have an error status."""

heartbeat_s: Final = 15.0
"""Silence after which a stream sends a heartbeat: less than the idle timeout of any proxy."""

socket_lifetime_s: Final = 3600.0
"""A WebSocket, from its first message to its last, as OpenAI has it: clients open a new one after that."""

socket_idle_s: Final = 900.0
"""How long a WebSocket may be idle between two answers. A client that comes back later opens a new one."""

socket_waiting_max: Final = 8
"""Messages of one WebSocket that wait for the answer before them."""

socket_held_max: Final = 8
socket_held_bytes_max: Final = 16 * 1024 * 1024
"""Responses with `store: false` that one WebSocket can continue from; and the memory of all of them."""

ending_grace_s: Final = 5.0
"""After the turns have ended in a shutdown, how long their answers may take to reach their clients."""

workers_max: Final = 64
"""Processes behind one port. More cores than that are better served by several replicas."""

worker_steady_s: Final = 60.0
"""A worker that has run for so long did not fail early: it is restarted at once."""

worker_restart_first_s: Final = 0.5
worker_restart_most_s: Final = 30.0
"""The pause before a worker that keeps failing early is restarted: twice as long each time, up to this."""

worker_stop_s: Final = 60.0
"""How long a worker may take to stop: its turns' grace, the last answers, its store. After that it is killed."""

files_look_s: Final = 1.0
"""How often the server checks whether it can still open files."""
files_spare: Final = 4
"""With only so many free descriptors the server counts as out of files: the event loop needs some for itself."""

numbers_s: Final = 1.0
"""How often a worker shares its metrics with the other workers. A killed worker loses at most this much of them."""

store_counts_s: Final = 60.0
"""How often `/metrics` counts what is in the store at most: among a million turns that takes a while."""

number_sample_s: Final = 5.0
"""How often a server notes its numbers for the console."""
number_samples_max: Final = 720
"""How many of these notes are kept: an hour's."""

cost_turns_max: Final = 20_000
"""How many turns of a day are read at once to add up their costs."""
cost_tenants_max: Final = 1_000
"""For how many tenants a server remembers the costs of the day."""

recent_log_lines_max: Final = 200
recent_log_chars_max: Final = 1000
"""How many warnings and errors of the log a process keeps for `/api/log`, and how long each."""

# ── tools ────────────────────────────────────────────────────────────────────────────────────

tool_output_bytes_max: Final = 4 * 1024 * 1024
"""One tool's output in memory, and in the blob with the whole output. Of a longer output the two ends are kept."""

tool_parts_max: Final = 64
"""Parts of one tool's output."""

tool_changes_max: Final = 64
"""State changes and memories that one call may store."""

tool_timeout_s_max: Final = 3600.0

tool_threads_max: Final = 32
"""Threads of one synchronous tool, including calls that were given up: a thread cannot be stopped."""

state_name_chars_max: Final = 64
memory_text_bytes_max: Final = 16 * 1024
memory_id_chars_max: Final = 128

web_body_bytes_max: Final = 2 * 1024 * 1024
"""The part of a page that is read."""
web_conversion_s: Final = 20.0
"""How long a page may take to be converted, on a busy machine too; most take a tenth of a second."""
web_pages_max: Final = 10
"""Pages of one fetch."""

file_bytes_max: Final = 4 * 1024 * 1024
"""A file that a tool reads, writes or searches. Larger ones are of no use to a model."""
file_path_chars_max: Final = 4096
file_links_max: Final = 40
"""Symbolic links on the way to one file, as Linux has it."""
file_entries_max: Final = 1000
"""Entries of one listing."""
file_matches_max: Final = 200
"""Matches in the answer of one search."""
file_search_bytes_max: Final = 256 * 1024 * 1024
"""Bytes that one search reads before it gives up."""
file_tree_depth_max: Final = 32
files_at_once_max: Final = 20

api_document_bytes_max: Final = 4 * 1024 * 1024
api_operations_max: Final = 256
"""Operations of one OpenAPI document that become tools."""
api_schemas_max: Final = 500
"""Schemas that one operation refers to, directly or not."""
api_refresh_s: Final = 60.0
"""How soon an unreadable document is fetched again."""

mcp_idle_s: Final = 600.0
"""An MCP server without a call for so long is stopped."""
mcp_start_s: Final = 60.0
"""From the start of an MCP server to its first answer; `npx` may have to download it first."""
mcp_backoff_s_max: Final = 30.0
"""The longest pause before an MCP server that does not start is started again."""
mcp_tools_max: Final = 512
"""Tools of one server."""
mcp_text_chars_max: Final = 4000
"""The kept part of an MCP server's instructions, of a tool's description, and of a server's error output."""

script_flood_bytes_max: Final = 64 * 1024 * 1024
"""A command that has printed this much is stopped: no model can read it."""

script_argument_bytes_max: Final = 96 * 1024
"""One argument as an environment variable; Linux refuses more than 128 KB in one string."""

script_kill_grace_s: Final = 2.0
"""Between SIGTERM and SIGKILL."""

jobs_running_max: Final = 8
"""Background commands of one conversation that run at the same time."""
jobs_kept_max: Final = 32
"""Background commands of one conversation that are remembered, running or not."""
jobs_everywhere_max: Final = 128
"""Background commands of one toolset that run at the same time, in all conversations."""
job_idle_s: Final = 3600.0
"""A background command ends so long after its conversation has last asked about it, and is forgotten so long after its
end."""
job_output_bytes_max: Final = 256 * 1024
"""Of the output of a background command, in memory. Of a longer output the two ends are kept."""
job_news_chars_max: Final = 4_000
"""Of the output of a finished background command, in the words that tell the model of it."""

sandbox_memory_bytes_max: Final = 4 * 1024**3
"""Memory of each process of a command, and of all of them together."""
sandbox_processes_max: Final = 512
"""Processes and threads of a command at the same time; a command with more is ended."""
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
"""The size of a file after its aliases are written out: its characters, and 16 for each node."""
agent_file_depth_max: Final = 32
agent_file_problems_max: Final = 20
"""Problems of one file that are reported at once; a longer list does not help."""
agent_name_chars_max: Final = 64
agents_max: Final = 64
"""Agents in one file."""
agent_models_max: Final = 64
agent_toolsets_max: Final = 32
schema_parts_max: Final = 50_000
"""Parts of a tool's schema, each counted for every depth of the arguments. Counting takes 50 ms, once."""
schema_visits_max: Final = 100_000
"""How often a check visits one place in a tool's arguments. Ordinary schemas stay below a hundred."""
schema_steps_max: Final = 5_000_000
"""Steps of checking a call's arguments: a validator takes 20 ns for each."""
schema_words_steps_max: Final = 10_000
"""Up to this many steps each mistake gets its own message; a step takes 15 µs then."""
foreign_names_max: Final = 10_000
"""Names of tools that an agent's foreign toolsets (MCP and the like) have had since it was loaded; further ones are not
offered."""
script_commands_max: Final = 64
hook_timeout_s: Final = 60.0
"""Of a hook whose agent file does not say how long it may take."""
hook_words_max: Final = 2_000
"""Characters of a hook's reason to block a call: the model reads it."""
hook_response_chars_max: Final = 64 * 1024
"""Characters of a tool's result that a hook is given."""
hook_arguments_bytes_max: Final = 256 * 1024
"""Arguments of a call that a hook has changed."""
hooks_max: Final = 16
"""Hooks of an agent, for one kind of event."""
agent_commands_max: Final = 64
"""Named prompts of one agent."""
prompt_files_max: Final = 16
prompt_folders_max: Final = 1000
"""Directories of one level that are searched for more prompt files."""
prompt_file_bytes_max: Final = 64 * 1024
"""A file that is added to an agent's instruction: it is sent with every request to the model."""
sources_max: Final = 256
"""Sources of one server, files in directories included."""

fetch_timeout_s: Final = 10.0
fetch_redirects_max: Final = 5

beside_bytes_max: Final = 1024 * 1024
"""A Python file of tools beside an agent file."""

file_poll_s: Final = 1.0
url_poll_s: Final = 60.0
"""How often the server checks whether a live source has changed."""

version_keep_s: Final = 60.0
"""A replaced version of an agent is kept this long: a turn may have chosen it and not yet begun."""

# ── models ───────────────────────────────────────────────────────────────────────────────────

upstream_connect_s: Final = 10.0
"""DNS, connection and TLS together. A server that is down is worth finding out soon."""

upstream_first_byte_s: Final = 120.0
"""From the request to the first byte of an answer: large models read long prompts for a while."""

upstream_between_bytes_s: Final = 90.0
"""Silence in the middle of an answer. Reasoning models that show nothing still send comments."""

upstream_after_finish_s: Final = 5.0
"""How long a complete answer waits for its token usage."""

upstream_count_s: Final = 10.0
"""How long a provider may take to count a prompt's tokens; after that an estimate is used."""

upstream_event_bytes_max: Final = 4 * 1024 * 1024
"""One event of a model's stream. A token is 300 bytes; a whole answer in one event is rare and fits."""

upstream_body_bytes_max: Final = 32 * 1024 * 1024
"""An answer in one piece, from a server that was asked to stream."""

upstream_error_chars_max: Final = 1000
"""The kept part of a provider's error message."""

retry_attempts_max: Final = 3
"""How often a model is asked before a turn fails, as long as the client has seen no output."""

retry_hint_s_max: Final = 30.0
"""If a provider asks for a longer wait than this, the turn does not wait: the client gets the hint."""

retry_after_s_max: Final = 86_400.0
"""The longest `Retry-After` that a client is sent."""
