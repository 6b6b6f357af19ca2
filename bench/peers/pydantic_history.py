"""Where Pydantic AI's turns are kept: the table of its chat example, in SQLite, and how its messages are shown.

Each run's `new_messages_json()` is a row, and a conversation is its rows in order.
"""

import asyncio
import sqlite3
from contextlib import closing

from harness import FOLDER
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

TABLES = """
create table if not exists messages (
  id integer primary key, conversation text, message_list text, run text unique
);
create table if not exists record (conversation text primary key, revision text, body blob);
create table if not exists entry (id text primary key, body blob);
"""


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
