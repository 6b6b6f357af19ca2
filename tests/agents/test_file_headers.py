"""`headers` of models and providers: sent along, filled in from the environment, shown nowhere."""

from __future__ import annotations

import pytest

from holdfast.agents.agent import ModelConfig
from holdfast.models.http.request_headers import Headers
from holdfast.models.model import ModelFailed
from holdfast.models.servers import Api
from holdfast.server.agents.model_factory import ServerModels
from holdfast.testing import FakeUpstream, Reply
from tests.agents.file.test_agent_file import SMALL, in_model, problems, read
from tests.models.conversations import heard

FILE = """
agents: {root: {model: m}, other: {model: house/llama}}
providers:
  house:
    base_url: http://127.0.0.1:9/v1
    headers: {X-Team: blue, X-Tier: gold}
models:
  m:
    provider: house
    model: llama
    headers:
      x-team: red
      X-Gateway: Basic ${SECRET}
"""


def config_of(text: str, agent: int = 0) -> ModelConfig:
    return read(text).agents[agent].model


def test_a_models_headers_are_those_of_its_provider_with_its_own_on_top() -> None:
    found = config_of(FILE).headers
    assert found.pairs == (("X-Tier", "gold"), ("x-team", "red"), ("X-Gateway", "Basic s3cret"))
    assert found.secrets == ("s3cret",)


def test_a_model_that_is_named_in_place_has_its_providers() -> None:
    assert config_of(FILE, 1).headers.pairs == (("X-Team", "blue"), ("X-Tier", "gold"))


def test_what_is_in_them_is_not_shown() -> None:
    assert repr(config_of(FILE).headers) == "<Headers X-Tier, x-team, X-Gateway>"
    assert "s3cret" not in repr(config_of(FILE))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (in_model("headers: {Host: a}"), "headers.Host: 'Host' cannot be sent as an extra header"),
        (in_model("headers: {a b: c}"), "'a b' cannot be sent as an extra header"),
        (in_model('headers: {X-A: "a\\nb"}'), "the value of the header 'X-A' cannot be sent"),
        (in_model("headers: {X-A: a, x-a: b}"), "headers: a header is there twice"),
        ("providers: {p: {base_url: 'https://h', headers: {Host: a}}}\n" + SMALL, "providers.p.headers.Host: 'Host'"),
    ],
)  # fmt: skip
def test_what_cannot_be_sent_is_told_with_its_place(text: str, told: str) -> None:
    (found,) = problems(text)
    assert told in found


@pytest.mark.parametrize(
    "text",
    [
        in_model("headers: {X-A: $SECRET}"),
        "providers: {p: {base_url: '', headers: {X-A: a}}}\n" + SMALL,
    ],
)
def test_a_remote_file_sends_none_of_our_variables(text: str) -> None:
    assert any(
        "headers: is not accepted from a URL" in each for each in problems(text, trusted=False)
    )


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic", "google"])
async def test_they_go_along_with_every_request_whatever_the_api(api: Api) -> None:
    refusal = Reply(status=401, body=b'{"error":{"message":"s3cret is wrong"}}')
    async with FakeUpstream(refusal) as upstream:
        config = ModelConfig(
            provider="house",
            model="llama",
            base_url=upstream.base_url,
            api=api,
            headers=Headers(pairs=(("X-Gateway", "Basic s3cret"),), secrets=("s3cret",)),
            retries=0,
        )
        models = ServerModels({})
        with pytest.raises(ModelFailed) as failed:
            await heard(models(config))
        await models.close()
        assert upstream.requests[0].headers["x-gateway"] == "Basic s3cret"
        assert "s3cret" not in str(failed.value)
