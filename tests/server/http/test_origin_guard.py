"""Only requests that are meant for us, and only pages of ours."""

from __future__ import annotations

import pytest

from holdfast.server.http.exchange import Exchange, Message
from holdfast.server.http.origin_guard import OriginGuard
from holdfast.testing import ScriptedModel
from holdfast.wire.headers import NAMES
from holdfast.wire.problems import Refused
from tests.server.stubs import agent, chat_body, serving

OURS = OriginGuard(frozenset({"localhost", "127.0.0.1", "::1", "agents.example"}))


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8484", "Agents.Example:443"])
async def test_a_request_to_one_of_our_names_is_answered(host: str) -> None:
    async with serving(agent(ScriptedModel()), guard=OURS) as server:
        answer = await server.request("GET", "/v1/models", headers={"Host": host})
    assert answer.status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8484", "localhost.evil.example", "localhost."]
)
async def test_a_name_that_somebody_points_at_us_is_refused(host: str) -> None:
    async with serving(agent(ScriptedModel()), guard=OURS) as server:
        answer = await server.request("GET", "/v1/models", headers={"Host": host})
        alive = await server.request("GET", "/healthz", headers={"Host": host})
    assert (answer.status, answer.error["code"]) == (403, "host_not_allowed")
    assert alive.status == 200


def test_a_request_of_http_1_0_may_name_no_host() -> None:
    """Every browser names one, so no page has made it."""
    OURS.check(coming_from("9.9.9.9"))
    with pytest.raises(Refused):
        OURS.check(coming_from("9.9.9.9", host="evil.example"))


@pytest.mark.parametrize("guard", [OURS, OriginGuard()])
@pytest.mark.parametrize(
    "host",
    [
        "[",
        "[::1",
        "[localhost]",
        "[::1%25lo]",
        "me@localhost",
        "evil.example@localhost",
        "localhost/evil.example",
        "localhost?evil.example",
        "localhost#",
        "localhost\\@evil.example",
        "localhost:x",
        "localhost:99999",
        "localhost:80:80",
        "localhost, evil.example",
        "-localhost",
        "http://localhost",
        "١٢٧.0.0.1",
    ],
)
def test_a_host_that_is_no_name_with_a_port_is_a_400(host: str, guard: OriginGuard) -> None:
    """Whoever reads it more leniently than a proxy or a browser takes it for another name."""
    with pytest.raises(Refused) as refused:
        guard.check(coming_from("9.9.9.9", host=host))
    assert (refused.value.problem.status, refused.value.problem.code) == (400, "invalid_host")


def test_a_request_says_for_whom_it_is_meant_since_http_1_1() -> None:
    OriginGuard().check(coming_from("9.9.9.9"))
    with pytest.raises(Refused, match="host"):
        OriginGuard().check(coming_from("9.9.9.9", version="1.1"))


@pytest.mark.parametrize("path", ["/v1/models", "/api/sessions", "/healthz", "/", "/openapi.json"])
async def test_a_request_that_another_site_has_caused_is_refused(path: str) -> None:
    """A picture, a script or a frame: their requests have no origin."""
    async with serving(agent(ScriptedModel()), guard=OURS) as server:
        for how in ({}, FRAME, {**LINK, "Sec-Fetch-Mode": "no-cors"}):
            said = {**ELSEWHERE, **how}
            answer = await server.request("GET", path, headers=said)
            assert (answer.status, answer.error["code"]) == (403, "origin_not_allowed")
        for site in ("none", "same-origin", "same-site"):
            answer = await server.request("GET", path, headers={**LINK, "Sec-Fetch-Site": site})
            assert answer.status == 200


async def test_a_link_on_another_site_opens_the_console_and_nothing_else() -> None:
    async with serving(agent(ScriptedModel()), guard=OURS) as server:
        console = await server.request("GET", "/", headers={**ELSEWHERE, **LINK})
        sessions = await server.request("GET", "/api/sessions", headers={**ELSEWHERE, **LINK})
        form = await server.request("POST", "/v1/chat/completions", headers={**ELSEWHERE, **LINK})
    assert console.status == 200
    assert (sessions.status, form.status) == (403, 403)


@pytest.mark.parametrize("origins", [frozenset({"https://app.example"}), frozenset({"*"})])
async def test_a_page_of_another_site_that_is_allowed_may(origins: frozenset[str]) -> None:
    async with serving(agent(ScriptedModel()), guard=OriginGuard(origins=origins)) as server:
        for path in ("/v1/models", "/healthz"):
            said = {**ELSEWHERE, "Origin": "https://app.example"}
            assert (await server.request("GET", path, headers=said)).status == 200


ELSEWHERE = {"Sec-Fetch-Site": "cross-site"}
LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
FRAME = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}


async def test_a_page_of_another_origin_is_refused_before_anything_happens() -> None:
    async with serving(agent(ScriptedModel()), guard=OURS) as server:
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
            answer = await server.chat("Hi", headers={"Origin": origin})
            assert (answer.status, answer.error["code"]) == (403, "origin_not_allowed")


async def test_a_page_of_ours_may() -> None:
    async with serving(agent(ScriptedModel("Hello.")), guard=OURS) as server:
        answer = await server.chat("Hi", headers={"Origin": server.url})
    assert answer.status == 200


# ── CORS ─────────────────────────────────────────────────────────────────────────────────────

PAGE = "https://app.example"
ASKING = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}


async def test_no_page_is_allowed_until_somebody_asks_for_it() -> None:
    async with serving(agent(ScriptedModel())) as server:
        asked = await server.request("OPTIONS", "/v1/chat/completions", headers=ASKING)
        plain = await server.request("OPTIONS", "/v1/chat/completions")
    assert (asked.status, asked.error["code"]) == (403, "origin_not_allowed")
    assert "HOLDFAST_CORS_ORIGINS" in asked.error["message"]
    assert "access-control-allow-origin" not in asked.headers
    assert (plain.status, plain.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("origins", [frozenset({PAGE}), frozenset({"*"})])
async def test_a_page_that_is_allowed_may_send_and_see_our_headers(origins: frozenset[str]) -> None:
    guard = OriginGuard(origins=origins)
    async with serving(agent(ScriptedModel("Hello.")), guard=guard) as server:
        asked = await server.request("OPTIONS", "/api/sessions/trip", headers=ASKING)
        answer = await server.chat("Hi", to="trip", headers={"Origin": PAGE})
        refused = await server.chat("Hi", headers={"Origin": PAGE}, model="nobody")
    assert (asked.status, asked.body) == (204, b"")
    assert asked.headers["access-control-allow-methods"] == "GET, PATCH, DELETE"
    allowed = asked.headers["access-control-allow-headers"].split(", ")
    assert {"authorization", "x-conversation-id", "idempotency-key", "if-match"} <= set(allowed)
    for each in (asked, answer, refused):
        assert each.headers["access-control-allow-origin"] == PAGE
        assert each.headers["vary"] == "origin"
        assert "access-control-allow-credentials" not in each.headers
    exposed = set(answer.headers["access-control-expose-headers"].split(", "))
    ours = {name.lower() for name in answer.headers if name.lower().startswith(("x-", "openai-"))}
    assert ours - {"x-content-type-options"} <= exposed
    assert {"x-token-count", "content-disposition"} <= exposed


async def test_a_page_may_name_a_conversation_by_every_header_that_names_one() -> None:
    for names in (NAMES, ("x-conversation-id", "x-mine")):
        guard = OriginGuard(origins=frozenset({PAGE}), names=names)
        async with serving(agent(ScriptedModel()), guard=guard) as server:
            asked = await server.request("OPTIONS", "/v1/chat/completions", headers=ASKING)
        assert set(names) <= set(asked.headers["access-control-allow-headers"].split(", "))


async def test_a_page_that_is_not_among_them_is_refused() -> None:
    guard = OriginGuard(origins=frozenset({PAGE}))
    async with serving(agent(ScriptedModel()), guard=guard) as server:
        for origin in ("https://app.example.evil", "http://app.example", "null", "https://["):
            answer = await server.request("GET", "/v1/models", headers={"Origin": origin})
            assert (answer.status, answer.error["code"]) == (403, "origin_not_allowed")


# ── what answers tell browsers ───────────────────────────────────────────────────────────────


async def test_every_answer_tells_a_browser_to_run_keep_and_frame_nothing() -> None:
    async with serving(agent(ScriptedModel("Hello."))) as server:
        plain = [
            await server.get("/healthz"),
            await server.get("/nowhere"),
            await server.chat("Hi"),
        ]
        stream = await server.chat("Hi", stream=True, model="root")
    for each in (*plain, stream):
        assert each.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in each.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in each.headers["content-security-policy"]
        assert "strict-transport-security" not in each.headers
    assert {each.headers["cache-control"] for each in plain} == {"no-store"}


async def test_a_body_that_is_compressed_is_refused() -> None:
    """A few bytes could be gigabytes."""
    async with serving(agent(ScriptedModel("Hello."))) as server:
        for encoding in ("gzip", "br", "gzip, identity"):
            answer = await server.request(
                "POST",
                "/v1/chat/completions",
                data=b"\x1f\x8b",
                headers={"Content-Encoding": encoding},
            )
            assert (answer.status, answer.error["code"]) == (415, "unsupported_content_encoding")
        fine = await server.request(
            "POST",
            "/v1/chat/completions",
            data=chat_body("Hi"),
            headers={"Content-Encoding": "identity"},
        )
    assert fine.status == 200


# ── headers of ours ──────────────────────────────────────────────────────────────────────────


async def test_a_header_of_ours_that_is_misspelt_is_told_which_is_meant() -> None:
    """Else a conversation would not be continued, with status 200."""
    async with serving(agent(ScriptedModel("Hello."))) as server:
        answer = await server.chat("Hi", headers={"X-Conversation-Key": "trip"})
        near = await server.chat("Hi", headers={"X-Conversation": "trip"})
    assert (answer.status, answer.error["code"]) == (400, "unknown_header")
    assert answer.error["param"] == "x-conversation-key"
    assert "did you mean x-conversation-id?" in answer.error["message"]
    assert near.status == 200


async def test_what_an_answer_said_may_be_sent_back() -> None:
    async with serving(agent(ScriptedModel("One.", "Two."))) as server:
        first = await server.chat("Hi", to="trip")
        told = {name: value for name, value in first.headers.items() if name.startswith("x-")}
        second = await server.chat("Hi again", headers={**told, "X-Conversation-Id": "trip"})
    assert (first.text, second.text) == ("One.", "Two.")


# ── proxies ──────────────────────────────────────────────────────────────────────────────────


def coming_from(peer: str, *, version: str = "1.0", **headers: str) -> Exchange:
    async def never(*_: object) -> Message:
        raise AssertionError("nothing is read or said here")

    raw = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    scope = {
        "method": "GET",
        "http_version": version,
        "path": "/",
        "query_string": b"",
        "headers": raw,
        "client": (peer, 5000),
    }
    return Exchange(scope, never, never, request_id="req_1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("peer", "told", "client"),
    [
        ("9.9.9.9", "1.2.3.4", "9.9.9.9"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.2", "1.2.3.4"),
        ("10.0.0.1", "10.0.0.2", "10.0.0.1"),
    ],
)
def test_where_a_request_comes_from_is_believed_of_our_proxies_alone(
    peer: str, told: str, client: str
) -> None:
    guard = OriginGuard(proxies=frozenset({"10.0.0.1", "10.0.0.2"}))
    assert guard.client_of(coming_from(peer, x_forwarded_for=told)) == client


def test_the_name_that_a_request_was_sent_to_is_believed_of_our_proxies_alone() -> None:
    guard = OriginGuard(frozenset({"agents.example"}), proxies=frozenset({"10.0.0.1"}))
    named = {"host": "inner:8484", "x_forwarded_host": "agents.example"}
    guard.check(coming_from("10.0.0.1", **named, origin="https://agents.example"))
    with pytest.raises(Refused, match="does not go by the name 'inner:8484'"):
        guard.check(coming_from("9.9.9.9", **named))
