"""Every error tells the facts and the way out, has a code of its own, and is on the map."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from holdfast import errors
from holdfast.errors import (
    AgentAmbiguous,
    AgentMismatch,
    AgentNotFound,
    ApprovalUndecided,
    CannotContinue,
    ChecksumsWrong,
    HoldfastError,
    IllegalEvent,
    ImportConflict,
    InvalidExport,
    InvalidId,
    InvalidValue,
    KeyReused,
    ModelNotFound,
    NameTaken,
    QueueFull,
    ServerRefused,
    ServerUnreachable,
    SessionBusy,
    SessionConflict,
    SessionDamaged,
    SessionGone,
    SessionMissing,
    SourceUnusable,
    StoreDamaged,
    StoreReadOnly,
    Superseded,
    TurnFailed,
    TurnRejected,
)


def family(kind: type[HoldfastError] = HoldfastError) -> Iterator[type[HoldfastError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from family(child)


OURS = [kind for kind in family() if kind.__module__ == errors.__name__]

CASES: list[tuple[HoldfastError, str, dict[str, object]]] = [
    (
        ChecksumsWrong("store.db", "a page is not as it was written"),
        (
            "store.db can be read by SQLite, but not as Holdfast wrote it (a page is not as it was written): another "
            "program, such as sqlite3 or a backup tool, has written to it or has copied its log into it, or it is damaged; "
            "`holdfast db copy --ignore-checksums` copies what it can prove into a new store; else restore a backup: see "
            "`holdfast db verify --help`"
        ),
        {"path": "store.db", "why": "a page is not as it was written"},
    ),
    (
        StoreReadOnly("page 7 of item is not as it was written"),
        (
            "the store is damaged (page 7 of item is not as it was written), so it is only read until `holdfast db "
            "verify` has found it sound; nothing changed; `holdfast db verify --help` tells an operator what to do"
        ),
        {"reason": "page 7 of item is not as it was written"},
    ),
    (
        StoreDamaged("the table node", "DecodeError: truncated"),
        (
            "the table node is damaged in the store and cannot be read (DecodeError: truncated); nothing changed, and "
            "trying again will not help; `holdfast db verify --help` tells an operator what to do"
        ),
        {"what": "the table node", "why": "DecodeError: truncated", "in_pages": False},
    ),
    (
        SessionDamaged("turn_7a", "DecodeError: truncated"),
        (
            "the conversation of turn 'turn_7a' is damaged in the store and cannot be read (DecodeError: truncated); nothing "
            "changed, and trying again will not help; `holdfast db verify --help` tells an operator what to do"
        ),
        {
            "what": "the conversation of turn 'turn_7a'",
            "name": "turn_7a",
            "why": "DecodeError: truncated",
            "in_pages": False,
        },
    ),
    (
        SessionDamaged("conv_4f", "IOError: disk I/O error", in_pages=True),
        (
            "conversation 'conv_4f' is damaged in the store and cannot be read (IOError: disk I/O error); nothing changed, "
            "and trying again will not help; `holdfast db verify --help` tells an operator what to do"
        ),
        {
            "what": "conversation 'conv_4f'",
            "name": "conv_4f",
            "why": "IOError: disk I/O error",
            "in_pages": True,
        },
    ),
    (
        InvalidId("tenant", "Acme!", expected="small letters"),
        "'Acme!' is not a valid tenant: expected small letters",
        {"kind": "tenant", "text": "Acme!", "expected": "small letters"},
    ),
    (
        IllegalEvent("Answered", "no model is being asked here"),
        "Answered is not possible now: no model is being asked here",
        {"event": "Answered", "because": "no model is being asked here"},
    ),
    (
        Superseded("turn_19", token=3),
        "turn 'turn_19' is no longer held under token 3; the node that holds it now will end it or resume it",
        {"turn_id": "turn_19", "token": 3},
    ),
    (
        InvalidExport(7, "the file is cut off", sessions=2),
        (
            "line 7: the file is cut off; the sessions before it are imported, and importing a good copy of "
            "the file later leaves them as they are"
        ),
        {"line": 7, "why": "the file is cut off", "sessions": 2},
    ),
    (
        InvalidExport(1, "this is no export", sessions=0),
        "line 1: this is no export; nothing is imported",
        {"line": 1, "why": "this is no export", "sessions": 0},
    ),
    (
        ImportConflict("conv_4f", "the key 'trip' belongs to another session here"),
        (
            "conv_4f cannot be imported: the key 'trip' belongs to another session here; the sessions before "
            "it are imported; remove what is in the way, or skip such sessions, and import the file again"
        ),
        {"session_id": "conv_4f", "why": "the key 'trip' belongs to another session here"},
    ),
    (
        NameTaken("trip", "conv_4f"),
        (
            "the name 'trip' means session 'conv_4f'; choose another name, or delete that session first"
        ),
        {"key": "trip", "session_id": "conv_4f"},
    ),
    (
        SessionMissing("session", "conv_4f"),
        "session 'conv_4f' does not exist",
        {"what": "session", "name": "conv_4f"},
    ),
    (
        SessionGone("conv_4f", why="deleted"),
        "session 'conv_4f' is deleted; a key that it had is free, and begins a new one",
        {"name": "conv_4f", "why": "deleted"},
    ),
    (
        SessionGone("conv_4f", why="expired"),
        "session 'conv_4f' is expired; reset its key to start a new one",
        {"name": "conv_4f", "why": "expired"},
    ),
    (
        SessionConflict("conv_4f", expected=7, found=8),
        "session 'conv_4f' is at version 8, not at 7 as this request assumes; reload it and retry",
        {"session_id": "conv_4f", "expected": 7, "found": 8},
    ),
    (
        SessionBusy("conv_4f", turn_id="turn_19", retry_after_s=2.5),
        "session 'conv_4f' is busy with turn 'turn_19'; retry in 2.5 s",
        {"session_id": "conv_4f", "turn_id": "turn_19", "retry_after_s": 2.5},
    ),
    (
        QueueFull(500, yours=True, retry_after_s=10.0),
        "500 background responses of yours wait to be played, and no more may; try again when some of them have ended",
        {"waiting": 500, "yours": True, "retry_after_s": 10.0},
    ),
    (
        TurnRejected("results_missing", "call_7 has no result", call_ids=("call_7",)),
        "call_7 has no result",
        {"reason": "results_missing", "call_ids": ("call_7",)},
    ),
    (
        ApprovalUndecided("no answer to it", session_id="conv_4f", turn_id="turn_19", version=7),
        "no answer to it",
        {"session_id": "conv_4f", "turn_id": "turn_19", "version": 7},
    ),
    (
        CannotContinue("turn_19", "turn_complete"),
        "turn 'turn_19' has nothing left to continue; say what you want",
        {"turn_id": "turn_19", "reason": "turn_complete"},
    ),
    (
        KeyReused("order-7", turn_id="turn_19"),
        "the idempotency key 'order-7' was used for a different request (turn 'turn_19'); repeat that request as it was, or take a new key",
        {"key": "order-7", "turn_id": "turn_19"},
    ),
    (
        TurnFailed("model_error", "the model is overloaded", reason="overloaded"),
        "the model is overloaded",
        {"ended_by": "model_error", "detail": "the model is overloaded", "reason": "overloaded"},
    ),
    (
        ModelNotFound("gpt-5", known=("demo", "shop/root")),
        "the model 'gpt-5' does not exist; there are: demo, shop/root",
        {"model": "gpt-5", "known": ("demo", "shop/root"), "why": "does not exist"},
    ),
    (
        AgentNotFound("root", source="shop.yaml", why="that source is not served any more"),
        "this conversation continues with 'root' of 'shop.yaml', but that source is not served any more",
        {"agent": "root", "source": "shop.yaml", "why": "that source is not served any more"},
    ),
    (
        AgentAmbiguous("root", source="https://a/t?v=1", candidates=("t?v=2", "t?v=3")),
        "this conversation continues with 'root' of 'https://a/t?v=1', which is served in several variants (t?v=2, t?v=3) and under none exactly; name one of them as the model",
        {
            "agent": "root",
            "source": "https://a/t?v=1",
            "candidates": ("t?v=2", "t?v=3"),
            "session": "",
        },
    ),
    (
        AgentMismatch("demo", source="shop.yaml", known=("root", "clerk")),
        "this conversation belongs to the agents of 'shop.yaml', and 'demo' is not one of them; name one of root, clerk, or begin another conversation",
        {"model": "demo", "source": "shop.yaml", "known": ("root", "clerk"), "session": ""},
    ),
    (
        SourceUnusable("shop.yaml", "shop.yaml:3: modle: unknown field"),
        "shop.yaml:3: modle: unknown field",
        {"source": "shop.yaml", "problems": ("shop.yaml:3: modle: unknown field",)},
    ),
    (
        ServerRefused("no such session", status=404, reason="conversation_not_found"),
        "no such session",
        {
            "status": 404,
            "reason": "conversation_not_found",
            "param": None,
            "turn_id": None,
            "retry_after_s": None,
            "should_retry": None,
        },
    ),
    (
        ServerUnreachable("http://a:1", "connection refused"),
        (
            "http://a:1 does not answer as a Holdfast server: connection refused; check that it runs there, "
            "and --server"
        ),
        {"server": "http://a:1", "why": "connection refused"},
    ),
]


@pytest.mark.parametrize(
    ("error", "message", "facts"), CASES, ids=[type(each[0]).__name__ for each in CASES]
)
def test_an_error_says_what_happened_and_carries_the_facts(
    error: HoldfastError, message: str, facts: dict[str, object]
) -> None:
    assert str(error) == message
    assert vars(error) == facts


def test_every_error_that_carries_facts_has_a_case_here() -> None:
    assert {type(error) for error, _, _ in CASES} == {k for k in OURS if "__init__" in vars(k)}


def test_a_long_text_is_shown_shortened_and_carried_whole() -> None:
    text = "x" * 1000
    error = InvalidId("session key", text, expected="less")
    assert error.text == text
    assert len(str(error)) < 150
    assert "…" in str(error)


def test_a_text_of_sixty_characters_is_shown_whole() -> None:
    assert "x" * 60 in str(InvalidId("session key", "x" * 60, expected="less"))


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in OURS]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch("[a-z_]+", code) for code in codes)


def test_the_map_at_the_top_shows_the_whole_family_and_nobody_else() -> None:
    """It is what people read first, so it has to be true."""
    drawn = {}
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"([│├└─ ]*)(\w+)(?: {2,}|$)", line):
            drawn[found[2]] = len(found[1]) // 4
    assert drawn == {kind.__name__: len(kind.__mro__) - len(_outside(kind)) - 1 for kind in OURS}


def _outside(kind: type[HoldfastError]) -> list[type]:
    return [each for each in kind.__mro__ if not issubclass(each, HoldfastError)]


def test_a_bad_value_is_a_value_error_too() -> None:
    """So that decoders, which know only ValueError, treat it as what it is."""
    assert issubclass(InvalidValue, ValueError)
