"""A real PgBouncer for tests, in transaction mode, before a PostgreSQL of theirs.

Found on the PATH; else fetched as a Debian package into `.venv`, where nothing needs root.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.means import skip_without
from tests.postgres import START_S, free_port, give_away, scratch_folder, shared_url, unprivileged

CACHE = Path(sys.prefix) / "pgbouncer"


def program() -> Path:
    """Where `pgbouncer` is. Skips the test if it is nowhere."""
    found = found_program()
    if found is None:
        skip_without("PgBouncer", enable="apt-get install pgbouncer")
    return found


@cache
def found_program() -> Path | None:
    """Where `pgbouncer` is, if it is anywhere."""
    for folder in (None, "/usr/sbin", str(CACHE / "usr/sbin")):
        found = shutil.which("pgbouncer", path=folder)
        if found is not None:
            return Path(found)
    return _fetched()


def _fetched() -> Path | None:
    """The program from Debian's package, and the libraries that come with it; None if there is no Debian."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return None
    packages = ["pgbouncer", *_libraries()]
    folder = scratch_folder("holdfast-apt-")
    try:
        subprocess.run(
            ["apt-get", "download", *packages], cwd=folder, check=True, capture_output=True
        )
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, str(CACHE)], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = CACHE / "usr/sbin/pgbouncer"
    return found if found.exists() else None


def _libraries() -> list[str]:
    told = subprocess.run(
        ["apt-cache", "depends", "pgbouncer"], capture_output=True, text=True, check=False
    ).stdout
    words = (line.split() for line in told.splitlines())
    names = (found[1] for found in words if len(found) == 2 and found[0] == "Depends:")
    return [each for each in names if each.startswith(("libevent", "libc-ares"))]


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
    server, binary = urlsplit(url), program()
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
    libraries = [str(each) for each in (CACHE / "usr/lib").glob("*-linux-gnu")]
    path = ":".join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(":")
    process = subprocess.Popen(
        [str(binary), "-q", str(settings)],
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
