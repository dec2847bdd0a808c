"""`hvd.init()`, replaced: the first call forms the first world as `world_membership` does."""

from collections.abc import Callable

from hvd_elastic.trainer.collectives import patch_check
from hvd_elastic.trainer.collectives.replaced_functions import replace_init
from hvd_elastic.trainer.data.loaders import loader_processes
from hvd_elastic.trainer.elastic.mistakes import script_mistake
from hvd_elastic.trainer.elastic.world import world_membership
from hvd_elastic.trainer.elastic.world.host_name import check_host_name
from hvd_elastic.trainer.elastic.world.standby_gate import StandbyGate


def patch_init(wait: Callable[[], None] | None = None, *, solo: tuple[int, int] | None = None) -> None:
    """Replace `hvd.init`. A second call does nothing, so the first caller decides.

    Args:
        wait: called once before the first world is formed; a standby waits in it for its launcher's environment.
        solo: local rank and local size of a solo standby. It forms a world of one first and calls `wait` where the
            script enters `elastic.run`.

    The replaced `hvd.init` raises SystemExit in a process of multiprocessing that only imports the script.
    """

    def first(init: Callable[[], None]) -> None:
        if loader_processes.runs_script_anew():  # it would take this process's place in the world
            script_mistake.leave_if([loader_processes.NO_GUARD])
        member = world_membership.THIS_PROCESS
        if solo is not None and wait is not None:
            member.enter_alone(init, StandbyGate(wait, local_rank=solo[0], local_size=solo[1]))
            return
        if wait is not None:
            wait()
        member.enter(init)
        patch_check.warn_of_missing_patches()

    replace_init(first=first, before_each=check_host_name)
