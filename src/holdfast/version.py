"""Which version this is; packages are built with it, too."""

from __future__ import annotations

VERSION = "0.1.0"
