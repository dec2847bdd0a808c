"""`hvd.init()`, replaced: the first call forms the first world as `world_membership` does."""

import functools
from collections.abc import Callable
from typing import Any

from hvd_elastic.trainer.elastic import patch_check
from hvd_elastic.trainer.elastic.world import world_membership
from hvd_elastic.trainer.elastic.world.host_name import check_host_name
from hvd_elastic.trainer.elastic.world.standby_gate import StandbyGate


def patch_init(wait: Callable[[], None] | None = None, *, solo: tuple[int, int] | None = None) -> None:
    """Replace `hvd.init`. A second call does nothing, so the first caller decides.

    Args:
        wait: called once before the first world is formed; a standby waits in it for its launcher's environment.
        solo: local rank and local size of a solo standby. It forms a world of one first and calls `wait` where the
            script enters `elastic.run`.
    """
    import horovod.torch as hvd

    if not getattr(hvd.init, "patched", False):
        hvd.init = _first_init(hvd.init, wait, solo)


def _first_init(
    stock_init: Callable[..., None], wait: Callable[[], None] | None, solo: tuple[int, int] | None
) -> Callable[..., None]:
    import horovod.torch as hvd

    @functools.wraps(stock_init)
    def first(*args: Any, **kwargs: Any) -> None:
        hvd.init = later
        if hvd.is_initialized():  # by the stock function, before it was replaced
            return
        member = world_membership.THIS_PROCESS

        def init() -> None:
            check_host_name()
            stock_init(*args, **kwargs)

        if solo is not None and wait is not None:
            member.enter_alone(init, StandbyGate(wait, local_rank=solo[0], local_size=solo[1]))
            return
        if wait is not None:
            wait()
        member.enter(init)
        patch_check.warn_of_missing_patches()

    @functools.wraps(stock_init)
    def later(*args: Any, **kwargs: Any) -> None:
        check_host_name()
        stock_init(*args, **kwargs)

    first.patched = later.patched = True  # type: ignore[attr-defined]
    return first
