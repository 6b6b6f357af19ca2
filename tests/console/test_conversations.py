"""Conversations in a browser: from nothing to a fork, live turns, failures, two windows, decisions, a restart."""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from holdfast.core.policy import Policy
from holdfast.models.model import ModelFailed
from holdfast.server.http.listen_sockets import listen
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from tests.console.browser import window, within
from tests.e2e.world import world
from tests.server.api.test_approvals import careful
from tests.server.stubs import HeldTool, agent, serving, until

PIXEL = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture; what follows it does not matter."""

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_a_conversation_from_nothing_to_a_fork(browser: Browser) -> None:
    model = ScriptedModel("Hello, **Ada**.", "Oslo it is.", "Or Bergen.")
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        await here.open()
        await expect(here.find(".sidebar .nothing")).to_contain_text("No session yet")
        await here.page.keyboard.press("n")
        await here.find("#begin-name").fill("trip")
        await here.say("My name is Ada.")
        answer = here.find(".item-assistant .said").last
        await expect(answer.locator("strong")).to_have_text("Ada")
        await expect(here.find(".session-row")).to_have_count(1)
        await here.say("Where shall we go?")
        await expect(answer).to_have_text("Oslo it is.")
        await expect(here.find("article")).to_have_count(2)

        await here.choose(
            here.find("article").first.locator(".turn-foot .menu-button"), "Fork from here"
        )
        await expect(here.find("dialog")).to_contain_text("as this one stood at version 1")
        await here.confirm()
        await expect(here.find("article")).to_have_count(1)
        await here.say("Somewhere else?")
        await expect(answer).to_have_text("Or Bergen.")
        await here.find(".about summary").click()
        await expect(here.find(".facts")).to_contain_text("Forked from")
        await here.find("[data-check]").click()
        await expect(here.find(".chain")).to_contain_text("whole")

        await here.open("/s/trip")
        await expect(here.find("article")).to_have_count(2)
        await expect(here.find(".line-graph .fork")).to_have_count(1)
        await expect(answer).to_have_text("Oslo it is.")
    assert len(model.prompts) == 3


async def test_a_conversation_begins_over_plain_http_from_another_machine(browser: Browser) -> None:
    """Browsers leave functions out of a page that came over plain HTTP, unless from loopback."""
    model = ScriptedModel("Hello.")
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        await here.context.add_init_script("delete Crypto.prototype.randomUUID")
        await here.open()
        await here.page.keyboard.press("n")
        await here.find("#begin-name").fill("trip")
        await here.say("My name is Ada.")
        await expect(here.find(".item-assistant .said")).to_have_text("Hello.")


async def test_a_live_turn_is_watched_stopped_and_continued(browser: Browser) -> None:
    gate = Gate()
    model = ScriptedModel(
        says("Half of ", "the answer.").waiting(gate, at=1), says("Where were we?")
    )
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        asked = asyncio.create_task(server.chat("Tell me", to="trip"))
        await within(gate.reached.wait())
        await here.open("/s/trip")
        await expect(here.find(".turn-open .said.draft")).to_have_text("Half of ")
        await expect(here.find(".span-model")).to_have_count(1)
        await expect(here.find(".stop-told")).to_contain_text("is kept, marked as interrupted")
        await here.page.keyboard.press(".")
        await expect(here.find(".turn-committed .banner.warn")).to_contain_text(
            "stopped on purpose"
        )
        await expect(here.find(".turn-committed .item-assistant")).to_contain_text(
            "broken off here"
        )
        assert (await asked).status == 409
        await here.say("Go on")
        await expect(here.find(".item-assistant .said").last).to_have_text("Where were we?")
        await expect(here.find(".turn-committed")).to_have_count(2)


async def test_a_stop_says_when_it_will_discard(browser: Browser) -> None:
    gate = Gate()
    model = ScriptedModel(says("Half ", "of it.").waiting(gate, at=1))
    careless = agent(model, policy=Policy(cancel="auto"))
    async with serving(careless) as server, window(browser, server.url) as here:
        asked = asyncio.create_task(server.chat("Tell me", to="trip"))
        await within(gate.reached.wait())
        await here.open("/s/trip")
        await expect(here.find(".stop-told")).to_contain_text("No tool has acted yet")
        await here.find("[data-stop]").click()
        await expect(here.find(".turn-discarded")).to_have_count(1)
        await expect(here.find(".toasts")).to_contain_text("as it was before")
        await asked


async def test_a_running_turn_is_steered(browser: Browser) -> None:
    tool = HeldTool("look", read_only=True)
    model = ScriptedModel(says("One moment.", calls=[("look", "{}")]), "North it is.")
    store = MemoryStore()
    async with (
        serving(agent(model, tool), store=store) as server,
        window(browser, server.url) as here,
    ):
        asked = asyncio.create_task(server.chat("Where to?", to="trip"))
        await within(tool.begun.wait())
        await here.open("/s/trip")
        await expect(here.find(".call.outcome-running")).to_have_count(1)
        await here.say("Make it north")
        await expect(here.find(".unheard")).to_contain_text("hears it at its next step")
        await within(until(lambda: bool(store.db.execute("select count(*) from signal").get)))
        tool.let_go.set()
        await expect(here.find(".turn-committed .item-user")).to_have_count(2)
        await expect(here.find(".item-assistant .said").last).to_have_text("North it is.")
        assert (await asked).status == 200
    assert "Make it north" in str(model.messages()[-1])


async def test_a_failure_is_inspected_and_tried_again(browser: Browser) -> None:
    broken = says("I was going ", "to say").failing(ModelFailed("out of order"), at=2)
    model = ScriptedModel("Hello.", broken, "Now it works.")
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        await server.chat("Hi", to="trip")
        await server.chat("Tell me", to="trip")
        await here.open("/s/trip")
        tried = here.find(".turn-discarded")
        await expect(tried.locator("summary")).to_contain_text("model failed")
        await expect(tried.locator(".item")).to_have_count(0)
        await tried.locator("summary").click()
        await expect(tried.locator(".item-user .said")).to_have_text("Tell me")
        await expect(tried.locator(".item-assistant .said")).to_have_text("I was going to say")
        await expect(tried.locator(".span-model")).to_have_count(1)
        await tried.get_by_role("button", name="Try it again").click()
        await expect(here.find(".item-assistant .said").last).to_have_text("Now it works.")
        await expect(here.find(".turn-committed .version").last).to_have_text("2")


async def test_what_nobody_knows_is_said_to_be_unknown(browser: Browser) -> None:
    tool = HeldTool("act")
    model = ScriptedModel(says("", calls=[("act", '{"kr": 5}'), ("act", '{"kr": 6}')]))
    async with serving(agent(model, tool)) as server, window(browser, server.url) as here:
        asked = asyncio.create_task(server.chat("Do it", to="trip"))
        await within(tool.begun.wait())
        await here.open("/s/trip")
        await expect(here.find(".turn-open")).to_contain_text("has acted")
        await here.find("[data-stop]").click()
        await expect(here.find(".turn-committed .banner.warn")).to_be_visible()
        outcomes = await here.find(".turn-committed .call .outcome").all_inner_texts()
        assert set(outcomes) <= {"outcome unknown", "not run"} and "outcome unknown" in outcomes
        await asked


async def test_a_turn_that_broke_off_goes_on_by_a_button(browser: Browser) -> None:
    tool = HeldTool("act")
    tool.let_go.set()
    broken = says("Nearly").failing(ModelFailed("out of order"), at=1)
    model = ScriptedModel(says("", calls=[("act", "{}")]), broken, "It is done.")
    async with serving(agent(model, tool)) as server, window(browser, server.url) as here:
        await server.chat("Do it", to="trip")
        await here.open("/s/trip")
        await here.find("[data-continue]").click()
        await expect(here.find(".item-assistant .said").last).to_have_text("It is done.")
        await expect(here.find("[data-continue]")).to_have_count(0)
        await expect(here.find(".turn-committed")).to_have_count(2)
        await expect(here.find(".item-user")).to_have_count(1)
        await expect(here.find(".call")).to_have_count(1)
    assert len(model.prompts) == 3


async def test_two_windows_on_one_session_see_the_same(browser: Browser) -> None:
    gate = Gate()
    model = ScriptedModel("Hello.", says("Bit ", "by bit.").waiting(gate, at=1))
    async with (
        serving(agent(model)) as server,
        window(browser, server.url) as one,
        window(browser, server.url, phone=True) as other,
    ):
        await server.chat("Hi", to="trip")
        await one.open("/s/trip")
        await other.open("/s/trip")
        await expect(other.find("article")).to_have_count(1)
        await one.say("Slowly")
        await within(gate.reached.wait())
        for each in (one, other):
            await expect(each.find(".turn-open .said.draft")).to_have_text("Bit ")
        gate.release()
        for each in (one, other):
            await expect(each.find(".turn-committed .said").last).to_have_text("Bit by bit.")
            await expect(each.find("article")).to_have_count(2)


@pytest.mark.parametrize("decision", ["allow", "refuse"])
async def test_a_call_that_waits_is_decided_in_place(browser: Browser, decision: str) -> None:
    tool = HeldTool("pay", held=False)
    model = ScriptedModel(says("May I?", calls=[("pay", '{"kr": 5}')]), "Very well.")
    async with serving(careful(model, tool)) as server, window(browser, server.url) as here:
        await server.chat("Pay the bill", to="trip")
        await here.open("/s/trip")
        await expect(here.find(".approvals")).to_contain_text("pay")
        await here.find(f"[data-decide={decision}]").click()
        await expect(here.find(".item-assistant .said").last).to_have_text("Very well.")
        await expect(here.find(".approvals")).to_have_count(0)
    assert tool.runs == (1 if decision == "allow" else 0)


async def test_an_item_is_hidden_from_the_model_and_that_is_undone(browser: Browser) -> None:
    async with (
        serving(agent(ScriptedModel("Noted."))) as server,
        window(browser, server.url) as here,
    ):
        await server.chat("The password is swordfish", to="trip")
        await here.open("/s/trip")
        await here.choose(here.find(".item-user .menu-button"), "Hide from the model")
        await expect(here.find(".item-user")).to_contain_text("the model does not see this")
        await here.page.keyboard.press("m")
        await expect(here.find(".item-user")).to_have_count(0)
        await expect(here.find(".left-out")).to_contain_text("1 item the model does not see")
        await here.find("[data-undo]").click()
        await expect(here.find(".item-user")).to_have_count(1)
        await expect(here.find(".left-out")).to_have_count(0)


async def test_a_summary_is_what_the_model_sees_and_people_see_everything(
    browser: Browser,
) -> None:
    model = ScriptedModel(otherwise=lambda _: "Yes.")
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        for n in range(6):
            await server.chat(f"This is number {n}", to="trip")
        await here.open("/s/trip")
        model.will("They counted to **six**.")
        await here.choose(here.find(".session-title .menu-button"), "Sum up for the model")
        await here.confirm()
        await expect(here.find(".toasts")).to_contain_text("Summed up")
        await expect(here.find(".item-user")).to_have_count(6)
        await here.find(".switch button").last.click()
        await expect(here.find(".summary-card strong")).to_have_text("six")
        await expect(here.find(".left-out").first).to_be_visible()
        shown = await here.find(".item-user").count()
        assert shown < 6
        await here.find(".left-out").first.click()
        await expect(here.find(".item-user")).to_have_count(shown + 1)


async def test_a_rewind_says_what_it_does_and_leaves_a_way_back(browser: Browser) -> None:
    model = ScriptedModel(otherwise=lambda _: "Yes.")
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        for text in ("one", "two", "three"):
            await server.chat(text, to="trip")
        await here.open("/s/trip")
        old = here.find("article").nth(0).locator(".turn-foot .menu-button")
        await here.choose(old, "Rewind to here")
        await expect(here.find("dialog")).to_contain_text("Nothing is lost")
        await here.confirm()
        await expect(here.find("article")).to_have_count(1)
        assert (await server.get("/api/sessions/trip")).json["version"] == 1
        await here.find(".toasts a").click()
        await expect(here.find("article")).to_have_count(3)


async def test_a_session_is_renamed_exported_and_deleted(browser: Browser) -> None:
    model = ScriptedModel(otherwise=lambda _: "Yes.")
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        await server.chat("one", to="trip")
        await here.open("/s/trip")
        menu = here.find(".session-title .menu-button")
        await here.choose(menu, "Rename")
        await here.find("dialog .field").fill("Summer")
        await here.confirm()
        await expect(here.find(".session-row .row-title")).to_have_text("Summer")
        await here.find("[data-undo]").click()
        await expect(here.find("h1")).to_have_text("one")
        async with here.page.expect_download() as download:
            await here.choose(menu, "Export")
        name = (await download.value).suggested_filename
        assert re.fullmatch(r"conv_\w{26}\.jsonl", name)
        await here.choose(menu, "Delete")
        await expect(here.find("dialog")).to_contain_text("cannot be undone")
        here.expects_failures = True  # the page may be asking for the session that now goes
        await here.confirm()
        await expect(here.find(".session-row")).to_have_count(0)
        assert (await server.get("/api/sessions/trip")).status in (404, 410)


async def test_a_server_that_is_killed_and_started_again_goes_on_in_the_same_page(
    browser: Browser, tmp_path: Path
) -> None:
    with listen("127.0.0.1", 0) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    async with world(tmp_path) as there:
        held = there.hold("slowly")
        await there.start(listen=address)
        async with window(browser, there.url) as here:
            here.expects_failures = True
            await here.open("/new")
            await here.find("#begin-name").fill("trip")
            await here.say("hello")
            await expect(here.find(".turn-committed")).to_have_count(1)
            await here.say("slowly")
            await within(held.reached.wait())
            await expect(here.find(".turn-open .draft")).to_contain_text("This is")
            await there.kill()
            await expect(here.find(".top .chip.bad")).to_contain_text("no answer from the server")
            there.gates.clear()
            await there.start(listen=address)
            await expect(here.find(".turn-committed")).to_have_count(2)
            await expect(here.find(".turn-committed .said").last).to_contain_text(
                "This is the whole answer to slowly"
            )
            await expect(here.find(".turn-committed").last).to_contain_text("attempt 2")
            await here.say("and again")
            await expect(here.find(".turn-committed")).to_have_count(3)
            held.release()
        await there.verify()


async def test_a_picture_is_sent_a_turn_is_traced_and_a_list_says_what_to_look_at(
    browser: Browser, tmp_path: Path
) -> None:
    picture, notes = tmp_path / "cat.png", tmp_path / "notes.txt"
    picture.write_bytes(PIXEL + bytes(70_000))
    notes.write_text("milk, eggs")
    pay, failing = HeldTool("pay", held=False), says("").failing(ModelFailed("out of order"), at=0)
    may_i = says("May I?", calls=[("pay", '{"kr": 5}')])
    model = ScriptedModel("A cat.", may_i, "Paid.", may_i, "Fine.", failing)
    async with serving(careful(model, pay)) as server, window(browser, server.url) as here:
        await here.open("/new")
        await here.find("#begin-name").fill("cat")
        await here.find("[data-attach]").set_input_files([picture, notes])
        await expect(here.find(".attached .attachment")).to_have_count(2)
        await here.find("button[aria-label='leave out notes.txt']").click()
        await expect(here.find(".attached .thumbnail")).to_have_count(1)
        await here.find(".send").click()
        await expect(here.find(".item-assistant .said")).to_have_text("A cat.")
        await expect(here.find(".item-user img.picture")).to_be_visible()
        await here.find("[data-trace]").click()
        await expect(here.find(".trace .span-model")).to_have_count(1)
        await here.find("[data-prompt='1']").click()
        await expect(here.find(".prompt pre").first).to_have_text("be nice")

        await here.say("Pay")
        await here.find("[data-decide=allow]").click()
        await expect(here.find(".item-assistant .said").last).to_have_text("Paid.")
        await expect(here.find(".decided")).to_contain_text("pay was approved without a key")
        await expect(here.find(".item-call .chip")).to_have_text("approved")
        await expect(here.find(".item-result summary")).to_contain_text("Result of")
        await expect(here.find(".item-result .call-name")).to_have_text("pay")

        await server.chat("Pay again", to="asks")
        await server.chat("Hello", to="fails")
        await server.chat("Hello?", to="fails")
        await expect(here.find("[data-badge=waiting]")).to_have_count(1)
        await expect(here.find("[data-badge=failed]")).to_have_count(1)
        await here.find("select[aria-label=state]").select_option("failed")
        await expect(here.find(".session-row")).to_have_count(1)
        await here.find("select[aria-label=state]").select_option("")
        await here.find("#search").fill("again")
        await expect(here.find(".session-row")).to_have_count(1)
        await expect(here.find("[data-badge=waiting]")).to_have_count(1)
        await here.find("select[aria-label=state]").select_option("failed")
        await expect(here.find(".session-row")).to_have_count(0)
        await here.find("select[aria-label=state]").select_option("")
        await here.find("#search").press("Escape")
        await expect(here.find(".session-row")).to_have_count(3)
        await expect(here.find("#search")).to_have_value("")

        here.expects_failures = True
        await here.open("/s/nowhere")
        await expect(here.find(".session .banner.bad")).to_contain_text("not found")
        await expect(here.find("main")).not_to_contain_text("Loading")
        await expect(
            here.find(".about, .composer-text, .switch").filter(visible=True)
        ).to_have_count(0)
