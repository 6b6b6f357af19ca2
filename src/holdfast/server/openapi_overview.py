"""The words about what `/api` tells beyond lists, for the document at `/openapi.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta

from holdfast import limits
from holdfast.server import openapi_errors as errors
from holdfast.server.openapi import Answer, Body, Operation, Parameter
from holdfast.wire import overview

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=limits.page_size_max)]

CONSOLE: Mapping[str, Operation] = {
    "GET /api/me": Operation(
        "retrieveMe",
        "Who asks, and what they may",
        "operations",
        (Answer("You.", overview.Me),),
    ),
    "GET /api/nodes": Operation(
        "listNodes",
        "The processes that hold leases on the store",
        "operations",
        (Answer("All of them, and what time it is.", overview.Nodes),),
    ),
    "GET /api/sessions/{name}/history": Operation(
        "readHistory",
        "Turns in every state with their items, the newest first",
        "sessions",
        (Answer("Some turns, and what stands beside the history.", overview.History),),
        parameters=(
            Parameter("before", "Go on before the turn with this id."),
            Parameter("limit", "How many turns at most.", Limit),
        ),
        codes=(*errors.SESSION, "invalid_value"),
    ),
    "GET /api/sessions/{name}/lineage": Operation(
        "readLineage",
        "Where a session's line comes from, and where others leave it",
        "sessions",
        (Answer("Its past, and its forks.", overview.Line),),
        codes=errors.SESSION,
    ),
    "GET /api/sessions/{name}/chain": Operation(
        "checkChain",
        "Check the chain of hashes and all that the store can show of a session, now",
        "sessions",
        (Answer("What was found; no problems if all is well.", overview.Chain),),
        codes=errors.SESSION,
    ),
    "POST /api/sessions/{name}/annotations": Operation(
        "annotateSession",
        "Say something about an item or a session, beside its history",
        "sessions",
        (Answer("Everything that is said about it now.", overview.Annotations),),
        Body(overview.Remark, {"flag": {"name": "starred", "value": "yes"}}),
        codes=(*errors.SESSION, *errors.STRICT_BODY, "item_not_found"),
    ),
}
