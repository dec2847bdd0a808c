#!/bin/sh
# Builds the wheel and the source distribution of the version in pyproject.toml into dist/, and tries the wheel out in
# an empty virtual environment. $1 is the virtual environment that has uv. Nothing is uploaded, nothing tagged.
set -eu
venv=$(realpath "$1")
cd "$(dirname "$0")/.."
checkout=$PWD

say() { printf '%s\n' "$*" >&2; }
refuse() {
    say "release: $*"
    exit 1
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
escaped=$(printf %s "$version" | sed 's/[.+]/\\&/g')
grep -Eqs "^## (\[$escaped\]|$escaped)( |\$)" CHANGELOG.md ||
    refuse "CHANGELOG.md has no section for $version, the version in pyproject.toml: write \"## $version - $(date +%F)\" above its changes"

wheel=dist/hvd_elastic-$version-py3-none-any.whl
sdist=dist/hvd_elastic-$version.tar.gz
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
export UV_NO_PROGRESS=1

say "release: building $wheel and $sdist"
rm -f "$wheel" "$sdist"
# Nothing runs here that is not in the lock file, by its hash: neither what builds the files nor what the wheel imports.
locked() { "$venv/bin/uv" export --frozen --quiet --no-emit-project --no-header "$@"; }
locked --only-group build --output-file "$trial/build.txt"
locked --no-dev --output-file "$trial/imports.txt"
build() { "$venv/bin/uv" build --quiet --python "$venv/bin/python" --require-hashes --build-constraints "$trial/build.txt" "$@"; }
build --wheel --sdist --out-dir dist
build --wheel --out-dir "$trial" "$sdist"

say "release: comparing the wheel with the one that $sdist builds"
"$venv/bin/python" - "$wheel" "$trial/${wheel##*/}" <<'PYTHON' || refuse "the files in dist/ are not fit to be released"
import sys, zipfile

def files(path):
    with zipfile.ZipFile(path) as wheel:
        return {info.filename: info.CRC for info in wheel.infolist()}

ours, theirs = map(files, sys.argv[1:])
top = {name.partition("/")[0] for name in ours if ".dist-info/" not in name}
differing = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
if top != {"hvd_elastic"}:
    sys.exit(f"the wheel has these top-level names, and hvd_elastic should be the only one: {sorted(top)}")
if differing:
    sys.exit(f"the source distribution builds another wheel; these files differ: {differing}")
PYTHON

say "release: installing the wheel into an empty virtual environment, and running the README's first commands"
"$venv/bin/uv" venv --quiet --python "$venv/bin/python" "$trial/venv"
hash=$(sha256sum "$wheel" | cut -d ' ' -f 1)
echo "hvd-elastic @ file://$checkout/$wheel#sha256=$hash" >"$trial/wheel.txt"
"$venv/bin/uv" pip install --quiet --python "$trial/venv/bin/python" --require-hashes \
    --requirement "$trial/wheel.txt" --constraint "$trial/imports.txt"
cp examples/jobs/first.yaml "$trial/job.yaml"
cd "$trial" # so that nothing is imported from the checkout
unset PYTHONPATH
installed=venv/bin/hvd-elastic
test "$($installed --version)" = "hvd-elastic, version $version" || refuse "$($installed --version) was built, not $version"
$installed --help >help.txt
$installed generate job.yaml >manifests.yaml
$installed lint manifests.yaml >lint.txt || refuse "lint objects to what generate wrote: $(cat lint.txt)"
$installed schema >schema.json
$installed priorityclasses >priorityclasses.yaml
for output in help.txt manifests.yaml schema.json priorityclasses.yaml; do
    test -s "$output" || refuse "hvd-elastic wrote nothing to $output"
done

say "release: installing what training needs, and having a script survive by docs/from-torchrun.md"
(cd "$checkout" && locked --no-dev --extra train --extra demo --output-file "$trial/trains.txt")
echo "hvd-elastic[train,demo] @ file://$checkout/$wheel#sha256=$hash" >wheel.txt
"$venv/bin/uv" pip install --quiet --python venv/bin/python --require-hashes --requirement wheel.txt --constraint trains.txt
sh "$checkout/tools/see_it_survive.sh" venv

say "release: $version is in dist/. What is left to do:
    git tag -a v$version -m 'hvd-elastic $version' && git push origin v$version
    uv publish $wheel $sdist"
