"""A script that knows `torchrun` alone: its world is fixed, and after each change its script is begun again.

That is TorchElastic's way: the script goes on from its own checkpoint. Its process stays, as a fresh interpreter in the
same place, so the launcher sees a member that asks for a place in the next world.

* Rank 0 is told of other hosts. It begins again before its next forward pass, so that a checkpoint that is being
  written is written to its end. The others have lost a peer then.
* A rank that has lost a peer begins again once its script ends by that error. Its connections end with it, which tells
  the next.

A process whose pod is about to end leaves instead.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NoReturn

from hvd_elastic.mpijob.contract import ENV_RESTARTS, Exit
from hvd_elastic.trainer.collectives.this_world import TORCH, WORLD
from hvd_elastic.trainer.elastic import departure

logger = logging.getLogger(__name__)

PASS_SECONDS: Final = 30.0
"""After this time without a forward pass of DistributedDataParallel, a rank that is to begin again does so at once."""

_DESCRIPTORS: Final = Path("/proc/self/fd")


class FixedWorld:
    """The fixed world of this process, if its script has one."""

    def __init__(self) -> None:
        self._replace: Callable[[], NoReturn] | None = None
        self._is_due = threading.Event()
        self._listening = contextlib.ExitStack()
        self.is_fixed = False

    def allow(self, replace: Callable[[], NoReturn]) -> None:
        """Begin the script again by `replace`, which replaces this process."""
        self._replace = replace

    def begin(self) -> None:
        """The script has formed the group of its world. Raises RendezvousLost."""
        from hvd_elastic.trainer.collectives import notifications
        from hvd_elastic.trainer.collectives.setup import setup_calls
        from hvd_elastic.trainer.elastic.world import rendezvous_client

        if self._replace is None or not rendezvous_client.launched():
            return
        self.is_fixed = True
        setup_calls.THIS_PROCESS.stop()  # who joins begins with all others
        answer_launcher()
        self._listening.enter_context(notifications.listening(self))

    def end(self) -> None:
        """The script is an elastic one after all: it has come to `elastic.run`."""
        self.is_fixed = False
        self._listening.close()

    def on_hosts_updated(self, timestamp: int, update_res: object) -> None:
        """Begin again soon. Called by a thread of the notification service, again and again until it has been done."""
        from hvd_elastic.system.background_threads import start_thread

        if not self._is_due.is_set():
            self._is_due.set()
            has_passes = TORCH.models.before_each_pass(self._begin_again_for_hosts)
            wait = PASS_SECONDS if has_passes else 0.0
            start_thread("begin-again", lambda: self._begin_again_late(wait), log=logger)

    def begin_again_if_lost(self, error: BaseException) -> None:
        """Begin again if the script has ended because a peer is lost. Else return."""
        if self.is_fixed and (self._is_due.is_set() or any(_is_loss(each) for each in _with_causes(error))):
            self._begin_again("a worker was lost, or the hosts have changed")

    def _begin_again_for_hosts(self) -> None:
        self._begin_again("hosts were added or removed")

    def _begin_again_late(self, seconds: float) -> None:
        threading.Event().wait(seconds)
        self._begin_again_for_hosts()

    def _begin_again(self, cause: str) -> None:
        if not self.is_fixed or self._replace is None:
            return
        if departure.announced():
            logger.info("this worker leaves, because its pod is about to end")
            leave_nothing_open()
            os._exit(Exit.REMOVED)
        logger.warning("%s: the script begins again, in the next world, from its own checkpoint", cause)
        os.environ[ENV_RESTARTS] = str(int(os.environ.get(ENV_RESTARTS, "0")) + 1)
        leave_nothing_open()
        self._replace()


def answer_launcher() -> None:
    """Answer the launcher's pings, and be told of host updates. Raises RendezvousLost if it does not take that."""
    from hvd_elastic.trainer.collectives import notifications
    from hvd_elastic.trainer.elastic.world import rendezvous_client

    try:
        notifications.start(rendezvous_client.register_bytes)
    except (RuntimeError, OSError) as error:
        logger.warning("cannot register with the launcher: %s", error)
        raise rendezvous_client.RendezvousLost from error


def leave_nothing_open() -> None:
    """Have all of this process but itself end when it is replaced: its loader processes, its connections."""
    from hvd_elastic.system.child_processes import kill_descendants

    kill_descendants()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    for number in [int(entry.name) for entry in _DESCRIPTORS.iterdir()]:
        if number > 2:
            with contextlib.suppress(OSError):  # that of the list itself is closed
                os.set_inheritable(number, False)  # Gloo's would stay open
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a thread's


def _is_loss(error: BaseException) -> bool:
    return isinstance(error, Exception) and WORLD.is_loss(error)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


THIS_PROCESS: Final = FixedWorld()
"""A process has one script."""
