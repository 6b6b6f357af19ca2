"""`holdfast keys`, as an operator uses it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from holdfast.ids import KeyId
from holdfast.store.api_keys import parse_key
from holdfast.store.sqlite import SqliteStore
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def empty(run: Run) -> None:
    assert run("db", "migrate").exit_code == 0


def test_a_key_is_shown_once_and_only_its_hash_is_kept(run: Run, elsewhere: Path) -> None:
    made = run("keys", "create", "kitchen", "--tenant", "acme")
    assert made.exit_code == 0
    shown = parse_key(made.stdout.strip())
    assert shown is not None and made.stdout == f"{shown}\n"
    assert shown.secret not in made.stderr
    everything = b"".join(each.read_bytes() for each in elsewhere.iterdir() if each.is_file())
    assert shown.secret.encode() not in everything
    assert shown.digest in everything


def test_no_two_keys_are_alike(run: Run) -> None:
    keys = {run("keys", "create").stdout for _ in range(5)}
    assert len(keys) == 5
    assert all(re.fullmatch(r"hf_[0-9a-z]{26}_[\w-]{43}\n", each) for each in keys)


def test_keys_are_listed_with_what_became_of_them(run: Run) -> None:
    first = run("keys", "create", "a", "--tenant", "acme", "--expires-in", "2h").stdout.strip()
    run("keys", "create", "b", "--tenant", "beta", "--scopes", "admin metrics")
    shown = parse_key(first)
    assert shown is not None
    revoked = run("keys", "revoke", first)
    assert revoked.stdout == f"{shown.key_id} of acme is revoked\n"
    listed = json.loads(run("keys", "list", "--json").stdout)
    assert [(each["name"], each["state"]) for each in listed] == [("a", "revoked"), ("b", "good")]
    assert listed[0]["expires_at"] - listed[0]["created_at"] == 7200
    assert listed[1]["scopes"] == ["admin", "metrics"]
    plain = run("keys", "list", "--tenant", "acme").stdout
    assert plain.startswith(f"{shown.key_id}\tacme\ta\tchat read\t") and plain.count("\n") == 1
    assert shown.secret not in plain


def test_who_made_and_revoked_a_key_is_audited(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LOG_FORMAT", "json")
    made = run("keys", "create", "kitchen", "--tenant", "acme")
    shown = parse_key(made.stdout.strip())
    assert shown is not None
    revoked = run("keys", "revoke", shown.key_id)
    lines = [
        json.loads(line)
        for line in (made.stderr + revoked.stderr).splitlines()
        if line.startswith("{")
    ]
    assert [(each["log"], each["event"]) for each in lines] == [
        ("holdfast.audit", "key.create"),
        ("holdfast.audit", "key.revoke"),
    ]
    for each in lines:
        assert (each["key"], each["tenant"]) == (str(shown.key_id), "acme")
        assert each["by"] and each["host"]
    assert shown.secret not in made.stderr + revoked.stderr


def test_a_key_is_revoked_by_its_id_too_and_again(run: Run) -> None:
    shown = parse_key(run("keys", "create").stdout.strip())
    assert shown is not None
    for _ in range(2):
        assert run("keys", "revoke", shown.key_id).exit_code == 0


def test_an_expiry_that_has_come_is_said(run: Run, elsewhere: Path) -> None:
    async def age(key_id: KeyId) -> None:
        store = await SqliteStore.open(elsewhere / "holdfast.db")
        await store.engine.write(
            lambda db: db.execute("update api_key set expires_ms = 1 where key_id = ?", (key_id,))
        )
        await store.close()

    shown = parse_key(run("keys", "create", "--expires-in", "1m").stdout.strip())
    assert shown is not None
    asyncio.run(age(shown.key_id))
    assert json.loads(run("keys", "list", "--json").stdout)[0]["state"] == "expired"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "--scopes", "chat,root"), "'root'"),
        (("create", "--scopes", ","), "chat, read, admin, metrics"),
        (("create", "--expires-in", "soon"), "30m, 12h, 90d"),
        (("create", "--tenant", "No Such"), "tenant"),
        (("create", "a\nb"), "printable"),
        (("revoke", "key_" + "0" * 26), "no key key_"),
        (("revoke", "kitchen"), "key id"),
    ],
)
def test_what_cannot_be_meant_is_said(run: Run, arguments: tuple[str, ...], says: str) -> None:
    found = run("keys", *arguments)
    assert found.exit_code == 2 and says in found.output


def test_a_mangled_key_is_not_repeated_in_an_error(run: Run) -> None:
    found = run("keys", "revoke", "hf_secretsecret")
    assert found.exit_code == 2 and "secretsecret" not in found.output
