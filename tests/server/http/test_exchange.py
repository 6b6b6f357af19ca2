"""A client may go at any moment; whoever works for it stops then, and says why."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.server.http.exchange import ClientGone, Exchange, Message


class Client:
    """One that has sent its request, and then stays until it leaves."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()
        scope = {"method": "POST", "path": "/", "query_string": b"", "headers": []}
        self.exchange = Exchange(scope, self._receive, self._send, request_id="req_1")

    async def _receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        pass


async def wait_while_present(client: Client) -> None:
    with client.exchange.while_present():
        await asyncio.Event().wait()


async def test_what_a_client_waits_for_ends_when_it_goes() -> None:
    client = Client()
    working = asyncio.create_task(wait_while_present(client))
    await asyncio.sleep(0)
    client.leaves.set()
    with pytest.raises(ClientGone):
        await working
    assert working.cancelling() == 0


async def test_a_client_that_has_gone_is_not_worked_for() -> None:
    client = Client()
    client.leaves.set()
    await client.exchange.gone()
    with pytest.raises(ClientGone):
        await wait_while_present(client)


async def test_work_that_is_done_is_not_disturbed_by_a_client_that_goes_later() -> None:
    client = Client()
    with client.exchange.while_present():
        await asyncio.sleep(0)
    client.leaves.set()
    await client.exchange.gone()
    await asyncio.sleep(0)


async def test_work_that_ends_in_the_moment_in_which_the_client_goes_has_ended() -> None:
    client = Client()
    done = asyncio.Event()

    async def work() -> str:
        with client.exchange.while_present():
            await done.wait()
        await asyncio.sleep(0)
        return "done"

    working = asyncio.create_task(work())
    for _ in range(3):  # both wait
        await asyncio.sleep(0)
    client.leaves.set()
    done.set()
    assert await working == "done"
    assert working.cancelling() == 0


@pytest.mark.parametrize("client_goes_too", [False, True])
async def test_being_cancelled_by_somebody_else_is_being_cancelled(client_goes_too: bool) -> None:
    client = Client()
    working = asyncio.create_task(wait_while_present(client))
    await asyncio.sleep(0)
    if client_goes_too:  # in the very same moment
        gone = client.exchange.gone()
        gone.add_done_callback(lambda _: working.cancel())
        client.leaves.set()
        await asyncio.wait({gone})
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    client.exchange.close()


async def test_a_failure_is_told_as_it_is_though_the_client_goes_meanwhile() -> None:
    client = Client()

    async def work() -> None:
        with client.exchange.while_present():
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("it could not even be left")

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    client.leaves.set()
    with pytest.raises(ValueError, match="could not even be left"):
        await working
    assert working.cancelling() == 0
