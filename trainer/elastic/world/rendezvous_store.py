"""The store in which torch's processes find each other: at the launcher's rendezvous server, with its token.

torch's own TCPStore lets anybody in who reaches its port, and would need torch in the launcher. Importing this module
imports torch.
"""

import os
import time
from datetime import timedelta
from typing import Final
from urllib.parse import quote

from torch._C._distributed_c10d import Store

from hvd_elastic.mpijob.contract import ENV_MEETING
from hvd_elastic.trainer.elastic.world import rendezvous_client

SCOPE: Final = "global_torch"
"""One of those that a member's death ends, as Gloo's of Horovod (`GLOO_SCOPE` of the server). It begins empty with each
world."""

_PAUSE_SECONDS: Final = 0.005
_LONGEST_PAUSE_SECONDS: Final = 0.1

_SHORTEST_WAIT: Final = timedelta(seconds=30)
"""Whatever is asked. Gloo asks for its time to connect, which is short (`torch_world.FORM_TIMEOUT`); a member may need
longer to know its own address. That one has died the server says at once."""


class RendezvousStore(Store):
    """What Gloo and torch.distributed ask of a store. A process writes a key once, so what was read is kept.

    Raises RuntimeError in each method: a member has died, or the server is gone.
    """

    def __init__(self, world: str) -> None:
        super().__init__()
        self._world = world
        """Its number: a process of the world before must not be taken for one of this."""
        self._known: dict[str, bytes] = {}
        self._timeout = timedelta(minutes=30)

    def set(self, key: str, value: str | bytes) -> None:
        rendezvous_client.put(SCOPE, self._path(key), value if isinstance(value, bytes) else value.encode())

    def get(self, key: str) -> bytes:
        self.wait([key], self._timeout)
        return self._known[key]

    def check(self, keys: list[str]) -> bool:
        return all(self._look(key) for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        end = time.monotonic() + max(timeout or self._timeout, _SHORTEST_WAIT).total_seconds()
        pause = _PAUSE_SECONDS
        for key in keys:
            while not self._look(key):
                if time.monotonic() > end:
                    raise RuntimeError(f"no process has stored {key} in time")
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def _look(self, key: str) -> bool:
        if key not in self._known:
            value = rendezvous_client.look_up(SCOPE, self._path(key))
            if value is None:
                return False
            self._known[key] = value
        return True

    def _path(self, key: str) -> str:
        return quote(f"{self._world}.{key}", safe="")


def open_store() -> RendezvousStore:
    """Open the store of the world that is forming."""
    return RendezvousStore(os.environ.get(ENV_MEETING, "0"))
