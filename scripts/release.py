"""Builds everything that a release consists of, and tries the wheel as a new user would.

    make release                    # into dist/
    make release ARGS="--home https://forge.example/holdfast"
    python scripts/release.py --into DIRECTORY --python python3.13

1. The wheel, the source distribution, the context of the container image, a bill of materials, and checksums of them.
2. README is what a package index and `pip show` have of us, and there its links would lead nowhere: with `--home` they
   lead to the repository, which `project.urls` then names, too; without it they say which file they mean.
3. The wheel is installed into an empty environment of each supported Python on this machine. There it writes an agent,
   checks it and asks it; seconds and megabytes are printed.

A tree with changes that are not committed is refused: what is released must be what the repository has.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
QUESTION = 'call days_between with {"start": "2028-01-01", "end": "2028-03-01"}'
ANSWER = "60 days"


class ReleaseRefused(Exception):
    """There is something to do before a release can be built; the message says what."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--python", action="append", help="try the wheel with this one; may be repeated"
    )
    parser.add_argument("--home", metavar="URL", help="where the repository is, for people")
    chosen = parser.parse_args()
    try:
        built = build(chosen.into, home=chosen.home)
        for path in built:
            print(f"{path.stat().st_size:>12,}  {path.relative_to(chosen.into)}")
        pythons = chosen.python or list(supported_pythons())
        if not pythons:
            raise ReleaseRefused(
                f"no Python of {', '.join(SUPPORTED)} is on the PATH to try the wheel with"
            )
        for python in pythons:
            print(tried(built[0], python))
    except ReleaseRefused as refused:
        print(f"release: {refused}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"release: {error}\n{error.stdout or ''}{error.stderr or ''}", file=sys.stderr)
        return 1
    return 0


# ── what is released ─────────────────────────────────────────────────────────────────────────


def build(into: Path, *, home: str | None) -> list[Path]:
    """The wheel, first, and everything else. Raises ReleaseRefused if the tree is not as it was committed."""
    if output("git", "status", "--porcelain"):
        raise ReleaseRefused("there are changes that are not committed; commit or stash them")
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "holdfast")
        output("git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), str(tree))
        prepare(tree, home=home)
        output(sys.executable, "-m", "hatchling", "build", "-d", str(into.resolve()), cwd=tree)
    (wheel,) = into.glob("*.whl")
    (source,) = into.glob("*.tar.gz")
    version = wheel.name.split("-")[1]
    context = into / f"holdfast-{version}-image.tar.gz"
    output("git", "archive", "--format=tar.gz", f"--output={context}", "HEAD")
    materials = into / f"holdfast-{version}.cdx.json"
    materials.write_text(output(sys.executable, "scripts/supply.py", "sbom"), encoding="utf-8")
    files = [wheel, source, context, materials]
    sums = into / "SHA256SUMS"
    sums.write_text("".join(f"{digest(each)}  {each.name}\n" for each in files), encoding="utf-8")
    return [*files, sums]


_LINK = re.compile(r"(!?)\[([^\]]+)\]\((?![a-z]+:|#)([^)\s]+)\)")
"""A link of Markdown that is relative, and whether it is a picture."""


def prepare(tree: Path, *, home: str | None) -> None:
    """Write README and pyproject.toml of a tree as the people who install it need them."""
    readme, project = tree / "README.md", tree / "pyproject.toml"
    readme.write_text(packaged_readme(readme.read_text("utf-8"), home=home), encoding="utf-8")
    if home is not None:
        text = project.read_text("utf-8")
        project.write_text(f"{text.rstrip()}\n\n{project_urls(home)}", encoding="utf-8")


def packaged_readme(text: str, *, home: str | None) -> str:
    """README for a place that has none of the files it links to."""

    def written(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if home is not None:
            return (
                f"{picture}[{words}]({home.rstrip('/')}/{'raw' if picture else 'blob'}/HEAD/{path})"
            )
        return "" if picture else f"{words} (`{path}`)"

    return _LINK.sub(written, text)


def project_urls(home: str) -> str:
    """The table of pyproject.toml that names the repository and what is in it."""
    at = home.rstrip("/")
    pages = {
        "Repository": at,
        "Documentation": f"{at}/blob/HEAD/docs/README.md",
        "Changelog": f"{at}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{at}/issues",
    }
    return "[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in pages.items())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ── the wheel, as a new user has it ──────────────────────────────────────────────────────────


def supported_pythons() -> Iterator[str]:
    """Each supported Python here that runs: on the PATH, where version managers put names that do not, or in pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in SUPPORTED:
        python = f"python{version}"
        kept = map(str, sorted(pyenv.glob(f"{version}.*/bin/{python}")))
        yield from islice(filter(runs, (python, *kept)), 1)


def runs(python: str) -> bool:
    if shutil.which(python) is None:
        return False
    done = subprocess.run([python, "-c", "import venv"], capture_output=True, check=False)
    return done.returncode == 0


def tried(wheel: Path, python: str) -> str:
    """Install a wheel into an empty environment, and use it. Returns a line with the figures."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        began_s = time.monotonic()
        output(python, "-m", "venv", str(place / "venv"))
        programs = place / "venv" / "bin"
        bare = size(place / "venv")
        output(str(programs / "pip"), "install", "--quiet", str(wheel))
        installed_s = time.monotonic() - began_s
        holdfast = str(programs / "holdfast")
        output(holdfast, "init", "first", "--model", "demo/parrot", cwd=place)
        output(holdfast, "agents", "check", "first/assistant.yaml", cwd=place)
        answer = output(holdfast, "run", "first/assistant.yaml", QUESTION, cwd=place)
        answered_s = time.monotonic() - began_s
        if ANSWER not in answer:
            raise ReleaseRefused(f"on {python} the first answer is {answer!r}")
        grown = (size(place / "venv") - bare) / 1e6
        return f"{python}: installed in {installed_s:.1f} s, first answer after {answered_s:.1f} s, {grown:.0f} MB"


def size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def output(*command: str, cwd: Path = ROOT) -> str:
    """What a command prints, run with none of our own variables. Raises CalledProcessError."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    clean.pop("PYTHONPATH", None)
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
