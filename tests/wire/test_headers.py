"""What headers say, once parsed."""

from __future__ import annotations

import pytest

from holdfast.core.policy import Policy
from holdfast.ids import SessionId, SessionKey, Version
from holdfast.wire.headers import ASKED, HEADERS, AnswerOptions, ConversationHeaders, read_naming
from holdfast.wire.problems import Problem, Refused


def refused(**headers: str) -> Problem:
    with pytest.raises(Refused) as caught:
        read_naming({name.replace("_", "-"): value for name, value in headers.items()})
    assert caught.value.problem.status == 400
    return caught.value.problem


def test_silence_is_a_request_without_a_conversation() -> None:
    assert read_naming({}) == ConversationHeaders(name=None)


def test_everything_that_can_be_said() -> None:
    naming = read_naming(
        {
            "x-conversation-id": "Trip/1",
            "x-conversation-create": "NEVER",
            "if-match": '"7"',
            "x-on-busy": "steer",
            "x-turn-policy": "cancel=discard, disconnect=finish",
            "idempotency-key": '"abc"',
            "x-stainless-retry-count": "2",
            "x-show-tools": "true",
            "x-show-reasoning": "true",
        }
    )
    assert naming == ConversationHeaders(
        name=SessionKey("Trip/1"),
        create=False,
        if_match=Version(7),
        on_busy="steer",
        policy=Policy(cancel="discard", disconnect="finish"),
        idempotency_key=naming.idempotency_key,
        client_attempt=2,
        answer=AnswerOptions(show_tools=True, show_reasoning=True),
    )
    assert naming.idempotency_key == "abc"


def test_a_template_that_a_chat_program_does_not_know_says_nothing() -> None:
    """Else each request of an older Open WebUI would be a task, and none of its chats would hold."""
    sent = {
        "x-history-parent": "{{USER_MESSAGE_PARENT_ID}}",
        "x-history-answer": "{{ MESSAGE_ID }}",
        "x-history-task": "{{TASK}}",
    }
    assert read_naming(sent, other_name="chat-1") == ConversationHeaders(
        name=SessionKey("chat-1"), implied=True, history="follow"
    )
    task = read_naming({"x-history-task": "title_generation"}, other_name="chat-1")
    assert task.name is None


def test_an_id_is_recognised_and_an_alias_understood() -> None:
    text = "conv_" + "0" * 26
    assert read_naming({"x-conversation-id": text}).name == SessionId(text)
    assert read_naming({"x-openclaw-session-key": "a"}).name == SessionKey("a")
    assert read_naming({"x-mine": "a"}, names=("x-conversation-id", "x-mine")).name == "a"
    both = {"x-conversation-id": "a", "x-openclaw-session-key": "a"}
    assert read_naming(both).name == SessionKey("a")


def test_headers_that_clients_send_unasked_name_nothing() -> None:
    sent = {"x-session-id": "a", "session-id": "b", "x-openwebui-chat-id": "c", "session_id": "d"}
    assert read_naming(sent).name is None


@pytest.mark.parametrize("count", ["x", "-1", "1.5", "٣", "9" * 9])
def test_a_counter_that_is_none_counts_as_nothing(count: str) -> None:
    assert read_naming({"x-stainless-retry-count": count}).client_attempt == 0


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("x_conversation_id", "", "invalid_conversation_key"),
        ("x_conversation_id", "a, b", "invalid_conversation_key"),
        ("x_conversation_id", "{{LIBRECHAT_BODY_CONVERSATIONID}}", "invalid_conversation_key"),
        ("x_conversation_id", "chat-{{ CHAT_ID }}", "invalid_conversation_key"),
        ("x_conversation_create", "always", "invalid_header"),
        ("if_match", "7", "invalid_version"),
        ("if_match", 'W/"7"', "invalid_version"),
        ("x_on_busy", "shout", "invalid_header"),
        ("x_turn_policy", "cancel=never", "invalid_turn_policy"),
        ("idempotency_key", "", "invalid_idempotency_key"),
        ("idempotency_key", "x" * 256, "invalid_idempotency_key"),
        ("x_show_tools", "1", "invalid_header"),
    ],
)
def test_a_header_that_cannot_be_meant_is_refused(name: str, value: str, code: str) -> None:
    problem = refused(**{name: value})
    assert (problem.code, problem.param) == (code, name.replace("_", "-"))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("x-conversation-idd", "x-conversation-id"),
        ("x-conversatoin-id", "x-conversation-id"),
        ("x-conversation-crate", "x-conversation-create"),
        ("x-turn-polcy", "x-turn-policy"),
        ("x-conversationid", "x-conversation-id"),
        ("x-on-bussy", "x-on-busy"),
        ("x-on-bsuy", "x-on-busy"),
        ("x-onbusy", "x-on-busy"),
        ("x-show-tool", "x-show-tools"),
        ("x-show-reasonning", "x-show-reasoning"),
        ("x-aprove", "x-approve"),
        ("x-denny", "x-deny"),
        ("idempotency-keys", "idempotency-key"),
        ("if-macth", "if-match"),
        ("ifmatch", "if-match"),
        ("x-deni", "x-deny"),
    ],
)
def test_a_name_that_is_very_nearly_one_of_ours_is_refused(name: str, meant: str) -> None:
    """A request that wants to be rejected when it has to wait must not wait, with status 200."""
    problem = refused(**{name: "reject"})
    assert (problem.code, problem.param) == ("unknown_header", name)
    assert f"did you mean {meant}?" in problem.message
    assert f"There are: {', '.join(ASKED)}" in problem.message


THEIRS = """
    accept accept-encoding authorization baggage content-length content-type cookie forwarded host http-referer
    if-modified-since if-none-match if-range if-unmodified-since openai-organization openai-project origin priority
    sentry-trace session_id tracestate traceparent user-agent via
    x-amz-date x-amzn-trace-id x-api-key x-b3-sampled x-b3-spanid x-b3-traceid x-client-name x-client-request-id
    x-cloud-trace-context x-conversation x-correlation-id x-csrf-token x-datadog-trace-id x-device-id
    x-envoy-attempt-count x-forwarded-by x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto
    x-forwarded-server x-goog-api-key x-http-method-override x-idempotency-key x-initiator x-interaction-id x-job-id
    x-litellm-session-id x-openwebui-chat-id x-openwebui-user-id x-original-uri x-powered-by x-real-ip x-request-id
    x-request-start x-requested-with x-scheme x-session-affinity x-session-id x-shard-key x-stainless-arch
    x-stainless-async x-stainless-helper-method x-stainless-lang x-stainless-os x-stainless-package-version
    x-stainless-read-timeout x-stainless-retry-count x-stainless-runtime x-stainless-runtime-version
    x-ai-conversation-id x-approved x-approver x-ms-conversation-id x-ms-conversationid x-oai-conversation-id
    x-return-policy x-stainless-timeout x-tenant-id x-title x-trace-id x-user-id x-vercel-id x-xsrf-token
""".split()


def test_what_answers_say_is_left_alone() -> None:
    """`x-conversation-created` is a slip away from a header that asks for something."""
    told = (each.name for each in HEADERS if not each.request)
    assert read_naming(dict.fromkeys(told, "0")) == ConversationHeaders(name=None)


def test_what_proxies_and_sdks_send_is_left_alone() -> None:
    assert read_naming(dict.fromkeys(THEIRS, "0")) == ConversationHeaders(name=None)


def test_where_no_header_names_a_conversation_one_that_does_elsewhere_is_left_alone() -> None:
    """An operator may have chosen it, and SDKs send what they were given with every request."""
    assert read_naming({"x-conversationid": "a"}, names=()) == ConversationHeaders(name=None)
    with pytest.raises(Refused):
        read_naming({"x-conversation-idd": "a"}, names=())


def test_a_name_that_the_operator_has_chosen_is_known_however_near_it_is() -> None:
    names = ("x-conversation-id", "x-on-bussy")
    assert read_naming({"x-on-bussy": "a"}, names=names).name == "a"
