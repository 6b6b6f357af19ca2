"""A turn in an editor: the same words and calls, whether they are watched, watched late, or loaded."""

from __future__ import annotations

from itertools import chain

import pytest

from holdfast.core.items import (
    AssistantMessage,
    Item,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    plain_text,
    result_for,
)
from holdfast.core.turns import events as ev
from holdfast.errors import InvalidValue
from holdfast.ids import CallId, MessageId, ReasoningId, TurnId
from holdfast.tools.notes.todo import added, in_words, updated
from holdfast.wire.acp.blocks import (
    AcpAudio,
    AcpImage,
    AcpLink,
    AcpResource,
    AcpText,
    Resource,
    blocks_of,
    parts_of,
)
from holdfast.wire.acp.shown_calls import located, plan_of, title_of
from holdfast.wire.acp.turn_updates import TurnUpdates
from holdfast.wire.acp.updates import (
    AgentMessageChunk,
    AgentThoughtChunk,
    CallStarted,
    CallUpdated,
    MessageChunk,
    Update,
    UserMessageChunk,
)
from tests.core.builders import new_minter

mint = new_minter()
ASKED = UserMessage(id=mint(MessageId), content=plain_text("Look"))
THOUGHT = Reasoning(id=mint(ReasoningId), text="Let me see.")
SAID = AssistantMessage(id=mint(MessageId), content=plain_text("I look."))
CALL = ToolCall(id=mint(CallId), call_id="c1", name="read_file", arguments='{"path":"a.txt"}')
RESULT = result_for(CALL, "ok", plain_text("inside"), mint)
TURN: tuple[Item, ...] = (ASKED, THOUGHT, SAID, CALL, RESULT)

FINE: tuple[ev.Event, ...] = (
    ev.ItemOpened(item=THOUGHT.id, kind="reasoning"),
    ev.Grew(item=THOUGHT.id, text="Let me "),
    ev.Grew(item=THOUGHT.id, text="see."),
    ev.ItemOpened(item=SAID.id, kind="message"),
    ev.Grew(item=SAID.id, text="I "),
    ev.Grew(item=SAID.id, text="look."),
    ev.ItemOpened(item=CALL.id, kind="call", name="read_file"),
    ev.Grew(item=CALL.id, text='{"path":'),
)


def journal(fine: tuple[ev.Event, ...]) -> tuple[ev.Event, ...]:
    return (
        ev.Began(request=ev.TurnRequest(turn_id=mint(TurnId), input=(ASKED,))),
        *fine,
        ev.Answered(items=(THOUGHT, SAID, CALL)),
        ev.ToolStarted(call=CALL.id, read_only=True),
        ev.ToolFinished(result=RESULT),
    )


def told(updates: list[Update]) -> dict[str, str]:
    """The words of each kind, and what became of the calls."""
    words: dict[str, str] = {}
    for each in updates:
        if isinstance(each, MessageChunk) and isinstance(each.content, AcpText):
            name = type(each).__name__
            words[name] = words.get(name, "") + each.content.text
        elif isinstance(each, CallStarted | CallUpdated):
            words["status"] = each.status or words["status"]
    return words


WHOLE = {
    UserMessageChunk.__name__: "Look",
    AgentThoughtChunk.__name__: "Let me see.",
    AgentMessageChunk.__name__: "I look.",
    "status": "completed",
}


@pytest.mark.parametrize("seen", range(len(FINE) + 1))
def test_text_is_shown_once_however_much_of_it_came_in_pieces(seen: int) -> None:
    """A watcher elsewhere sees no fine events, and one that comes late sees some."""
    shown = TurnUpdates("/project")
    updates = [
        update for event in journal(FINE[:seen]) for update in shown.of_event(event, echo=True)
    ]
    assert told(updates) == WHOLE
    assert shown.waiting == ()


def test_a_history_shows_what_a_watcher_saw() -> None:
    shown = TurnUpdates("/project")
    assert told(list(chain.from_iterable(map(shown.of_item, TURN)))) == WHOLE


def test_who_has_sent_a_message_is_not_shown_it_again() -> None:
    shown = TurnUpdates("/project")
    updates = [update for event in journal(FINE) for update in shown.of_event(event)]
    assert UserMessageChunk.__name__ not in told(updates)


def test_calls_that_wait_are_known_until_they_have_a_result() -> None:
    shown = TurnUpdates("/project")
    waiting = ToolCall(
        id=mint(CallId), call_id="c2", name="pay", arguments="{}", waits_for="approval"
    )
    list(shown.of_event(ev.Answered(items=(waiting,), finish="tool_calls")))
    assert shown.waiting == (waiting,)
    list(shown.of_item(result_for(waiting, "refused", (), mint)))
    assert not shown.waiting


def test_of_a_sub_agent_the_calls_are_shown_and_not_the_words() -> None:
    shown = TurnUpdates("/project")
    path = (CALL.id,)
    inner = ToolCall(id=mint(CallId), call_id="c3", name="look", arguments="{}", path=path)
    aside = AssistantMessage(id=mint(MessageId), content=plain_text("Hidden"), path=path)
    updates = list(shown.of_event(ev.Answered(items=(aside, inner), path=path)))
    assert told(updates) == {"status": "pending"}


def test_a_to_do_list_is_a_plan() -> None:
    """The form of the list is the toolset's; this claim fails if one changes without the other."""
    entries = updated(added((), ("read", "write", "rest")), {"1": "completed", "2": "in-progress"})
    call = ToolCall(id=mint(CallId), call_id="c", name="update_todos", arguments="{}")
    plan = plan_of(call.name, result_for(call, "ok", plain_text(in_words(entries)), mint))
    assert plan is not None
    assert [(each.content, each.status) for each in plan.entries] == [
        ("read", "completed"),
        ("write", "in_progress"),
        ("rest", "pending"),
    ]
    failed: ToolResult = result_for(call, "error", plain_text("no"), mint)
    assert plan_of(call.name, failed) is None
    assert plan_of("read_file", RESULT) is None


def test_a_call_has_a_title_and_a_place() -> None:
    assert title_of("read_file", '{"path":"a.txt"}') == "read_file: a.txt"
    assert title_of("pay", "{}") == title_of("pay", "not json") == "pay"
    assert len(title_of("shell", f'{{"cmd":"{"x" * 500}"}}')) == 120
    assert located("a.txt", "/project/") == "/project/a.txt"
    assert located("/b", "/project") == "/b"


def test_a_prompt_is_a_message() -> None:
    prompt = (
        AcpText(text="See"),
        AcpLink(uri="file:///a.py", name="a.py"),
        AcpResource(resource=Resource(uri="file:///b.py", text="print()")),
        AcpImage(data="aGk=", mime_type="image/png"),
        AcpResource(
            resource=Resource(uri="file:///c.pdf", blob="aGk=", mime_type="application/pdf")
        ),
    )
    parts = parts_of(prompt)
    texts = [each.text for each in parts if isinstance(each, Text)]
    assert texts[1] == "[a.py](file:///a.py)"
    assert "print()" in texts[2] and "file:///b.py" in texts[2]
    assert blocks_of(parts)[3] == prompt[3]
    assert blocks_of(parts)[4] == AcpText(text="[c.pdf]")


@pytest.mark.parametrize(
    "block",
    [
        AcpAudio(data="aGk=", mime_type="audio/wav"),
        AcpImage(data="no base64!", mime_type="image/png"),
        AcpResource(resource=Resource(uri="file:///a")),
    ],
)
def test_what_cannot_be_a_message_is_refused(block: AcpAudio | AcpImage | AcpResource) -> None:
    with pytest.raises(InvalidValue):
        parts_of((block,))
