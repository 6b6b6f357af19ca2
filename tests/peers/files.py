"""Files as the other programs write them: their published tables, with conversations that ended in every way.

docker-agent: `pkg/session/{store,migrations}.go` and `pkg/chat/chat.go`. goose: `crates/goose/src/session/` and
`conversation/message/`. Agents SDK: `agents/memory/sqlite_session.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import apsw

AT = "2026-03-01T10:00:00Z"
AT_S = 1772359200
Json: TypeAlias = Mapping[str, object]
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)


def docker_agent(path: Path) -> None:
    """One whole session, one torn in the middle of a tool, one of a sub-agent, one that was compacted, an empty one."""
    db = apsw.Connection(str(path))
    db.execute("""
        create table sessions (
            id text primary key, messages text, created_at text, tools_approved boolean default 0,
            title text default '', parent_id text references sessions(id) on delete cascade);
        create table session_items (
            id integer primary key autoincrement, session_id text not null, position integer not null,
            item_type text not null, agent_name text, message_json text, implicit boolean default 0,
            subsession_id text, summary_text text);
    """)
    sessions = [
        ("trip", "A trip to Oslo", None),
        ("torn", "", None),
        ("helper", "", "trip"),
        ("summed", "Long", None),
        ("nothing", "", None),
    ]
    for session_id, title, parent in sessions:
        db.execute(
            "insert into sessions (id, created_at, title, parent_id) values (?, ?, ?, ?)",
            (session_id, AT, title, parent),
        )
    call = {"id": "c1", "type": "function", "function": {"name": "ferries", "arguments": "{}"}}
    picture = [
        {"type": "text", "text": "Where is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]
    said: dict[str, list[Json]] = {
        "trip": [
            {"role": "user", "content": "To Oslo", "created_at": AT},
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "By sea.",
                "tool_calls": [call],
            },
            {"role": "tool", "content": "at eight", "tool_call_id": "c1"},
            {"role": "assistant", "content": "The ferry leaves at eight."},
            {"role": "user", "content": "", "multi_content": picture},
            {"role": "assistant", "content": "In Oslo."},
        ],
        "torn": [
            {"role": "user", "content": "Book it"},
            {"role": "assistant", "content": "At once.", "tool_calls": [call]},
        ],
        "helper": [{"role": "user", "content": "Look for ferries"}],
    }
    for session_id, messages in said.items():
        for position, message in enumerate(messages):
            _add(db, session_id, position, message)
    db.execute(
        "insert into session_items (session_id, position, item_type, subsession_id)"
        " values ('trip', 6, 'subsession', 'helper')"
    )
    _summed(db)
    db.close()


def _summed(db: apsw.Connection) -> None:
    """A summary between two turns."""
    _add(db, "summed", 0, {"role": "user", "content": "Count"})
    _add(db, "summed", 1, {"role": "assistant", "content": "1"})
    db.execute(
        "insert into session_items (session_id, position, item_type, summary_text)"
        " values ('summed', 2, 'summary', 'We counted.')"
    )
    _add(db, "summed", 3, {"role": "user", "content": "Go on"})
    _add(db, "summed", 4, {"role": "assistant", "content": "2"})


def _add(db: apsw.Connection, session_id: str, position: int, message: Json) -> None:
    db.execute(
        "insert into session_items (session_id, position, item_type, agent_name, message_json)"
        " values (?, ?, 'message', 'root', ?)",
        (session_id, position, json.dumps(message)),
    )


def old_docker_agent(path: Path) -> None:
    """As before there was a table for items: all of a session in one column."""
    db = apsw.Connection(str(path))
    db.execute("create table sessions (id text primary key, messages text, created_at text)")
    items = [
        {"message": {"agentName": "", "message": {"role": "user", "content": "Hello"}}},
        {"message": {"agentName": "root", "message": {"role": "assistant", "content": "Hi"}}},
        {"message": {"agentName": "", "message": {"role": "user", "content": "Still there?"}}},
    ]
    db.execute("insert into sessions values ('old', ?, ?)", (json.dumps(items), AT))
    db.close()


def goose(path: Path) -> None:
    """A whole session with a tool, one torn after a question, one that was compacted."""
    db = apsw.Connection(str(path))
    db.execute("""
        create table sessions (
            id text primary key, name text not null default '', description text not null default '',
            session_type text not null default 'user', working_dir text not null default '',
            created_at timestamp default current_timestamp);
        create table messages (
            id integer primary key autoincrement, session_id text not null references sessions(id),
            role text not null, content_json text not null, created_timestamp integer not null,
            timestamp timestamp default current_timestamp, tokens integer, metadata_json text);
    """)
    request = {
        "type": "toolRequest",
        "id": "t1",
        "toolCall": {"status": "success", "value": {"name": "shell", "arguments": {"cmd": "ls"}}},
    }
    result = {"content": [{"type": "text", "text": "a.txt"}], "isError": False}
    response = {
        "type": "toolResponse",
        "id": "t1",
        "toolResult": {"status": "success", "value": result},
    }
    refused = {
        "type": "toolResponse",
        "id": "t2",
        "toolResult": {"status": "error", "error": "not allowed"},
    }
    again = {**request, "id": "t2"}
    seen = {"userVisible": True, "agentVisible": True}
    old = {"userVisible": True, "agentVisible": False}
    for_model = {"userVisible": False, "agentVisible": True}
    said: dict[str, list[tuple[str, list[Json], Json]]] = {
        "20260301_1": [
            ("user", [_text("List the files")], seen),
            (
                "assistant",
                [{"type": "thinking", "thinking": "ls", "signature": "s"}, request],
                seen,
            ),
            ("user", [response], seen),
            ("assistant", [again], seen),
            ("user", [refused], seen),
            ("assistant", [_text("There is a.txt.")], seen),
        ],
        "20260301_2": [("user", [_text("Are you there?")], seen)],
        "20260301_3": [
            ("user", [_text("Count")], old),
            ("assistant", [_text("1")], old),
            ("assistant", [_text("We counted to 1.")], for_model),
            ("user", [_text("Go on")], seen),
            ("assistant", [_text("2")], seen),
        ],
    }
    for session_id, messages in said.items():
        db.execute(
            "insert into sessions (id, name, created_at) values (?, ?, '2026-03-01 10:00:00')",
            (session_id, f"Session {session_id}"),
        )
        for n, (role, content, metadata) in enumerate(messages):
            values = (session_id, role, json.dumps(content), AT_S + n, json.dumps(metadata))
            db.execute(
                "insert into messages (session_id, role, content_json, created_timestamp, metadata_json)"
                " values (?, ?, ?, ?, ?)",
                values,
            )
    db.close()


def _text(words: str) -> Json:
    return {"type": "text", "text": words}


def openai_agents(path: Path) -> None:
    """A whole session with a tool; one in which a run failed twice; one with a result that nobody asked for."""
    db = apsw.Connection(str(path))
    db.execute("""
        create table agent_sessions (
            session_id text primary key, created_at timestamp default current_timestamp,
            updated_at timestamp default current_timestamp);
        create table agent_messages (
            id integer primary key autoincrement, session_id text not null, message_data text not null,
            created_at timestamp default current_timestamp);
    """)
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Sunny."}],
    }
    said: dict[str, list[object]] = {
        "weather": [
            {"role": "user", "content": "What is the weather?"},
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Ask."}],
            },
            {"type": "function_call", "call_id": "f1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "f1", "output": "sunny"},
            answer,
        ],
        "failed twice": [
            {"role": "user", "content": "Hello"},
            {"role": "user", "content": "Hello"},
            answer,
        ],
        "odd": [
            {"role": "user", "content": "Look"},
            {"type": "function_call_output", "call_id": "nobody", "output": "?"},
            {"type": "computer_call", "id": "cu_1"},
            answer,
        ],
    }
    for session_id, items in said.items():
        values: tuple[str, ...] = (session_id, "2026-03-01 10:00:00")
        db.execute("insert into agent_sessions (session_id, created_at) values (?, ?)", values)
        for item in [*items, *(["{broken"] if session_id == "odd" else [])]:
            data = item if isinstance(item, str) else json.dumps(item)
            db.execute(
                "insert into agent_messages (session_id, message_data, created_at)"
                " values (?, ?, '2026-03-01 10:00:00')",
                (session_id, data),
            )
    db.close()
