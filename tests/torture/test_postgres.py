"""The short form of `make torture-store STORE=postgres`, and the ledger that it judges by."""

from __future__ import annotations

import asyncio

import pytest

from tests.postgres import SAFE, Server, shared_database
from tests.torture.client import Found
from tests.torture.postgres import Accounts, crash_server, cut_wires, kill_clients

pytestmark = pytest.mark.slow


def test_clients_that_are_killed_lose_nothing_that_was_acknowledged() -> None:
    tally = kill_clients(shared_database(), kills=30, seed=1)
    assert tally.violations == []
    assert tally.kills == 30
    assert tally.acked > 0


def test_clients_whose_wires_are_cut_leave_whole_turns_only() -> None:
    tally = asyncio.run(cut_wires(shared_database(), seed=1, step=41))
    assert tally.violations == []
    assert tally.kills > 10
    assert tally.recovered > 0


def test_a_server_that_crashes_loses_nothing_that_was_acknowledged() -> None:
    with Server.started(SAFE) as server:
        tally = crash_server(server, server.url(server.fresh_database()), crashes=3, seed=1)
    assert tally.violations == []
    assert tally.acked > 0


SAID = ["try a key-0", "ack a 1", "try b key-0", "ack b 2", "fork f key-0 1", "forked f"]


def found(**sessions: list[str] | None) -> Found:
    return Found(
        wrong=[], histories={"key-0": ["a", "b"]}, recovered=0, waited_s=0.0, sessions=sessions
    )


def test_accounts_complain_about_forks() -> None:
    accounts = Accounts(1)
    accounts.hear(SAID)
    assert accounts.judged(found(f=["a"])) == []
    assert accounts.judged(found()) == ["the fork f was acknowledged, and is not there"]
    assert accounts.judged(found(f=["a", "b"])) == ["the fork f is not key-0 at version 1"]
    assert accounts.judged(found(f=None)) == ["the fork f is gone, and nobody removed it"]
    accounts.hear(["remove f"])
    assert accounts.judged(found(f=None)) == accounts.judged(found(f=["a"])) == []
    accounts.hear(["removed f"])
    assert accounts.judged(found(f=["a"])) == ["the fork f was removed, and is there"]
