"""What clients keep for us: they can neither read it, nor change it, nor hand it to another tenant."""

from __future__ import annotations

import asyncio
import string
import subprocess
import sys
from base64 import urlsafe_b64decode

import msgspec
import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.core.items import Opaque, Reasoning
from holdfast.ids import ReasoningId, Tenant
from holdfast.server.access.seals import MARK, UNSEALED, Seals, new_seal_key
from holdfast.store.memory_store import MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import ScriptedModel
from holdfast.wire.openai.responses.items import read_input, sealed_reasoning
from holdfast.wire.problems import Refused
from holdfast.wire.seal import Kind, Seal
from tests.core.builders import new_minter
from tests.server.stubs import agent, serving

ACME, RIVAL = Tenant("acme"), Tenant("rival")
SECRET = b"what the model thought \xff"
DIGITS = string.ascii_letters + string.digits + "-_"
KINDS: tuple[Kind, ...] = ("reasoning", "summary")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def seals_of(store: MemoryStore) -> tuple[Seal, Seal]:
    seals = Seals(store, new_minter())
    return await seals.of(ACME), await seals.of(RIVAL)


async def test_what_is_sealed_is_opened_by_its_tenant_alone_and_as_what_it_is() -> None:
    store = MemoryStore()
    ours, theirs = await seals_of(store)
    sealed = {kind: ours.close(kind, SECRET) for kind in KINDS}
    for kind, text in sealed.items():
        assert ours.open(kind, text) == SECRET and ours.is_ours(text)
        assert ours.close(kind, SECRET) == text, "an answer that is had again is the same"
        assert theirs.open(kind, text) is None and theirs.is_ours(text)
        assert SECRET not in urlsafe_b64decode(text.removeprefix(MARK).partition("_")[2] + "==")
    assert ours.open("summary", sealed["reasoning"]) is None
    assert theirs.close("summary", SECRET) != sealed["summary"]
    elsewhere, _ = await seals_of(MemoryStore())
    assert elsewhere.open("summary", sealed["summary"]) is None, "another store has other keys"
    replica, _ = await seals_of(store)
    assert replica.open("summary", sealed["summary"]) == SECRET, (
        "a server of the same store opens it"
    )


async def test_what_was_changed_in_any_place_is_not_opened() -> None:
    ours, _ = await seals_of(MemoryStore())
    for plain in (b"short", b"longer", b"longest"):  # the last character has 0, 2 or 4 spare bits
        sealed = ours.close("summary", plain)
        for at in range(len(sealed)):
            for other in {*DIGITS} - {sealed[at]}:
                assert ours.open("summary", sealed[:at] + other + sealed[at + 1 :]) is None
            assert ours.open("summary", sealed[:at]) is None
        assert ours.open("summary", sealed) == plain
        for wrong in (
            "",
            "hfs1_",
            f"{sealed}=",
            f"{sealed} ",
            sealed.upper(),
            f"{sealed}é",
            "hfs1_x_y",
        ):
            assert ours.open("summary", wrong) is None


async def test_a_new_key_seals_and_the_old_ones_open_until_they_are_forgotten() -> None:
    store, clock, mint = MemoryStore(), Clock(), new_minter()
    seals = Seals(store, mint, clock=clock)
    old = (await seals.of(ACME)).close("summary", SECRET)
    rotated = new_seal_key(mint)
    await store.put_seal_key(rotated)
    clock.now += 1.0
    ours = await seals.of(ACME)
    new = ours.close("summary", SECRET)
    assert new != old and rotated.key_id.body in new
    assert ours.open("summary", old) == ours.open("summary", new) == SECRET
    first, _ = await store.seal_keys()
    await store.remove_seal_key(first.key_id)
    clock.now += 1.0
    ours = await seals.of(ACME)
    assert (ours.open("summary", old), ours.open("summary", new)) == (None, SECRET)


# ── requests ─────────────────────────────────────────────────────────────────────────────────

THOUGHT = Reasoning(
    id=ReasoningId("rs_" + "0" * 26),
    text="Hm.",
    extras=(Opaque(owner="anthropic", json='{"signature":"x"}'),),
)


def reasoning(sealed: str) -> bytes:
    items = [
        {"type": "reasoning", "summary": [], "encrypted_content": sealed},
        {"role": "assistant", "content": "x"},
    ]
    return msgspec.json.encode(items)


async def test_reasoning_comes_back_as_it_was_sealed_and_is_refused_from_anybody_else() -> None:
    """What is in it becomes a part of a request to the provider, in the operator's name."""
    ours, theirs = await seals_of(MemoryStore())
    sealed = sealed_reasoning(THOUGHT, ours)
    assert sealed is not None
    said, _ = read_input(reasoning(sealed), seal=ours)
    (thought,) = said.thoughts  # type: ignore[union-attr]
    assert (thought.text, thought.extras[:-1]) == ("Hm.", THOUGHT.extras)
    assert (thought.extras[-1].owner, sealed in thought.extras[-1].json) == ("client", True)
    for seal, text in ((theirs, sealed), (ours, sealed[:-4]), *((ours, each) for each in UNSEALED)):
        with pytest.raises(Refused) as refused:
            read_input(reasoning(text), seal=seal)
        problem = refused.value.problem
        assert (problem.status, problem.code, problem.param) == (
            400,
            "invalid_encrypted_content",
            "input[0]",
        )
    foreign, _ = read_input(reasoning("gAAAA"), seal=ours)
    assert [each.owner for each in foreign.thoughts[0].extras] == ["openai"]  # type: ignore[union-attr]


async def test_a_summary_is_sealed_and_can_be_gone_on_from() -> None:
    model = ScriptedModel("They met in Oslo.", "In Oslo.")
    async with serving(agent(model)) as server:
        body = msgspec.json.encode({"model": "root", "input": "We met in Oslo."})
        made = await server.request("POST", "/v1/responses/compact", data=body)
        item = made.json["output"][-1]
        assert (
            item["encrypted_content"].startswith("hfs1_")
            and "Oslo" not in item["encrypted_content"]
        )
        answer = await server.respond([item, {"role": "user", "content": "Where?"}])
        assert answer.status == 200
        broken = {**item, "encrypted_content": item["encrypted_content"][:-4]}
        refused = await server.respond([broken, {"role": "user", "content": "Where?"}])
    assert "They met in Oslo." in str(model.prompts[-1])
    assert (refused.status, refused.error["code"]) == (400, "invalid_encrypted_content")


def test_the_cipher_is_not_loaded_with_a_server() -> None:
    code = "import sys, holdfast.server.app; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


async def test_keys_are_rotated_by_a_command(tmp_path: object) -> None:
    path = f"{tmp_path}/s.db"
    store = await SqliteStore.open(path)
    await Seals(store, new_minter()).of(ACME)
    (first,) = await store.seal_keys()
    runner = CliRunner()
    for flags, forgotten in (([], 0), (["--forget"], 2)):
        asked = ["keys", "rotate", "--store", f"sqlite:///{path}", *flags]
        done = await asyncio.to_thread(runner.invoke, main, asked)
        assert done.exit_code == 0 and f"{forgotten} older keys" in done.stdout, done.output
    (left,) = await store.seal_keys()
    assert left.key_id != first.key_id
    await store.close()
