"""The version of Holdfast; packages are built with it, too."""

from __future__ import annotations

VERSION = "0.1.0"
