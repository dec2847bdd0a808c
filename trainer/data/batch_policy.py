"""How a step's samples are divided, and what follows for gradients and the learning rate: pure arithmetic.

A step takes `total` samples over `size` workers. Worker r takes `shares(total, size)[r]` of them, in micro-batches that
fit its memory. Every micro-batch has a weight, so that Horovod's average over the workers is exactly the mean over all
samples of the step, even if the shares differ::

    1/size * sum over workers, micro-batches of weight * mean = sum of samples/total * mean = mean over the step
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hvd_elastic.mpijob.contract import ENV_BATCH_GLOBAL, ENV_BATCH_PER_WORKER, ENV_LEARNING_RATE, Exit, HvdElasticError


class BatchError(HvdElasticError):
    """A batch size or a learning-rate rule cannot be used; the message names every problem."""

    exit_code = Exit.BAD_INPUT


def shares(total: int, size: int) -> tuple[int, ...]:
    """Divide `total` samples over `size` workers, as equally as possible; the first workers take the remainder."""
    least, rest = divmod(total, size)
    return tuple(least + (rank < rest) for rank in range(size))


def micro_batch_sizes(share: int, limit: int | None, *, largest: int | None = None) -> tuple[int, ...]:
    """Divide a share into as few micro-batches of at most `limit` samples as possible, as equal as possible.

    `largest`: a larger share of the same step, which takes as many micro-batches: so all workers make equally many
    passes, as modules must that torch's `fully_shard` has divided. Only with a limit of one sample they cannot.
    """
    if share == 0:
        return ()
    return shares(share, min(share, math.ceil((largest or share) / limit))) if limit else (share,)


def weight(samples: int, total: int, size: int) -> float:
    """Return the factor on the mean loss of a micro-batch of `samples`, to be applied before `backward()`."""
    return samples * size / total


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """What stays constant over resizes. Exactly one of the first two fields is set."""

    global_size: int | None = None
    """Samples per step over all workers. The loss curve then does not depend on the number of workers."""
    per_worker: int | None = None
    """Samples per step and worker. A step then always takes the same time; the learning rate may follow the size."""
    micro: int | None = None
    """Most samples in one forward and backward pass; None: the whole share at once."""

    def __post_init__(self) -> None:
        problems = [
            f"{name}: {value} is below 1"
            for name, value in (
                ("global_size", self.global_size),
                ("per_worker", self.per_worker),
                ("micro", self.micro),
            )
            if value is not None and value < 1
        ]
        if (self.global_size is None) == (self.per_worker is None):
            problems.append("give either a global batch size or one per worker")
        if problems:
            raise BatchError("; ".join(problems))

    def total(self, size: int) -> int:
        """Return the samples per step over all workers of a world of `size`."""
        return self.global_size if self.global_size is not None else (self.per_worker or 0) * size

    def share(self, rank: int, size: int) -> int:
        return shares(self.total(size), size)[rank]

    @classmethod
    def choose(
        cls,
        environ: Mapping[str, str] = os.environ,
        *,
        global_size: int | None = None,
        per_worker: int | None = None,
        micro: int | None = None,
    ) -> "BatchPolicy":
        """Return the job's policy (from the environment), or else the script's own. Raises BatchError."""
        job_global, job_per_worker = _integer(environ, ENV_BATCH_GLOBAL), _integer(environ, ENV_BATCH_PER_WORKER)
        if job_global is not None or job_per_worker is not None:
            global_size, per_worker = job_global, job_per_worker
        return cls(global_size=global_size, per_worker=per_worker, micro=micro)


class LearningRateRule(StrEnum):
    """How the learning rate follows the number of workers; values of `contract.ENV_LEARNING_RATE`."""

    CONSTANT = "constant"
    LINEAR = "linear"
    """Goyal et al. 2017, "Accurate, Large Minibatch SGD": for k times the batch, k times the rate."""
    SQRT = "sqrt"
    """Krizhevsky 2014, "One weird trick": keeps the variance of a step constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRatePolicy:
    """The factor on the script's learning rate."""

    rule: LearningRateRule = LearningRateRule.CONSTANT
    base_size: int = 1
    """Number of workers for which the script's own rate is meant."""
    warmup_steps: int = 0
    """Optimizer steps over which the factor rises after workers were added. It falls at once: a lower rate is safe."""

    @classmethod
    def choose(
        cls,
        environ: Mapping[str, str] = os.environ,
        *,
        rule: str = LearningRateRule.CONSTANT,
        base_size: int = 1,
        warmup_steps: int = 0,
    ) -> "LearningRatePolicy":
        """Return the job's rule (from the environment), or else the script's own. Raises BatchError."""
        name = environ.get(ENV_LEARNING_RATE) or rule
        if name not in tuple(LearningRateRule):
            raise BatchError(f"learning rate: {name!r} is not one of {', '.join(LearningRateRule)}")
        if base_size < 1 or warmup_steps < 0:
            raise BatchError(f"learning rate: base_size {base_size} is below 1 or warmup_steps {warmup_steps} below 0")
        return cls(rule=LearningRateRule(name), base_size=base_size, warmup_steps=warmup_steps)

    def target(self, size: int) -> float:
        """Return the factor for a world of `size`, after the warm-up."""
        ratio = size / self.base_size
        match self.rule:
            case LearningRateRule.LINEAR:
                return ratio
            case LearningRateRule.SQRT:
                return math.sqrt(ratio)
        return 1.0

    def factor(self, *, size: int, start: float, steps: int) -> float:
        """Return the factor `steps` optimizer steps after a resize to `size` at which the factor was `start`."""
        target = self.target(size)
        if steps >= self.warmup_steps or start >= target:
            return target
        return start + (target - start) * steps / self.warmup_steps


def _integer(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise BatchError(f"{name}: {text!r} is not a whole number")
    return int(text)
