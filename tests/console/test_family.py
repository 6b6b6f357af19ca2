"""The lines of a chat in a browser: a tree that a person can walk, with side calls folded away."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from holdfast.testing import ScriptedModel
from tests.console.browser import window
from tests.server.chat_program import ChatProgram
from tests.server.stubs import agent, serving

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_a_chat_is_a_tree_that_one_can_walk(browser: Browser) -> None:
    model = ScriptedModel(otherwise=lambda prompt: f"A{len(model.prompts)}")
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        program = ChatProgram(server, model)
        await program.side_call("### Task: title", "One")
        one = await program.say("One", stream=True)
        two = await program.say("Two", one)
        assert two.parent is not None
        await program.say("Due", await program.say("Uno"))
        again = await program.answer(two.parent)
        last = await program.say("Three", again)
        for n in range(10):
            last = await program.say(f"Q{n}", last)

        await here.open("/s/chat-1")
        await expect(here.find(".session-row")).to_have_count(1)
        tree = here.find(".family-tree")
        await expect(here.find(".family > summary")).to_have_text("Tree: 3 lines, 1 side line")
        on_it = here.find(".family-turn.here")
        await expect(on_it.first).to_contain_text("One")
        await expect(on_it.last).to_contain_text("chat-1")
        await expect(here.find(".family-more > summary")).to_have_text("6 more")
        await expect(tree.get_by_text("### Task: title")).to_be_hidden()
        await expect(tree.get_by_text("1 of 2").first).to_be_visible()
        await here.audit()

        # The answer that was given up, by its link; then back by keys.
        await tree.locator("a", has_text="A3").click()
        await expect(here.find("article")).to_have_count(2)
        await expect(here.find(".item-assistant .said").last).to_have_text("A3")
        await expect(on_it).to_have_count(2)
        await on_it.last.focus()
        await here.page.keyboard.press("ArrowLeft")
        await expect(tree.locator("a:focus")).to_contain_text("One")
        await here.page.keyboard.press("ArrowRight")
        await here.page.keyboard.press("ArrowDown")
        await expect(tree.locator("a:focus")).to_contain_text("A6")
        await here.page.keyboard.press("Enter")
        await expect(here.find(".item-assistant .said").last).to_have_text("A17")
        await expect(on_it).to_have_count(13)

        await tree.get_by_text("1 side line").click()
        await tree.locator("a", has_text="### Task: title").click()
        await expect(here.find("article")).to_have_count(1)


async def test_long_answers_in_a_tree_leave_the_page_as_wide_as_its_window(
    browser: Browser,
) -> None:
    long = "This answer has many words. " * 20
    model = ScriptedModel(otherwise=lambda prompt: f"A{len(model.prompts)} {long}")
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        program = ChatProgram(server, model)
        one = await program.say(f"One {long}", stream=True)
        assert one.parent is not None
        await program.answer(one.parent)
        await here.open("/s/chat-1")
        for width in (1400, 400):
            await here.page.set_viewport_size({"width": width, "height": 900})
            await expect(here.find(".family-turn").last).to_contain_text("A2")
            assert await here.page.evaluate("document.documentElement.scrollWidth") == width


async def test_a_line_is_given_a_name_of_its_own(browser: Browser) -> None:
    model = ScriptedModel(otherwise=lambda prompt: f"A{len(model.prompts)}")
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        program = ChatProgram(server, model)
        one = await program.say("One", stream=True)
        await program.say("Two", one)
        assert one.parent is not None
        await program.answer(one.parent)
        await here.open(f"/s/{program.line}")
        await here.choose(here.find(".session-title .menu-button"), "Name …")
        await here.find("dialog input").fill("another-answer")
        await here.confirm()
        await expect(here.find(".session-row")).to_have_count(2)
        await expect(here.find(".about > summary")).to_contain_text("another-answer")
        await here.open("/s/another-answer")
        await expect(here.find(".item-assistant .said")).to_have_text("A3")
