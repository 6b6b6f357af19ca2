"""Cassettes: what was recorded is played, nothing secret is in them, and what is not in them is told."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.errors import InvalidValue
from holdfast.models.model import ModelFailed
from holdfast.models.providers.google import GoogleModel
from holdfast.testing import Cassette, CassetteMissed, FakeUpstream, Reply, refuses
from holdfast.testing.cassette import RecordedBody, asked, difference
from tests.models.conversations import answered, heard, model_at, prompt
from tests.models.wires import TONGUES, Tongue

KEY = "sk-very-secret"


async def recorded(path: Path, *answers: Reply | str) -> None:
    async with FakeUpstream(*answers) as upstream:
        async with Cassette(path, upstream=upstream.url) as cassette:
            assert cassette.recording
            model = model_at(f"{cassette.url}/v1", token_key="KEY", environ={"KEY": KEY})
            for n in range(len(answers)):
                try:
                    await heard(model, prompt(f"question {n}"))
                except ModelFailed:
                    pass
            await model.close()


@pytest.mark.parametrize("tongue", TONGUES.values(), ids=TONGUES.keys())
async def test_what_was_recorded_is_played_on_every_wire(tongue: Tongue, tmp_path: Path) -> None:
    path = tmp_path / "new" / "talk.jsonl"
    async with FakeUpstream(tongue.script) as upstream:
        async with Cassette(path, upstream=upstream.url) as cassette:
            model = tongue.model(cassette)
            assert answered(await heard(model)) == tongue.expected
            await model.close()
    async with Cassette(path) as cassette:  # the upstream is gone
        assert not cassette.recording
        model = tongue.model(cassette)
        assert answered(await heard(model)) == tongue.expected
        await model.close()


async def test_no_secret_is_written(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    echoing = refuses(401, code="invalid_api_key", message=f"Incorrect API key: {KEY}")
    await recorded(path, "Hi", echoing)
    written = path.read_text()
    assert KEY not in written and "[key]" in written
    assert "authorization" not in written.lower()

    async with FakeUpstream("Hi") as upstream:
        async with Cassette(tmp_path / "g.jsonl", upstream=upstream.url) as cassette:
            model = GoogleModel(
                "m", base_url=cassette.url, token_key="KEY", environ={"KEY": KEY}, proxy=""
            )
            model._url += f"&key={KEY}"
            await heard(model)
            await model.close()
    assert KEY not in (tmp_path / "g.jsonl").read_text()


async def test_failures_are_played_with_their_hints(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    await recorded(path, refuses(429, code="rate_limit_exceeded", headers={"retry-after": "7"}))
    async with Cassette(path) as cassette:
        model = model_at(f"{cassette.url}/v1")
        with pytest.raises(ModelFailed) as failed:
            await heard(model, prompt("question 0"))
        await model.close()
    assert (failed.value.status, failed.value.retry_after_s) == (429, 7)


async def test_a_request_that_nobody_recorded_fails_with_the_nearest_one(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    await recorded(path, "Hi", "Hello")

    async def ask_otherwise() -> None:
        async with Cassette(path) as cassette:
            model = model_at(f"{cassette.url}/v1")
            with pytest.raises(ModelFailed, match="does not know this request"):
                await heard(model, prompt("question 1", temperature=0.5))
            await model.close()

    with pytest.raises(CassetteMissed) as missed:
        await ask_otherwise()
    assert '+ "temperature": 0.5' in str(missed.value)
    assert "question 0" not in str(missed.value), "the other one is nearer"


async def test_equal_requests_are_answered_in_order_and_each_record_once(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    async with FakeUpstream("one", "two") as upstream:
        async with Cassette(path, upstream=upstream.url) as cassette:
            model = model_at(f"{cassette.url}/v1")
            said = [answered(await heard(model)) for _ in range(2)]
            await model.close()

    async def ask_once_more() -> None:
        async with Cassette(path) as cassette:
            model = model_at(f"{cassette.url}/v1")
            assert [answered(await heard(model)) for _ in range(2)] == said
            with pytest.raises(ModelFailed):
                await heard(model)
            await model.close()

    with pytest.raises(CassetteMissed, match="played already"):
        await ask_once_more()


async def test_a_failing_test_is_not_covered_up_by_a_miss(tmp_path: Path) -> None:
    await recorded(tmp_path / "talk.jsonl", "Hi")

    async def fail() -> None:
        async with Cassette(tmp_path / "talk.jsonl") as cassette:
            cassette.missed.append("something")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()


def test_requests_are_known_by_what_they_say() -> None:
    one = asked("POST", "/v1/x?b=1&a=2&key=abc", b'{"a": 1, "b": [2]}')
    two = asked("POST", "/v1/x?a=2&key=def&b=1", b'{"b":[2],"a":1}')
    assert one == two
    assert one != asked("POST", "/v1/x?a=2&b=1&key=def", b'{"b":[3],"a":1}')
    assert asked("GET", "/x", b"\xff").body == "�"
    assert difference(one, []) == "nothing is left to be played"


@pytest.mark.parametrize("data", [b"", "Ås 😀".encode(), b"\xff\x00"])
def test_bytes_come_back_as_they_were(data: bytes) -> None:
    written = msgspec.json.encode(RecordedBody.of(data))
    assert msgspec.json.decode(written, type=RecordedBody).data == data


async def test_what_cannot_work_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="name the upstream"):
        Cassette(tmp_path / "none.jsonl")
    with pytest.raises(InvalidValue, match="is no cassette"):
        Cassette(tmp_path / "none.jsonl", mode="play")
    (tmp_path / "odd.jsonl").write_text("{}\n")
    with pytest.raises(InvalidValue, match="is no cassette"):
        Cassette(tmp_path / "odd.jsonl")


async def test_recording_again_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    await recorded(path, "old")
    async with FakeUpstream("new") as upstream:
        async with Cassette(path, upstream=upstream.url, mode="record") as cassette:
            model = model_at(f"{cassette.url}/v1")
            await heard(model, prompt("question 0"))
            await model.close()
            assert "old" in path.read_text(), "until the new one is whole"
    assert "new" in path.read_text() and "old" not in path.read_text()
    assert names_in(tmp_path) == ["talk.jsonl"]


def names_in(directory: Path) -> list[str]:
    return [each.name for each in directory.iterdir()]
