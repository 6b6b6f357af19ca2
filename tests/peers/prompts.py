"""What the other programs would send to their models next, by their own rules, from their own files.

docker-agent: `GetMessages` of `pkg/session/session.go`. goose: `fix_conversation` of `conversation/mod.rs`. openclaw:
`buildSessionContext` of pi's `session-manager.ts`. A line for each message, call and result; a result that the program
makes up for a call without one is `result: ?`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw


def docker_agent(path: Path, session_id: str) -> list[str]:
    with apsw.Connection(str(path)) as db:
        rows = list(
            db.execute(
                "select item_type, message_json, summary_text, first_kept_entry from session_items"
                " where session_id = ? order by position",
                (session_id,),
            )
        )
    last = max((n for n, row in enumerate(rows) if row[0] == "summary"), default=-1)
    start = last + 1
    if last >= 0 and 0 < rows[last][3] < last:
        start = rows[last][3]
    sent = [f"summary: {rows[last][2]}"] if last >= 0 else []
    messages = [json.loads(row[1]) for row in rows[start:] if row[0] == "message"]
    open_calls: list[str] = []
    for message in messages:
        if message["role"] in ("user", "assistant"):
            sent += ["result: ?" for _ in open_calls]
            open_calls = []
        words = message["content"] or "".join(
            each.get("text", "") for each in message.get("multi_content", ())
        )
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            sent.append(f"result: {words}")
        elif words:
            sent.append(f"{message['role']}: {words}")
        for call in message.get("tool_calls", ()):
            open_calls.append(call["id"])
            sent.append(f"call: {call['function']['name']}")
    return sent + ["result: ?" for _ in open_calls]


def goose(path: Path, session_id: str) -> list[str]:
    with apsw.Connection(str(path)) as db:
        rows = list(
            db.execute(
                "select role, content_json, metadata_json from messages where session_id = ?"
                " order by created_timestamp, id",
                (session_id,),
            )
        )
    seen = [
        (role, part)
        for role, content, metadata in rows
        if json.loads(metadata)["agentVisible"]
        for part in json.loads(content)
    ]
    answered = {part["id"] for _, part in seen if part["type"] == "toolResponse"}
    sent: list[str] = []
    for role, part in seen:
        match part["type"]:
            case "text":
                sent.append(f"{role}: {part['text']}")
            case "toolRequest" if part["id"] in answered:
                sent.append(f"call: {part['toolCall']['value']['name']}")
            case "toolResponse":
                result = part["toolResult"]
                texts = [each["text"] for each in result.get("value", {}).get("content", ())]
                sent.append(f"result: {''.join(texts) or result['error']}")
    return sent


def openclaw(path: Path, session_id: str) -> list[str]:
    lines = path.with_name(f"{session_id}.jsonl").read_text().splitlines()
    entries = [json.loads(each) for each in lines[1:]]
    by_id = {each["id"]: each for each in entries}
    way: list[dict[str, Any]] = []
    node: dict[str, Any] | None = entries[-1]
    while node is not None:
        way.insert(0, node)
        node = by_id.get(node["parentId"])
    starts = ("compaction", "reset")
    last = max((n for n, each in enumerate(way) if each["type"] in starts), default=-1)
    start = way[last] if last >= 0 else {}
    sent = [f"summary: {start['summary']}"] if start.get("summary") else []
    if last >= 0:
        first = start.get("firstKeptEntryId")
        kept = next((n for n, each in enumerate(way) if each["id"] == first), last)
        way = [*way[kept:last], *way[last + 1 :]]
    for each in way:
        sent += _openclaw_lines(each)
    return sent


def _openclaw_lines(entry: dict[str, Any]) -> list[str]:
    if entry["type"] == "custom_message":
        return [f"user: {entry['content']}"]
    if entry["type"] != "message":
        return []
    message = entry["message"]
    if message["role"] == "user":
        return [f"user: {message['content']}"]
    if message.get("stopReason") in ("error", "aborted"):
        return []
    lines = []
    for part in message["content"]:
        match part["type"]:
            case "text" if message["role"] == "toolResult":
                lines.append(f"result: {part['text']}")
            case "text":
                lines.append(f"assistant: {part['text']}")
            case "toolCall":
                lines.append(f"call: {part['name']}")
    return lines
