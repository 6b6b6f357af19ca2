"""Which process of this machine answers the calls of a session: the one that prompts it, for as long as it lives.

Two windows may have one conversation open. Calls that wait for the editor are for the window whose user has prompted;
another one takes them up only if that process is gone. The kernel frees a lock on a file with its process, so a claim
never outlives its holder.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path


class SessionClaims:
    """Claims on the sessions of one server or store."""

    def __init__(self, where: str) -> None:
        """`where` names the server or store, so that equal names elsewhere are other sessions."""
        self._where = where
        self._held: set[str] = set()

    @contextmanager
    def claim(self, session_id: str) -> Iterator[bool]:
        """Hold a session. False inside if another process holds it; a session that this process holds stays held."""
        if session_id in self._held:
            yield True
            return
        digest = sha256(f"{self._where}\0{session_id}".encode()).hexdigest()[:32]
        with (_folder() / digest).open("ab") as place:
            if not _locked(place.fileno()):
                yield False
                return
            self._held.add(session_id)
            try:
                yield True
            finally:
                self._held.discard(session_id)


def _locked(place: int) -> bool:
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
