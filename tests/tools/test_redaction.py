"""Secrets of well-known forms are taken out, other words stay, and JSON stays JSON."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.redaction import REDACTED, redacted, redacted_json

SECRETS = [
    "AKIA" + "A1" * 8,
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1" * 20,
    "glpat-" + "a" * 20,
    "xoxb-" + "1a" * 10,
    "sk_live_" + "a1" * 10,
    "sk-ant-" + "a1" * 15,
    "AIza" + "a" * 35,
    "dckr_pat_" + "a" * 22,
    "eyJ" + "a" * 12 + ".eyJ" + "b" * 12 + "." + "c" * 12,
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda each: each[:10])
def test_a_secret_is_taken_out_of_text_and_of_json(secret: str) -> None:
    assert redacted(f"the key is {secret}, keep it") == f"the key is {REDACTED}, keep it"
    kept = msgspec.json.decode(redacted_json(msgspec.json.encode({"a": f"x {secret} y", "b": 1})))
    assert kept == {"a": f"x {REDACTED} y", "b": 1}


@pytest.mark.parametrize(
    "text", ["", "sk-1", "task-force-of-twenty", "eyJhbGciOi", "a private key"]
)
def test_other_words_stay(text: str) -> None:
    assert redacted(text) == text


@given(st.dictionaries(st.text(), st.text() | st.sampled_from(SECRETS), max_size=4))
def test_json_stays_json(value: dict[str, str]) -> None:
    msgspec.json.decode(redacted_json(msgspec.json.encode(value)))
