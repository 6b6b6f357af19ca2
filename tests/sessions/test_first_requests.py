"""A key that a node does not remember is taken to be new, and T1 has the last word.

The first request of a conversation is spared a look; whoever was wrong has lost a moment, and nothing else.
"""

from __future__ import annotations

import pytest

from holdfast import limits
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import Image, Link, plain_text
from holdfast.errors import SessionConflict
from holdfast.ids import SessionKey
from tests.simulation.clients import TENANT
from tests.simulation.stage import KEY, Stage, on_stage
from tests.simulation.world import Node

HEARD = Incoming(role="assistant", content=plain_text("re: Hello"))


def looks_of(node: Node) -> list[SessionKey]:
    """The keys that a node asks the store about from now on."""
    resolve, asked = node.store.as_store().resolve, []

    async def noting(tenant: str, key: SessionKey) -> object:
        asked.append(key)
        return await resolve(TENANT, key)

    node.store.override("resolve", noting)
    return asked


@on_stage
async def test_the_first_request_of_a_conversation_asks_for_nothing_before_it_begins(
    stage: Stage,
) -> None:
    node = await stage.boot()
    looks = looks_of(node)

    assert (await stage.send(node, "Hello")).ok
    assert (await stage.send(node, "And now?")).ok

    assert looks == []


@on_stage
async def test_a_key_that_another_node_knows_goes_on_there(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    assert (await stage.send(one, "Hello")).ok

    assert (await stage.send(two, "And now?")).ok

    assert await stage.said() == ["Hello", "re: Hello", "And now?", "re: And now?"]


@on_stage
async def test_whoever_repeats_a_history_is_looked_up_first(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    assert (await stage.send(one, "Hello")).ok
    looks = looks_of(two)
    past = (Incoming(role="user", content=plain_text("Hello")), HEARD)

    assert (await stage.send(two, "And now?", past=past)).ok

    assert looks == [KEY]
    assert await stage.said() == ["Hello", "re: Hello", "And now?", "re: And now?"]


@on_stage
async def test_requests_line_up_in_the_order_in_which_they_came_also_where_the_key_was_new(
    stage: Stage,
) -> None:
    """The first of them finds out what the key means, and waits for a turn elsewhere; the second knows it."""
    one, two = await stage.boot(), await stage.boot()
    assert (await stage.send(one, "Hello")).ok
    gate, _ = await stage.answering(one)
    past = (Incoming(role="user", content=plain_text("Hello")), HEARD)
    first = stage.send(two, "First", past=past)
    await stage.sleep(4.4 * limits.busy_poll_s)
    second = stage.send(two, "Second", past=past)
    await stage.sleep(0.8 * limits.busy_poll_s)  # a second lane would be the next to look again

    gate.open.set()

    assert ((await first).version, (await second).version) == (3, 4)


@on_stage
async def test_a_precondition_on_a_key_that_is_not_remembered_is_about_what_it_means(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    assert (await stage.send(one, "Hello")).ok

    with pytest.raises(SessionConflict):
        await stage.send(two, "First!", if_match=0)
    assert (await stage.send(two, "Second", if_match=1)).ok


@on_stage
async def test_nothing_large_is_kept_for_a_session_that_may_not_come_to_be(stage: Stage) -> None:
    """What does not fit into an item is kept before T1, under the session's id."""
    node = await stage.boot()
    looks = looks_of(node)
    picture = Image(source=Link(url="https://example.org/a.png"))

    sent = stage.send(node, "Look", past=(Incoming(role="user", content=(picture,)),))

    assert (await sent).ok
    assert looks == [KEY]
