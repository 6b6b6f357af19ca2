"""Logins at MCP servers: the tokens of a tenant at a server, each in a sealed file of its own.

1. A login belongs to one tenant and one server, which is named by its URL. Its file is sealed with AES-256 in SIV mode
   under a key that is made of the operator's key, the tenant and the server: a file in the place of another one does
   not open, and no name of a file tells a tenant or a server.
2. The operator's key is in a file of its own. Neither the store nor this directory has it.
3. No export, import or copy of a store has logins. Another machine needs the directory and the key, or a new login.
4. A login is refreshed under a lock of its file: of several processes with one refresh token, one uses it.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import msgspec

from holdfast import aes_siv
from holdfast.core.codec import Value, encode
from holdfast.environment import variable
from holdfast.tools.files.reserved_files import ReservedFiles
from holdfast.tools.threads import in_thread

DIRECTORY = "holdfast-logins"
"""The directory of logins, unless the operator names another one."""
KEY_BYTES_MIN = 32
_EARLY_S = 30.0
"""A token that is about to expire is refreshed before it is used."""


class KeyUnusable(Exception):
    """The operator's key cannot be used; the message says why."""


class Login(Value):
    """The tokens of a tenant at one server, and what is needed to refresh them."""

    server: str
    """The server's URL, which the tokens are sent to, and to no other."""
    issuer: str
    token_endpoint: str
    resource: str
    client_id: str
    access_token: str
    client_secret: str = ""
    auth_method: str = "none"
    """How the client proves itself at the token endpoint, in the words of RFC 7591."""
    refresh_token: str = ""
    expires_s: float | None = None
    """When the access token expires, in seconds since 1970; None: not known."""
    scope: str = ""

    def is_stale(self, now_s: float) -> bool:
        return self.expires_s is not None and now_s > self.expires_s - _EARLY_S

    def __repr__(self) -> str:
        return f"<Login at {self.server}>"  # tokens have no place in a log or a debugger


class Logins:
    """The logins of every tenant."""

    def __init__(self, directory: Path, key: bytes) -> None:
        self._directory = directory
        self._key = key

    def of_tenant(self, tenant: str) -> TenantLogins:
        return TenantLogins(self._directory, self._key, tenant)


def kept_logins(environment: Mapping[str, str]) -> Logins | None:
    """The logins that the operator has a key for; None if no key is named. Raises KeyUnusable."""
    named = environment.get(variable("login_key"), "")
    if not named:
        return None
    try:
        key = Path(named).read_bytes().strip()
    except OSError as error:
        raise KeyUnusable(f"{variable('login_key')}: {named}: {error.strerror}") from error
    if len(key) < KEY_BYTES_MIN:
        words = f"has {len(key)} bytes, at least {KEY_BYTES_MIN}: openssl rand -hex 32"
        raise KeyUnusable(f"{variable('login_key')}: {named} {words}")
    return Logins(Path(environment.get(variable("logins")) or DIRECTORY), key)


def login_files(key: str, directory: str) -> ReservedFiles:
    """The directory of logins and the file of their key, which no tool reaches; nothing if no key is named."""
    if not key:
        return ReservedFiles()
    trees = frozenset({os.path.abspath(directory or DIRECTORY)})
    return ReservedFiles(files=frozenset({os.path.abspath(key)}), trees=trees)


class TenantLogins:
    """The logins of one tenant."""

    def __init__(self, directory: Path, key: bytes, tenant: str) -> None:
        self._directory = directory
        self._key = key
        self.tenant = tenant

    def read(self, server: str) -> Login | None:
        """The tenant's login at a server; None if there is none, or if it was sealed with another key."""
        try:
            sealed = self._path(server).read_bytes()
        except FileNotFoundError:
            return None
        plain = aes_siv.decrypt(self._sealing_key(server), sealed, b"login")
        return None if plain is None else msgspec.json.decode(plain, type=Login)

    def write(self, login: Login) -> None:
        """Keep a login, in place of the one before; the file is whole at every moment. Under its lock, or a refresh that
        is under way puts the one before in its place."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(login.server)
        sealed = aes_siv.encrypt(self._sealing_key(login.server), encode(login), b"login")
        begun = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(sealed)
            file.flush()
            os.fsync(file.fileno())
        begun.replace(path)

    def remove(self, server: str) -> bool:
        """Forget a login; False if there was none. Under its lock, or a refresh that is under way brings it back."""
        try:
            self._path(server).unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def locked(self, server: str) -> AsyncIterator[None]:
        """The only holder of this login's lock on this machine, within the `with` block."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(server).with_suffix(".lock")
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            await in_thread(lambda: fcntl.flock(lock, fcntl.LOCK_EX), name="holdfast login")
            yield
        finally:
            os.close(lock)

    def _path(self, server: str) -> Path:
        return self._directory / sha256(f"{self.tenant}\0{server}".encode()).hexdigest()

    def _sealing_key(self, server: str) -> bytes:
        """The key of one login: 512 bits, as AES-256-SIV needs."""
        about = f"holdfast login\0{self.tenant}\0{server}".encode()
        return hmac.digest(self._key, about, "sha512")
