"""A worker's way into a world, from one world to the next, and out.

It replaces the work of `hvd.init()` and of the reset inside `hvd.elastic.run`, under the stock `horovodrun`, under
`hvd-elastic launch`, and without a launcher. It differs from Horovod 0.28.1 as follows:

* A worker asks for its new place itself, once. On rank -1 it leaves with `Exit.REMOVED`; Horovod's own look-up throws
  in a C++ thread and aborts the process (exit 134).
* Before a world is formed its members meet at the launcher's join barrier, so that a newcomer's death costs a moment
  and not the job. The stock server answers 404: it has no barrier.
* A member that dies in `hvd.init()`, or before those that join were given what they missed, costs the others one more
  question. Horovod ends them (exit 134); this needs the Horovod that `hvd-elastic install-horovod` builds, whose
  `hvd.init()` raises instead.
* A host that is lost without a word is noticed within three seconds (`peer_watch`), not after the Gloo time-out.
* Gloo's leftover sockets are shut down, so that every survivor of a death learns of it at once.
* A process whose pod is about to end, and whose state is durable or cannot be taken over by anybody, does not wait for
  a place that may never come.
* A lost rendezvous server ends the process with `Exit.HOST_CHANGE`, which says that a restart is worth while.
"""

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from hvd_elastic.mpijob.contract import ENV_MEETING, ENV_RESTARTS
from hvd_elastic.system.background_threads import start_thread
from hvd_elastic.trainer.collectives.engine import has_server
from hvd_elastic.trainer.collectives.horovod_functions import is_init_failure
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld
from hvd_elastic.trainer.elastic.world import rendezvous_client
from hvd_elastic.trainer.elastic.world.gloo_sockets import WorldSockets
from hvd_elastic.trainer.elastic.world.peer_watch import PeerWatch
from hvd_elastic.trainer.elastic.world.rendezvous_client import RendezvousLost, look_pause, never
from hvd_elastic.trainer.elastic.world.standby_gate import StandbyGate

logger = logging.getLogger(__name__)

FORM_ATTEMPTS: Final = 10
"""Worlds in a row that may fail to form. More than that is not a chance series of deaths: the members cannot reach each
other."""

_ELASTIC: Final = "HOROVOD_ELASTIC"
_MPI_VARIABLES: Final = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID")


def _nothing() -> None:
    """Do nothing in a new world."""


class WorldMember:
    """A process as a member of one world after the other. All that the process must remember of them is in here."""

    def __init__(self, world: TrainingWorld = WORLD) -> None:
        self._world = world
        self._sockets = WorldSockets()
        self._peers = PeerWatch(probed=self._sockets.probed, all_sockets=self._sockets.descriptors)
        self._gate: StandbyGate | None = None
        self._has_reported_synced = self._has_place = False

    def take_place(self) -> None:
        """Take this process's place in its first world, which it is to form next. Raises as `enter`.

        A script that was begun again has had one, which is nobody's any more.
        """
        if ENV_RESTARTS in os.environ or not rendezvous_client.join():
            rendezvous_client.take_place()
        self._has_place = True

    def enter(self, init: Callable[[], None], formed: Callable[[], None] = _nothing) -> None:
        """Form this process's first world; `init` is Horovod's own. `formed` is called in each world, as its beginning.

        HOROVOD_ELASTIC stays 1 in this call: Horovod's first init does not ask for a place, and it decides here, for
        the life of the process, whether NCCL operations watch for dead peers (`operations.cc`, `SetBoolFromEnv`: a
        later 0 does not unset it).

        Raises:
            Removed: the world was formed without this worker.
            RendezvousLost: the server is gone.
        """
        if rendezvous_client.launched():
            self._arrive(init, form=self._watched, formed=formed)
        else:
            _choose_gloo()
            self._sockets.note(init)
            formed()

    def reset(self, may_leave: Callable[[], bool] = never, formed: Callable[[], None] = _nothing) -> None:
        """Leave the present world and form the next one. Raises as `enter`.

        `may_leave`: whether this process need not wait for a place, because its pod is about to end and nobody needs
        its state. It is called repeatedly until the answer comes.
        """
        self._leave_world()
        if rendezvous_client.launched():
            self._meet(self._world.init, formed, may_leave)
        else:
            self._form(self._world.init)
            formed()

    def enter_alone(self, init: Callable[[], None], gate: StandbyGate) -> None:
        """Form a world of one, which ends in `pass_gate`."""
        gate.form_world_of_one(init)
        self._gate = gate

    def pass_gate(self, formed: Callable[[], None] = _nothing) -> bool:
        """Go from the world of one into the job's world, and return True. Any other process gets False at once.

        Raises as `enter`.
        """
        gate, self._gate = self._gate, None
        if gate is None:
            return False
        gate.leave_world_of_one()
        if rendezvous_client.launched():
            self._arrive(self._world.init, form=self._form, formed=formed)
        else:
            self._form(self._world.init)
            formed()
        return True

    def report_synced(self) -> None:
        """Tell the launcher, the first time, that this worker has the job's state. Raises RendezvousLost."""
        if not self._has_reported_synced and rendezvous_client.launched():
            self._has_reported_synced = True
            rendezvous_client.report_synced()

    def _arrive(
        self, init: Callable[[], None], *, form: Callable[[Callable[[], None]], None], formed: Callable[[], None]
    ) -> None:
        """Form the first world under the launcher, with the place that it gave at the start if that is still valid."""
        if not self._has_place:
            self.take_place()
        self._has_place = False
        if not self._is_formed(lambda: form(init), formed):
            self._meet(init, formed)

    def _meet(
        self, init: Callable[[], None], formed: Callable[[], None], may_leave: Callable[[], bool] = never
    ) -> None:
        """Ask for a place in the next world and form it, until a world is formed in which no member dies."""
        for _ in range(FORM_ATTEMPTS):
            rendezvous_client.take_place(may_leave)
            if self._is_formed(lambda: self._form(init), formed):
                return
        raise RendezvousLost

    def _is_formed(self, form: Callable[[], None], formed: Callable[[], None]) -> bool:
        from hvd_elastic.trainer.collectives.errors import HorovodInternalError

        try:
            form()
            formed()
        except (ValueError, HorovodInternalError) as error:
            if isinstance(error, ValueError) and not is_init_failure(error):
                raise
            logger.warning("a member of the new world was lost before it was formed")
            self._leave_world()
            return False
        return True

    def _form(self, init: Callable[[], None]) -> None:
        """Form any world but the first. The place is in the environment already, and with HOROVOD_ELASTIC=0 Horovod
        does not ask for it again.
        """
        before = os.environ.get(_ELASTIC, "0")
        os.environ[_ELASTIC] = "0"
        try:
            self._watched(init)
        finally:
            os.environ[_ELASTIC] = before

    def _watched(self, init: Callable[[], None]) -> None:
        """Call `init`, and end it when a member has died for which Gloo still waits.

        Gloo's listening side waits the Gloo time-out for a peer to connect, and nothing tells it that the peer is gone.
        The launcher knows, and answers Gloo's look-ups with 410 from then on.
        """
        over = threading.Event()

        def watch() -> None:
            while not over.wait(look_pause(int(os.environ.get("HOROVOD_SIZE", "1")))):
                if rendezvous_client.is_world_broken(over.is_set) and not over.is_set():
                    self._sockets.cut_new()
                    return

        if has_server():
            start_thread("init-watch", watch, log=logger, stopped=over)
        try:
            self._sockets.note(init)
        finally:
            over.set()
            os.environ.pop(ENV_MEETING, None)  # it is over
        if rendezvous_client.launched():
            self._peers.start()

    def _leave_world(self) -> None:
        self._world.shutdown()
        left_open = self._sockets.cut()
        if left_open:
            logger.info("shut down %d sockets that a lost peer had left open", left_open)


def _choose_gloo() -> None:
    """For `python train.py`: a world of one over Gloo. `mpirun` and a static `horovodrun` set an environment of their
    own.
    """
    if not has_server() and not any(name in os.environ for name in _MPI_VARIABLES):
        os.environ.setdefault("HOROVOD_CONTROLLER", "gloo")
        os.environ.setdefault("HOROVOD_CPU_OPERATIONS", "gloo")


THIS_PROCESS: Final = WorldMember()
"""Horovod's world is global to its process, so there is one member in it. Nothing else here is global."""
