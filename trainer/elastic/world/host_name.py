"""Whether this machine's own name resolves, which Gloo needs, and without which `hvd.init()` crashes without a word.

Horovod forms the world over the interface that the launcher names. For each process set, the global one among them, it
asks Gloo for another device without that interface (`InitializeForProcessSet` in `gloo_context.cc`, horovod 0.28.1), so
Gloo looks the host's own name up. It takes only -1 for a failure (`lookupAddrForHostname` in its
`transport/tcp/device.cc`). getaddrinfo(3) returns others, and leaves the result that Gloo then reads unset.
"""

import socket
import sys

from hvd_elastic.mpijob.contract import Exit


def check_host_name() -> None:
    """End the process with a sentence if Gloo would not find this host's own name.

    Raises:
        SystemExit: `Exit.SCRIPT_MISTAKE` if the name is not known, `Exit.HOST_CHANGE` if DNS does not answer now: the
            launcher uses the host again after a moment.
    """
    error = lookup_error()
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


def lookup_error() -> socket.gaierror | None:
    """Why this host's own name does not resolve; None: it does."""
    try:
        socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return error
    return None
