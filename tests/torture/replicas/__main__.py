"""The replicas' torture: three of them over one PostgreSQL, a crowd of clients, and something broken every few
seconds.

    make torture-replicas MINUTES=10
    make torture-upgrade BEFORE=4645643
    python -m tests.torture.replicas --minutes 10 --seed 7 --clients 200

Progress is on stderr, the figures are on stdout; the exit status is 1 if a promise was broken. The same seed has the
same faults at the same times; what they meet depends on the machine.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import uvloop

from holdfast.core.codec import encode
from tests.postgres import SAFE, Server, give_away
from tests.torture.replicas.figures import told
from tests.torture.replicas.older import described, older_tree
from tests.torture.replicas.rules import OLDER, check
from tests.torture.replicas.run import Plan, run

CALM_SHARE = 0.15
ANOMALIES_SHOWN = 50
CONNECTIONS = {**SAFE, "max_connections": "60", "superuser_reserved_connections": "3"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--ttl", type=float, default=3.0, help="seconds of a lease")
    parser.add_argument(
        "--before",
        nargs="?",
        const="",
        metavar="COMMIT",
        help="begin with replicas of this commit, or of the last one before the tables changed, and replace them",
    )
    parser.add_argument("--keep", action="store_true", help="keep the logs, and what clients saw")
    asked = parser.parse_args()
    with older_tree(asked.before) if asked.before is not None else nullcontext() as older:
        return _torture(asked, older)


def _torture(asked: argparse.Namespace, older: Path | None) -> int:
    whole_s = asked.minutes * 60
    plan = Plan(
        older=str(older or ""),
        seed=asked.seed,
        calm_s=whole_s * CALM_SHARE,
        storm_s=whole_s * (1 - CALM_SHARE),
        clients=asked.clients,
        ttl_s=asked.ttl,
    )
    with _folder(keep=asked.keep) as here:
        data = here / "database"
        data.mkdir()
        give_away(data)
        with Server.started(CONNECTIONS, folder=data) as database:
            seen = uvloop.run(run(plan, here, database, report=_report))
        print(file=sys.stderr)
        print(f"seed {plan.seed}, {plan.clients} clients, {plan.replicas} replicas")
        print("\n".join(told(seen)), flush=True)
        if older is not None:
            print(f"they began as {described(asked.before)}, and were replaced one by one")
        anomalies = check(seen.traffic, without=OLDER if older is not None else frozenset())
        (here / "faults.jsonl").write_bytes(b"\n".join(map(encode, seen.befallen)))
        (here / "wired.jsonl").write_bytes(b"\n".join(map(encode, seen.traffic.wired)))
    for each in anomalies[:ANOMALIES_SHOWN]:
        print(each)
    print(f"{len(anomalies)} broken promises")
    return 1 if anomalies else 0


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    """On a disk, since what is synced should be. The database's user has to get into it."""
    here = Path(tempfile.mkdtemp(prefix="holdfast-replicas-"))
    here.chmod(0o755)
    try:
        yield here
    finally:
        if keep:
            print(f"\nthe logs are in {here}", file=sys.stderr)
        else:
            shutil.rmtree(here, ignore_errors=True)


def _report(words: str) -> None:
    print(f"\r{words:100}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
