"""How little a server loads before it is ready."""

from __future__ import annotations

import re
import subprocess
import sys
from urllib.request import urlopen

import aiohttp
import pytest

from holdfast import libraries

NOT_YET = {
    *("aiohttp", "yarl", "attr", "urllib.request", "http.client"),  # no model is asked over HTTP
    "yaml",  # there is no agent file
    "jsonschema_rs",  # no tool has a schema that must be looked at, and none was called
    "prometheus_client",  # the metrics were not asked for
    *("websockets", "holdfast.server.http.websocket_connection"),  # nor a WebSocket
    *("asyncpg", "mcp", "opentelemetry"),  # extras, for those who want them
    *("rich", "pygments", "markdown_it"),  # for people at a terminal
    "importlib.metadata",
}


OURS_MAX, LOADED_MAX = 505, 800
"""Modules. Python 3.11 loads as many as any."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of a server with the demo agent and a SQLite file that has just said that it is ready, to people and
    to a load balancer."""
    here = tmp_path_factory.mktemp("starting")
    program = [sys.executable, "-X", "importtime", "-m", "holdfast", "serve", "demo"]
    options = ["--listen", "127.0.0.1:0", "--store", f"sqlite:///{here}/store.db"]
    log = here / "imports"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*program, *options], stdout=subprocess.PIPE, stderr=errors, text=True, cwd=here
        ) as process,
    ):
        assert process.stdout is not None
        said = first = process.stdout.readline()
        while said and "listening" not in said:
            said = process.stdout.readline()
        if said:
            with urlopen(f"{said.split()[-1]}/readyz", timeout=60) as answer:
                assert answer.status == 200
        so_far = log.read_text()
        process.terminate()
        process.stdout.read()
    assert "serving" in first, so_far
    return modules(so_far)


def modules(importtime: str) -> set[str]:
    return set(re.findall(r"^import time:.*\| +([\w.]+)$", importtime, re.MULTILINE))


def test_a_server_that_is_ready_has_loaded_so_many_modules_and_no_more(loaded: set[str]) -> None:
    """Each takes some 300,000 instructions, however little is in it. Who raises a bound says what a start gets for it."""
    ours = {each for each in loaded if each.partition(".")[0] == "holdfast"}
    assert len(ours) <= OURS_MAX
    assert len(loaded) <= LOADED_MAX


def test_a_server_that_is_ready_has_not_loaded_what_it_may_never_use(loaded: set[str]) -> None:
    assert "holdfast.server.processes.server_process" in loaded
    assert loaded & NOT_YET == set()


MODEL = """
import asyncio, sys
from holdfast import libraries
from holdfast.models.http.connections import Connections
from holdfast.models.providers.openai_chat import OpenAIModel
OpenAIModel('gpt', base_url='http://127.0.0.1:9/v1', token_key='')
assert 'aiohttp' not in sys.modules, "a server is ready without it"
{load}
assert 'aiohttp' in sys.modules
"""


@pytest.mark.parametrize(
    "load", ["libraries.load_wanted()", "asyncio.run(Connections().session())"]
)
def test_what_a_model_over_http_needs_is_loaded_once_the_server_is_ready_or_for_its_first_request(
    load: str,
) -> None:
    subprocess.run([sys.executable, "-c", MODEL.format(load=load)], check=True)


def test_a_server_without_models_over_http_never_loads_what_they_need() -> None:
    program = "import sys; from holdfast.libraries import load_wanted; load_wanted(); assert 'aiohttp' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_late_library_is_the_library_itself() -> None:
    """What is caught as one of its errors, for example, is one."""
    assert libraries.aiohttp.ClientError is aiohttp.ClientError
    assert vars(libraries.aiohttp)["ClientError"] is aiohttp.ClientError, "found once"
    with pytest.raises(AttributeError, match="nothing"):
        libraries.aiohttp.nothing  # noqa: B018


def test_a_module_that_was_loaded_would_be_seen() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import importlib.metadata"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert modules(ran.stderr) & NOT_YET == {"importlib.metadata"}
