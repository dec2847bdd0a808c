"""The host discovery script of `horovodrun`: prints the snapshot as `address:slots` lines, or ends non-zero.

Horovod runs it about once a second and holds a lock meanwhile, so it starts no interpreter and no other program: the
shell reads the snapshot as a list of calls of two functions. That is safe because `snapshot.render` refuses any field
that is not letters, digits, dots, dashes and underscores, and because whoever may write the snapshot may write this
script beside it. Reading it with `read` costs one system call a byte: 30 ms at a thousand hosts instead of 3. Nothing
is printed before the end line, and by one command: an `echo` a host costs more than all the rest.

What Horovod makes of its answers (`horovod/runner/elastic/discovery.py` of 0.28.1): exit 0 and no line means that every
host is gone; non-zero at the first call ends the job, later it keeps the hosts that are there. Hence the wait for the
first snapshot, and non-zero for every doubt after that.
"""

from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import HOSTS_SCRIPT, SNAPSHOT_FILE, SNAPSHOT_MAX_AGE_SECONDS, SnapshotState

FIRST_WAIT_SECONDS: Final = 4
"""How long the script waits for the first snapshot. Horovod's driver stands still for as long: below 5 s."""

PART: Final = 25
"""Hosts of a part: about the root of a thousand, so that parts and whole are copied equally often."""

_WHOLE: Final = "|".join(f"5{state}" for state in SnapshotState)
"""Five words, the last one whole."""

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

# A shell copies a text to append to it: hosts are gathered in parts, and counted in dots, of which it knows the number.
nl='
'
count= hosts= dots= part= ended=
gather() {{ count=$count$dots hosts="$hosts$part" dots= part=; }}
host() {{
    dots=$dots. part="$part$1:$2$nl"
    case $dots in {"." * PART}) gather ;; esac
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
# No PATH: a line that is neither call is an error, never a command. And whatever ends the shell here is no answer.
PATH=/dev/null
trap 'exit 1' 0
. "$snapshot" && [ $ended ] || fail "no list to trust, the hosts stay as they are"
trap - 0
printf %s "$hosts"
"""


def write_script(folder: Path) -> Path:
    """Put the script into `folder`, executable, and return its path. Raises OSError."""
    new, path = folder / f".{HOSTS_SCRIPT}.new", folder / HOSTS_SCRIPT
    new.write_text(SCRIPT, encoding="ascii")
    new.chmod(0o755)
    new.rename(path)
    return path
