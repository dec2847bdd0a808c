"""The host discovery script of `horovodrun`: prints the snapshot as `name:slots` lines, or exits non-zero.

The name is the address. In place of an IPv6 address, whose colons Horovod would take for its own, it is `Host.name`.

Horovod runs it about once a second and holds a lock meanwhile, so it starts no interpreter and no other program: the
shell sources the snapshot, whose lines are calls of two functions. That is safe because `snapshot.render` refuses any
field with characters other than letters, digits, dots, colons, dashes and underscores, and because anyone who may write
the snapshot may write this script beside it. `read` would cost one system call per byte: 30 ms at a thousand hosts
instead of 3. Nothing is printed before the end line, and then by one command: an `echo` per host costs more than all
the rest.

How Horovod reads its result (`horovod/runner/elastic/discovery.py` of 0.28.1): exit 0 without a line means that every
host is gone. Non-zero at the first call ends the job; later, Horovod keeps the hosts it has. So the script waits for
the first snapshot, and exits non-zero on any doubt after that.
"""

from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import HOSTS_SCRIPT, SNAPSHOT_FILE, SNAPSHOT_MAX_AGE_SECONDS, SnapshotState
from hvd_elastic.system.atomic_file import replace_file

FIRST_WAIT_SECONDS: Final = 4
"""How long the script waits for the first snapshot. It must stay below 5 s, because Horovod's driver blocks
meanwhile."""

HOSTS_PER_PART: Final = 25
"""About the square root of a thousand, so that parts and the whole are copied equally often."""

_WHOLE: Final = "|".join(f"5{state}" for state in SnapshotState)
"""Matches the number of fields of the end line, 5, followed by a complete state."""

SCRIPT: Final = f"""\
#!/bin/sh
# Prints the hosts of an elastic job for horovodrun, from the snapshot that the discovery sidecar keeps beside it.
snapshot=${{0%/*}}/{SNAPSHOT_FILE}

fail() {{ echo "discover-hosts: $1" >&2; exit 1; }}
now() {{ read -r uptime _ </proc/uptime && uptime=${{uptime%%.*}}; }}

now || fail "cannot read /proc/uptime"
started=$uptime tries=0
until [ -e "$snapshot" ]; do
    [ $tries -lt {FIRST_WAIT_SECONDS}0 ] && [ $((uptime - started)) -lt {FIRST_WAIT_SECONDS} ] ||
        fail "no snapshot yet: is the sidecar up?"
    tries=$((tries + 1))
    sleep .1
    now
done

# A shell copies a string to append to it, so hosts are gathered in parts. They are counted by the length of a string.
nl='
'
count= hosts= dots= part= ended=
gather() {{ count=$count$dots hosts="$hosts$part" dots= part=; }}
host() {{
    case $1 in *:*) set -- "$4.${{3%-*}}" "$2" ;; esac
    dots=$dots. part="$part$1:$2$nl"
    case $dots in {"." * HOSTS_PER_PART}) gather ;; esac
}}
end() {{
    gather
    case $#$5 in
        {_WHOLE}) [ "$2" = ${{#count}} ] || fail "the snapshot is torn: it has ${{#count}} hosts of $2" ;;
        *) fail "the snapshot is torn: its end line is cut" ;;
    esac
    age=$((uptime - $3))
    [ $age -ge 0 ] && [ $age -le {SNAPSHOT_MAX_AGE_SECONDS} ] || fail "the snapshot is $age s old"
    ended=yes
}}
# No PATH: any other line is an error, never a command. If a line ends the shell, the trap makes that a failure.
PATH=/dev/null
trap 'exit 1' 0
. "$snapshot" && [ $ended ] || fail "no list that can be trusted: the hosts stay as they are"
trap - 0
printf %s "$hosts"
"""


def write_script(folder: Path) -> Path:
    """Put the script into `folder`, executable, and return its path. Raises OSError."""
    path = folder / HOSTS_SCRIPT
    replace_file(path, SCRIPT, mode=0o755)
    return path
