#!/bin/sh
# need.sh TEST PACKAGES [TEST PACKAGES]...: installs the Debian packages that make each shell test TEST true, or says
# which are missing.
#
# On a fresh Debian or Ubuntu the pieces of Python that are packages of their own, and the compiler, may be missing.
set -eu

say() { printf '%s\n' "$*" >&2; }

packages=
while [ $# -gt 0 ]; do
    eval "$1" >/dev/null 2>&1 || packages="$packages $2"
    shift 2
done
if [ -z "$packages" ]; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing$packages"
    apt-get update -q >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q $packages >&2
else
    say "missing here:$packages (Debian, Ubuntu: sudo apt-get install$packages)"
    exit 1
fi
