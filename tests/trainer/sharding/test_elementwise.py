"""Which optimizers can be sharded: found by trying them."""

from typing import Any

import pytest
import torch
from torch import optim

from hvd_elastic.trainer.sharding.elementwise import ShardingError, require_elementwise


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (optim.Adam, {}),
        (optim.AdamW, {"lr": 0.0, "amsgrad": True}),
        (optim.AdamW, {"fused": True}),
        (optim.SGD, {"lr": 0.1}),
        (optim.SGD, {"lr": torch.tensor(0.1), "momentum": 0.9, "nesterov": True}),
        (optim.RMSprop, {"centered": True}),
        (optim.Adagrad, {}),
        (optim.Adadelta, {}),
        (optim.Adamax, {}),
        (optim.NAdam, {}),
        (optim.RAdam, {}),
        (optim.Rprop, {}),
        (optim.ASGD, {}),
    ],
)
def test_what_treats_each_element_by_itself_is_taken(kind: Any, options: dict[str, Any]) -> None:
    require_elementwise(kind, options)


class Lars(optim.SGD):
    """A rate for each parameter by its norm, as LARS and LAMB have."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                weight.data -= 0.1 * weight.norm() / weight.grad.norm() * weight.grad


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (optim.LBFGS, {}),
        (optim.SparseAdam, {}),
        (Lars, {"lr": 0.0}),
        *((getattr(optim, name), {}) for name in ("Adafactor", "Muon") if hasattr(optim, name)),
    ],
)
def test_what_does_not_is_refused_by_name(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ShardingError, match=rf"ShardedOptimizer: {kind.__name__} .* use hvd.DistributedOptimizer"):
        require_elementwise(kind, options)
