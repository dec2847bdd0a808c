"""A script that loads a checkpoint of its own in the training function, which runs again after every resize.

Training would go back to that checkpoint each time, on all ranks alike. Weights that are swapped in for an evaluation,
and back before the next step, are no mistake.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.trainer.collectives.distributed_optimizer import script_optimizer
from hvd_elastic.trainer.elastic.state_protocol import DurableState
from hvd_elastic.trainer.telemetry.code_places import place_of


class LateLoadError(HvdElasticError):
    """The training function has loaded other weights than training had come to."""

    exit_code = Exit.SCRIPT_MISTAKE


@contextlib.contextmanager
def refused(state: DurableState) -> Iterator[None]:
    """Refuse the first optimizer step in the block if weights were loaded before it, once training has begun."""
    import torch

    modules = [value for value in vars(state).values() if isinstance(value, torch.nn.Module)]
    optimizers = [script_optimizer(each) for each in vars(state).values() if isinstance(each, torch.optim.Optimizer)]
    with contextlib.ExitStack() as hooks:
        if state.step_count:
            load = _Load(modules)
            for module in {part for each in modules for part in each.modules()}:
                hooks.callback(module.register_load_state_dict_pre_hook(load.begun).remove)  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                hooks.callback(optimizer.register_step_pre_hook(load.check).remove)
            load.hooks = hooks
        yield


class _Load:
    """What was loaded in one call of the training function."""

    def __init__(self, modules: list[Any]) -> None:
        self._modules = modules
        self._before: list[Any] | None = None
        """The parameters that training had come to, on the host; None: nothing was loaded."""
        self._place = ""
        self.hooks: contextlib.ExitStack | None = None

    def begun(self, *_: object) -> None:
        """A module is about to load a state."""
        if self._before is None:
            self._before = [each.detach().to("cpu", copy=True) for each in self._parameters()]
            self._place = place_of(threading.get_ident())

    def check(self, *_: object) -> None:
        """An optimizer is about to step.

        Raises:
            LateLoadError: the parameters are not those that training had come to.
        """
        before, self._before = self._before, None
        if self.hooks is not None:
            self.hooks.close()  # what is loaded later is the script's way to train
        if before is None:
            return
        present = [each.detach().cpu() for each in self._parameters()]
        if any(not one.equal(other) for one, other in zip(before, present, strict=True)):
            raise LateLoadError(
                f"{self._place}: the training function loads weights, and runs again after every resize: training "
                "would go back to them each time. Load them before State(...), and give the State what else must be "
                "resumed; with a durable checkpoint (checkpoint=...) the job goes on by itself"
            )

    def _parameters(self) -> Iterator[Any]:
        for module in self._modules:
            yield from module.parameters()
