#!/bin/sh
# need.sh TEST PACKAGES: installs the Debian packages that make the shell test TEST true, or says which are missing.
#
# On a fresh Debian or Ubuntu the pieces of Python that are packages of their own, and the compiler, may be missing.
set -eu

say() { printf '%s\n' "$*" >&2; }

if eval "$1" >/dev/null 2>&1; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing $2"
    apt-get update -q >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q $2 >&2
else
    say "missing here: $2 (Debian, Ubuntu: sudo apt-get install $2)"
    exit 1
fi
