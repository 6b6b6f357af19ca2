"""What a client must remember by itself, in a file that no accident of the server touches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Notes:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "client.json"

    def __getitem__(self, name: str) -> Any:
        """What was kept under a name, or None."""
        return self._all().get(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self._path.write_text(json.dumps({**self._all(), name: value}))

    def _all(self) -> dict[str, Any]:
        return json.loads(self._path.read_text()) if self._path.exists() else {}
