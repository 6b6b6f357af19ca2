"""`holdfast keys`: the API keys of a server. Changes take effect within a second, on every replica."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

import click

from holdfast.cli import display, output
from holdfast.cli.audit import audit_command
from holdfast.cli.options import json_option, store_option, tenant_option
from holdfast.cli.session_lookup import existing_store
from holdfast.errors import InvalidValue
from holdfast.ids import KeyId, Tenant
from holdfast.server.access.seals import new_seal_key
from holdfast.sessions.ambient import Ambient, wall_clock_ms
from holdfast.store.api_keys import SECRET_BYTES, ShownKey, new_key, parse_key
from holdfast.store.rows import ApiKeyRow, SealKeyRow
from holdfast.store.store import Store
from holdfast.wire.conversation_names import parse_conversation_from

SCOPES = ("chat", "read", "admin", "metrics")
PAGE = 500
UNITS_S = {"m": 60, "h": 3600, "d": 86_400}
DURATION = re.compile(r"([1-9][0-9]{0,5})([mhd])", re.ASCII)
NAME_CHARS_MAX = 100

T = TypeVar("T")


@click.group()
def keys() -> None:
    """Make, list and revoke the API keys that clients of a server have to show."""


@keys.command(short_help="Make a key, and show it this once.")
@click.argument("name", default="")
@click.option(
    "--tenant",
    default="local",
    show_default=True,
    metavar="NAME",
    help="Whose conversations it is for.",
)
@click.option(
    "--scopes",
    default="chat,read",
    show_default=True,
    metavar="LIST",
    help="What it may do: chat, read, admin (both, and delete, export, import), metrics.",
)
@click.option(
    "--expires-in", metavar="TIME", help="For how long: 30m, 12h, 90d. Without it, for ever."
)
@click.option(
    "--conversation-from",
    metavar="PART",
    help="What names a conversation for clients that can send no header: user, session_id, metadata.NAME.",
)
@store_option
def create(
    name: str,
    tenant: str,
    scopes: str,
    expires_in: str | None,
    conversation_from: str | None,
    url: str,
) -> None:
    """Make a key, and show it this once: the store has only its hash.

    \b
    Example, since the key alone goes to stdout:
      export OPENAI_API_KEY=$(holdfast keys create kitchen --tenant acme)
    """
    shown = new_key(Ambient().mint(KeyId), secrets.token_bytes(SECRET_BYTES))
    now_ms = shown.key_id.minted_at_ms
    row = ApiKeyRow(
        key_id=shown.key_id,
        tenant=Tenant(tenant),
        name=_name(name),
        scopes=_scopes(scopes),
        digest=shown.digest,
        expires_ms=None if expires_in is None else now_ms + _duration_ms(expires_in),
        conversation_from=conversation_from and parse_conversation_from(conversation_from),
    )
    _with_store(url, lambda store: store.put_api_key(row))
    output.say(str(shown))
    audit_command("key.create", key=row.key_id, tenant=row.tenant, scopes=" ".join(row.scopes))
    output.say(
        f"{row.key_id} for {row.tenant}, {', '.join(row.scopes)}, {_until(row)}; it is not shown again",
        err=True,
    )


@keys.command("list", short_help="Show which keys there are.")
@tenant_option
@store_option
@json_option
def list_command(tenant: str | None, url: str, as_json: bool) -> None:
    """Show which keys there are, revoked ones included. The keys themselves cannot be shown: only hashes are stored.

    \b
    Example:
      holdfast keys list --tenant acme
    """
    of = None if tenant is None else Tenant(tenant)
    rows = _with_store(url, lambda store: _all(store, of))
    now_ms = wall_clock_ms()
    if as_json:
        output.give(json.dumps([_plain(row, now_ms) for row in rows], indent=2))
        return
    lines = [
        (row.key_id, row.tenant, row.name, " ".join(row.scopes), _until(row), _state(row, now_ms))
        for row in rows
    ]
    display.rows(("key", "tenant", "name", "scopes", "until", "state"), lines)


@keys.command(short_help="Make a new key that seals encrypted_content.")
@click.option(
    "--forget", is_flag=True, help="Forget the older keys: what they have sealed stays closed."
)
@store_option
def rotate(forget: bool, url: str) -> None:
    """Make a new key that seals `encrypted_content`: what clients keep for a server, and cannot read.

    Servers seal with it within a second. What older keys have sealed is still opened, unless they are forgotten.

    \b
    Example, after a copy of the store got into wrong hands:
      holdfast keys rotate --forget
    """
    row = new_seal_key(Ambient().mint)
    forgotten = _with_store(url, lambda store: _rotate(store, row, forget=forget))
    output.say(f"{row.key_id} seals from now on; {forgotten} older keys are forgotten")
    audit_command("seal.rotate", key=row.key_id, forgotten=forgotten)


async def _rotate(store: Store, row: SealKeyRow, *, forget: bool) -> int:
    """Store a new key, and with `forget` remove the older ones. Returns how many were removed."""
    older = await store.seal_keys() if forget else ()
    await store.put_seal_key(row)
    for each in older:
        await store.remove_seal_key(each.key_id)
    return len(older)


@keys.command(short_help="Take a key back.")
@click.argument("key")
@store_option
def revoke(key: str, url: str) -> None:
    """Take back KEY, by its id or as it was shown: every server refuses it within a second.

    Turns that were begun with it go on. There is no way back; make another one.

    \b
    Example:
      holdfast keys revoke key_01m7fex2vh0000000000000004
    """
    key_id = _key_id(key)
    row = _with_store(url, lambda store: store.revoke_api_key(key_id))
    if row is None:
        raise InvalidValue(
            f"there is no key {key_id} in this store; `holdfast keys list` has them all"
        )
    output.say(f"{key_id} of {row.tenant} is revoked")
    audit_command("key.revoke", key=key_id, tenant=row.tenant)


def _with_store(url: str, work: Callable[[Store], Awaitable[T]]) -> T:
    async def run() -> T:
        async with existing_store(url) as store:
            return await work(store)

    return asyncio.run(run())


async def _all(store: Store, tenant: Tenant | None) -> list[ApiKeyRow]:
    found: list[ApiKeyRow] = []
    while rows := await store.api_keys(
        tenant, after=found[-1].key_id if found else None, limit=PAGE
    ):
        found += rows
    return found


def _key_id(text: str) -> KeyId:
    match parse_key(text):
        case ShownKey(key_id=key_id):
            return key_id
        case None if text.startswith("hf_"):  # a secret: an error must not repeat it
            raise InvalidValue("this begins like a key, and is none; name it by its id, key_…")
        case None:
            return KeyId(text)


def _name(text: str) -> str:
    if len(text) > NAME_CHARS_MAX or not text.isprintable():
        raise InvalidValue(f"a key's name has {NAME_CHARS_MAX} printable characters at most")
    return text


def _scopes(text: str) -> tuple[str, ...]:
    given = tuple(dict.fromkeys(text.replace(",", " ").split()))
    wrong = [each for each in given if each not in SCOPES]
    if wrong or not given:
        raise InvalidValue(
            f"scopes are some of {', '.join(SCOPES)}" + (f", not {wrong[0]!r}" if wrong else "")
        )
    return given


def _duration_ms(text: str) -> int:
    found = DURATION.fullmatch(text)
    if found is None:
        raise InvalidValue(
            f"--expires-in takes minutes, hours or days: 30m, 12h, 90d, not {text!r}"
        )
    return int(found[1]) * UNITS_S[found[2]] * 1000


def _until(row: ApiKeyRow) -> str:
    return "for ever" if row.expires_ms is None else _day(row.expires_ms)


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _state(row: ApiKeyRow, now_ms: int) -> str:
    if row.revoked_ms is not None:
        return "revoked"
    return "expired" if row.expires_ms is not None and row.expires_ms <= now_ms else "good"


def _plain(row: ApiKeyRow, now_ms: int) -> dict[str, object]:
    return {
        "id": row.key_id,
        "tenant": row.tenant,
        "name": row.name,
        "scopes": row.scopes,
        "conversation_from": row.conversation_from,
        "state": _state(row, now_ms),
        "created_at": row.key_id.minted_at_ms / 1000,
        "expires_at": None if row.expires_ms is None else row.expires_ms / 1000,
        "revoked_at": None if row.revoked_ms is None else row.revoked_ms / 1000,
    }
