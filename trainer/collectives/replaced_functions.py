"""Horovod's functions that scripts call, replaced in the imported modules. The caller says by what.

Over torch.distributed only the way into the world is taken; a script calls torch's functions as they are.

`hvd_elastic.horovod.patch_set` is another thing: it changes Horovod's source before it is compiled.
"""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.collectives.this_world import TORCH
from hvd_elastic.trainer.collectives.torch_engine.torch_world import OpenStore


def replace_init(
    *,
    first: Callable[[Callable[[], None]], None],
    before_each: Callable[[], None],
    open_store: OpenStore,
    by_script: Callable[[], None],
) -> bool:
    """Replace `hvd.init`, or say how torch's first group is made. A second call does nothing: the first caller decides.

    Returns whether this was the first.

    Args:
        first: called in place of the script's first `init`, with Horovod's own; not where Horovod is initialized by
            then.
        before_each: called before each of Horovod's own.
        open_store: opens what torch's processes find each other in. Horovod has its own.
        by_script: called after the first world where a script of torch's has formed it by `init_process_group`.
    """
    if IS_TORCH:
        return TORCH.begin_with(first, open_store, by_script)
    import horovod.torch as hvd

    stock_init = hvd.init
    if getattr(stock_init, "patched", False):
        return False

    @functools.wraps(stock_init)
    def first_init(*args: Any, **kwargs: Any) -> None:
        hvd.init = later_init
        if not hvd.is_initialized():  # by the stock function, before it was replaced
            first(functools.partial(later_init, *args, **kwargs))

    @functools.wraps(stock_init)
    def later_init(*args: Any, **kwargs: Any) -> None:
        before_each()
        stock_init(*args, **kwargs)

    first_init.patched = later_init.patched = True  # type: ignore[attr-defined]
    hvd.init = first_init
    return True


def replace_run(run: Callable[..., Any]) -> None:
    """Replace `hvd.elastic.run`."""
    if IS_TORCH:
        return
    import horovod.torch.elastic as stock

    stock.run = run


def replace_join(join: Callable[..., Any]) -> Callable[[], None]:
    """Have `hvd.join()`, however a script has imported it, call `join`, until what is returned is called."""
    if IS_TORCH:
        return lambda: None
    from horovod.torch import mpi_ops

    library = mpi_ops.mpi_lib
    stock_join = library.horovod_torch_join

    def put_back() -> None:
        library.horovod_torch_join = stock_join

    library.horovod_torch_join = join
    return put_back


def check_wrapped_optimizers(check: Callable[[Any, list[Any], bool], None]) -> None:
    """Have `hvd.DistributedOptimizer`, however a script has imported it, call `check` first.

    A second call does nothing.

    Args:
        check: gets the optimizer that is being made, what it is made from (parameters or their groups), and whether
            it asks for Adasum where Horovod has none (it has it over MPI).
    """
    if IS_TORCH:
        return
    from horovod.torch import optimizer as module

    for wrapper in (module._DistributedOptimizer, module._DistributedAdasumOptimizer):
        stock_init = wrapper.__init__
        if not getattr(stock_init, "checked", False):
            wrapper.__init__ = _checked_init(stock_init, check)


def _checked_init(
    stock_init: Callable[..., None], check: Callable[[Any, list[Any], bool], None]
) -> Callable[..., None]:
    from horovod.torch import Adasum, mpi_enabled

    signature = inspect.signature(stock_init)

    @functools.wraps(stock_init)
    def checked(self: Any, params: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, params, *args, **kwargs)
        given.apply_defaults()
        params = list(params)
        check(
            self, params, given.arguments.get("op", Adasum) == Adasum and not mpi_enabled()
        )  # its own class has no op
        stock_init(self, params, *args, **kwargs)

    checked.checked = True  # type: ignore[attr-defined]
    return checked


def replace_local_numbers(*, local_rank: int, local_size: int) -> Callable[[], None]:
    """Have `hvd.local_rank()` and `hvd.local_size()` return these, until what is returned is called."""
    if IS_TORCH:  # whose world reads them here; a launcher's environment takes their place
        os.environ.update(HOROVOD_LOCAL_RANK=str(local_rank), HOROVOD_LOCAL_SIZE=str(local_size))
        return lambda: None
    import horovod.torch as hvd

    answers = {"local_rank": local_rank, "local_size": local_size}
    horovods_own = {name: getattr(hvd, name) for name in answers}

    def put_back() -> None:
        for name, function in horovods_own.items():
            setattr(hvd, name, function)

    for name, value in answers.items():
        setattr(hvd, name, lambda value=value: value)
    return put_back
