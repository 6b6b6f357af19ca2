"""A server whose store has lost its footing ends, so that whoever started it can start it again."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.config import load_config
from holdfast.errors import InvalidValue, StorePoisoned
from holdfast.observe.supervisor import TaskSupervisor
from holdfast.server.agents.source_directory import load_directory
from holdfast.server.http.listen_sockets import listen
from holdfast.server.processes import server_process
from holdfast.server.processes.process_role import ReadyServer, SoleProcess
from holdfast.store.store import Store
from holdfast.store.store_url import open_store
from holdfast.testing import ScriptedModel
from tests.server.stubs import agent, serving


def alone(on_ready: Callable[[ReadyServer], None], host: str = "127.0.0.1") -> SoleProcess:
    return SoleProcess(host, 0, on_ready=on_ready)


async def test_a_poisoned_store_ends_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A library raises and lets its user decide; a server has nobody to ask."""
    alarms: list[Callable[[StorePoisoned], None]] = []

    async def opened(
        url: str, *, on_poison: Callable[[StorePoisoned], None], supervisor: TaskSupervisor
    ) -> Store:
        alarms.append(on_poison)
        return await open_store(url, on_poison=on_poison, supervisor=supervisor)

    monkeypatch.setattr(server_process, "open_store", opened)
    config = load_config(
        {"listen": "127.0.0.1:0", "store": f"sqlite:///{tmp_path / 'store.db'}"}, {}, ("demo",)
    )
    directory = await load_directory(config.sources)
    ready = asyncio.Event()
    serving = asyncio.create_task(
        server_process.serve(config, directory, alone(lambda _: ready.set()), TaskSupervisor())
    )
    await ready.wait()
    rung = threading.Thread(target=alarms[0], args=(StorePoisoned("the disk is gone"),))
    rung.start()
    with pytest.raises(StorePoisoned, match="the disk is gone"):
        async with asyncio.timeout(30):
            await serving
    rung.join()
    await directory.close()
    told = [each for each in caplog.records if each.getMessage() == "store.poisoned"]
    assert [getattr(each, "fields", {})["why"] for each in told] == ["the disk is gone"]


async def test_whatever_keeps_a_server_from_reading_anew_is_told_and_the_rest_is_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that finds out about a mistake of ours tells it, once for each part."""

    def reopen(_: object) -> None:
        raise RuntimeError("the log is odd")

    async def refresh() -> None:
        raise KeyError("an agent is odd")

    monkeypatch.setattr(server_process, "reopen_all", reopen)
    async with serving(agent(ScriptedModel())) as server:
        http = server_process.HttpServer(
            server.app, server.sessions, on_ready=lambda: None, refresh=refresh
        )
        http.reload()
        assert http._reloading is not None
        await http._reloading
    told = [each.getMessage() for each in caplog.records if each.exc_info]
    assert [each.split(":")[0] for each in told] == ["log", "agents"]


async def test_a_server_that_others_can_reach_does_not_start_without_a_key(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    config = load_config({"listen": "0.0.0.0:0", "store": store}, {}, ("demo",))
    directory = await load_directory(config.sources)
    with pytest.raises(InvalidValue, match="holdfast keys create"):
        await server_process.serve(
            config, directory, alone(lambda _: pytest.fail("it is open")), TaskSupervisor()
        )
    await directory.close()


def test_an_answer_is_not_held_back_for_the_next_one() -> None:
    """asyncio switches Nagle's algorithm off only for sockets that say that they are TCP."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
