"""Another program's file of JSON lines, read as it is; and the bounds of such a file."""

from __future__ import annotations

from pathlib import Path

from holdfast import limits
from holdfast.peers.foreign_tables import NotTheirs


def lines_of(path: Path, peer: str) -> list[bytes]:
    """The lines of a file that are not empty. Raises NotTheirs if it does not exist, is too large, or has none."""
    try:
        size = path.stat().st_size
        if size > limits.import_body_bytes_max:
            raise NotTheirs(f"{path} is too large to be a conversation of {peer}")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise NotTheirs(f"{path} cannot be read: {error.strerror}") from error
    found = [each for each in lines if each.strip()]
    if not found or not found[0].lstrip().startswith(b"{"):
        raise NotTheirs(f"{path} is no file of {peer}: it has no lines of JSON")
    return found
