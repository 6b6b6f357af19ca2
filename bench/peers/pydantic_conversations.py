"""Pydantic AI's `ConversationStore` on SQLite: what it offers against writers that overwrite each other.

It asks a backend for five primitives, and to store messages and head together, if the revision is still the one that
was loaded.
"""

import asyncio
from contextlib import closing

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_history import connected, rows

RECORD, ENTRY = TypeAdapter(ConversationRecord), TypeAdapter(ConversationEntry)


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
