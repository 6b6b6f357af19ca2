#!/bin/sh
# Build .venv: everything that working on Holdfast needs, at the versions in requirements-dev.txt.
#
#   PYTHON=python3.13 sh scripts/setup.sh
#
# Needs a Python of 3.11 or later, and no root. pip's own settings (PIP_INDEX_URL, PIP_CERT,
# pip.conf and so on) apply as usual, because nothing here says where packages come from.
# An environment that works is brought up to date in place; naming a PYTHON builds a fresh one.

set -eu
cd "$(dirname "$0")/.."

VENV=.venv

say() { printf '%s\n' "$*" >&2; }
fail() { say "setup: $*"; exit 1; }

is_recent() {
    [ "$("$1" -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null)" = True ]
}

# A name on the PATH proves little (version managers put stubs there), so each candidate is run.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        is_recent "$PYTHON" || fail "PYTHON=$PYTHON is not a Python of 3.11 or later"
        printf '%s\n' "$PYTHON"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if is_recent "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "no Python of 3.11 or later found; install one, or name it: make setup PYTHON=/path/to/python"
}

# Some distributions ship Python without ensurepip; uv and virtualenv bring their own pip.
make_venv() {
    if "$1" -c 'import ensurepip, venv' 2>/dev/null; then
        "$1" -m venv --clear "$VENV"
    elif command -v uv >/dev/null; then
        uv venv --quiet --clear --seed --python "$1" "$VENV"
    elif command -v virtualenv >/dev/null; then
        virtualenv --quiet --clear --python "$1" "$VENV"
    else
        fail "this Python cannot make environments; install the package python3-venv (or uv, or virtualenv) and try again"
    fi
}

if [ -z "${PYTHON:-}" ] && is_recent "$VENV/bin/python" && "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
    say "setup: updating $VENV"
else
    python=$(find_python)
    say "setup: building $VENV with $("$python" --version)"
    make_venv "$python"
fi

pip() { "$VENV/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

pip install --require-hashes -r requirements-dev.txt
pip install --no-deps --no-build-isolation --editable .

# Written last: an environment that was interrupted half-way is not taken for a finished one.
touch "$VENV/.ready"
say "setup: ready"
