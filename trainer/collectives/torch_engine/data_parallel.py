"""DistributedDataParallel over worlds: an object that a script makes once lives through all of them.

A newcomer makes its own while the others train, so its constructor may not be a collective operation. And it differs
from theirs: each reducer rebuilds its buckets after its first backward pass, together with all ranks, once. So in each
new world every rank makes the reducer of its objects anew, by the way on which DistributedDataParallel is unpickled
(`__setstate__`, torch 2.6 to 2.15): the order of the buckets is that of the first pass again, for newcomers and all
others. That takes milliseconds. Weights and buffers are the State's to send.
"""

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.trainer.collectives.engine import EngineError
from hvd_elastic.trainer.collectives.torch_engine import gradient_wait

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


def _always() -> bool:
    return True


def _nothing() -> None:
    """Do nothing before a forward pass."""


@contextlib.contextmanager
def _no_collectives() -> Iterator[None]:
    """Let a constructor of torch 2.6, which has no `init_sync`, send nothing."""
    from torch.nn.parallel import distributed

    names = ("_verify_param_shape_across_processes", "_sync_module_states")
    stock = {name: getattr(distributed, name) for name in names}
    for name in names:
        setattr(distributed, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, function in stock.items():
            setattr(distributed, name, function)


def renew_reducer(model: "DistributedDataParallel") -> None:
    """Make it anew, for all parameters that require a gradient now. On every rank; nothing is sent."""
    from torch._C._distributed_c10d import _register_comm_hook

    model.__setstate__(model.__getstate__())  # type: ignore[no-untyped-call]
    # With `static_graph`, which looks at the graph in its reducer's first pass and averages after it.
    model._static_graph_delay_allreduce_enqueued = False
    for hook, state in model._comm_hooks:  # they were the old reducer's
        _register_comm_hook(model.reducer, state, hook)


class DataParallelModels:
    """Those of one process."""

    def __init__(self) -> None:
        self._models: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()
        self._is_last: Callable[[], bool] = _always
        self._look: Callable[[], None] = _nothing
        self._is_installed = self._has_split = False

    def install(self) -> None:
        """Take note of each that is made from now on. A second call does nothing."""
        if self._is_installed:
            return
        from torch.nn.parallel import DistributedDataParallel

        self._is_installed = True
        gradient_wait.THIS_PROCESS.install()
        stock_init = DistributedDataParallel.__init__
        signature = inspect.signature(stock_init)

        @functools.wraps(stock_init)
        def made(model: "DistributedDataParallel", *args: Any, **kwargs: Any) -> None:
            given = signature.bind(model, *args, **kwargs).arguments
            self._refuse(given)
            if "init_sync" in signature.parameters:
                stock_init(**{**given, "init_sync": False})
            else:
                with _no_collectives():
                    stock_init(**given)
            self._models.add(model)
            gradient_wait.THIS_PROCESS.watch(model)
            model.register_forward_pre_hook(self._before_forward)

        DistributedDataParallel.__init__ = made  # type: ignore[assignment, method-assign]
        stock_register = DistributedDataParallel.register_comm_hook

        @functools.wraps(stock_register)
        def register(model: "DistributedDataParallel", state: object, hook: Callable[..., Any]) -> None:
            _refuse_hook(model, state)
            if state is model.process_group:
                state, hook = None, _over_present_group(weakref.ref(model), hook)
            stock_register(model, state, hook)

        DistributedDataParallel.register_comm_hook = register  # type: ignore[assignment, method-assign]

    def enter_world(self) -> None:
        """Have all of them average over the new world."""
        from torch import distributed

        for model in self._models:
            model.process_group = distributed.distributed_c10d._get_default_group()
            renew_reducer(model)

    def leave_world(self) -> None:
        """Keep nothing of the present world: no model can train any more."""
        for model in self._models:
            model.__dict__.update(reducer=None, logger=None, process_group=None)

    def split_steps(self, is_last: Callable[[], bool] | None) -> None:
        """Average in the last backward pass of each step alone. `is_last`: the micro-batch at hand is a step's last.

        None: each backward pass is a step of its own. Horovod's optimizers: `set_backward_passes`.
        """
        self._is_last, self._has_split = is_last or _always, self._has_split or is_last is not None

    @property
    def are_there(self) -> bool:
        """Whether this process has any."""
        return bool(self._models)

    def before_each_pass(self, look: Callable[[], None]) -> bool:
        """Have `look` called before each forward pass. Returns whether there is a model that would make one."""
        self._look = look
        return self.are_there

    def _before_forward(self, model: "DistributedDataParallel", _: Any) -> None:
        self._look()
        if self._has_split:  # else it is the script's own, as in `no_sync()`
            model.require_backward_grad_sync = self._is_last()
            if model.static_graph and not model.require_backward_grad_sync:  # torch ends with an internal error
                raise EngineError(
                    "DistributedDataParallel(static_graph=True) has to average in its first pass, and with "
                    "micro_batch_size only the last one of a step does. Leave out one of the two"
                )

    def _refuse(self, given: dict[str, Any]) -> None:
        """Raises EngineError for what a new world cannot make again."""
        if given.get("process_group") is not None or given.get("device_mesh") is not None:
            raise EngineError(
                "DistributedDataParallel(process_group=...): a group of the script's own ends with its world, and is "
                "not made again. Leave it out: the model averages over all ranks"
            )
        if given.get("mixed_precision") is not None:
            raise EngineError(
                "DistributedDataParallel(mixed_precision=...): its hooks are those of one world. Leave it out, and "
                "compute the loss within torch.autocast"
            )


def _over_present_group(model: "weakref.ref[DistributedDataParallel]", hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a comm hook that gets the group of the present world as its state."""

    @functools.wraps(hook)
    def over_present_group(_: None, bucket: Any) -> Any:
        present = model()
        return hook(present.process_group if present is not None else None, bucket)

    return over_present_group


def _refuse_hook(model: "DistributedDataParallel", state: object) -> None:
    """Raises EngineError for a comm hook whose state does not go on in another world, or is unlike a newcomer's."""
    groups = [state, *(getattr(state, name, None) for name in ("process_group", "subgroup"))]
    own = [each for each in groups if hasattr(each, "allreduce") and each is not model.process_group]
    if own:
        raise EngineError(
            "register_comm_hook: a group of the script's own ends with its world, and is not made again. Give None as "
            "the group: the hook averages over all ranks"
        )
    if hasattr(state, "iter"):
        raise EngineError(
            f"register_comm_hook({type(state).__name__}): it counts steps from 0 in each process, so a newcomer would "
            "send other things than the others. Leave it out, or take a hook that keeps nothing, such as "
            "bf16_compress_hook"
        )


THIS_PROCESS: Final = DataParallelModels()
"""torch has one class."""
