"""A request that has waited means on top of the new head what it meant when it was said, or is told that it does not."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.history.checks import check_turn
from holdfast.core.history.conversation import Rebinding, SettingsChanged, Snapshot
from holdfast.core.history.rebase import StaleRequest, rebased
from holdfast.core.history.reconciliation import Fresh, Incoming, IncomingCall, reconcile
from holdfast.core.items import SessionSettings, Text, ToolCall, ToolResult, TurnLimits, UserMessage
from holdfast.core.turns.events import TurnRequest
from holdfast.ids import CallId, TurnId
from tests.core.builders import (
    after,
    answered,
    asked,
    call,
    handed_off,
    mint,
    result,
    said,
    user,
)
from tests.core.histories import ending, new_session, noted, turn_on, waiting_for, with_turn

TALK = with_turn(new_session(), user("Hello"))


def asks(
    on: Snapshot, *messages: Incoming, approvals: dict[CallId, bool] | None = None
) -> TurnRequest:
    """A request, as it is taken in on top of a session."""
    new = reconcile(on, messages, mint, approvals=approvals)
    assert isinstance(new, Fresh), new
    return TurnRequest(
        turn_id=mint(TurnId),
        base=on.version,
        base_rev=on.notes.rev,
        base_length=len(on.items),
        source_key="agents/butler.yaml",
        agent=on.agent or TALK.entry_agent,
        input=new.input,
        carried=on.waiting,
        approved=new.approved,
    )


def says(text: str = "Later") -> Incoming:
    return Incoming(role="user", content=(Text(text=text),))


def tells(answered_call: ToolCall) -> Incoming:
    return Incoming(role="tool", call_id=answered_call.call_id, content=(Text(text="done"),))


def waits(*calls: ToolCall) -> Snapshot:
    return waiting_for(TALK, *calls)


def on(head: Snapshot, request: TurnRequest) -> TurnRequest:
    found = rebased(request, head, mint)
    assert isinstance(found, TurnRequest), found
    assert (found.base, found.base_rev) == (head.version, head.notes.rev)
    assert (found.base_length, found.carried) == (len(head.items), head.waiting)
    complete = after(turn_on(head, *found.input), asked(), answered(said()))
    if not found.approved:
        assert list(check_turn(complete.items, carried=head.waiting)) == []
    return found


def test_a_message_goes_on_top_of_whatever_there_is() -> None:
    request = asks(TALK, says())
    assert on(TALK, request) == request
    found = on(with_turn(TALK, user("Somebody else")), request)
    assert (found.input, found.turn_id) == (request.input, request.turn_id)


@pytest.mark.parametrize("kind", ["client", "approval"])
def test_a_message_closes_the_calls_that_wait_by_then(kind: str) -> None:
    waiting = call("fly", waits_for=kind)  # type: ignore[arg-type]
    request = asks(TALK, says())
    first, message = on(waits(waiting), request).input
    assert isinstance(first, ToolResult) and first.call == waiting.id
    assert first.outcome == ("not_answered" if kind == "client" else "refused")
    assert isinstance(message, UserMessage)


def test_calls_that_were_settled_meanwhile_are_not_closed_again() -> None:
    waiting = call("fly", waits_for="client")
    head = waits(waiting)
    request = asks(head, says())
    assert len(request.input) == 2
    found = on(with_turn(head, result(waiting)), request)
    assert found.input == request.input[1:]


def test_results_are_for_the_very_calls_that_they_were_brought_for() -> None:
    waiting = call("fly", waits_for="client")
    head = waits(waiting)
    request = asks(head, tells(waiting))
    assert on(head, request) == request
    moved = with_turn(head, result(waiting))
    for there in (moved, waiting_for(moved, call("fly", waits_for="client"))):
        stale = rebased(request, there, mint)
        assert isinstance(stale, StaleRequest) and stale.code == "unknown_tool_call"


@pytest.mark.parametrize("allowed", [True, False])
def test_a_decision_is_about_the_very_calls_that_it_was_made_for(allowed: bool) -> None:
    waiting = call("fly", waits_for="approval")
    head = waits(waiting)
    request = asks(head, approvals={waiting.id: allowed})
    assert on(head, request) == request
    moved = with_turn(head, result(waiting, outcome="refused"))
    stale = rebased(request, moved, mint)
    assert isinstance(stale, StaleRequest) and stale.code == "approval_closed"


def test_whoever_goes_on_with_the_agent_goes_on_with_the_one_of_now() -> None:
    handed = ending(TALK, after(turn_on(TALK), handed_off("billing"), asked(), answered(said())))
    assert handed.agent == "billing"
    first = asks(new_session(), says())
    for request in (asks(TALK, says()), first):
        assert on(handed, request).agent == "billing"
    other = msgspec.structs.replace(first, agent="somebody")
    assert on(handed, other).agent == "somebody"


def test_a_session_that_others_have_begun_is_theirs() -> None:
    request = msgspec.structs.replace(asks(new_session(), says()), source_key="agents/chef.yaml")
    stale = rebased(request, TALK, mint)
    assert isinstance(stale, StaleRequest) and stale.code == "agent_mismatch"
    # Asked later, it was decided whose it is; the same source may have another address.
    later = msgspec.structs.replace(asks(TALK, says()), source_key="agents/butler.yaml?v=2")
    assert on(TALK, later).source_key == later.source_key


def test_limits_of_the_session_count_as_they_are_now() -> None:
    settings = SessionSettings(limits=TurnLimits(steps_max=3))
    head = noted(TALK, SettingsChanged(settings=settings))
    assert on(head, asks(TALK, says())).limits.steps_max == 3


def test_on_a_session_that_is_still_empty_nothing_changes() -> None:
    """Whoever had it open was discarded."""
    request = asks(new_session(), says())
    assert rebased(request, new_session(), mint) == request


def test_what_a_later_request_has_brought_is_not_said_again_whatever_waits_by_then() -> None:
    request = asks(waits(call("tell", waits_for="client")), says("Oslo?"))
    overtaken = with_turn(TALK, user("Oslo?"), user("Rome?"))
    stale = rebased(msgspec.structs.replace(request, base=TALK.version), overtaken, mint)
    assert isinstance(stale, StaleRequest) and stale.code == "no_new_user_message"


FOREIGN = (
    says("Where is it?"),
    Incoming(role="assistant", calls=(IncomingCall(call_id="c1", name="locate", arguments="{}"),)),
)
"""What a client tells that has talked elsewhere before: a call that its own tools were to answer."""


def test_a_call_that_another_request_has_brought_is_not_closed_once_more() -> None:
    """Both have told the same past. The second one's words follow it; the result that closed its call does not."""
    empty = new_session()
    waiting, first = asks(empty, *FOREIGN, says("Later")), asks(empty, *FOREIGN, says("Now"))
    found = on(with_turn(empty, *first.input), waiting)
    assert found.input == waiting.input[-1:]


def test_a_call_comes_along_with_its_answer_where_another_request_has_brought_it_unanswered() -> (
    None
):
    empty = new_session()
    answer = Incoming(role="tool", call_id="c1", content=(Text(text="here"),))
    waiting = asks(empty, *FOREIGN, answer, says("Later"))
    first = asks(empty, *FOREIGN, says("Now"))
    found = on(with_turn(empty, *first.input), waiting)
    assert found.input == waiting.input[1:]


def test_a_request_from_before_its_session_was_moved_to_another_source_is_stale() -> None:
    """Its input was checked against the former agents."""
    waiting = asks(TALK, says())
    moved = noted(TALK, Rebinding(version=TALK.version, rev=TALK.notes.rev + 1).flag())
    moved = msgspec.structs.replace(moved, source_name="pilots")
    found = rebased(waiting, moved, mint)
    assert isinstance(found, StaleRequest)
    assert found.code == "agent_mismatch" and "the agents of pilots" in found.why
    unnamed = rebased(waiting, msgspec.structs.replace(moved, source_name=""), mint)
    assert isinstance(unnamed, StaleRequest) and "butler.yaml" in unnamed.why
    on(moved, asks(moved, says()))
