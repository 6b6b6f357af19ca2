"""What we write is what the SDK's types read, in every form; and the same request reads the same from each."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb_0_3
from a2a.compat.v0_3 import conversions, proto_utils
from a2a.compat.v0_3 import types as types_0_3
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.a2a.forms import VERSION_0_3, VERSION_0_3_REST, VERSION_1, Form
from holdfast.wire.a2a.objects import (
    A2AArtifact,
    A2AMessage,
    A2APart,
    A2AStatus,
    A2ATask,
    ArtifactUpdate,
    SendParams,
    StatusUpdate,
    TaskParams,
    TaskState,
)
from holdfast.wire.problems import Refused

words = st.text(max_size=20)
ids = st.from_regex(r"[a-z0-9_-]{1,12}", fullmatch=True)
data = st.dictionaries(ids, st.one_of(words, st.booleans()), min_size=1, max_size=3)
parts = st.one_of(
    st.builds(A2APart, text=words),
    st.builds(A2APart, raw=st.just("aGVsbG8="), media_type=st.just("image/png")),
    st.builds(A2APart, url=st.just("https://example.com/a"), filename=ids),
    st.builds(A2APart, data=data),
)
states = st.sampled_from(get_args(TaskState)[1:])
messages = st.builds(
    A2AMessage,
    message_id=ids,
    role=st.sampled_from(["ROLE_USER", "ROLE_AGENT"]),
    parts=st.lists(parts, min_size=1, max_size=3).map(tuple),
    context_id=ids,
    task_id=ids,
    metadata=data,
)
statuses = st.builds(
    A2AStatus, state=states, timestamp=st.just("2026-11-18T14:37:12.482Z"), message=messages
)
artifacts = st.builds(
    A2AArtifact, artifact_id=ids, parts=st.lists(parts, min_size=1, max_size=2).map(tuple)
)
tasks = st.builds(
    A2ATask,
    id=ids,
    context_id=ids,
    status=statuses,
    artifacts=st.lists(artifacts, max_size=2).map(tuple),
    history=st.lists(messages, max_size=2).map(tuple),
    metadata=data,
)
events = st.one_of(
    tasks,
    st.builds(StatusUpdate, task_id=ids, context_id=ids, status=statuses, metadata=data),
    st.builds(
        ArtifactUpdate,
        task_id=ids,
        context_id=ids,
        artifact=artifacts,
        append=st.booleans(),
        last_chunk=st.booleans(),
    ),
)


def written(made: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(made))


@given(tasks)
def test_a_task_of_version_1_is_the_sdks(task: A2ATask) -> None:
    said = written(VERSION_1.task(task))
    assert MessageToDict(ParseDict(said, pb.Task())) == said


@given(tasks)
def test_a_task_of_version_0_3_means_the_same_to_the_sdk(task: A2ATask) -> None:
    whole = written(VERSION_1.task(task))
    over_rpc = types_0_3.Task.model_validate(written(VERSION_0_3.task(task)))
    assert MessageToDict(conversions.to_core_task(over_rpc)) == whole
    over_rest = ParseDict(written(VERSION_0_3_REST.task(task)), pb_0_3.Task())
    read = proto_utils.FromProto.task(over_rest)
    assert MessageToDict(conversions.to_core_task(read)) == whole


@given(events)
def test_an_event_means_the_same_in_every_form(event: Any) -> None:
    whole = written(VERSION_1.event(event))
    assert MessageToDict(ParseDict(whole, pb.StreamResponse())) == whole
    old = {"jsonrpc": "2.0", "id": 1, "result": written(VERSION_0_3.event(event))}
    over_rpc = types_0_3.SendStreamingMessageSuccessResponse.model_validate(old)
    assert MessageToDict(conversions.to_core_stream_response(over_rpc)) == whole
    over_rest = ParseDict(written(VERSION_0_3_REST.event(event)), pb_0_3.StreamResponse())
    read = proto_utils.FromProto.stream_response(over_rest)
    result = types_0_3.SendStreamingMessageSuccessResponse(result=read)
    assert MessageToDict(conversions.to_core_stream_response(result)) == whole


@given(messages, st.booleans(), st.booleans())
def test_a_message_that_the_sdk_sends_reads_the_same_in_every_form(
    message: A2AMessage, waits: bool, in_snake_case: bool
) -> None:
    request = ParseDict(
        {"message": written(message), "configuration": {"returnImmediately": not waits}},
        pb.SendMessageRequest(),
    )
    snake = {"preserving_proto_field_name": in_snake_case}
    old = conversions.to_compat_send_message_request(request, request_id=0)
    over_rest = pb_0_3.SendMessageRequest(
        request=proto_utils.ToProto.message(old.params.message),
        configuration=proto_utils.ToProto.message_send_configuration(old.params.configuration),
    )
    read = [
        VERSION_1.params(SendParams, MessageToDict(request, **snake)),
        VERSION_0_3.params(SendParams, old.params.model_dump(mode="json", by_alias=True)),
        VERSION_0_3_REST.params(SendParams, MessageToDict(over_rest, **snake)),
    ]
    for each in read:
        assert written(each.message) == written(message)
        assert each.configuration.return_immediately is not waits


@pytest.mark.parametrize("form", [VERSION_1, VERSION_0_3, VERSION_0_3_REST])
@pytest.mark.parametrize("given", [None, [], "x", {}, {"message": 1}, {"message": {"parts": 1}}])
def test_what_is_no_message_is_refused(form: Form, given: Any) -> None:
    with pytest.raises(Refused):
        form.params(SendParams, given)


def test_an_enum_may_be_a_number_and_a_number_a_text() -> None:
    said = {"messageId": "1", "role": 1, "parts": [{"text": "hi"}], "contextId": None}
    read = VERSION_1.params(SendParams, {"message": said})
    assert (read.message.role, read.message.context_id) == ("ROLE_USER", "")
    assert VERSION_1.params(TaskParams, {"id": "x", "history_length": "3"}).history_length == 3


def test_the_history_length_of_version_0_3_is_all_if_it_is_0() -> None:
    assert VERSION_0_3.params(TaskParams, {"id": "x", "historyLength": 0}).history_length is None
    assert VERSION_1.params(TaskParams, {"id": "x", "historyLength": 0}).history_length == 0
