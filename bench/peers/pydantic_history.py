"""Where the turns of Pydantic AI are kept: message lists as JSON in SQLite, or its `ConversationStore` on SQLite.

The first is the table of its chat example: each run's `new_messages_json()` is a row, and a conversation is its rows
in order. The second is what its documentation offers against writers that overwrite each other: a backend with the
five primitives that it asks for, which stores messages and head together, if the revision is still the one that was
loaded.
"""

import asyncio
import sqlite3
from contextlib import closing

from harness import FOLDER
from pydantic import TypeAdapter
from pydantic_ai import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

TABLES = """
create table if not exists messages (
  id integer primary key, conversation text, message_list text, run text unique
);
create table if not exists record (conversation text primary key, revision text, body blob);
create table if not exists entry (id text primary key, body blob);
"""
RECORD, ENTRY = TypeAdapter(ConversationRecord), TypeAdapter(ConversationEntry)


def create_tables():
    with closing(connected()) as database:
        database.executescript(TABLES)


def connected():
    return sqlite3.connect(FOLDER / "chat.db", timeout=30)


def rows(query, *values):
    with closing(connected()) as database, database:
        return database.execute(query, values).fetchall()


async def load(conversation):
    found = await asyncio.to_thread(
        rows, "select message_list from messages where conversation = ? order by id", conversation
    )
    return [each for (stored,) in found for each in ModelMessagesTypeAdapter.validate_json(stored)]


async def append(conversation, new_messages_json, run=None):
    """Add a run's messages; those of a run with an id are added once."""
    query = "insert or ignore into messages (conversation, message_list, run) values (?, ?, ?)"
    await asyncio.to_thread(rows, query, conversation, new_messages_json.decode(), run)


class SqliteConversations(ConversationStore):
    async def read_record(self, conversation_id):
        query = "select body from record where conversation = ?"
        found = await asyncio.to_thread(rows, query, conversation_id)
        return RECORD.validate_json(found[0][0]) if found else None

    async def read_records(self, *, scope=None, limit=None):
        raise NotImplementedError("nobody lists them here")

    async def delete_record(self, conversation_id, *, expected_revision):
        raise NotImplementedError("nobody deletes them here")

    async def read_entry(self, entry_id):
        found = await asyncio.to_thread(rows, "select body from entry where id = ?", entry_id)
        return ENTRY.validate_json(found[0][0])

    async def write_record(self, record, *, new_entries=(), expected_revision):
        await asyncio.to_thread(self._write, record, new_entries, expected_revision)

    def _write(self, record, new_entries, expected_revision):
        name = record.conversation_id
        with closing(connected()) as database, database:
            database.execute("begin immediate")
            found = database.execute("select revision from record where conversation = ?", (name,))
            if (found.fetchone() or (None,))[0] != expected_revision:
                raise ConversationConflict(name)
            entries = [(each.id, ENTRY.dump_json(each)) for each in new_entries]
            database.executemany("insert into entry values (?, ?)", entries)
            head = (name, record.revision, RECORD.dump_json(record))
            database.execute("insert or replace into record values (?, ?, ?)", head)


def piece_of(event):
    """The text that an event brings, if it does."""
    match event:
        case PartStartEvent(part=TextPart(content=piece)):
            return piece
        case PartDeltaEvent(delta=TextPartDelta(content_delta=piece)):
            return piece
        case _:
            return ""


def as_chat(messages):
    """Its messages as chat messages. What it says of itself to be broken off is marked."""
    found = []
    for message in messages:
        marked = message.state in ("incomplete", "interrupted")
        if isinstance(message, ModelRequest):
            found += [as_asked(part, marked) for part in message.parts if has_role(part)]
            continue
        text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
        calls = [
            {"id": part.tool_call_id} for part in message.parts if isinstance(part, ToolCallPart)
        ]
        found.append({"role": "assistant", "content": text, "tool_calls": calls, "marked": marked})
    return found


def has_role(part):
    return isinstance(part, UserPromptPart | ToolReturnPart)


def as_asked(part, marked):
    if isinstance(part, UserPromptPart):
        return {"role": "user", "content": part.content, "marked": marked}
    return {"role": "tool", "tool_call_id": part.tool_call_id, "content": str(part.content)}
