"""What `verify` says: findings, and how far it has come."""

from __future__ import annotations

from typing import TypeAlias

from holdfast.core.codec import Value
from holdfast.core.history.checks import Violation

USELESS_TO_GO_ON = frozenset({"schema_broken"})
"""Findings after which every further one would only repeat them."""


class Finding(Value):
    """A broken rule, with the tenant and the session that it was found in; both are empty for a page or a row of no session."""

    violation: Violation
    tenant: str = ""
    session_id: str = ""

    def __str__(self) -> str:
        """One line: where, what kind, what."""
        found = self.violation
        place = "/".join(filter(None, (self.tenant, self.session_id))) or "store"
        inside = "" if found.where in ("", self.session_id) else f" {found.where}:"
        return f"{place}: {found.code}:{inside} {found.what}"


class Progress(Value):
    """`done` of about `of`; more may have come since they were counted."""

    what: str
    done: int
    of: int


Report: TypeAlias = Finding | Progress
