#!/bin/sh
# Makes the virtual environment $1 with the locked dependencies, and Horovod built for the torch in it.
# With `demo` as $2 without those of the tests; with `torch` also without Horovod, and so without a compiler.
set -eu
venv=$1
purpose=${2:-tests}
python=${PYTHON:-python3}

say() { printf '%s\n' "$*" >&2; }

export python
need() { sh "$(dirname "$0")/need.sh" "$@"; }

package=${python##*/} # Debian has a package for each: python3, or python3.15 beside it
need 'command -v "$python"' "$package"
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 15))' || {
    say "$("$python" --version) is not supported: Python 3.11 to 3.15 is (make PYTHON=python3.13 ...)"
    exit 1
}
need '"$python" -c "import ensurepip, venv"' "$package-venv"
[ "$purpose" = torch ] || need 'command -v g++ && command -v make && command -v patch' "g++ make patch" \
    '"$python" -c "import sysconfig, os; os.stat(sysconfig.get_path(\"include\") + \"/Python.h\")"' "$package-dev"

[ -x "$venv/bin/pip" ] || "$python" -m venv --clear "$venv"
# uv itself cannot come from the lock file by uv: pip takes it, by the version and the hashes that are written there.
sed -n '/^name = "uv"$/,/^$/{s/^version = "\(.*\)"$/uv==\1/p;s/.*\.whl", hash = "\([^"]*\)".*/--hash=\1/p;}' uv.lock |
    tr '\n' ' ' >"$venv/uv.txt"
"$venv/bin/pip" install -q --disable-pip-version-check --require-hashes --only-binary :all: --requirement "$venv/uv.txt"
# --inexact: Horovod is not in the lock file, since it is built for the torch that is. The project is built by the group
# `build` of the lock file, which comes first: a build of its own would fetch the newest hatchling, by no hash.
sync() {
    VIRTUAL_ENV=$venv "$venv/bin/uv" sync --frozen --inexact --active --quiet --python "$venv/bin/python" --group build \
        --no-build-isolation-package hvd-elastic "$@"
}

if [ "$purpose" = torch ]; then
    [ -e "$venv/.setup-torch" ] || say "setting up: packages are fetched (torch and its libraries: 3 GB)"
    sync --no-default-groups
    sync --no-default-groups --extra train --extra demo
    exit
fi
[ -e "$venv/.setup-demo" ] || say "setting up: some two minutes the first time. Packages are fetched (torch and its libraries: 3 GB), then
Horovod is compiled for this torch."
sync --no-default-groups
"$venv/bin/hvd-elastic" install-horovod --fetch-only & # while torch is fetched
sync --no-default-groups --extra train --extra demo
"$venv/bin/hvd-elastic" install-horovod --wheel-only >/dev/null &
compiler=$!
# --group loaders, --group bridges: libraries of others, for tests alone; a wheel or an image has none of them.
if [ "$purpose" != demo ]; then
    [ -e "$venv/.setup" ] || say "fetching what the tests need"
    sync --all-extras --group loaders --group bridges
fi
wait "$compiler"
"$venv/bin/hvd-elastic" install-horovod >/dev/null
