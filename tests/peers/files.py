"""Files as the other programs write them: their published tables, with conversations that ended in every way.

docker-agent: `pkg/session/{store,migrations}.go` and `pkg/chat/chat.go`. goose: `crates/goose/src/session/` and
`conversation/message/`. Agents SDK: `agents/memory/sqlite_session.py`. openclaw: pi's `session-manager.ts` and `types.ts`.
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
            id text primary key, created_at text, tools_approved boolean default 0,
            input_tokens integer default 0, output_tokens integer default 0, title text default '',
            cost real default 0, send_user_message boolean default 1, max_iterations integer default 0,
            working_dir text default '', starred boolean default 0, permissions text default '',
            agent_model_overrides text default '{}', custom_models_used text default '[]',
            thinking boolean default 1, parent_id text references sessions(id) on delete cascade,
            instruction_context text default '', safety_policy text default '',
            attributes text default '{}', origin text not null default 'run');
        create table session_items (
            id integer primary key autoincrement, session_id text not null, position integer not null,
            item_type text not null, agent_name text, message_json text, implicit boolean default 0,
            subsession_id text, summary_text text, first_kept_entry integer default 0,
            cost real not null default 0, model text not null default '', usage_json text not null default '');
    """)
    sessions = [
        ("trip", "A trip to Oslo", None),
        ("torn", "", None),
        ("helper", "", None),
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
            {
                "role": "assistant",
                "content": "The ferry leaves at eight.",
                "model": "openai/gpt-x",
                "cost": 0.002,
                "usage": {"input_tokens": 10, "output_tokens": 5, "cached_input_tokens": 90},
            },
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
    _summed(db)
    _kept(db)
    _delegated(db)
    db.close()


def _delegated(db: apsw.Connection) -> None:
    """A task for a sub-agent, whose session is an item before the result; then a request that failed."""
    transfer = {
        "id": "t1",
        "type": "function",
        "function": {"name": "transfer_task", "arguments": '{"task":"Look"}'},
    }
    look = {"id": "s1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    db.execute(
        "insert into sessions (id, created_at, starred, permissions) values ('team', ?, 1, ?)",
        (AT, json.dumps({"allow": ["shell"]})),
    )
    db.execute("update sessions set parent_id = 'team' where id = 'helper'")
    _add(db, "helper", 1, {"role": "assistant", "content": "", "tool_calls": [look]}, "finder")
    _add(db, "helper", 2, {"role": "tool", "content": "two", "tool_call_id": "s1"})
    _add(db, "helper", 3, {"role": "assistant", "content": "There are two."}, "finder")
    _add(db, "team", 0, {"role": "user", "content": "Any ferries?"})
    _add(db, "team", 1, {"role": "assistant", "content": "", "tool_calls": [transfer]})
    db.execute(
        "insert into session_items (session_id, position, item_type, subsession_id)"
        " values ('team', 2, 'subsession', 'helper')"
    )
    _add(db, "team", 3, {"role": "tool", "content": "There are two.", "tool_call_id": "t1"})
    _add(db, "team", 4, {"role": "assistant", "content": "Two."})
    _add(db, "team", 5, {"role": "user", "content": "Book one"})
    db.execute(
        "insert into session_items (session_id, position, item_type, message_json)"
        " values ('team', 6, 'error', ?)",
        (json.dumps({"message": "the provider is overloaded"}),),
    )
    _add(db, "team", 7, {"role": "user", "content": "Book one"})
    _add(db, "team", 8, {"role": "assistant", "content": "Booked."})


def _kept(db: apsw.Connection) -> None:
    """A summary in the middle of a turn, with a part of that turn kept in full."""
    db.execute("insert into sessions (id, created_at) values ('kept', ?)", (AT,))
    call = {"id": "k1", "type": "function", "function": {"name": "count", "arguments": "{}"}}
    _add(db, "kept", 0, {"role": "user", "content": "Hello"})
    _add(db, "kept", 1, {"role": "assistant", "content": "Hi"})
    _add(db, "kept", 2, {"role": "user", "content": "Count"})
    _add(db, "kept", 3, {"role": "assistant", "content": "", "tool_calls": [call]})
    _add(db, "kept", 4, {"role": "tool", "content": "1", "tool_call_id": "k1"})
    db.execute(
        "insert into session_items (session_id, position, item_type, summary_text, first_kept_entry, cost, usage_json)"
        " values ('kept', 5, 'summary', 'They said hello.', 3, 0.5, ?)",
        (json.dumps({"input_tokens": 7, "output_tokens": 3}),),
    )
    _add(db, "kept", 6, {"role": "assistant", "content": "One."})


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


def _add(
    db: apsw.Connection, session_id: str, position: int, message: Json, agent: str = "root"
) -> None:
    db.execute(
        "insert into session_items (session_id, position, item_type, agent_name, message_json)"
        " values (?, ?, 'message', ?, ?)",
        (session_id, position, agent, json.dumps(message)),
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
            created_at timestamp default current_timestamp, total_tokens integer, input_tokens integer,
            output_tokens integer, accumulated_total_tokens integer, accumulated_input_tokens integer,
            accumulated_output_tokens integer);
        create table messages (
            id integer primary key autoincrement, message_id text,
            session_id text not null references sessions(id), role text not null, content_json text not null, created_timestamp integer not null,
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
        "20260301_4": [
            ("user", [_text("/review")], old),
            ("user", [_text("Review the changes with care.")], for_model),
            ("assistant", [request], old),
            ("user", [response], old),
            ("user", [_text("A call of shell gave a.txt.")], for_model),
            ("assistant", [again], seen),
            ("user", [_text("Stop")], seen),
            ("assistant", [_text("Stopped.")], seen),
            ("assistant", [_text("Only you see this.")], old),
        ],
        "20260301_5": [("user", [_text("For a sub-agent")], seen)],
    }
    for session_id, messages in said.items():
        db.execute(
            "insert into sessions (id, name, created_at, session_type, accumulated_input_tokens,"
            " accumulated_output_tokens) values (?, ?, '2026-03-01 10:00:00', ?, 100, 20)",
            (
                session_id,
                f"Session {session_id}",
                "sub_agent" if session_id.endswith("_5") else "user",
            ),
        )
        for n, (role, content, metadata) in enumerate(messages):
            values = (session_id, role, json.dumps(content), AT_S + n, json.dumps(metadata))
            db.execute(
                "insert into messages (session_id, role, content_json, created_timestamp, metadata_json)"
                " values (?, ?, ?, ?, ?)",
                values,
            )
    db.close()


def goose_lines(path: Path) -> None:
    """As before there was a database: a line about the session, then its messages."""
    lines: list[Json] = [
        {"working_dir": "here", "description": "Old talk", "message_count": 2, "input_tokens": 4},
        {"role": "user", "created": AT_S, "content": [_text("Hello")]},
        {"role": "assistant", "created": AT_S + 1, "content": [_text("Hi")]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{broken\n")


def openclaw(path: Path) -> None:
    """`sessions.json` with a compacted transcript that has a branch and a failed answer, one that is not there, one that
    was reset, and one that was compacted without a summary."""
    sessions: Json = {
        "agent:main:main": {"sessionId": "s-1", "updatedAt": AT_S * 1000, "label": "Mine"},
        "agent:main:gone": {"sessionId": "s-2", "updatedAt": AT_S * 1000},
        "agent:main:fresh": {"sessionId": "s-3", "updatedAt": AT_S * 1000},
        "agent:main:kept": {"sessionId": "s-4", "updatedAt": AT_S * 1000},
    }
    path.write_text(json.dumps(sessions))

    def line(n: int, parent: int | None, kind: str, **more: object) -> Json:
        above = None if parent is None else f"e{parent}"
        return {"type": kind, "id": f"e{n}", "parentId": above, "timestamp": AT, **more}

    def user(words: str) -> Json:
        return {"role": "user", "content": words, "timestamp": AT_S * 1000}

    def answer(*content: Json, stop: str = "stop", **more: object) -> Json:
        cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0.001}
        usage = {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 0, "totalTokens": 6}
        made: dict[str, object] = {"role": "assistant", "content": list(content), "api": "x"}
        made |= {"provider": "anthropic", "model": "m", "usage": {**usage, "cost": cost}}
        return {**made, "stopReason": stop, "timestamp": AT_S * 1000, **more}

    call = {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"cmd": "ls"}}
    result = {"role": "toolResult", "toolCallId": "c1", "toolName": "exec", "isError": False}
    lines = [
        {"type": "session", "version": 3, "id": "s-1", "timestamp": AT, "cwd": "here"},
        line(1, None, "message", message=user("Old question")),
        line(2, 1, "message", message=answer(_text("Old answer"))),
        line(3, 2, "message", message=user("Another way")),
        line(4, 2, "message", message=user("List")),
        line(5, 4, "message", message=answer({"type": "thinking", "thinking": "hm"}, call)),
        line(6, 5, "message", message={**result, "content": [_text("a.txt")]}),
        line(7, 6, "compaction", summary="An old talk.", firstKeptEntryId="e4", tokensBefore=9),
        line(8, 7, "message", message=answer(_text("There is a.txt."))),
        line(9, 8, "message", message=user("More")),
        line(
            10, 9, "message", message=answer(_text("Ha"), stop="error", errorMessage="overloaded")
        ),
        line(11, 10, "custom_message", customType="clock", content="It is ten.", display=False),
        line(12, 11, "message", message=user("More?")),
        line(13, 12, "message", message=answer(_text("No."))),
        line(14, 13, "custom", customType="todo", data={}),
    ]
    path.with_name("s-1.jsonl").write_text("\n".join(map(json.dumps, lines)))
    before = [
        {"type": "session", "version": 3, "id": "s-3", "timestamp": AT, "cwd": "here"},
        line(1, None, "message", message=user("Old question")),
        line(2, 1, "message", message=answer(call)),
        line(3, 2, "message", message={**result, "content": [_text("a.txt")]}),
        line(4, 3, "message", message=answer(_text("Old answer"))),
        line(5, 4, "compaction", summary="An old talk.", firstKeptEntryId="e4", tokensBefore=9),
        line(6, 5, "message", message=user("Last words")),
        line(7, 6, "message", message=answer(_text("Bye."))),
    ]
    after = [
        line(9, 8, "message", message=user("New question")),
        line(10, 9, "message", message=answer(_text("New answer"))),
    ]
    fresh = [*before, line(8, 7, "reset"), *after]
    kept = [*before, line(8, 7, "compaction", summary="", firstKeptEntryId="e6"), *after]
    path.with_name("s-3.jsonl").write_text("\n".join(map(json.dumps, fresh)))
    path.with_name("s-4.jsonl").write_text("\n".join(map(json.dumps, kept)))


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
