"""`hvd.init()`, replaced: the first call forms the first world as `world_membership` does.

Horovod's operations take more dtypes (`wire_dtypes`) before anything else replaces them for a while.
From then on this process is watched for waits. What it asks of the other ranks before its training function is kept for
those that join (`setup_calls`).
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from hvd_elastic.trainer.collectives import wire_dtypes
from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.collectives.replaced_functions import replace_init
from hvd_elastic.trainer.collectives.setup import horovod_operations, setup_calls, torch_operations
from hvd_elastic.trainer.collectives.this_world import TORCH, WORLD
from hvd_elastic.trainer.data.loaders import loader_processes
from hvd_elastic.trainer.elastic import fixed_world, patch_check
from hvd_elastic.trainer.elastic.mistakes import script_mistake
from hvd_elastic.trainer.elastic.stalls import stall_watch
from hvd_elastic.trainer.elastic.world import rendezvous_client, world_membership
from hvd_elastic.trainer.elastic.world.host_name import check_host_name
from hvd_elastic.trainer.elastic.world.standby_gate import StandbyGate
from hvd_elastic.trainer.telemetry.code_places import place_of

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


class _Arrival:
    """Waits for the launcher, as a standby does, and takes this process's place: once, where the script needs it."""

    def __init__(self, wait: Callable[[], None] | None) -> None:
        self._wait = wait
        self.has_waited = False

    def wait(self) -> None:
        """Return when a launcher has adopted this process; does nothing a second time."""
        TORCH.environment.world_known()
        wait, self._wait, self.has_waited = self._wait, None, True
        if wait is not None:
            wait()

    def take_place(self) -> None:
        """Have the variables of this process's first world, which it has not formed yet."""
        self.wait()
        if rendezvous_client.launched():
            world_membership.THIS_PROCESS.take_place()
        TORCH.tell_script()


def patch_init(wait: Callable[[], None] | None = None, *, solo: tuple[int, int] | None = None) -> None:
    """Replace `hvd.init`. A second call does nothing, so the first caller decides.

    Args:
        wait: called once before the first world is formed; a standby waits in it for its launcher's environment.
        solo: local rank and local size of a solo standby. It forms a world of one first and calls `wait` where the
            script enters `elastic.run`.

    The replaced `hvd.init` raises SystemExit in a process of multiprocessing that only imports the script.
    """
    arrival = _Arrival(wait)
    replace_functions = (torch_operations if IS_TORCH else horovod_operations).replace_functions

    def first(init: Callable[[], None]) -> None:
        if loader_processes.runs_script_anew():  # it would take this process's place in the world
            script_mistake.leave_if([loader_processes.NO_GUARD])
        member = world_membership.THIS_PROCESS
        if solo is not None and wait is not None and not arrival.has_waited:
            member.enter_alone(init, StandbyGate(arrival.wait, local_rank=solo[0], local_size=solo[1]))
            _watch()
            setup_calls.THIS_PROCESS.begin(_refuse, replace_functions)
            return
        arrival.wait()
        member.enter(init, enter_world)
        if rendezvous_client.launched():
            setup_calls.THIS_PROCESS.begin(_refuse, replace_functions)
        patch_check.warn_of_missing_patches()

    wire_dtypes.install()
    by_script = fixed_world.THIS_PROCESS.begin
    is_first = replace_init(first=first, before_each=_check_network, open_store=_open_store, by_script=by_script)
    if is_first and IS_TORCH:
        torch_operations.THIS_PROCESS.install()
    if is_first and IS_TORCH and (wait is not None or rendezvous_client.launched()):
        TORCH.environment.await_world(arrival.take_place)


def _open_store() -> "Store":
    from hvd_elastic.trainer.elastic.world import rendezvous_store

    return rendezvous_store.open_store()


def _check_network() -> None:
    patch_check.check_address()
    check_host_name()


def enter_world() -> None:
    """Watch this process in the world that has just formed, and give those that join what they missed before.

    Raises:
        HorovodInternalError: a member of the world is lost.
    """
    _watch()
    if rendezvous_client.launched():
        setup_calls.THIS_PROCESS.meet(WORLD)


def _watch() -> None:
    stall_watch.THIS_PROCESS.enter_world(WORLD.rank(), WORLD.size())


def _refuse(mistake: str) -> NoReturn:
    script_mistake.leave_if([f"{place_of(threading.get_ident())}: {mistake}"])
    raise AssertionError
