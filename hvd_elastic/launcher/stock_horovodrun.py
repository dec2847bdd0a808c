"""`horovodrun` as it is, but that its rendezvous server lets as many connections wait as all workers of a job make.

    python -m hvd_elastic.launcher.stock_horovodrun ARGUMENTS... COMMAND...

Horovod's own backlog is 5 (`socketserver.TCPServer.request_queue_size`, under `horovod/runner/http/http_server.py`).
When many workers ask for each other's addresses at once, the kernel drops or resets what does not fit. A worker tries
three times, half a second apart (`MAX_RETRY_TIMES` in Horovod's `common/gloo/http_store.h`), and then gives up, and its
whole host with it.
"""

import sys

from hvd_elastic.launcher.protocol.rendezvous_server import BACKLOG


def main() -> None:
    """Run horovodrun with the arguments of this process."""
    from horovod.runner.http.http_server import RendezvousHTTPServer
    from horovod.runner.launch import run_commandline

    RendezvousHTTPServer.request_queue_size = BACKLOG
    sys.argv[0] = "horovodrun"
    run_commandline()


if __name__ == "__main__":
    main()
