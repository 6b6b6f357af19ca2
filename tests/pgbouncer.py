"""A real PgBouncer for tests, in transaction mode, before a PostgreSQL of theirs."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.debian import DebianProgram, library_path
from tests.postgres import START_S, free_port, give_away, scratch_folder, shared_url, unprivileged

PROGRAM = DebianProgram(name="pgbouncer", package="pgbouncer", libraries=("libevent", "libc-ares"))


@cache
def shared_port() -> int:
    """The port of a PgBouncer before the shared PostgreSQL. It lives as long as this process."""
    context = pooling(shared_url())
    port = context.__enter__()
    atexit.register(context.__exit__, None, None, None)
    return port


@contextmanager
def pooling(url: str) -> Iterator[int]:
    """A PgBouncer before the server of this URL; its port."""
    server, binary = urlsplit(url), PROGRAM.path()
    folder, port = scratch_folder("holdfast-pgb-"), free_port()
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"""
[databases]
* = host={server.hostname} port={server.port} user={server.username}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 200
"""
    )
    give_away(settings)
    path = ":".join(filter(None, [library_path(), os.environ.get("LD_LIBRARY_PATH")]))
    process = subprocess.Popen(
        [binary, "-q", str(settings)],
        cwd=folder,
        env={**os.environ, "LD_LIBRARY_PATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=unprivileged(),
    )
    try:
        asyncio.run(_wait_until_ready(through(url, port)))
        yield port
    finally:
        process.terminate()
        process.wait(START_S)
        shutil.rmtree(folder, ignore_errors=True)


def through(url: str, port: int) -> str:
    """The same database, by way of the pooler."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))


async def _wait_until_ready(url: str) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            connection = await asyncpg.connect(url, statement_cache_size=0)
        except OSError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.02)
        else:
            await connection.close()
            return
