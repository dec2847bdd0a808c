"""How often to make a commit durable, from what a checkpoint costs and how often all copies in memory are lost.

A durable checkpoint serves only when no worker is left that holds the state. So the rate that counts is that of losing
*every* copy, which is far below that of preemptions.
"""

import math
from dataclasses import dataclass
from typing import Final

FIRST_SECONDS: Final = 60.0
"""The interval until the cost of a checkpoint was measured once."""
LEAST_SECONDS: Final = 10.0
"""Below this a loss costs no less: bringing workers back and reading the checkpoint takes longer."""
MOST_SECONDS: Final = 1800.0
"""Nobody expects to lose more than half an hour, whatever the estimate says. With a cost of one second, an interval of
half an hour is 0.06% of the time: a longer one would save next to nothing."""
LEAST_SAVES: Final = 2.0
"""An interval has at least the time of so many saves, so that the store is busy for half of the time at most."""
PRIOR_SECONDS: Final = 7200.0
"""Mean time between losses of all copies before the job has seen any: the median over SkyPilot's recorded spot traces
(NSDI'24), of the time with a machine by how often the last one went, as benchmarks/checkpoint_interval.py prints it."""
PRIOR_LOSSES: Final = 1.0
"""As many observed losses outweigh the prior as much as it weighs itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossHistory:
    """What a job has seen so far, over all its workers and restarts."""

    trained_seconds: float = 0.0
    """In which at least one worker held the state."""
    losses: int = 0
    """Times at which no copy was left in memory, and the last durable checkpoint was older than the last commit."""

    @property
    def mean_seconds(self) -> float:
        """Estimate of the mean time between two losses.

        With losses at a constant rate and a gamma prior on that rate, the posterior's mean rate is
        `(PRIOR_LOSSES + losses) / (PRIOR_LOSSES * PRIOR_SECONDS + trained_seconds)`; this is its inverse.
        """
        observed = PRIOR_LOSSES * PRIOR_SECONDS + self.trained_seconds
        return observed / (PRIOR_LOSSES + self.losses)


def daly_seconds(cost_seconds: float, mean_seconds: float) -> float:
    """The training time between two checkpoints that loses least: `sqrt(2*cost*mean) - cost`.

    Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps" (FGCS 22, 2006). Where a
    checkpoint costs half of `mean_seconds` or more, the root is no estimate, and this is `mean_seconds`.

    Args:
        cost_seconds: for which training stands still, or which it loses to slower steps, at each checkpoint.
        mean_seconds: between two losses of all copies in memory.
    """
    if cost_seconds >= mean_seconds / 2:
        return mean_seconds
    return math.sqrt(2 * cost_seconds * mean_seconds) - cost_seconds


def checkpoint_seconds(history: LossHistory, *, cost_seconds: float | None = None, save_seconds: float = 0.0) -> float:
    """The interval between the beginnings of two durable checkpoints, in seconds.

    Args:
        history: of this job.
        cost_seconds: as for `daly_seconds`; None: not measured yet.
        save_seconds: from the beginning of a save until it is durable, most of it in the background; 0: not known.
    """
    least = max(LEAST_SECONDS, LEAST_SAVES * save_seconds)
    if cost_seconds is None:
        return max(FIRST_SECONDS, least)
    best = cost_seconds + daly_seconds(cost_seconds, history.mean_seconds)
    return max(least, min(best, MOST_SECONDS))
