"""The made-up inference load: how many hosts inference wants, and for how long."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPhase:
    """Inference needs `hosts` hosts for at least `seconds`."""

    hosts: int
    seconds: float


def made_up_load(*, seed: int, hosts: int, min_workers: int, seconds: float) -> tuple[LoadPhase, ...]:
    """A day of bursts, compressed into `seconds`. The same arguments give the same load.

    It begins and ends with no hosts for inference. It always leaves training at least `min_workers` of the `hosts`, and
    in one phase no more than that.
    """
    chance = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    spare = hosts - min_workers
    if spare < 1:
        return (LoadPhase(hosts=0, seconds=seconds),)
    wanted = [0, chance.randint(1, spare), 0, spare, chance.randrange(spare), 0]
    wanted = [n for n, before in zip(wanted, [-1, *wanted], strict=False) if n != before]
    weights = [chance.uniform(1, 1.5) for _ in wanted]
    return tuple(
        LoadPhase(hosts=n, seconds=seconds * weight / sum(weights)) for n, weight in zip(wanted, weights, strict=True)
    )


def is_over(phase: LoadPhase, *, seconds: float, full: bool, patience_seconds: float) -> bool:
    """Whether the next phase may begin, `seconds` after this one began.

    Training must first be `full`, that is, use all of its capacity: a new worker takes seconds to import torch, and the
    next resize would otherwise come before this one has happened. After `patience_seconds` more it need not be full.
    """
    return seconds >= phase.seconds and (full or seconds >= phase.seconds + patience_seconds)
