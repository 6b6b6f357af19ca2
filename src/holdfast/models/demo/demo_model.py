"""The demo model: no network, no cleverness, and the same answer every time.

It shows people what Holdfast does. It counts turns and quotes earlier messages, so that memory is visible; it calls
tools when the user asks for it; and it fails, stalls and breaks off on request, so that users can watch what becomes
of such a turn. It also summarises conversations (`demo/summary.py`).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

import msgspec

from holdfast.core.codec import Value
from holdfast.core.turns.deltas import (
    Delta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import FORCED_TOOL_CHOICE, Finish, ToolDefinition, Usage
from holdfast.models import failures
from holdfast.models.demo.summary import (
    NAME,
    OPENING,
    SummaryNotes,
    notes_of,
    quoted,
    read_back,
    write,
)
from holdfast.models.model import Dialect, ModelFailed, Prompt
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.openai.chat.messages import ChatDialect, ChatMessage, TextPart

PACE_S = 0.03
"""The pause before each word: about as fast as the hosted models."""

STORY_PARAGRAPHS = 12


class DemoModel:
    """A scripted conversation partner. It calls `sleep(pace_s)` before every word."""

    def __init__(
        self,
        *,
        name: str = "demo/parrot",
        pace_s: float = PACE_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.dialect: Dialect = ChatDialect()
        self.knows = frozenset({"max_output_tokens", "tool_choice", FORCED_TOOL_CHOICE})
        self._pace_s = pace_s
        self._sleep = sleep

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        """The answer, at a human pace; see `Model.stream`."""
        sums_up = prompt.system.startswith(OPENING)
        reply = summary_of(prompt) if sums_up else reply_to(read(prompt))
        pace_s = 0.0 if sums_up else self._pace_s  # no client watches a summary being written
        spoken = 0
        most = prompt.parameters.max_output_tokens
        for delta in reply.deltas():
            if isinstance(delta, TextDelta):
                if most is not None and spoken >= most:
                    break
                spoken += 1
            if pace_s:
                await self._sleep(pace_s)
            yield (delta,)
        if reply.stalls:
            await asyncio.get_running_loop().create_future()  # until cancelled
        if reply.fails is not None:
            raise reply.fails.failure()
        cut = most is not None and len(reply.words) > most
        finish: Finish = "length" if cut else "tool_calls" if reply.calls else "stop"
        yield UsageDelta(usage=_usage(prompt, reply, spoken)), FinishDelta(finish=finish)

    async def close(self) -> None:
        pass

    def __repr__(self) -> str:
        return f"<DemoModel {self.name}>"


# ── the conversation, as the demo model reads it ─────────────────────────────────────────────


class DemoConversation(Value):
    """The parts of a conversation that the demo model reacts to."""

    said: tuple[str, ...]
    """The user's messages, turn by turn; the last is to be answered."""
    results: tuple[tuple[str, str], ...] = ()
    """Tool name and result of the latest calls."""
    interrupted: str = ""
    """Why the previous turn was interrupted; empty if it was not."""
    summary: SummaryNotes | None = None
    """The summary of earlier turns; the messages that it quotes are in `said`, too."""
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: str | None = None

    @property
    def untold(self) -> int:
        """How many user messages the summary does not quote."""
        return self.summary.untold if self.summary else 0


class DemoCall(Value):
    name: str
    arguments: str


class DemoFailure(Value):
    detail: str
    reason: str
    transient: bool

    def failure(self) -> ModelFailed:
        return ModelFailed(self.detail, reason=self.reason, transient=self.transient)


class DemoReply(Value):
    """An answer: thoughts, text, calls; and what happens after the text."""

    text: str = ""
    thought: str = ""
    calls: tuple[DemoCall, ...] = ()
    stalls: bool = False
    fails: DemoFailure | None = None

    @property
    def words(self) -> list[str]:
        return re.findall(r"\s*\S+|\s+$", self.text)

    def deltas(self) -> Iterator[Delta]:
        yield from (ReasoningDelta(text=each) for each in re.findall(r"\s*\S+", self.thought))
        yield from (TextDelta(text=each) for each in self.words)
        for n, call in enumerate(self.calls):
            yield ToolCallDelta(index=n, call_id="", name=call.name)
            yield ToolCallDelta(index=n, arguments=call.arguments)


_decoder: BodyDecoder[list[ChatMessage]] = BodyDecoder(list[ChatMessage])

_INTERRUPTION = re.compile(r"\[The previous turn was interrupted: ([^.]*)\.")
_SUMMARY = "[Summary of the conversation so far: "


def read(prompt: Prompt) -> DemoConversation:
    """The conversation, parsed from the prompt."""
    messages = _decoder.decode(b"[" + b",".join(filter(None, prompt.messages)) + b"]")
    said: list[str] = []
    names: dict[str, str] = {}
    results: list[tuple[str, str]] = []
    interrupted = ""
    summary: SummaryNotes | None = None
    for message in messages:
        text = _text(message)
        if message.role == "tool":
            results.append((names.get(message.tool_call_id or "", "it"), text))
            continue
        names |= {call.id: call.function.name for call in message.tool_calls or ()}
        if message.role == "assistant":
            results = []
        elif message.role == "user":
            noted = _INTERRUPTION.match(text)
            if noted:
                interrupted = noted[1]
            elif text.startswith(_SUMMARY):
                summary = read_back(text.removeprefix(_SUMMARY).removesuffix("]"))
                said = list(summary.said)
            elif not text.startswith("[From the result of "):
                said.append(text)
                results = []
        if message.role == "assistant" and not message.tool_calls:
            interrupted = ""
    return DemoConversation(
        said=tuple(said),
        results=tuple(results),
        interrupted=interrupted,
        summary=summary,
        tools=prompt.tools,
        tool_choice=prompt.parameters.tool_choice,
    )


def summary_of(prompt: Prompt) -> DemoReply:
    """The answer to a request for a summary; requests inside the transcript are ignored."""
    messages = _decoder.decode(b"[" + b",".join(filter(None, prompt.messages)) + b"]")
    return DemoReply(text=write(notes_of("\n\n".join(map(_text, messages)))))


def _text(message: ChatMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    if not isinstance(message.content, list):
        return ""
    parts = (
        each.text if isinstance(each, TextPart) else "[a picture or file]"
        for each in message.content
    )
    return " ".join(parts)


def reply_to(talk: DemoConversation) -> DemoReply:
    """The answer. The same conversation always gets the same answer."""
    asked = talk.said[-1] if talk.said else ""
    if talk.results:
        return DemoReply(text=_about(talk.results))
    for recognise in (_trouble, _tool_use, _story, _thinking, _memory):
        reply = recognise(talk, asked)
        if reply is not None:
            return reply
    return DemoReply(text=_small_talk(talk, asked))


# ── what a user can ask for ──────────────────────────────────────────────────────────────────


def _trouble(talk: DemoConversation, asked: str) -> DemoReply | None:
    words = asked.lower()
    if "please fail" in words:
        failure = DemoFailure(
            detail="the demo model failed, as it was asked to",
            reason="demo_failure",
            transient=False,
        )
        return DemoReply(fails=failure)
    if "break off" in words:
        failure = DemoFailure(
            detail="the demo model broke off in the middle of its answer, as it was asked to",
            reason=failures.BROKE_OFF,
            transient=True,
        )
        return DemoReply(
            text="I was going to tell you something important, namely that", fails=failure
        )
    if re.search(r"\bstall\b", words):
        return DemoReply(text="Let me think about that for a very long time …", stalls=True)
    return None


_CALL = re.compile(
    r"\bcall\s+(?:the\s+)?(?:tool\s+)?[`'\"]?([A-Za-z0-9_.:-]+)[`'\"]?", re.IGNORECASE
)
_USE = re.compile(
    r"\buse\s+(?:the\s+|your\s+)?[`'\"]?([A-Za-z0-9_.:-]+)[`'\"]?(?:\s+tool\b)", re.IGNORECASE
)
_WITH = re.compile(r"\s*(?:tool\s+)?with\s*(?=\{)", re.IGNORECASE)


def _tool_use(talk: DemoConversation, asked: str) -> DemoReply | None:
    if talk.tool_choice == "none":
        return None
    wishes = [*_CALL.finditer(asked), *_USE.finditer(asked)]
    known = {tool.name.lower(): tool for tool in talk.tools}
    calls, problems = [], []
    for wish in sorted(wishes, key=lambda found: found.start()):
        name = wish[1].rstrip(".:")
        tool = known.get(name.lower()) or _nearly(name, talk.tools)
        if tool is None:
            if wish.re is _USE or _WITH.match(asked, wish.end()):  # "call me Ada" asks for no tool
                problems.append(f"I have no tool {name!r}; I have {_names(talk.tools)}.")
            continue
        arguments = _arguments(asked[wish.end() :])
        missing = [each for each in _required(tool) if arguments is None or each not in arguments]
        if missing:
            example = json.dumps(dict.fromkeys(missing, "…"), ensure_ascii=False)
            problems.append(
                f"{tool.name} needs {', '.join(missing)}. Say: call {tool.name} with {example}"
            )
            continue
        calls.append(
            DemoCall(name=tool.name, arguments=json.dumps(arguments or {}, ensure_ascii=False))
        )
    if calls:
        return DemoReply(text="", calls=tuple(calls))
    forced = _forced(talk)
    if forced is not None:
        return DemoReply(calls=(DemoCall(name=forced, arguments="{}"),))
    return DemoReply(text=" ".join(problems)) if problems else None


def _forced(talk: DemoConversation) -> str | None:
    """The tool that the client's `tool_choice` demands; None if it demands none."""
    if talk.tool_choice is None or talk.tool_choice == "auto" or not talk.tools:
        return None
    if talk.tool_choice == "required":
        return talk.tools[0].name
    asked_for = talk.tool_choice
    return next((tool.name for tool in talk.tools if f'"{tool.name}"' in asked_for), None)


def _nearly(name: str, tools: Sequence[ToolDefinition]) -> ToolDefinition | None:
    """The tool that a user means by part of its name (`clock` for `get_clock`); None if several match."""
    found = [tool for tool in tools if name.lower() in re.split(r"[^a-z0-9]+", tool.name.lower())]
    return found[0] if len(found) == 1 else None


def _arguments(rest: str) -> dict[str, object] | None:
    found = _WITH.match(rest)
    if found is None:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(rest[found.end() :])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class _Schema(msgspec.Struct):
    required: list[str] = []


def _required(tool: ToolDefinition) -> list[str]:
    try:
        return msgspec.json.decode(tool.parameters or "{}", type=_Schema).required
    except msgspec.DecodeError:
        return []


def _names(tools: Sequence[ToolDefinition]) -> str:
    return ", ".join(tool.name for tool in tools) or "none"


def _about(results: Sequence[tuple[str, str]]) -> str:
    if len(results) == 1:
        return f"{results[0][0]} says: {results[0][1]}"
    return "\n".join(["Here is what came back:", *(f"- {name}: {said}" for name, said in results)])


def _story(talk: DemoConversation, asked: str) -> DemoReply | None:
    if not re.search(r"\blong (?:story|tale|answer)\b", asked, re.IGNORECASE):
        return None
    people = ("a lighthouse keeper", "a clockmaker", "a ferrywoman", "a cartographer")
    things = ("a letter without an address", "a key that fitted no door", "a map of the tides")
    paragraphs = [
        f"{n}. Once, on the {_ordinal(n)} day, {people[n % 4]} found {things[n % 3]} and wrote it down in the "
        "log, because what is written down before the lamp is lit is still there in the morning, whatever "
        "the night may bring. Nobody tore a page out, nobody wrote between the lines, and whoever came "
        "later could read on from the last whole sentence."
        for n in range(1, STORY_PARAGRAPHS + 1)
    ]
    return DemoReply(text="\n\n".join([*paragraphs, "And that is the whole story."]))


def _ordinal(n: int) -> str:
    return (
        f"{n}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th') if n not in (11, 12, 13) else 'th' }"
    )


def _thinking(talk: DemoConversation, asked: str) -> DemoReply | None:
    found = re.match(r"\s*think (?:hard )?about (.+?)[.!?]*\s*$", asked, re.IGNORECASE | re.DOTALL)
    if found is None:
        return None
    return DemoReply(
        thought=f"The user wants me to think about {found[1]}. I have thought about it now.",
        text=f"I have thought about {found[1]}, and I am all for it.",
    )


def _memory(talk: DemoConversation, asked: str) -> DemoReply | None:
    earlier = talk.said[:-1]
    words = asked.lower()
    if "my name" in words and "?" in words:
        known = talk.summary or SummaryNotes()
        since = earlier[len(known.said) :]
        names = [known.name] if known.name else []
        names += [found[1] for each in since if (found := NAME.search(each))]
        if names:
            return DemoReply(text=f"Your name is {names[-1]}. You told me so in this conversation.")
        return DemoReply(text="You have not told me your name in this conversation.")
    if re.search(r"what (?:did|have) i (?:say|said|told?|tell)|do you remember", words):
        if not earlier:
            return DemoReply(
                text="This is the first thing that you say to me, so there is nothing yet."
            )
        lines = [f"{n}. {quoted(each)}" for n, each in enumerate(earlier, start=1 + talk.untold)]
        return DemoReply(text="\n".join(["You said, one after the other:", *lines[-20:]]))
    found = NAME.search(asked)
    if found:
        return DemoReply(
            text=f"Pleased to meet you, {found[1]}. Ask me for your name whenever you like."
        )
    return None


def _small_talk(talk: DemoConversation, asked: str) -> str:
    parts = []
    if talk.interrupted:
        parts.append(f"Our last turn was interrupted: {talk.interrupted}.")
    if len(talk.said) <= 1 and talk.summary is None:
        parts.append(f"You said {quoted(asked)}." if asked.strip() else "Hello.")
        parts.append(
            "I am the demo model of Holdfast: I am not clever, but this conversation holds. Every turn is "
            "stored whole or not at all, and I can see everything that was stored."
        )
        tools = (
            f' I have tools: {_names(talk.tools)}; say "call NAME with {{…}}".'
            if talk.tools
            else ""
        )
        parts.append(
            'Try: "my name is Ada", then "what is my name?"; "what did I say?"; "tell me a long story"; '
            f'"please fail", "break off" or "stall", and see that nothing of it remains.{tools}'
        )
        return " ".join(parts)
    number = len(talk.said) + talk.untold
    parts.append(f"This is turn {number} of our conversation. You said {quoted(asked)}.")
    if len(talk.said) > 1:
        parts.append(f"Before that you said {quoted(talk.said[-2])}.")
    if len(talk.said) > 2:
        parts.append(f"It began with {quoted(talk.said[0])}.")
    return " ".join(parts)


def _usage(prompt: Prompt, reply: DemoReply, spoken: int) -> Usage:
    """An estimate: four bytes per input token, one output token per word or call."""
    input_bytes = len(prompt.system.encode()) + sum(map(len, prompt.messages))
    thought = len(re.findall(r"\S+", reply.thought))
    return Usage(
        input_tokens=-(-input_bytes // 4),
        output_tokens=spoken + thought + len(reply.calls),
        reasoning_tokens=thought,
    )
