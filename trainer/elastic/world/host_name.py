"""Whether this machine's own name resolves, where Gloo needs that, and where `hvd.init()` crashes without it.

Gloo looks the host's own name up where it is told no interface. Launchers name one, but Horovod as it is published does
not pass it on to process sets, the global one among them (`InitializeForProcessSet` in `gloo_context.cc`, horovod
0.28.1; our patch INTERFACE_PATCH does). It takes only -1 for a failure (`lookupAddrForHostname` in its
`transport/tcp/device.cc`). getaddrinfo(3) returns others, and leaves the result that Gloo then reads unset.
"""

import os
import socket
import sys
from typing import Final

from hvd_elastic.horovod.patch_set import installed_patches
from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.collectives.engine import IS_TORCH

INTERFACE_PATCH: Final = "process-set-interface"


def check_host_name() -> None:
    """End the process with a sentence if Gloo would look for this host's own name and not find it.

    Raises:
        SystemExit: `Exit.SCRIPT_MISTAKE` if the name is not known, `Exit.HOST_CHANGE` if DNS does not answer now: the
            launcher uses the host again after a moment.
    """
    error = lookup_error(os.environ.get("HOROVOD_GLOO_IFACE"))
    if error is not None:
        name, is_temporary = socket.gethostname(), error.errno == socket.EAI_AGAIN
        print(  # noqa: T201
            f"hvd-elastic: the name of this host, {name}, does not resolve ({error.strerror}), and hvd.init() would"
            " crash on it: Gloo looks it up. Kubernetes writes a pod's own name into its /etc/hosts; elsewhere add the"
            f" line '127.0.1.1 {name}' there, or the name to DNS.",
            file=sys.stderr,
            flush=True,
        )
        raise SystemExit(int(Exit.HOST_CHANGE if is_temporary else Exit.SCRIPT_MISTAKE))


def lookup_error(interface: str | None) -> socket.gaierror | None:
    """Why this host's own name does not resolve; None: it does, or Gloo does not ask.

    `interface`: the one that Horovod is told to use, if any.
    """
    if interface and (IS_TORCH or INTERFACE_PATCH in installed_patches()):
        return None
    try:
        socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return error
    return None
