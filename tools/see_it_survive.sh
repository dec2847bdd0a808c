#!/bin/sh
# Does what docs/from-torchrun.md has one type under "See it survive", with the virtual environment $1: resizes, a
# process killed, and the account of samples. No compiler and no Horovod is needed.
set -eu
PATH=$(realpath "$1")/bin:$PATH
export PATH
cd "$(dirname "$0")/.."
sh tools/need.sh 'command -v pkill' procps
typed() { sed -n "/^## See it survive/,/^## /s/^    \($1 .*\)/\1/p" docs/from-torchrun.md; }
run=$(typed 'hvd-elastic run') kill=$(typed 'pkill') verify=$(typed 'hvd-elastic checkpoints')

trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
ln -s "$PWD/examples" "$trial/examples"
cd "$trial" # so that nothing is imported from the checkout
refuse() {
    cat log
    printf '%s\n' "$*" >&2
    exit 1
}

unset PYTHONPATH
eval "$run" >log 2>&1 &
job=$!
until grep -q -- '-> 4: ' log; do
    kill -0 "$job" 2>/dev/null || refuse "the job ended before it had four workers again"
    sleep 1
done
eval "$kill"
wait "$job" || refuse "the job failed"
grep -q 'signal 9 (SIGKILL)' log || refuse "no worker was killed"
eval "$verify" >verified || refuse "$verify: $(cat verified)"
printf 'survived: %s\n' "$(tail -n 1 verified)"
