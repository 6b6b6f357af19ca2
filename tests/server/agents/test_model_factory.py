"""From the name of a provider to somebody who answers: the right server, the right key, the right wire."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.agents.agent import ModelConfig
from holdfast.errors import InvalidValue
from holdfast.models.http.http_model import HttpModel
from holdfast.models.model import KeyMissing, Model
from holdfast.models.retries import RetryingModel
from holdfast.models.servers import SERVERS, ProviderServer, UnknownProvider
from holdfast.models.usage import MeteredModel
from holdfast.server.agents.model_factory import ServerModels
from holdfast.testing import FakeUpstream
from tests.models.conversations import heard, prompt

PLACES = {"AWS_REGION": "eu-west-1", "CLOUDFLARE_ACCOUNT_ID": "a1", "CLOUDFLARE_GATEWAY_ID": "g1"}
KEYS = {
    **{name: f"secret-of-{name}" for each in SERVERS.values() for name in each.token_keys},
    **PLACES,
}


def made(environ: dict[str, str] | None = None, **fields: Any) -> HttpModel:
    models = ServerModels(KEYS if environ is None else environ)
    model = metered(models, ModelConfig(retries=0, **fields))
    assert isinstance(model, HttpModel)
    return model


def metered(models: ServerModels, config: ModelConfig) -> Model:
    """The model whose usage is metered in what the factory makes."""
    model = models(config)
    assert isinstance(model, RetryingModel)  # also with one attempt: it tells of failures
    (inner,) = model._wrapped
    assert isinstance(inner, MeteredModel)
    (found,) = inner._wrapped
    return found


@pytest.mark.parametrize(
    "name", [name for name, server in SERVERS.items() if server.base_url], ids=str
)
def test_a_provider_is_found_by_its_name_and_gets_its_own_key(name: str) -> None:
    server = SERVERS[name]
    model = made(provider=name, model="m")
    assert model.name == f"{name}/m"
    assert model._url.startswith(f"{server.located(PLACES).base_url}/")
    assert "$" not in model._url
    sent = [value for value in model._headers.values() if "secret-of" in value]
    assert len(sent) == bool(server.token_keys)
    assert all(value.endswith(f"secret-of-{server.token_keys[0]}") for value in sent)


@pytest.mark.parametrize(
    "name", [name for name, server in SERVERS.items() if server.token_keys], ids=str
)
def test_a_key_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(
        InvalidValue, match=f"set the environment variable {SERVERS[name].token_keys[0]}"
    ):
        made(
            PLACES,
            provider=name,
            model="m",
            base_url="https://a.openai.azure.com" * (name == "azure"),
        )


@pytest.mark.parametrize(
    "name", [name for name, server in SERVERS.items() if server.base_url], ids=str
)
def test_no_key_goes_elsewhere(name: str) -> None:
    model = made(provider=name, model="m", base_url="https://evil.example/v1")
    assert not [value for value in model._headers.values() if "secret-of" in value]


@pytest.mark.parametrize("region", ["", "evil.example/", "a b"])
def test_an_address_that_is_not_known_is_said_to_be_missing(region: str) -> None:
    with pytest.raises(
        KeyMissing, match=r"the address of the server is not known: set .* AWS_REGION"
    ):
        made({**KEYS, "AWS_REGION": region}, provider="amazon-bedrock", model="m")


@pytest.mark.parametrize(
    ("model", "region", "url"),
    [
        ("openai.gpt-oss-120b", "", "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1/chat/completions"),
        ("us.anthropic.claude-opus-4-8", "us-east-2", "https://bedrock-runtime.us-east-2.amazonaws.com/anthropic/v1/messages"),
    ],
)  # fmt: skip
def test_bedrock_has_a_region_and_claude_an_api_of_its_own_there(
    model: str, region: str, url: str
) -> None:
    found = made(provider="amazon-bedrock", model=model, region=region)
    assert found._url == url
    assert found._headers["Authorization"] == "Bearer secret-of-AWS_BEARER_TOKEN_BEDROCK"
    assert "x-api-key" not in {name.lower() for name in found._headers}


def test_a_name_of_the_file_is_the_provider_that_it_stands_for() -> None:
    model = made(provider="ours", kind="mistral", model="m")
    assert model.name == "ours/m"
    assert model._url.startswith("https://api.mistral.ai/v1/")
    assert "secret-of-MISTRAL_API_KEY" in model._headers["Authorization"]


def test_a_provider_that_nobody_knows_is_told_with_those_of_the_file() -> None:
    with pytest.raises(UnknownProvider, match="did you mean 'mistral'"):
        made(provider="mistrall", model="m")
    words = str(UnknownProvider("hause", own=["house", "shed"]))
    assert "did you mean 'house'? There are the file's own house, shed;" in words
    with pytest.raises(UnknownProvider, match=r"'chatgpt' is not asked here: .* take 'openai'"):
        made(provider="chatgpt", model="m")


def test_a_key_may_be_under_a_second_name() -> None:
    server = ProviderServer(token_keys=("FIRST", "SECOND"))
    assert server.token_key({"SECOND": "s"}) == "SECOND"
    assert server.token_key({"FIRST": "f", "SECOND": "s"}) == "FIRST"
    assert server.token_key({"FIRST": " "}) == "FIRST"
    assert ProviderServer().token_key({}) == ""


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        (
            "https://a.openai.azure.com/openai/v1/",
            "https://a.openai.azure.com/openai/v1/chat/completions",
        ),
        (
            "https://a.openai.azure.com",
            "https://a.openai.azure.com/openai/deployments/my%2Fm/chat/completions?api-version=2024-10-21",
        ),
        (
            "https://a.openai.azure.com/openai/deployments/other",
            "https://a.openai.azure.com/openai/deployments/other/chat/completions?api-version=2024-10-21",
        ),
    ],
)
def test_azure_is_asked_by_its_own_address(base_url: str, expected: str) -> None:
    model = made(provider="azure", model="my/m", base_url=base_url)
    assert model._url == expected
    assert model._headers["api-key"] == "secret-of-AZURE_API_KEY"
    assert "Authorization" not in model._headers


def test_azure_needs_an_address_and_takes_another_version() -> None:
    with pytest.raises(InvalidValue, match="base_url"):
        made(provider="azure", model="m")
    environ = {**KEYS, "AZURE_OPENAI_API_VERSION": "2025-04-01-preview"}
    model = made(environ, provider="azure", model="m", base_url="https://a.example")
    assert model._url.endswith("?api-version=2025-04-01-preview")
    options = (("api_version", '"2025-09-01"'),)
    model = made(
        environ, provider="azure", model="m", base_url="https://a.example", options=options
    )
    assert model._url.endswith("?api-version=2025-09-01")


async def test_what_a_server_refuses_is_not_sent_and_told_as_ignored() -> None:
    model = made(provider="mistral", model="m")
    assert not {"seed", "user", "logit_bias"} & model.knows
    asked = prompt(seed=3, temperature=0.5, others=(("user", '"ada"'), ("presence_penalty", "1")))
    body = model._wire.body(asked)
    assert b"stream_options" not in body
    assert b"seed" not in body and b"ada" not in body
    assert b'"temperature":0.5' in body and b'"presence_penalty":1' in body


@pytest.mark.parametrize(
    ("fields", "route"),
    [
        ({"provider": "mine"}, "/v1/chat/completions"),
        ({"provider": "mine", "api": "anthropic"}, "/v1/messages"),
        ({"provider": "mine", "api": "responses"}, "/v1/responses"),
        ({"provider": "openai", "api": "responses"}, "/v1/responses"),
        ({"provider": "anthropic"}, "/v1/messages"),
        ({"provider": "google"}, "/v1/models/m:streamGenerateContent"),
        ({"provider": "mine", "api": "google"}, "/v1/models/m:streamGenerateContent"),
        ({"provider": "anthropic", "api": "chat"}, "/v1/chat/completions"),
    ],
)
async def test_a_server_is_asked_on_the_wire_that_it_speaks(
    fields: dict[str, Any], route: str
) -> None:
    async with FakeUpstream("Hi") as upstream:
        models = ServerModels({})
        model = models(ModelConfig(model="m", base_url=upstream.base_url, retries=0, **fields))
        await heard(model)
        await models.close()
        assert upstream.requests[0].route == route


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"provider": "openai", "model": "gpt-5"}, "/chat/completions"),
        ({"provider": "openai", "model": "gpt-5.6-sol"}, "/responses"),
        ({"provider": "openai", "model": "gpt-9"}, "/responses"),
        ({"provider": "openai", "model": "gpt-5.6-sol", "api": "chat"}, "/chat/completions"),
        (
            {"provider": "openai", "model": "gpt-5.6-sol", "base_url": "http://127.0.0.1:1/v1"},
            "/chat/completions",
        ),
        ({"provider": "openrouter", "model": "gpt-5.6-sol"}, "/chat/completions"),
    ],
)
def test_a_gpt_that_refuses_tools_over_chat_is_asked_over_responses_at_openai(
    fields: dict[str, Any], path: str
) -> None:
    assert made(**fields)._url.endswith(path)


def test_a_model_that_takes_no_pictures_has_a_dialect_without_them() -> None:
    limited = made(provider="openai", model="gpt-4", without=("image",))
    assert (
        limited.dialect.name
        == f"{made(provider='openai', model='gpt-4').dialect.name} without image"
    )
