"""What `torchrun` tells a script in its environment, and when a script may read it.

A standby is in no world yet. Of the numbers below it knows LOCAL_RANK and LOCAL_WORLD_SIZE alone. Many scripts read
RANK or WORLD_SIZE before they form their group, some only to find out who has started them. So a read of what is not
known is the place where such a script waits for its world. TORCHELASTIC_RUN_ID is known from the start: by it they find
out that they run under `torchrun`.
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from hvd_elastic.mpijob.contract import ENV_JOB
from hvd_elastic.trainer.collectives import library_worlds

_OF_A_WORLD: Final = ("RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")

_READERS: Final = (__name__, "os", "collections.abc")
"""Modules through which a script reads a variable."""


def torchrun_variables(environment: Mapping[str, str], *, restarts: int) -> dict[str, str]:
    """Return what `torchrun` tells a script, of the world that this process is about to form.

    `environment`: has the launcher's answer (`world/place.py`), or nothing of a launcher. `restarts`: worlds before.
    """

    def told(name: str, default: str) -> str:
        return environment.get(f"HOROVOD_{name}", default)

    return {
        "RANK": told("RANK", "0"),
        "WORLD_SIZE": told("SIZE", "1"),
        "LOCAL_RANK": told("LOCAL_RANK", "0"),
        "LOCAL_WORLD_SIZE": told("LOCAL_SIZE", "1"),
        "GROUP_RANK": told("CROSS_RANK", "0"),
        "MASTER_ADDR": told("GLOO_RENDEZVOUS_ADDR", "127.0.0.1").strip("[]"),
        "MASTER_PORT": told("GLOO_RENDEZVOUS_PORT", "0"),
        **_of_job(environment),
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
    }


def _of_job(environment: Mapping[str, str]) -> dict[str, str]:
    return {"TORCHELASTIC_RUN_ID": environment.get(ENV_JOB, "local")}


class TorchrunEnvironment:
    """Asks for this process's world when the script reads what only a world has."""

    def __init__(self) -> None:
        self._put_back: Callable[[], None] | None = None

    def await_world(self, ask: Callable[[], None]) -> None:
        """Have the first such read, by the main thread, call `ask`, which sets the variables."""
        if self._put_back is not None:
            return
        for name in _OF_A_WORLD:  # those of another world, where the script is begun again
            os.environ.pop(name, None)
        os.environ.update(_of_job(os.environ))
        kind: Any = type(os.environ)
        stock = kind.__getitem__

        def read(environment: Any, name: Any) -> Any:
            try:
                return stock(environment, name)
            except KeyError:
                if environment is not os.environ or self._put_back is None or not _is_of_its_world(name):
                    raise
                self.world_known()
                ask()
                return stock(environment, name)

        kind.__getitem__ = read
        self._put_back = lambda: setattr(kind, "__getitem__", stock)

    def world_known(self) -> None:
        """Ask no more; does nothing if it does not."""
        put_back, self._put_back = self._put_back, None
        if put_back is not None:
            put_back()


def _is_of_its_world(name: str) -> bool:
    """Whether the script reads what its world has to tell. Who merely guesses would have those that train wait."""
    if name not in _OF_A_WORLD or threading.current_thread() is not threading.main_thread():
        return False
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") in _READERS:
        frame = frame.f_back
    return frame.f_globals.get("__name__") not in library_worlds.GUESSED_BY
