"""Libraries that are loaded at their first use.

Start-up time is a feature, and a server can answer before it needs any of these. Modules import them from here
(`from holdfast.libraries import aiohttp`) and use them as usual; every other library is imported at the top of the
module that needs it. `tests/server/test_startup.py` lists what a server that is ready must not have loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "aead",
    "aiohttp",
    "cipher_errors",
    "importlib_metadata",
    "prometheus_client",
    "urllib_request",
    "yaml",
    "yarl",
]


class _Late:
    """A stand-in for a library. After its first use a name is an ordinary attribute."""

    def __init__(self, library: str) -> None:
        self.__library = library

    def __getattr__(self, name: str) -> object:
        found = getattr(import_module(self.__library), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    import importlib.metadata as importlib_metadata
    import urllib.request as urllib_request

    import aiohttp
    import prometheus_client
    import yaml
    import yarl
    from cryptography import exceptions as cipher_errors
    from cryptography.hazmat.primitives.ciphers import aead
else:
    # For models behind HTTP. Such a model loads it when it is created, so that no turn waits for it: it takes a third
    # of a server's start-up time, half of that for reading the machine's certificates.
    aiohttp = _Late("aiohttp")
    # aiohttp's type for URLs.
    yarl = _Late("yarl")
    # For the proxy settings of such a model. It loads http and most of email.
    urllib_request = _Late("urllib.request")
    # For an error message that names the installed version of a dependency.
    importlib_metadata = _Late("importlib.metadata")
    # For agent files.
    yaml = _Late("yaml")
    # For /metrics.
    prometheus_client = _Late("prometheus_client")
    # For `encrypted_content`, which clients keep and send back. Loading takes some 50 ms.
    aead = _Late("cryptography.hazmat.primitives.ciphers.aead")
    cipher_errors = _Late("cryptography.exceptions")
