"""What a person does in Open WebUI, scene by scene. Each begins with a new chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.server.open_webui.chat_window import ChatWindow

LAST_TEN = """
class Filter:
    def inlet(self, body: dict) -> dict:
        body["messages"] = body["messages"][-10:]
        return body
"""


async def talk(window: ChatWindow) -> None:
    """A title comes first, then tags and follow-up questions; a regenerated answer, an edit, an answer that goes on."""
    for text in ("What is a cairn?", "Who builds them", "And flags"):
        await window.say(text)
    await window.regenerate()
    await window.say("And pennants")
    await window.edit(0, "What is a beacon?", send=True)
    await window.go_on()
    await window.say("Why though")


async def stopped(window: ChatWindow) -> None:
    await window.say("Good morning")
    await window.begin("Count slowly")
    await window.page.wait_for_timeout(2000)
    await window.stop()
    await window.note("stop")
    await window.say("Never mind")
    await window.regenerate()


async def edited_while_it_runs(window: ChatWindow) -> None:
    await window.say("Something first")
    await window.begin("Count slowly")
    await window.page.wait_for_timeout(2000)
    await window.edit(2, "Count fast instead", send=True)
    await window.say("Well done")


async def tools(window: ChatWindow) -> None:
    await window.say("Please use a tool")
    await window.say("What did it say")
    await window.say("Again use a tool")
    await window.regenerate()
    await window.say("Thanks")


async def two_models(window: ChatWindow) -> None:
    await window.go_to("/?models=agent/root,agent/other")
    await window.say("Say the same")
    await window.say("Something else")
    await window.say("Now the same")
    await window.say("More please")


async def retrieval(window: ChatWindow) -> None:
    await window.attach("moor.txt", "The moor is three miles wide and has one path.\n")
    await window.say("How wide is the moor")
    await window.say("And the path")
    await window.regenerate()
    await window.say("Thank you")


async def two_tabs(window: ChatWindow) -> None:
    await window.say("Hello from the first tab")
    other = await window.another()
    await window.say("First tab asks on")
    await other.say("Second tab asks too")
    await window.say("First tab once more")
    await other.close()


async def two_devices(window: ChatWindow) -> None:
    """The second one was without a network, and goes on from what it shows."""
    await window.say("Hello from the first device")
    other = await window.another()
    await other.context.set_offline(True)
    await window.say("First device asks on")
    await other.context.set_offline(False)
    await other.say("Second device asks too")
    await window.say("First device once more")
    await other.close()


async def saved_in_place(window: ChatWindow) -> None:
    await window.say("My name is Adda")
    await window.say("What is it")
    await window.edit(0, "My name is Ada", send=False)
    await window.say("And now")
    await window.edit_answer(3, "It is Ada, of course.")
    await window.say("Sure")
    await window.delete(2)
    await window.say("Still there")


async def thoughts(window: ChatWindow) -> None:
    await window.say("Please think")
    await window.say("And then")


async def cloned(window: ChatWindow) -> None:
    await window.say("The original")
    await window.say("A second message")
    await (await window.button(1, "Fork chat")).click()
    await window.page.wait_for_timeout(4000)
    await window.say("In the fork")


async def temporary(window: ChatWindow) -> None:
    await window.go_to("/?temporary-chat=true")
    await window.say("Temporary words")
    await window.say("More temporary words")


async def one_question(window: ChatWindow) -> None:
    await window.say("One question only")


async def window_of_ten(window: ChatWindow) -> None:
    """A filter of the program keeps the last ten messages of each request."""
    function = {"id": "last_ten", "name": "Last ten", "content": LAST_TEN, "meta": {}}
    await window.fetch("POST", "/functions/create", function)
    await window.fetch("POST", "/functions/id/last_ten/toggle")
    await window.fetch("POST", "/functions/id/last_ten/toggle/global")
    for n in range(7):
        await window.say(f"Question number {n}")
    await window.regenerate()
    await window.say("Question after")
    await window.fetch("POST", "/functions/id/last_ten/toggle")


SCENES: dict[str, Callable[[ChatWindow], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        talk,
        stopped,
        edited_while_it_runs,
        tools,
        two_models,
        retrieval,
        two_tabs,
        two_devices,
        saved_in_place,
        thoughts,
        cloned,
        temporary,
        one_question,
        window_of_ten,
    )
}
