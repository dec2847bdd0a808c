"""A pod's user in the user database, where the image does not know it: OpenShift gives each namespace ids of its own.

ssh and sshd refuse a user without an entry ("No user exists for uid"), and one whose shell is `nologin`, as CRI-O makes
it (cri-o, `utils/utils.go`, `GeneratePasswd`). The image looks into RUN_DIR first (Dockerfile; libnss-extrausers),
where the pod's first process calls its user what the image's configuration of ssh calls it. The group must be the right
one, too: ssh takes it on to run KnownHostsCommand (`subprocess` in its `misc.c`).
"""

import os
import pwd
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import USER_FILE
from hvd_elastic.system.atomic_file import replace_file

IMAGE_USER: Final = "mpiuser"


def enter_user(run_dir: Path, uid: int, gid: int) -> None:
    """Write the entry, unless it is that of the image's own user, or this is no such image. Raises OSError."""
    try:
        known = pwd.getpwnam(IMAGE_USER)
    except KeyError:
        return
    if (uid, gid) != (known.pw_uid, known.pw_gid):
        home = os.environ.get("HOME") or known.pw_dir
        entry = f"{IMAGE_USER}:x:{uid}:{gid}::{home}:{known.pw_shell}\n"
        replace_file(run_dir / USER_FILE, entry)
