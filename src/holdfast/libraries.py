"""Libraries that are loaded when the first of their names is used.

Start-up time is a feature, and a server is ready before it needs any of these. Code takes them from here
(`from holdfast.libraries import aiohttp`) and uses them as if it had imported them; every other library is imported at
the top of the module that needs it. `tests/server/test_startup.py` says what a server that is ready has not loaded.
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
    """Stands for a library. A name that was used once is an ordinary attribute from then on."""

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
    # For models that are asked over HTTP. They use it when they are made, so that no turn waits for it: a third of the
    # time in which a server starts, half of it for reading the machine's certificates.
    aiohttp = _Late("aiohttp")
    # The addresses that it takes.
    yarl = _Late("yarl")
    # For the proxy of such a model. It brings http and most of email along.
    urllib_request = _Late("urllib.request")
    # For the version of a dependency that lacks something.
    importlib_metadata = _Late("importlib.metadata")
    # For agent files.
    yaml = _Late("yaml")
    # For /metrics.
    prometheus_client = _Late("prometheus_client")
    # For what clients keep for us: some 50 ms.
    aead = _Late("cryptography.hazmat.primitives.ciphers.aead")
    cipher_errors = _Late("cryptography.exceptions")
