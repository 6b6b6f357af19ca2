"""The examples in the guide do what they say, with the clients that they are for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import markdown, repository
from tests.clients.catalogue import BY_NAME, Client
from tests.clients.programs import installed, run
from tests.e2e.world import World

pytestmark = [pytest.mark.slow, pytest.mark.clients]

GUIDE = repository.ROOT / "docs" / "guides" / "clients.md"
ADDRESS = "http://127.0.0.1:8484"

EXAMPLES = {
    block.info[-1]: block.text
    for block in markdown.blocks(GUIDE.read_text(encoding="utf-8"))
    if block.info and block.info[-1] in BY_NAME
}
"""The last word of a fence says which client it is for."""

SAID = ["My name is Ada.", "What is my name?"]


def test_every_client_has_an_example() -> None:
    older = {"openai-python-1", "openai-python-2"}  # the same calls as in the third
    assert EXAMPLES.keys() == BY_NAME.keys() - older


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - {"llm"}))
async def test_an_example_is_a_conversation_and_its_key_holds(world: World, name: str) -> None:
    """Run twice: what has no key is said again, what has one is answered again."""
    await world.restart(HOLDFAST_MODEL_ALIASES="demo=root")
    text = EXAMPLES[name].replace(ADDRESS, world.url)
    command = await installed(lambda: program(BY_NAME[name], text, world.here))
    once = await run(command, home=world.here)
    assert once.strip() == "This is the whole answer to What is my name?"
    assert world.sent == [SAID[:1], SAID]

    assert await run(command, home=world.here) == once
    assert world.sent == [SAID[:1], SAID, [*SAID, SAID[0]]]
    assert len(await world.items("trip-to-oslo")) == 6


def program(client: Client, text: str, here: Path) -> list[str]:
    """How an example is run: Node looks for packages from where it lies, so it lies beside a link to them."""
    runner = client.environment.runner()
    file = here / ("example.mjs" if client.environment.is_node else "example.py")
    file.write_text(text)
    if client.environment.is_node:
        (here / "node_modules").symlink_to(client.environment.folder / "node_modules")
    return [*runner, str(file)]


async def test_the_example_of_anthropics_guide_is_a_conversation(world: World) -> None:
    await world.restart(HOLDFAST_MODEL_ALIASES="demo=root")
    guide = (repository.ROOT / "docs" / "guides" / "anthropic.md").read_text(encoding="utf-8")
    (text,) = [
        b.text for b in markdown.blocks(guide) if b.info and b.info[-1] == "anthropic-python"
    ]
    file = world.here / "example.py"
    file.write_text(text.replace(ADDRESS, world.url))
    once = await run([sys.executable, str(file)], home=world.here)
    assert once.strip() == "This is the whole answer to What is my name?"
    assert world.sent == [SAID[:1], SAID]


async def test_the_model_file_for_llm_is_a_conversation(world: World) -> None:
    await world.restart(HOLDFAST_MODEL_ALIASES="demo=root")
    client = BY_NAME["llm"]

    llm = str(await installed(client.environment.ready) / "bin" / "llm")
    logs = await run([llm, "logs", "path"], home=world.here)
    folder = Path(logs.strip()).parent
    folder.mkdir(parents=True, exist_ok=True)
    text = EXAMPLES["llm"].replace(ADDRESS, world.url)
    (folder / "extra-openai-models.yaml").write_text(text)
    for said in SAID:
        answer = await run([llm, "-m", "holdfast", said], home=world.here)
        assert answer.strip() == f"This is the whole answer to {said}"
    assert world.sent == [SAID[:1], SAID]
