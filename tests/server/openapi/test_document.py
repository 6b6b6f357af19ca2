"""The document that describes the API: it is valid, complete, current, and what it shows can be done."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from openapi_spec_validator import validate

from holdfast.ids import GrantId, SessionId, Tenant, mint
from holdfast.server.openapi.document import rendered
from holdfast.server.openapi.error_codes import CODES
from holdfast.server.problems import APPROVALS_OVER
from holdfast.testing import Gate, ScriptedModel, says
from tests import repository
from tests.core.builders import new_minter
from tests.server.api.test_approvals import careful
from tests.server.conformance import described
from tests.server.stubs import Answer, HeldTool, Serving, agent, serving
from tests.store.contract.test_grants import granted

PUBLISHED = repository.ROOT / "docs/reference/openapi.json"
DOCUMENT: dict[str, Any] = msgspec.json.decode(PUBLISHED.read_bytes())


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """What is described, by the labels of routes."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


# ── the document itself ──────────────────────────────────────────────────────────────────────


async def test_what_is_published_is_what_a_server_says_without_asking_for_a_key() -> None:
    async with serving(agent(ScriptedModel()), auth="required") as server:
        answer = await server.get("/openapi.json")
        assert rendered(described(server.app.routes)) == answer.body
    assert PUBLISHED.read_bytes() == answer.body, "run `make openapi`"


def test_it_is_an_openapi_document() -> None:
    validate(DOCUMENT)


def test_every_operation_has_what_people_look_for() -> None:
    tags = {each["name"] for each in DOCUMENT["tags"]}
    names = [operation["operationId"] for _, operation in operations()]
    assert len(names) == len(set(names))
    for label, operation in operations():
        assert re.fullmatch(r"[a-z][a-zA-Z]+", operation["operationId"]), label
        assert operation["summary"] and not operation["summary"].endswith("."), label
        assert set(operation["tags"]) <= tags, label
        refused = {status[0] for status in operation["responses"]}
        assert {"2", "4", "5"} <= refused, label
        assert ("x-scope" in operation) == bool(operation["security"]), label
        if operation["security"]:
            assert {"401", "403", "429"} <= operation["responses"].keys(), label
        for each in operation.get("parameters", ()):
            assert each["description"].endswith("."), (label, each["name"])


def test_nothing_in_it_is_left_over() -> None:
    text = PUBLISHED.read_text(encoding="utf-8")
    for kind, components in DOCUMENT["components"].items():
        if kind == "securitySchemes":
            continue
        for name in components:
            assert f'"#/components/{kind}/{name}"' in text, f"{kind}/{name} is used by nobody"


def test_no_type_goes_by_a_name_that_only_the_code_knows() -> None:
    assert not [name for name in DOCUMENT["components"]["schemas"] if "holdfast" in name.lower()]


def test_every_example_fits_what_it_is_an_example_of() -> None:
    components = {"components": {"schemas": DOCUMENT["components"]["schemas"]}}
    for label, operation in operations():
        for media_type, content in operation.get("requestBody", {"content": {}})["content"].items():
            if media_type == "application/json":
                jsonschema_rs.validate({**content["schema"], **components}, content["example"])
        for each in operation.get("parameters", ()):
            if "example" in each:
                assert jsonschema_rs.is_valid(each["schema"], each["example"]), (label, each)


# ── codes ────────────────────────────────────────────────────────────────────────────────────

NOT_OVER_HTTP = {
    "agent_unavailable": "the base of others",
    "approval_undecided": "answered with the question, not with an error",
    "cannot_continue": "told by the reason why not",
    "holdfast_error": "the base of all",
    "invalid_id": "told by what it is the id of",
    "invalid_source": "a server does not start with one",
    "upstream_failed": "the base of others",
    "illegal_event": "a bug of the caller's, told as internal_error",
    "storage_checksums_wrong": "told as storage_unavailable",
    "storage_closed": "told as storage_unavailable",
    "storage_error": "told as storage_unavailable",
    "storage_fault": "told as storage_unavailable",
    "storage_poisoned": "told as storage_unavailable",
    "storage_unusable": "told as storage_unavailable",
    "source_unusable": "nobody is served who has it",
    "superseded": "told as turn_superseded",
    "server_refused": "what our client says of an answer",
    "server_unreachable": "what our client says when there is none",
    "too_many_messages_waiting": "told over a WebSocket",
    "unknown_event": "told over a WebSocket",
    "websocket_connection_limit_reached": "told over a WebSocket",
    "turn_failed": "told by its reason",
    "turn_rejected": "told by its reason",
}


def codes_in_the_code() -> set[str]:
    """Every literal in the places where a code is said."""
    found = set(APPROVALS_OVER)
    for path in repository.files():
        room = path.relative_to(repository.ROOT).parts[:3]
        if room[:2] != ("src", "holdfast") or room[2] in ("models", "testing", "cli", "tools"):
            continue
        if path.suffix == ".py" and "core" not in room:
            found |= set(_codes(ast.parse(path.read_text(encoding="utf-8"))))
    return found


def _codes(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in ("bad_request", "TurnRejected", "_unknown", "_refused") and node.args:
                yield from _text(node.args[0])
            if name == "_no":
                yield from _text(node.args[1])
            if name == "Problem":
                yield from (c for k in node.keywords if k.arg == "code" for c in _text(k.value))
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "code":
            yield from _text(node.value)


def _text(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if re.fullmatch(r"[a-z]+(_[a-z]+)+", node.value):
            yield node.value


def test_every_code_is_described() -> None:
    missing = codes_in_the_code() - CODES.keys() - NOT_OVER_HTTP.keys()
    assert not missing


def test_every_code_belongs_to_an_operation_or_to_none_of_them() -> None:
    text = PUBLISHED.read_text(encoding="utf-8")
    assert {each for each in CODES if f"`{each}`" not in text} == {
        "method_not_allowed",
        "unknown_url",
    }


# ── what it shows can be done ────────────────────────────────────────────────────────────────


GRANT = mint(GrantId, at_ms=1, entropy=1)
DIGEST = f"sha256:{sha256(b'a picture').hexdigest()}"


class World:
    """A server in which there is something behind every place of a path."""

    def __init__(self, server: Serving, asked: Answer, said: Answer, background: Answer) -> None:
        turn_id = asked.headers["x-turn-id"]
        self.server = server
        self.places = {
            "/v1/models/{id}": "root",
            "/api/sessions/{name}": "trip-to-oslo",
            "/api/turns/{id}": turn_id,
            "/a2a/{agent}": "root",
            "/tasks/{id}": turn_id,
            "/{grant}": str(GRANT),
            "/{call}": asked.json["holdfast"]["approvals"][0]["id"],
            "/{digest}": DIGEST,
            "/v1/responses/{response}": background.json["id"],
            "/v1/conversations/{conversation}": said.headers["x-session-id"],
        }
        self.call = self.places["/{call}"]

    def path(self, described: str) -> str:
        for place, name in self.places.items():
            kept = place[: place.index("{")]
            described = described.replace(place, kept + name)
        return described

    async def item(self) -> str:
        path = self.path("/v1/conversations/{conversation}/items")
        found: str = (await self.server.get(path)).json["data"][0]["id"]
        return found

    async def do(self, label: str, operation: dict[str, Any]) -> Answer:
        """What the document shows, as it shows it."""
        method, described_path = label.split()
        path = self.path(described_path)
        if "{item}" in path:
            path = path.replace("{item}", await self.item())
        data = None
        for content in operation.get("requestBody", {"content": {}})["content"].values():
            data = msgspec.json.encode(content["example"])
        if data is not None and label == "POST /api/turns/{id}/approvals":
            data = data.replace(b"fc_00000000000000000000000000", self.call.encode())
        if label == "POST /api/sessions/import":
            data = (await self.server.get("/api/sessions/trip-to-oslo/export")).body
        return await self.server.request(method, path, data=data)


def model() -> ScriptedModel:
    asks = says("May I?", calls=[("pay", "{}")])
    return ScriptedModel("Norway.", "Norway.", asks, otherwise=lambda _: "Norway.")


async def running_task(server: Serving) -> str:
    message = {"messageId": "run", "role": "ROLE_USER", "parts": [{"text": "Where is Oslo?"}]}
    body = {"message": message, "configuration": {"returnImmediately": True}}
    data = msgspec.json.encode(body)
    answer = await server.request("POST", "/a2a/root/message:send", data=data)
    found: str = answer.json["task"]["id"]
    return found


@pytest.mark.parametrize("label", [label for label, _ in operations()])
async def test_what_is_shown_can_be_done(label: str) -> None:
    """`Serving.request` holds each answer against the document as well."""
    answers = model()
    tool = HeldTool("pay", held=False)
    async with serving(careful(answers, tool), published=("root",)) as server:
        said = await server.chat("Where is Oslo?", to="trip-to-oslo")
        background = await server.respond("Where is Oslo?", background=True)
        await server.ended_turn(background.headers["x-turn-id"])
        asked = await server.chat("Buy a ticket", to="shop")
        row = granted(new_minter(), Tenant("local"))
        await server.sessions.store.put_grant(msgspec.structs.replace(row, grant_id=GRANT))
        session_id = SessionId(said.headers["x-session-id"])
        await server.sessions.store.put_blob(Tenant("local"), session_id, b"a picture")
        world = World(server, asked, said, background)
        if label.endswith("/continue"):
            answers.will(says("Nor", finish="length"))
            cut = await server.chat("Where is Oslo?", to="cut")
            world.places["/api/turns/{id}"] = cut.headers["x-turn-id"]
        if label.endswith(":cancel"):
            answers.will(says("Nor", "way").waiting(Gate(), at=1))
            world.places["/tasks/{id}"] = await running_task(server)
        answer = await world.do(label, dict(operations())[label])
    assert answer.status in (200, 202), answer.body
