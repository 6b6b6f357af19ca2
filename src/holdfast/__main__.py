"""`python -m holdfast` is `holdfast`."""

from __future__ import annotations

from holdfast.cli import main

main(prog_name="holdfast")
