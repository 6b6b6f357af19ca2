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
    "jsonschema_rs",
    "load_http",
    "load_wanted",
    "prometheus_client",
    "urllib_request",
    "want_http",
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
    import jsonschema_rs
    import prometheus_client
    import yaml
    import yarl
    from cryptography import exceptions as cipher_errors
    from cryptography.hazmat.primitives.ciphers import aead
else:
    # For models behind HTTP. It takes as long as all the rest of a server that starts, a third of that for reading the
    # machine's certificates: a server loads it once it is ready, and a turn that comes earlier waits for it.
    aiohttp = _Late("aiohttp")
    # aiohttp's type for URLs.
    yarl = _Late("yarl")
    # For the proxy settings of such a model. It loads http and most of email.
    urllib_request = _Late("urllib.request")
    # For an error message that names the installed version of a dependency.
    importlib_metadata = _Late("importlib.metadata")
    # For the arguments of calls, and for schemas whose form alone does not say that they are valid. Five megabytes.
    jsonschema_rs = _Late("jsonschema_rs")
    # For agent files.
    yaml = _Late("yaml")
    # For /metrics.
    prometheus_client = _Late("prometheus_client")
    # For `encrypted_content`, which clients keep and send back. Loading takes some 50 ms.
    aead = _Late("cryptography.hazmat.primitives.ciphers.aead")
    cipher_errors = _Late("cryptography.exceptions")

_wanted: set[str] = set()


def want_http() -> None:
    """Have `load_wanted` load what a model behind HTTP needs."""
    _wanted.add("aiohttp")


def load_wanted() -> None:
    """Load the libraries that the models of this process will need. A server calls it in a thread, once it is ready."""
    for library in sorted(_wanted):
        import_module(library)


def load_http() -> None:
    """Load what a model behind HTTP needs, if nothing has yet. It takes a fifth of a second: call it in a thread."""
    import_module("aiohttp")
