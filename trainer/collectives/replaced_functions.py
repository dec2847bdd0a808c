"""Horovod's functions that scripts call, replaced in the imported modules. The caller says by what.

`hvd_elastic.horovod.patch_set` is another thing: it changes Horovod's source before it is compiled.
"""

import functools
from collections.abc import Callable
from typing import Any


def replace_init(*, first: Callable[[Callable[[], None]], None], before_each: Callable[[], None]) -> None:
    """Replace `hvd.init`. A second call does nothing, so the first caller decides.

    Args:
        first: called in place of the script's first `init`, with Horovod's own; not where Horovod is initialized by
            then.
        before_each: called before each of Horovod's own.
    """
    import horovod.torch as hvd

    stock_init = hvd.init
    if getattr(stock_init, "patched", False):
        return

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


def replace_run(run: Callable[..., Any]) -> None:
    """Replace `hvd.elastic.run`."""
    import horovod.torch.elastic as stock

    stock.run = run


def replace_join(join: Callable[..., Any]) -> Callable[[], None]:
    """Have `hvd.join()`, however a script has imported it, call `join`, until what is returned is called."""
    from horovod.torch import mpi_ops

    library = mpi_ops.mpi_lib
    stock_join = library.horovod_torch_join

    def put_back() -> None:
        library.horovod_torch_join = stock_join

    library.horovod_torch_join = join
    return put_back


def replace_local_numbers(*, local_rank: int, local_size: int) -> Callable[[], None]:
    """Have `hvd.local_rank()` and `hvd.local_size()` return these, until what is returned is called."""
    import horovod.torch as hvd

    answers = {"local_rank": local_rank, "local_size": local_size}
    horovods_own = {name: getattr(hvd, name) for name in answers}

    def put_back() -> None:
        for name, function in horovods_own.items():
            setattr(hvd, name, function)

    for name, value in answers.items():
        setattr(hvd, name, lambda value=value: value)
    return put_back
