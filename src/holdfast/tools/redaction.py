"""Secrets in text, recognised by their form, and replaced: keys and tokens of well-known services, and private keys.

A form that is not listed is not recognised: this keeps accidents out of prompts and records, it is no wall.
No form has a quotation mark or a backslash in it, so that text inside JSON stays JSON.
"""

from __future__ import annotations

import re

REDACTED = "[REDACTED]"

_FORMS = r"""
    \b(?:AKIA|ASIA)[0-9A-Z]{16}\b                                             # AWS
  | \bgh[pousr]_[A-Za-z0-9]{36,255}\b | \bgithub_pat_[A-Za-z0-9_]{22,255}\b     # GitHub
  | \bglpat-[A-Za-z0-9_-]{20,}                                                # GitLab
  | \bxox[abeoprs]-[A-Za-z0-9-]{10,}                                          # Slack
  | \b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}\b                                    # Stripe
  | \bsk-[A-Za-z0-9_-]{20,}                                                   # OpenAI, Anthropic and others
  | \bAIza[A-Za-z0-9_-]{35}                                                   # Google
  | \bdckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}                                       # Docker
  | \bhf_[A-Za-z0-9]{30,}\b                                                    # Hugging Face
  | \bnpm_[A-Za-z0-9]{36}\b | \bpypi-[A-Za-z0-9_-]{50,}                         # package indexes
  | \beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}          # JSON web tokens
  | -----BEGIN[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----[^"]{0,10000}?-----END[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----
"""
_IN_TEXT = re.compile(_FORMS, re.VERBOSE | re.ASCII)
_IN_BYTES = re.compile(_FORMS.encode(), re.VERBOSE)


def redacted(text: str) -> str:
    """The text with its secrets replaced."""
    return _IN_TEXT.sub(REDACTED, text)


def redacted_json(data: bytes) -> bytes:
    """Encoded messages with their secrets replaced."""
    return _IN_BYTES.sub(REDACTED.encode(), data)
