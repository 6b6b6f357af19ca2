#!/bin/sh
# Build an environment in the checkout, at the versions and with the hashes of its lock.
#
#   sh scripts/setup.sh .venv          all that working on Holdfast needs: requirements-dev.txt
#   sh scripts/setup.sh .venv-serve    what serving needs: requirements.txt
#   sh scripts/setup.sh .venv-docs     what builds the documentation's site: docs/site/requirements.txt
#
# Needs a Python of 3.11 or later, and no root. uv installs where it is there; pip where it is not, or cannot.
# Nothing here says where packages come from: pip's own settings (PIP_INDEX_URL, PIP_CERT, pip.conf and so on) apply.
# An environment that works is brought up to date in place; naming a PYTHON builds a fresh one.

set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

VENV=${1:-.venv}
case $VENV in
    # With pip, which tests run; and compiled, since many processes of tests would compile the same things.
    .venv) LOCK=requirements-dev.txt seed=--seed uv_compiles=--compile-bytecode pip_compiles=--compile ;;
    .venv-serve) LOCK=requirements.txt seed='' uv_compiles='' pip_compiles=--no-compile ;;
    .venv-docs) LOCK=docs/site/requirements.txt seed='' uv_compiles='' pip_compiles=--no-compile ;;
    *) fail "there is .venv, .venv-serve and .venv-docs, and no $VENV" ;;
esac
PACKAGES=$(grep -c '==' "$LOCK")

is_recent() {
    [ "$("$1" -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null)" = True ]
}

# A name on the PATH proves little (version managers put stubs there), so each candidate is run.
has_uv() { uv --version >/dev/null 2>&1; }

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

# ── with uv, which shows its own progress ──

install_by_uv() {
    index=${PIP_INDEX_URL:-$("$python" -m pip config get global.index-url 2>/dev/null || true)}
    export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    export UV_INDEX="${UV_INDEX:-${PIP_EXTRA_INDEX_URL:-}}"
    export UV_FIND_LINKS="${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}"
    export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}" # as pip has it
    [ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"
    if [ -n "$fresh" ]; then
        uv venv --quiet --clear $seed --python "$python" "$VENV" || return 1
    fi
    uv pip install --python "$VENV/bin/python" $uv_compiles --require-hashes -r "$LOCK"
}

# ── with pip, which falls silent while it unpacks: so what is there is counted ──

install_by_pip() {
    if [ -z "$seed" ] && has_pip "$python"; then # it installs for others, too: no copy of it has to be made
        pip_of=$python
        [ -z "$fresh" ] || "$python" -m venv --clear --without-pip "$VENV"
    else
        pip_of=$VENV/bin/python
        if [ -n "$fresh" ] || ! has_pip "$pip_of"; then make_venv; fi
    fi
    log=$VENV/setup.log
    "$pip_of" -m pip --python "$VENV/bin/python" --disable-pip-version-check install --no-input --progress-bar off \
        $pip_compiles --require-hashes -r "$LOCK" >"$log" 2>&1 &
    pip=$!
    trap 'kill $pip 2>/dev/null; exit 130' INT TERM
    shown=
    while kill -0 $pip 2>/dev/null; do
        show_progress
        sleep 1
    done
    trap - INT TERM
    wait $pip || { cat "$log" >&2; fail "the packages of $LOCK could not be installed; what pip said is above"; }
}

has_pip() { "$1" -m pip --python "$1" --version >/dev/null 2>&1; }

# Some distributions ship Python without ensurepip; uv and virtualenv bring their own pip.
make_venv() {
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        "$python" -m venv --clear "$VENV"
    elif has_uv; then
        uv venv --quiet --clear --seed --python "$python" "$VENV"
    elif virtualenv --version >/dev/null 2>&1; then
        virtualenv --quiet --clear --python "$python" "$VENV"
    else
        fail "this Python cannot make environments; install the package python3-venv (or uv, or virtualenv) and try again"
    fi
}

show_progress() {
    now=$(sed -n 's/^Collecting \([^ ]*\).*/\1/p' "$log" | tail -n 1)
    if grep -q '^Installing collected' "$log"; then
        there=$(find "$VENV"/lib/*/site-packages -maxdepth 1 -name '*.dist-info' | wc -l | tr -d ' ')
        now="installed $there packages"
    elif [ -n "$now" ]; then
        now="fetching $(grep -c -e '^Collecting ' -e '^Requirement already' "$log") of $PACKAGES: $now"
    else
        now="looking for packages"
    fi
    [ "$now" = "$shown" ] || say "$now"
    shown=$now
}

# ── the clone itself: its code is what runs, also after a pull ──

link_clone() {
    if [ "$VENV" = .venv ]; then
        "$VENV/bin/python" -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation --editable .
        "$VENV/bin/python" -m compileall -q src
    elif [ "$VENV" = .venv-serve ]; then # the same, without a tool that builds packages
        site=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        printf '%s\n' "$PWD/src" >"$site/holdfast.pth"
        printf '#!/bin/sh\nexec "%s/bin/python" -P -m holdfast "$@"\n' "$PWD/$VENV" >"$VENV/bin/holdfast"
        chmod +x "$VENV/bin/holdfast"
    fi
}

python=$(find_python)
python=$("$python" -c 'import sys; print(sys.executable)')
fresh=yes
if [ -z "${PYTHON:-}" ] && is_recent "$VENV/bin/python"; then
    fresh=
    say "updating $VENV: $PACKAGES packages"
else
    say "building $VENV with $("$python" --version): $PACKAGES packages"
fi
if ! has_uv; then
    install_by_pip
elif ! install_by_uv; then
    say "uv could not; with pip, then"
    install_by_pip
fi
link_clone

# Written last: an environment that was interrupted half-way is not taken for a finished one.
touch "$VENV/.ready"
say "ready"
