"""The right that the MPI Operator lacks as it is released."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from testbed.cluster.site import Site


@contextlib.contextmanager
def may_resume(cluster: Site) -> Iterator[None]:
    """The operator has the right that `hvd-elastic operator-role` prints: it can resume what was suspended."""
    printed = subprocess.run(
        [sys.executable, "-m", "hvd_elastic.cli", "operator-role"], check=True, capture_output=True, text=True
    ).stdout
    cluster.kubectl("apply", "-f", "-", stdin=printed)
    try:
        yield
    finally:
        cluster.kubectl("delete", "-f", "-", stdin=printed)
