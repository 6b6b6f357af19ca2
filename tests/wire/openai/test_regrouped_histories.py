"""A true history is known again however its client groups it: in Chat Completions and in Responses, whole or in part.

Clients disagree about what a message is. Some tell several rounds of calls as one assistant message, some tell each
call as a message of its own, some send the results of all rounds again with each request and leave the calls out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.history.checks import check_turn
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import Fresh, Incoming, Reconciled, reconcile
from holdfast.core.items import AssistantMessage, Item, ToolCall, ToolResult, UserMessage, text_of
from holdfast.wire.openai.chat.request import read_chat_request
from holdfast.wire.openai.responses.items import read_input
from tests.core.builders import after, answered, asked, call, new_minter, result, said, user
from tests.core.histories import ending, new_session, turn_on

# ── conversations ────────────────────────────────────────────────────────────────────────────


class Called(NamedTuple):
    call_id: str
    result: str


class Round(NamedTuple):
    """One answer of the agent, and the calls that it leaves to the client."""

    texts: tuple[str, ...]
    calls: tuple[Called, ...]


class Exchange(NamedTuple):
    """A message of the user, and all that follows up to the next one. The last round of the last one may wait."""

    asks: str
    rounds: tuple[Round, ...]


TEXTS = st.sampled_from(["Let me see. ", "yes", " \n", "One\n\nmoment", "yes yes"])


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Exchange, ...]:
    """Some servers give every call an id of its own, some number the calls of each answer."""
    numbered, made = draw(st.booleans()), 0
    exchanges: list[Exchange] = []
    for _ in range(draw(st.integers(1, 3))):
        rounds = []
        for _ in range(draw(st.integers(0, 3))):
            calls = draw(st.integers(1, 2))
            ids = [f"call_{n if numbered else made + n}" for n in range(calls)]
            results = draw(
                st.lists(st.sampled_from(["12", "cold"]), min_size=calls, max_size=calls)
            )
            made += calls
            texts = tuple(draw(st.lists(TEXTS, max_size=2)))
            rounds.append(Round(texts, tuple(map(Called, ids, results))))
        last = Round((draw(TEXTS), f"Answer {len(exchanges)}"), ())
        exchanges.append(Exchange(draw(st.sampled_from(["Go", "Go on"])), (*rounds, last)))
    *before, end = exchanges
    if len(end.rounds) > 1 and draw(st.booleans()):
        end = end._replace(rounds=end.rounds[:-1])
    return (*before, end)


def stored(conversation: Sequence[Exchange]) -> Snapshot:
    """The session after these exchanges."""
    session = new_session()
    for exchange in conversation:
        brings: list[Item] = [user(exchange.asks)]
        for each in exchange.rounds:
            calls = [
                msgspec.structs.replace(call("tell", waits_for="client"), call_id=made.call_id)
                for made in each.calls
            ]
            texts = (said(text) for text in each.texts if text.strip())
            turn = after(turn_on(session, *brings), asked(), answered(*texts, *calls))
            session = ending(session, turn)
            texts_given = (made.result for made in each.calls)
            brings = [result(*both) for both in zip(calls, texts_given, strict=True)]
    return session


# ── what a client tells ──────────────────────────────────────────────────────────────────────


class Asks(NamedTuple):
    text: str


class Says(NamedTuple):
    """Text and calls of one message."""

    text: str
    call_ids: tuple[str, ...] = ()


class Output(NamedTuple):
    call_id: str
    text: str


Piece = Asks | Says | Output


def chat_messages(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for each in pieces:
        match each:
            case Asks():
                messages.append({"role": "user", "content": each.text})
            case Says():
                calls = [
                    {
                        "id": call_id,
                        "type": "function",
                        "function": {"name": "tell", "arguments": "{}"},
                    }
                    for call_id in each.call_ids
                ]
                message = {"role": "assistant", "content": each.text or None}
                messages.append({**message, **({"tool_calls": calls} if calls else {})})
            case Output():
                messages.append(
                    {"role": "tool", "tool_call_id": each.call_id, "content": each.text}
                )
    return messages


def chat(pieces: Sequence[Piece]) -> tuple[Incoming, ...]:
    body = {"model": "demo", "messages": chat_messages(pieces)}
    return read_chat_request(json.dumps(body).encode()).messages


def response_items(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for each in pieces:
        match each:
            case Asks():
                items.append({"role": "user", "content": each.text})
            case Says():
                if each.text:
                    items.append({"role": "assistant", "content": each.text})
                items += [
                    {"type": "function_call", "call_id": each, "name": "tell", "arguments": "{}"}
                    for each in each.call_ids
                ]
            case Output():
                output = {"call_id": each.call_id, "output": each.text}
                items.append({"type": "function_call_output", **output})
    return items


def responses(pieces: Sequence[Piece]) -> tuple[Incoming, ...]:
    found = read_input(json.dumps(response_items(pieces)).encode())
    return tuple(each for each in found if isinstance(each, Incoming))


APIS: dict[str, Callable[[Sequence[Piece]], tuple[Incoming, ...]]] = {
    "chat": chat,
    "responses": responses,
}


def told(session: Snapshot, pieces: Sequence[Piece], api: str = "chat") -> Reconciled:
    return reconcile(session, APIS[api](pieces), new_minter(at_ms=1))


class Grouping:
    """Draws one of the many ways to tell an exchange."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw

    def tells(self, *exchanges: Exchange) -> list[Piece]:
        return [piece for each in exchanges for piece in self._tells(each)]

    def _tells(self, exchange: Exchange) -> list[Piece]:
        """The exchange with its texts, calls and results in another order, each result after its call."""
        texts = [Says(part) for part in self._split("".join(map(_text, exchange.rounds)))]
        calls = [made for each in exchange.rounds for made in each.calls]
        said: list[Piece] = []
        opened: list[Called] = []
        while texts or calls or opened:
            # Results of calls that share an id are told in order: no client can tell them apart otherwise.
            ready = [made for n, made in enumerate(opened) if made.call_id not in _ids(opened[:n])]
            choices = ["text"] * bool(texts) + ["call"] * bool(calls) + ["result"] * bool(ready)
            match self._draw(st.sampled_from(choices)):
                case "text":
                    said.append(texts.pop(0))
                case "call":
                    opened.append(calls.pop(0))
                    said.append(Says("", (opened[-1].call_id,)))
                case _:
                    made = self._draw(st.sampled_from(ready))
                    opened.remove(made)
                    said.append(Output(*made))
        if _ids_differ(exchange) and self._draw(st.booleans()):  # some clients send a result twice
            said += [each for each in said if isinstance(each, Output)][:1]
        return [Asks(exchange.asks), *self._merged(said)]

    def _split(self, text: str) -> list[str]:
        cuts = sorted(self._draw(st.sets(st.integers(0, len(text)), max_size=3)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        return [each for each in pieces if each]

    def _merged(self, said: list[Piece]) -> list[Piece]:
        """The same with some neighbouring texts and calls in one message."""
        merged: list[Piece] = []
        for each in said:
            before = merged[-1] if merged else None
            if isinstance(before, Says) and isinstance(each, Says) and self._draw(st.booleans()):
                text = f"{before.text}\n{each.text}" if each.text else before.text
                merged[-1] = Says(text, (*before.call_ids, *each.call_ids))
            else:
                merged.append(each)
        return merged


def _ids(calls: Sequence[Called]) -> list[str]:
    return [each.call_id for each in calls]


def _ids_differ(exchange: Exchange) -> bool:
    ids = [call_id for each in exchange.rounds for call_id in _ids(each.calls)]
    return len(ids) == len(set(ids))


def _text(answer: Round) -> str:
    return "".join(answer.texts)


# ── for all groupings ────────────────────────────────────────────────────────────────────────


def words(found: Reconciled) -> list[str]:
    """What is stored for a request, in short; results in the order of their ids."""
    assert isinstance(found, Fresh), found
    return [
        *sorted(
            f"{each.outcome} {each.call_id}: {text_of(each.content)}"
            for each in found.input
            if isinstance(each, ToolResult)
        ),
        *(text_of(each.content) for each in found.input if isinstance(each, UserMessage)),
        *("!" for each in found.input if isinstance(each, AssistantMessage | ToolCall)),
    ]


@pytest.mark.parametrize("api", APIS)
@given(data=st.data(), conversation=conversations(), more=st.booleans())
def test_a_true_history_is_known_however_it_is_grouped(
    api: str, data: st.DataObject, conversation: tuple[Exchange, ...], more: bool
) -> None:
    session = stored(conversation)
    waits = bool(session.waiting)
    pieces = Grouping(data).tells(*conversation)
    new: list[Piece] = [Asks("And then?")] if more or not waits else []
    results = [Output(*each) for each in conversation[-1].rounds[-1].calls]
    found = told(session, [*pieces, *new], api)
    assert words(found) == words(told(session, [*results, *new], api))
    assert isinstance(found, Fresh) and not found.diverged
    assert check_turn(found.input, carried=session.waiting) == ()


@pytest.mark.parametrize("api", APIS)
@given(
    data=st.data(),
    conversation=conversations().filter(lambda each: bool(each[-1].rounds[-1].calls)),
    sends=st.sampled_from(["results", "question", "question and texts", "exchange", "exchanges"]),
    more=st.booleans(),
)
def test_all_results_since_the_question_may_be_sent_with_each_request(
    api: str, data: st.DataObject, conversation: tuple[Exchange, ...], sends: str, more: bool
) -> None:
    """With or without the question, what the agent said, and its calls: the new results say where the client is."""
    session = stored(conversation)
    last = conversation[-1]
    results = [Output(*made) for each in last.rounds for made in each.calls]
    texts: list[Piece] = []
    for each in last.rounds:
        texts += [Says(_text(each))] if _text(each) else []
        texts += [Output(*made) for made in each.calls]
    grouping = Grouping(data)
    pieces: dict[str, list[Piece]] = {
        "results": [*results],
        "question": [Asks(last.asks), *results],
        "question and texts": [Asks(last.asks), *texts],
        "exchange": grouping.tells(last),
        "exchanges": grouping.tells(*conversation[-2:]),
    }
    new: list[Piece] = [Asks("And then?")] if more else []
    waiting = [Output(*made) for made in last.rounds[-1].calls]
    found = told(session, [*pieces[sends], *new], api)
    assert words(found) == words(told(session, [*waiting, *new], api))
    assert isinstance(found, Fresh) and not found.diverged
    assert check_turn(found.input, carried=session.waiting) == ()
