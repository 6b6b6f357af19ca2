"""The endpoints under `/api`: sessions, turns, approvals, grants, search."""
