"""What Holdfast is made of beside its own code: `python scripts/supply.py licences`, or `sbom`.

Both are made of requirements.txt, the lock with every file's hash, and of what the packages in .venv say about
themselves. The same lock gives the same bytes. `make licences` keeps the first in docs/reference; `make sbom` writes
the second, a CycloneDX document, to build/.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path

from holdfast.version import VERSION

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

SPDX = {
    "Apache 2.0": "Apache-2.0",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}
"""Words that packages use for a licence, and its name."""

TWO_LICENCES = {"uvloop": "Apache-2.0 OR MIT"}
"""Packages that say so in two places, and half of it in each."""


@dataclass(frozen=True)
class Package:
    """One line of the lock."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def locked(text: str) -> Iterator[Package]:
    """The packages of a lock, in its order."""
    for block in re.split(r"\n(?=\S)", text):
        if found := re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", block):
            hashes = tuple(sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", block)))
            yield Package(found[1], found[2], hashes)


def licence(name: str) -> str:
    """What an installed package is licensed under, as SPDX has it. Raises LookupError if it does not say."""
    said = metadata(name)
    classified = [
        each.rpartition(":: ")[2]
        for each in said.get_all("Classifier") or ()
        if each.startswith("License ::")
    ]
    for words in (
        TWO_LICENCES.get(name),
        said.get("License-Expression"),
        said.get("License"),
        *classified,
    ):
        if words and len(words) < 60:
            return SPDX.get(words, words)
    raise LookupError(f"{name} does not say what it is licensed under")


def named(requirement: str) -> str:
    """The package that a requirement is about."""
    return re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0].lower()


# ── licences ─────────────────────────────────────────────────────────────────────────────────


def licences() -> str:
    rows = [f"| {each.name} | {each.version} | {licence(each.name)} |" for each in packages()]
    extras = [
        f"| `{extra}` | {named(each)} | {licence(named(each))} |"
        for extra, wanted in sorted(PROJECT["optional-dependencies"].items())
        for each in wanted
    ]
    return "\n".join(
        [
            "# Licences",
            "",
            "What a server is made of beside its own code, which is under the Apache License 2.0.",
            "This page is made by `make licences` of the lock, `requirements.txt`, and of what the packages say.",
            "",
            "| package | version | licence |",
            "|---|---|---|",
            *rows,
            "",
            "An extra brings along what its package needs, on top of this:",
            "",
            "| extra | package | licence |",
            "|---|---|---|",
            *extras,
            "",
        ]
    )


def packages() -> list[Package]:
    return list(locked(LOCK.read_text(encoding="utf-8")))


# ── a bill of materials ──────────────────────────────────────────────────────────────────────


def sbom() -> str:
    parts = packages()
    itself = f"pkg:pypi/{PROJECT['name']}@{VERSION}"
    wanted = {named(each) for each in PROJECT["dependencies"]}
    made_of = LOCK.read_text(encoding="utf-8") + itself
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, made_of)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": itself,
                "name": PROJECT["name"],
                "version": VERSION,
                "description": PROJECT["description"],
                "licenses": [{"expression": PROJECT["license"]}],
                "purl": itself,
            }
        },
        "components": [component(each) for each in parts],
        "dependencies": [
            {"ref": itself, "dependsOn": [each.purl for each in parts if each.name in wanted]},
            *({"ref": each.purl} for each in parts),
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def component(package: Package) -> dict[str, object]:
    """A package. Its hashes are those of all its files: any of them may be the one that is installed."""
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "licenses": [{"expression": licence(package.name)}],
        "purl": package.purl,
        "hashes": [{"alg": "SHA-256", "content": each} for each in package.hashes],
    }


if __name__ == "__main__":
    sys.stdout.write({"licences": licences, "sbom": sbom}[sys.argv[1]]())
