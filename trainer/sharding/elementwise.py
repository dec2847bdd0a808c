"""Whether an optimizer treats each element of a parameter by itself, found by trying it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from hvd_elastic.mpijob.contract import Exit, HvdElasticError

OptimizerClass = Callable[..., torch.optim.Optimizer]

_STEPS: Final = 3
_NOT_ON_CPU: Final = {"fused": None, "capturable": False}
"""Options about how a step is computed, which the trial does without."""


class ShardingError(HvdElasticError):
    """An optimizer cannot be sharded, or a sharded one is used in a way that cannot work; the message says which."""

    exit_code = Exit.SCRIPT_MISTAKE


def require_elementwise(optimizer_class: OptimizerClass, options: Mapping[str, Any]) -> None:
    """Step a matrix whole, and the same as two vectors: both must come to the same.

    LBFGS, Muon, Adafactor, LAMB and LARS do not: they look at a whole parameter, or at all of them. A list of names
    would not know the optimizer of tomorrow, nor that of the script.

    Raises:
        ShardingError: they do not, or the optimizer needs something else than a gradient for each element.
    """
    name = getattr(optimizer_class, "__name__", repr(optimizer_class))
    weights = torch.linspace(-1.5, 2.0, 12)
    whole = torch.nn.Parameter(weights.clone().reshape(3, 4))
    parts = [torch.nn.Parameter(weights[:5].clone()), torch.nn.Parameter(weights[5:].clone())]
    try:
        of_whole = _stepped(optimizer_class, options, [whole])
        _stepped(optimizer_class, options, parts)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ShardingError(f"{_refusal(name)} (it was tried on 12 weights: {error})") from error
    unfit = sorted(key for key, value in of_whole.state[whole].items() if not _is_divisible(value, whole))
    if unfit:
        raise ShardingError(
            f"{_refusal(name)} (it keeps {', '.join(unfit)}, neither a number nor one for each element)"
        )
    if not torch.allclose(whole.detach().flatten(), torch.cat([part.detach() for part in parts]), rtol=1e-4, atol=1e-6):
        raise ShardingError(f"{_refusal(name)} (a matrix came to other weights than its two halves)")


def _refusal(name: str) -> str:
    return (
        f"ShardedOptimizer: {name} does not treat each element of a parameter by itself, so that no rank can step its"
        " share alone: use hvd.DistributedOptimizer with it"
    )


def _stepped(
    optimizer_class: OptimizerClass, options: Mapping[str, Any], parameters: list[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    own: dict[str, Any] = {name: value for name, value in _NOT_ON_CPU.items() if name in options}
    if "lr" in options:  # a rate of 0 at the start of a warm-up would hide every difference
        own["lr"] = 0.1
    optimizer = optimizer_class(parameters, **{**options, **own})
    for step in range(1, _STEPS + 1):
        at = 0
        for parameter in parameters:
            numbers = torch.arange(at, at + parameter.numel(), dtype=torch.float32)
            parameter.grad = (torch.sin(numbers * step) * (1 + numbers)).reshape(parameter.shape)
            at += parameter.numel()
        optimizer.step()
    return optimizer


def _is_divisible(value: Any, parameter: torch.Tensor) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dim() == 0 or value.shape == parameter.shape
    return value is None or isinstance(value, bool | int | float)
