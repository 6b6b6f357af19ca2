"""Agents from files: who is named, who continues, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.agents.agent import ModelConfig
from holdfast.config import TenantAgents
from holdfast.core.history.conversation import Snapshot
from holdfast.errors import (
    AgentAmbiguous,
    AgentNotFound,
    InvalidValue,
    ModelNotFound,
    SourceUnusable,
)
from holdfast.ids import SessionId, Tenant
from holdfast.models.demo.demo_model import DemoModel
from holdfast.models.providers.openai_chat import OpenAIModel
from holdfast.models.retries import RetryingModel
from holdfast.server.agents.model_factory import ServerModels
from holdfast.server.agents.source_directory import load_directory
from holdfast.server.problems import problem_of
from holdfast.sessions.session_requests import Ask
from holdfast.store.memory_store import MemoryStore
from tests.agents.web import serving as web_serving
from tests.server.access.test_authentication import bearer, put_key
from tests.server.agents.test_model_factory import metered
from tests.server.stubs import Serving, serving

TEAM = """
agents:
  root:
    model: demo/parrot
    handoffs: [helper]
    policy: {disconnect: keep}
  helper:
    model: demo/parrot
"""
ALONE = "agents: {root: {model: demo/parrot}}\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "team.yaml").write_text(TEAM)
    (tmp_path / "alone.yaml").write_text(ALONE)
    return tmp_path


@asynccontextmanager
async def from_files(
    *sources: str, aliases: Mapping[str, str] | None = None, store: MemoryStore | None = None
) -> AsyncIterator[Serving]:
    directory = await load_directory(
        sources, aliases=aliases, make_model=lambda config: DemoModel(pace_s=0)
    )
    try:
        async with serving(directory=directory, store=store) as server:
            yield server
    finally:
        await directory.close()


async def test_agents_are_listed_by_their_names_where_those_are_unique(files: Path) -> None:
    async with from_files(str(files)) as server:
        listed = await server.get("/v1/models")
        unclear = await server.chat("Hi", model="root")
    assert [each["id"] for each in listed.json["data"]] == ["alone/root", "team/root", "helper"]
    assert (unclear.status, unclear.error["code"]) == (404, "model_not_found")
    assert "alone/root, team/root, helper" in unclear.error["message"]


async def test_a_conversation_stays_with_its_source(files: Path) -> None:
    async with from_files(str(files)) as server:
        first = await server.chat("Hi", to="trip", model="team/root")
        same = await server.chat("Hi", to="trip", model="root")  # to its own source, it is clear
        other = await server.chat("Hi", to="trip", model="alone/root")
        switched = await server.chat("Hi", to="trip", model="helper")
        (turn, *_) = await server.turns("trip")
    assert (first.status, same.status, switched.status) == (200, 200, 200)
    assert (other.status, other.error["code"]) == (409, "agent_mismatch")
    assert other.headers["x-should-retry"] == "false"
    assert turn["agent"] == "helper"


async def test_a_name_that_a_client_cannot_change_may_be_an_alias(files: Path) -> None:
    async with from_files(str(files / "alone.yaml"), aliases={"gpt-4o": "root"}) as server:
        answer = await server.chat("Hi", model="gpt-4o")
        found = await server.get("/v1/models/gpt-4o")
    assert (answer.status, answer.json["model"]) == (200, "gpt-4o")
    assert found.json["id"] == "gpt-4o"


async def test_a_conversation_whose_source_is_gone_is_refused_and_can_be_read(files: Path) -> None:
    store = MemoryStore()
    async with from_files(str(files), store=store) as server:
        await server.chat("Hi", to="trip", model="team/root")
    async with from_files(str(files / "alone.yaml"), store=store) as server:
        answer = await server.chat("Hi", to="trip", model="root")
        items = await server.items("trip")
    assert answer.status == 409 and answer.error["code"] in ("agent_not_found", "agent_mismatch")
    assert len(items) == 2


async def test_one_broken_file_does_not_keep_the_others_from_being_served(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (files / "broken.yaml").write_text("agents:\n  late:\n    modle: demo/parrot\n")
    directory = await load_directory(
        [str(files), str(files / "nowhere.yaml")], make_model=lambda config: DemoModel(pace_s=0)
    )
    try:
        async with serving(directory=directory) as server:
            told = (await server.get("/api/agents")).json
            answer = await server.chat("Hi", model="helper")
            (files / "broken.yaml").write_text("agents: {late: {model: demo/parrot}}\n")
            await directory.refresh()
            corrected = (await server.get("/api/agents")).json
            late = await server.chat("Hi", model="late")
    finally:
        await directory.close()
    assert [each["id"] for each in told["agents"]] == ["alone/root", "team/root", "helper"]
    broken, nowhere = told["broken"]
    assert (broken["source"], broken["serving"]) == ("broken", False)
    assert (
        broken["problems"][0]
        == "broken.yaml:3:5: agents.late.modle: unknown field; did you mean 'model'?"
    )
    assert nowhere["source"] == "nowhere"
    assert (answer.status, late.status) == (200, 200)
    assert "late" in [each["id"] for each in corrected["agents"]]
    assert [each["source"] for each in corrected["broken"]] == ["nowhere"]
    assert "broken: it is not served" in caplog.text


async def test_what_cannot_be_loaded_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("agents: {root: {modle: x}}\n")
    (tmp_path / "b.yaml").write_text("nothing")
    with pytest.raises(SourceUnusable) as caught:
        await load_directory([str(tmp_path)])
    assert "a.yaml" in str(caught.value) and "b.yaml" in str(caught.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceUnusable, match="no agents"):
        await load_directory([str(tmp_path / "empty")])


async def test_a_file_from_a_url_of_our_own_is_served_once_it_is_trusted() -> None:
    command = "{tool: {cmd: echo, description: It runs here.}}"
    tools = f"toolsets: [{{type: script, shell: {command}}}]"
    async with web_serving() as web:
        web.files["/team.yaml"] = f"agents: {{root: {{model: demo/parrot, {tools}}}}}\n".encode()
        with pytest.raises(SourceUnusable, match="private"):
            await load_directory([web.url("/team.yaml")])
        directory = await load_directory([web.url("/team.yaml")], trust_remote=True)
    try:
        assert [each.id for each in directory.entries()] == ["root"]
    finally:
        await directory.close()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AgentAmbiguous("a", source="s", candidates=("x", "y")), "agent_ambiguous"),
        (AgentNotFound("a", source="s", why="it is gone"), "agent_not_found"),
    ],
)
def test_nobody_to_continue_with_is_a_conflict(error: AgentNotFound, code: str) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.code, problem.should_retry) == (409, code, False)


# ── models ───────────────────────────────────────────────────────────────────────────────────


async def test_models_are_made_from_what_a_file_says() -> None:
    models = ServerModels({"OPENAI_API_KEY": "sk-secret-key"})
    demo = metered(models, ModelConfig(provider="demo", model="parrot", retries=0))
    assert isinstance(demo, DemoModel)
    ours = models(ModelConfig(provider="openai", model="gpt-5"))
    assert isinstance(ours, RetryingModel) and ours.name == "openai/gpt-5"
    local = metered(
        models, ModelConfig(provider="mine", model="m", base_url="http://127.0.0.1:1/v1", retries=0)
    )
    assert isinstance(local, OpenAIModel) and local.name == "mine/m"
    several = models(
        ModelConfig(
            provider="demo", model="a", fallbacks=(ModelConfig(provider="demo", model="b"),)
        )
    )
    assert "FallbackModel" in repr(several)
    await models.close()


async def test_a_key_goes_to_the_server_that_it_is_for_and_to_no_other() -> None:
    models = ServerModels({"OPENAI_API_KEY": "sk-secret-key"})
    elsewhere = metered(
        models,
        ModelConfig(provider="openai", model="m", base_url="http://evil.example/v1", retries=0),
    )
    assert isinstance(elsewhere, OpenAIModel)
    assert "Authorization" not in elsewhere._headers
    named = metered(
        models,
        ModelConfig(
            provider="openai",
            model="m",
            base_url="http://proxy.example/v1",
            token_key="OPENAI_API_KEY",
            retries=0,
        ),
    )
    assert isinstance(named, OpenAIModel)
    assert named._headers["Authorization"] == "Bearer sk-secret-key"
    await models.close()


def test_a_model_that_cannot_be_made_says_what_to_do() -> None:
    with pytest.raises(InvalidValue, match="base_url"):
        ServerModels({})(ModelConfig(provider="nobody", model="m"))
    with pytest.raises(InvalidValue, match="OPENAI_API_KEY"):
        ServerModels({})(ModelConfig(provider="openai", model="m"))


async def test_clients_are_told_what_they_may_show_of_an_agent(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "agents: {root: {model: demo/parrot, welcome_message: Hello!, commands: {fix: Fix it}}}\n"
    )
    async with from_files(str(tmp_path)) as server:
        (listed,) = (await server.get("/api/agents")).json["agents"]
    assert listed["welcome_message"] == "Hello!"
    assert listed["commands"] == [{"name": "fix", "instruction": "Fix it"}]


async def test_no_answer_has_a_directory_of_this_machine(tmp_path: Path) -> None:
    """Agents of one name in files of one name, and files that are broken in several ways."""
    home = tmp_path / "home of ada" / "plum"
    for name in ("eu", "us"):
        (home / name).mkdir(parents=True)
        (home / name / "shop.yaml").write_text("agents: {root: {model: demo/parrot}}\n")
    (home / "eu" / "typo.yaml").write_text("agents: {late: {modle: x}}\n")
    (home / "eu" / "words.yaml").write_text(
        "agents: {late: {model: demo/parrot, instruction_file: gone.md}}\n"
    )
    sources = [str(home / "eu"), str(home / "us"), str(home / "nowhere.yaml")]
    async with from_files(*sources) as server:
        models = await server.get("/v1/models")
        own = await server.chat("Hi", to="trip", model="eu/shop.yaml/root")
        answers = [
            await server.chat("Hi", to="trip", model="us/shop.yaml/root"),
            await server.chat("Hi", model="root"),
            await server.chat("Hi", model="late"),
            *[await server.get(each) for each in SHOWING],
            await server.get(f"/api/turns/{own.json['holdfast']['turn_id']}/events"),
        ]
    assert [each["id"] for each in models.json["data"]] == [
        "eu/shop.yaml/root",
        "us/shop.yaml/root",
    ]
    assert answers[0].error["code"] == "agent_mismatch"
    assert b"typo.yaml:1:17" in b"".join(each.body for each in answers)
    for answer in (models, own, *answers):
        told = f"{answer.body.decode()} {sorted(answer.headers.items())}"
        assert all(each not in told for each in ("plum", " of ada", str(tmp_path)))


SHOWING = (
    "/api/agents /readyz /metrics /api/grants /api/sessions /api/sessions/trip /api/sessions/trip/export "
    "/api/sessions/trip/turns /api/overview /openapi.json"
).split()


# ── agents of tenants ────────────────────────────────────────────────────────────────────────


async def test_a_tenant_uses_the_agents_that_are_its_own_and_does_not_learn_of_others(
    files: Path,
) -> None:
    store = MemoryStore()
    acme, rival = [
        bearer(await put_key(store, Tenant(each), "admin", nth=nth))
        for nth, each in enumerate(("acme", "rival"), start=1)
    ]
    rules = TenantAgents(rules=(("acme", ("team/*",)),))
    directory = await load_directory(
        [str(files)], make_model=lambda config: DemoModel(pace_s=0), tenants=rules
    )
    try:
        async with serving(directory=directory, store=store, auth="required") as server:
            asked = server.chat
            own = await asked("Hi", to="trip", model="team/root", headers=acme)
            again = await asked("Hi", to="trip", model="root", headers=acme)
            for model in ("alone/root", "helper", "nobody"):
                answer = await asked("Hi", model=model, headers=acme)
                assert (answer.status, answer.error["code"]) == (404, "model_not_found")
                assert answer.error["message"].endswith("there are: team/root")
                one = await server.request("GET", f"/v1/models/{model}", headers=acme)
                assert one.status == 404
                there = await asked("Hi", to="trip", model=model, headers=acme)
                assert (there.status, there.error) == (answer.status, answer.error), model
            body = b'{"model": "alone/root", "input": "Hi"}'
            response = await server.request("POST", "/v1/responses", headers=acme, data=body)
            lists = [
                (await server.request("GET", "/v1/models", headers=each)).json["data"]
                for each in (acme, rival)
            ]
            shown = await server.request("GET", "/api/agents", headers=acme)
            other = await asked("Hi", model="alone/root", headers=rival)
    finally:
        await directory.close()
    assert (own.status, again.status, other.status, response.status) == (200, 200, 200, 404)
    assert [[each["id"] for each in models] for models in lists] == [
        ["team/root"],
        ["alone/root", "team/root", "helper"],
    ]
    assert [each["id"] for each in shown.json["agents"]] == ["team/root"]


@pytest.mark.parametrize(
    ("agent", "allowed"), [("root", True), ("helper", True), ("boss", True), ("clerk", False)]
)
async def test_a_conversation_goes_on_with_whom_it_could_have_been_handed_over_to(
    tmp_path: Path, agent: str, allowed: bool
) -> None:
    """A file that was imported says with whom, and can say anything."""
    (tmp_path / "team.yaml").write_text(
        "agents: {root: {model: demo/parrot, handoffs: [helper]}, helper: {model: demo/parrot, handoffs: [boss]},"
        " boss: {model: demo/parrot, handoffs: [root]}, clerk: {model: demo/parrot}}\n"
    )
    directory = await load_directory(
        [str(tmp_path)],
        make_model=lambda config: DemoModel(pace_s=0),
        tenants=TenantAgents(rules=(("acme", ("root",)),)),
    )
    key = f"{tmp_path}/team.yaml"
    stored = Snapshot(
        session_id=SessionId("conv_" + "0" * 26), source_key=key, entry_agent="root", agent=agent
    )
    ask = Ask(tenant=Tenant("acme"), name=None)
    try:
        if allowed:
            assert directory.choose(ask, stored).agent == agent
        else:
            with pytest.raises(ModelNotFound):
                directory.choose(ask, stored)
    finally:
        await directory.close()
