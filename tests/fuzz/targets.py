"""What is tried with bytes that a fuzzer makes: every reader of something that others have written.

A target says what has to be true whatever the bytes are, and raises if it is not. It begins with seeds, bytes as they
really come, and with words that a fuzzer would take long to find. What is found belongs into the tests of the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec import Struct

from holdfast.agents.file import agent_file
from holdfast.agents.file.document import Document, DocumentNode, Mark, Plain, read_document
from holdfast.agents.file.schema import DESCRIPTIONS
from holdfast.core.items import UserMessage
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.ids import CallId, MessageId, TurnId
from holdfast.server.openapi.error_codes import CODES
from holdfast.testing import says
from holdfast.wire.a2a.forms import VERSION_0_3, VERSION_0_3_REST, VERSION_1
from holdfast.wire.a2a.messages import check_message, hash_of, history_of, incoming_of, note_of
from holdfast.wire.a2a.objects import ListParams, SendParams, TaskParams
from holdfast.wire.a2a.requests import read_call, read_envelope
from holdfast.wire.anthropic.door.answer import MessagesForm
from holdfast.wire.anthropic.door.request import read_messages_request
from holdfast.wire.headers import read_naming
from holdfast.wire.openai.chat.answer import ChatStream
from holdfast.wire.openai.chat.request import read_chat_request
from holdfast.wire.openai.conversations import read_items, read_metadata, read_new_conversation
from holdfast.wire.openai.responses.answer import Echo, ResponseHead
from holdfast.wire.openai.responses.request import read_context_request, read_responses_request
from holdfast.wire.openai.responses.stream import ResponseStream
from holdfast.wire.problems import OPENAI_PROBLEMS, ErrorAnswer, Problem, Refused
from holdfast.wire.sse import EventTooLong, SseParser, data_frame
from holdfast.wire.turn_answers import AnswerHead
from tests import repository
from tests.agents import file_rules
from tests.core.builders import new_minter
from tests.models.wires import TONGUES


class Target(Struct, frozen=True):
    """One reader, and what has to be true of it."""

    name: str
    about: str
    try_one: Callable[[bytes], None]
    seeds: Sequence[bytes]
    words: Sequence[str] = ()
    size_max: int = 2048
    """Longer bytes find nothing that shorter ones do not, and take longer."""


# ── requests ─────────────────────────────────────────────────────────────────────────────────


def reads(*readers: Callable[[bytes], object]) -> Callable[[bytes], None]:
    """Whatever the body: it is read, or refused with a status, words and a code that are described."""

    def try_one(data: bytes) -> None:
        for read in readers:
            try:
                read(data)
            except Refused as refused:
                demand_told(refused.problem)

    return try_one


def demand_told(problem: Problem) -> None:
    assert CODES[problem.code].status == problem.status
    assert problem.message
    said = msgspec.json.decode(problem.body(), type=ErrorAnswer).error
    assert (said.code, said.message) == (problem.code, problem.message)


def read_context(data: bytes) -> None:
    read_context_request(data, needs_model=True)


def read_a2a(data: bytes) -> None:
    """A message reads the same again, whatever form it came in."""
    envelope = read_envelope(data)
    given = envelope.members.get("params") if isinstance(envelope.members, dict) else None
    for form in (VERSION_1, VERSION_0_3, VERSION_0_3_REST):
        try:
            message = form.params(SendParams, given).message
            check_message(message)
            incoming_of(message)
        except Refused as refused:
            demand_told(refused.problem)
            continue
        again = VERSION_1.params(SendParams, {"message": msgspec.to_builtins(message)}).message
        assert hash_of(again, agent="root") == hash_of(message, agent="root")
        kept = note_of(message, agent="root", key="")
        item = UserMessage(
            id=_MINT(MessageId), content=incoming_of(message).content, extras=(kept,)
        )
        (shown,) = history_of((item,), task_id="t", context_id="c", blobs={})
        assert len(shown.parts) == len(message.parts)
    asked = read_call(envelope)
    if asked.method == "list":
        asked.form.params(ListParams, asked.params)
    else:
        asked.form.params(TaskParams, asked.params)


def read_headers(data: bytes) -> None:
    """Lines of `name: value`, as a server is given them."""
    headers: dict[str, str] = {}
    for line in data.decode("latin-1").split("\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    read_naming(headers)


def bodies(*labels: str) -> list[bytes]:
    """What the document shows as the bodies of these."""
    document = msgspec.json.decode((repository.ROOT / "docs/reference/openapi.json").read_bytes())
    found = []
    for label in labels:
        method, path = label.split()
        content = document["paths"][path][method.lower()]["requestBody"]["content"]
        found.append(msgspec.json.encode(content["application/json"]["example"]))
    return found


CHAT = [
    *bodies("POST /v1/chat/completions"),
    (
        b'{"model":"root","messages":[{"role":"system","content":null},{"role":"user","content":[{"type":"text","text":"a"},'
        b'{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}},{"type":"file","file":{"file_id":"f"}},'
        b'{"type":"input_audio","input_audio":{"data":"aGk=","format":"wav"}}]},{"role":"assistant","tool_calls":[{"id":"c",'
        b'"type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"1"}],'
        b'"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"},"strict":true}}],'
        b'"tool_choice":{"type":"function","function":{"name":"f"}},"stop":["a"],"temperature":0.5,"n":1,'
        b'"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{}}},"stream":true,'
        b'"stream_options":{"include_usage":true},"max_tokens":5,"logit_bias":{"1":2},"seed":1}'
    ),
]
A2A = [
    *bodies("POST /a2a/{agent}"),
    (
        b'{"jsonrpc":"2.0","id":"a","method":"SendStreamingMessage","params":{"message":{"message_id":"1","contextId":"c",'
        b'"role":1,"parts":[{"raw":"aGk=","mediaType":"image/png"},{"url":"data:text/plain;base64,aGk=","filename":"f"},'
        b'{"data":{"a":[1]},"metadata":{"b":null}}],"metadata":{"x":1}},"configuration":{"historyLength":"2"}}}'
    ),
    (
        b'{"jsonrpc":"2.0","id":2,"method":"message/send","params":{"message":{"kind":"message","messageId":"1","role":"user",'
        b'"parts":[{"kind":"text","text":"a"},{"kind":"file","file":{"bytes":"aGk=","mimeType":"audio/wav","name":"n"}},'
        b'{"kind":"data","data":{"a":1}}]},"configuration":{"blocking":false}}}'
    ),
    (
        b'{"jsonrpc":"2.0","id":3,"method":"tasks/get","params":{"request":{"messageId":"1","role":"ROLE_USER","content":['
        b'{"file":{"fileWithBytes":"YUdrPQ==","mimeType":"image/png"}},{"data":{"data":{"a":1}}},{"file":{"fileWithUri":"u"}}]}}}'
    ),
    b'{"jsonrpc":"2.0","id":4,"method":"ListTasks","params":{"status":"TASK_STATE_WORKING","pageSize":5,"includeArtifacts":true}}',
    b'{"jsonrpc":"2.0","id":5,"method":"CancelTask","params":{"id":"turn_1","history_length":0}}',
]

RESPONSES = [
    *bodies("POST /v1/responses", "POST /v1/responses/compact"),
    (
        b'{"model":"root","input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image",'
        b'"image_url":"data:image/png;base64,aGk=","detail":"low"},{"type":"input_file","file_data":"aGk="}]},'
        b'{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c",'
        b'"output":"1"},{"type":"item_reference","id":"msg_1"},{"type":"reasoning","encrypted_content":"x"},'
        b'{"type":"compaction","encrypted_content":"{}"}],"tools":[{"type":"function","name":"f","parameters":{}},'
        b'{"type":"web_search"}],"tool_choice":{"type":"function","name":"f"},"text":{"format":{"type":"json_schema",'
        b'"name":"a","schema":{}}},"reasoning":{"effort":"low"},"metadata":{"a":"b"},"include":["x"],"store":true,'
        b'"background":true,"max_output_tokens":16,"conversation":{"id":"conv_01jd0000000000000000000000"}}'
    ),
]
MESSAGES = [
    *bodies("POST /v1/messages"),
    (
        b'{"model":"root","max_tokens":9,"system":[{"type":"text","text":"a"}],"messages":[{"role":"system","content":"b"},'
        b'{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}},'
        b'{"type":"document","context":"c","source":{"type":"content","content":[{"type":"text","text":"x"}]}},'
        b'{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"x"}]}]},{"role":"assistant",'
        b'"content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"redacted_thinking","data":"d"},'
        b'{"type":"tool_use","id":"c","name":"f","input":{"a":[1]}}]},{"role":"user","content":[{"type":"tool_result",'
        b'"tool_use_id":"c","is_error":true,"content":[{"type":"text","text":"r"}]}]}],"tools":[{"name":"f",'
        b'"input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"w"}],"tool_choice":{"type":"tool",'
        b'"name":"f"},"thinking":{"type":"enabled","budget_tokens":2000},"output_config":{"effort":"low",'
        b'"format":{"type":"json_schema","schema":{}}},"metadata":{"user_id":"u"},"stream":true}'
    ),
]
CONVERSATIONS = [
    *bodies("POST /v1/conversations", "POST /v1/conversations/{conversation}/items"),
    b'{"items":[{"type":"message","role":"developer","content":[{"type":"refusal","refusal":"no"}]}],"metadata":{"a":"b"}}',
]
HEADERS = [
    (
        b'X-Conversation-Id: trip\nIdempotency-Key: "a b"\nIf-Match: "7"\nX-On-Busy: steer\nX-Turn-Policy: cancel=keep, '
        b"disconnect=finish\nX-Conversation-Create: never\nX-Show-Tools: true\nx-stainless-retry-count: 2\n"
        b"X-Approve: fc_01jd0000000000000000000000, fc_01jd0000000000000000000001\nX-Deny: fc_01jd0000000000000000000002"
    ),
    b"x-openclaw-session-key: conv_01jd0000000000000000000000\nx-conversation-key: oops",
]

# ── streams, in ──────────────────────────────────────────────────────────────────────────────

EVENT_BYTES_MAX = 512


def cut(data: bytes) -> list[bytes]:
    """The same bytes in pieces; the first two of them say where they are cut."""
    places, rest = data[:2], data[2:]
    ends = sorted({0, len(rest), *(each % (len(rest) + 1) for each in places)})
    return [rest[start:end] for start, end in pairwise(ends)]


def expected_events(stream: bytes) -> list[tuple[bytes, bytes]]:
    """The name and data of each event, as the standard has it, slowly."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    found: list[tuple[bytes, bytes]] = []
    name, data = b"", list[bytes]()
    for line in text.split(b"\n")[:-1]:
        field, _, value = line.partition(b":")
        if not line:
            if data:
                found.append((name, b"\n".join(data)))
            name, data = b"", []
        elif field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    return found


def parse_stream(data: bytes) -> None:
    """Wherever a stream is cut: the same events, and those of the standard; or it is too long, and said to be."""
    pieces = cut(data)
    parser = SseParser(event_bytes_max=EVENT_BYTES_MAX)
    found = []
    try:
        for piece in pieces:
            found += parser.feed(piece)
    except EventTooLong:
        assert len(data) > EVENT_BYTES_MAX
        return
    told = [(name, said) for said, name in found]
    expected = expected_events(b"".join(pieces))
    assert told == [(name.decode(errors="replace"), each) for name, each in expected]


STREAMS = [
    b"\x05\x21event: a\ndata: {}\n\ndata: b\r\ndata: c\r\n\r\n: hi\n\ndata: [DONE]\n\n",
    b"\x02\x03\xef\xbb\xbfdata:a\rdata\r\r\nid: 1\nretry: 2\n\n",
]


def hear(data: bytes) -> None:
    """Whatever a provider streams, cut anywhere: deltas and a failure with words, the same for every cut."""
    tongue = list(TONGUES.values())[data[0] % len(TONGUES)] if data else TONGUES["chat"]
    pieces = cut(data[1:])
    whole, cuts = tongue.hearing(), tongue.hearing()
    at_once = list(whole.feed(b"".join(pieces)))
    one_by_one = [delta for piece in pieces for delta in cuts.feed(piece)]
    assert at_once == one_by_one
    assert str(whole.failure) == str(cuts.failure)
    assert whole.finished == cuts.finished
    if whole.failure is not None:
        assert str(whole.failure), "a failure has words"


def heard() -> list[bytes]:
    """A short answer on every wire: some words and a call."""
    script = says("Hé 👋", calls=[("look", '{"n":1}', "call_1")])
    return [bytes([n, 40, 200]) + each.body_of(script) for n, each in enumerate(TONGUES.values())]


# ── streams, out ─────────────────────────────────────────────────────────────────────────────

_MINT = new_minter()
_TURN, _MESSAGE, _CALL = _MINT(TurnId), _MINT(MessageId), _MINT(CallId)


def lines_of(frames: bytes) -> list[str]:
    """What a client sees that takes whatever Python does for the end of a line."""
    return frames.decode().splitlines()


def frame(data: bytes) -> None:
    """No words break out of their frame: whoever reads it sees one event more, with just these words in it."""
    how, text = data[0] % len(FRAMINGS) if data else 0, data[1:].decode(errors="replace")
    frames, words = FRAMINGS[how](text)
    events = expected_events(frames)
    for name, said in events:
        assert msgspec.json.decode(said)
        assert not name or name.startswith((b"response.", b"message_", b"content_block_"))
    wanted = [line for line in lines_of(frames) if line]
    names = sum(bool(name) for name, _ in events)
    assert len(wanted) == len(events) + names, "as many lines as there are events, and their names"
    assert all(each.startswith(("data: ", "event: ")) for each in wanted)
    assert frames.endswith(b"\n\n") or not frames
    assert words(events) == text


def _said_in_chat(text: str) -> tuple[bytes, Callable[[Any], str]]:
    stream = ChatStream(AnswerHead(turn_id=_TURN, created_s=1, model=text))
    stream.frames(_record(ev.ItemOpened(item=_MESSAGE, kind="message")))
    frames = stream.frames(_record(ev.Grew(item=_MESSAGE, text=text)))
    return frames, lambda events: "".join(
        msgspec.json.decode(each)["choices"][0]["delta"]["content"] for _, each in events
    )


def _called_in_chat(text: str) -> tuple[bytes, Callable[[Any], str]]:
    head = AnswerHead(turn_id=_TURN, created_s=1, model="m", client_tools=frozenset({text}))
    stream = ChatStream(head)
    opened = ev.ItemOpened(item=_CALL, kind="call", call_id=text, name=text)
    frames = stream.frames(_record(opened)) + stream.frames(_record(ev.Grew(item=_CALL, text=text)))
    return frames, lambda events: str(_call(events[0])["id"])


def _call(event: tuple[bytes, bytes]) -> Any:
    return msgspec.json.decode(event[1])["choices"][0]["delta"]["tool_calls"][0]


def _said_in_a_response(text: str) -> tuple[bytes, Callable[[Any], str]]:
    head = ResponseHead(
        response_id=_TURN.response_id, session_id=None, created_s=1, echo=Echo(model=text)
    )
    stream = ResponseStream(head)
    frames = stream.first()
    frames += stream.frames(_record(ev.ItemOpened(item=_MESSAGE, kind="message")))
    frames += stream.frames(_record(ev.Grew(item=_MESSAGE, text=text)))
    return frames, lambda events: str(msgspec.json.decode(events[0][1])["response"]["model"])


def _said_in_a_message(text: str) -> tuple[bytes, Callable[[Any], str]]:
    stream = MessagesForm(AnswerHead(turn_id=_TURN, created_s=1, model=text)).stream()
    frames = stream.first()
    frames += stream.frames(_record(ev.ItemOpened(item=_MESSAGE, kind="message")))
    frames += stream.frames(_record(ev.Grew(item=_MESSAGE, text=text)))
    return frames, lambda events: str(msgspec.json.decode(events[0][1])["message"]["model"])


def _failed(text: str) -> tuple[bytes, Callable[[Any], str]]:
    problem = Problem(status=400, code="invalid_value", message=text, param=text)
    frames = OPENAI_PROBLEMS.frames(problem)
    return frames, lambda events: str(msgspec.json.decode(events[0][1])["error"]["message"])


def _any_json(text: str) -> tuple[bytes, Callable[[Any], str]]:
    frames = data_frame(msgspec.json.encode({text: text}))
    return frames, lambda events: str(msgspec.json.decode(events[0][1])[text])


def _record(event: ev.Event) -> Record:
    return Record(n=1, at_ms=1, event=event)


FRAMINGS = (
    _said_in_chat,
    _called_in_chat,
    _said_in_a_response,
    _failed,
    _any_json,
    _said_in_a_message,
)
BREAKS = ("\n", "\r", "\r\n", "\n\n", "\x85", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "data: x\n\n", "event: y", ": z", "[DONE]", '"', "\\", "\x00", "\ufeff")  # fmt: skip
WORDS_OUT = [
    bytes([n]) + f"Say {each}data: {{}}{each}{each}now".encode()
    for n in range(len(FRAMINGS))
    for each in BREAKS[:7]
]

# ── agent files ──────────────────────────────────────────────────────────────────────────────


def read_agent_file(data: bytes) -> None:
    file_rules.judge(data)


def _node(value: Plain) -> DocumentNode:
    """A document that was parsed already: values, all of them in one place."""
    match value:
        case dict():
            return DocumentNode(
                mark=Mark(), value={name: _node(each) for name, each in value.items()}
            )
        case list():
            return DocumentNode(mark=Mark(), value=[_node(each) for each in value])
        case _:
            return DocumentNode(mark=Mark(), value=value)


def read_agent_values(data: bytes) -> None:
    """The same from values on. Parsing YAML takes nine tenths of the time, and nobody here has written it."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    with patch.object(agent_file, "read_document", lambda _: Document(_node(value))):
        file_rules.judge(b"\n")


def agent_values() -> list[bytes]:
    """Real files, cut down: one agent each, with one of its toolsets."""
    return sorted({each for text in file_rules.real_files() for each in _cut_down(text)})


def _cut_down(text: str) -> Iterator[bytes]:
    whole: Any = read_document(text.encode()).value
    for name, agent in whole["agents"].items():
        for toolset in agent.get("toolsets", [{}]):
            alone = {**agent, **({"toolsets": [toolset]} if toolset else {})}
            yield msgspec.json.encode({**whole, "agents": {name: alone}})


def agent_words(form: str) -> list[str]:
    return sorted({form % name.rpartition(".")[2] for name in DESCRIPTIONS})


# ── all of them ──────────────────────────────────────────────────────────────────────────────

JSON_WORDS = ("null", "true", "[]", "{}", '""', "1e999", "-0", "\\ud800", "99999999999999999999")


def _fields(seeds: Sequence[bytes]) -> list[str]:
    names = {f'"{name}"' for seed in seeds for name in _names(msgspec.json.decode(seed))}
    return [*sorted(names), *JSON_WORDS]


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from _names(each)
    elif isinstance(value, list):
        for each in value:
            yield from _names(each)
    elif isinstance(value, str) and len(value) < 30:
        yield value


def targets() -> tuple[Target, ...]:
    conversations = reads(read_new_conversation, read_items, read_metadata)
    responses = reads(read_responses_request, read_context)
    header_words = [line.split(":")[0] for seed in HEADERS for line in seed.decode().split("\n")]
    return (
        Target("chat", "bodies of chat requests", reads(read_chat_request), CHAT, _fields(CHAT)),
        Target(
            "messages",
            "bodies of Anthropic's Messages",
            reads(read_messages_request),
            MESSAGES,
            _fields(MESSAGES),
        ),
        Target(
            "responses", "bodies of Responses requests", responses, RESPONSES, _fields(RESPONSES)
        ),
        Target(
            "conversations",
            "bodies of Conversations requests",
            conversations,
            CONVERSATIONS,
            _fields(CONVERSATIONS),
        ),
        Target("a2a", "requests of other agents", reads(read_a2a), A2A, _fields(A2A)),
        Target(
            "headers",
            "headers of requests",
            reads(read_headers),
            HEADERS,
            [*header_words, "conv_", "fc_"],
            512,
        ),
        Target("sse", "streams of events, cut", parse_stream, STREAMS, BREAKS, 1024),
        Target("providers", "what providers stream, cut", hear, heard(), JSON_WORDS, 4096),
        Target("frames", "words on their way out", frame, WORDS_OUT, BREAKS, 256),
        Target(
            "agent-values",
            "agent files, from values on",
            read_agent_values,
            agent_values(),
            agent_words('"%s":'),
            4096,
        ),
        Target(
            "agent-files",
            "agent files, from bytes on",
            read_agent_file,
            [each.encode() for each in file_rules.real_files()],
            agent_words("%s:"),
            4096,
        ),
    )
