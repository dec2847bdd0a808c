"""Makes the servers of other clouds that the tests run on, before a test waits for them: minutes on a new machine.

python -m testbed.cloud_servers
"""

import sys
from functools import partial

import pytest

from testbed import azure_server, gcs_server
from testbed.go_program import go_program


def prepare() -> None:
    """Make what is not in the cache; say why a server cannot be made, as the tests that miss it will."""
    for make in (partial(go_program, gcs_server.SOURCES), azure_server.installed):
        try:
            make()
        except pytest.skip.Exception as reason:
            print(reason, file=sys.stderr, flush=True)


if __name__ == "__main__":
    prepare()
