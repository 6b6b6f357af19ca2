"""Claims on sessions: the process whose user has prompted a session answers its calls, for as long as it lives.

Two windows may have one conversation open. Calls that wait for the editor are for the window whose user has prompted;
another one takes them up only if that process is gone. The kernel frees a lock on a file with its process, so a claim
never outlives its holder.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO


class SessionClaims:
    """The claims of one process on the sessions of one server or store."""

    def __init__(self, where: str) -> None:
        """`where` names the server or store, so that equal names elsewhere are other sessions."""
        self._where = where
        self._places: dict[str, BinaryIO] = {}
        self._claims: Counter[str] = Counter()

    @contextmanager
    def claim(self, session_id: str) -> Iterator[bool]:
        """Hold a session, together with the other claims of this process on it. False inside if another process holds
        it."""
        if session_id not in self._places:
            place = (_folder() / self._digest(session_id)).open("ab")
            if not _locked(place):
                place.close()
                yield False
                return
            self._places[session_id] = place
        self._claims[session_id] += 1
        try:
            yield True
        finally:
            self._claims[session_id] -= 1
            if not self._claims[session_id]:
                self._places.pop(session_id).close()

    def _digest(self, session_id: str) -> str:
        return sha256(f"{self._where}\0{session_id}".encode()).hexdigest()[:32]


def _locked(place: BinaryIO) -> bool:
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base) / f"holdfast-acp-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
