"""Install everybody who can be measured: `make bench-install`. Says who cannot be had here, and why."""

from __future__ import annotations

from systems import environments
from systems.roster import SYSTEMS

from speed.library import PEERS_LOCK
from speed.subjects import everybody


def main() -> None:
    wanted = {each.environment: "" for each in everybody() if each.environment} | {PEERS_LOCK: ""}
    wanted |= {each.environment: each.python for each in SYSTEMS if each.environment}
    failed = False
    for name, interpreter in wanted.items():
        print(f"{name} …", flush=True)
        if why := environments.build(name, interpreter):
            failed = True
            print(f"  left out: {why}")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
