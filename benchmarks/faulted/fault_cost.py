"""What a fault cost a job, read from the training's own account: pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

from benchmarks.replay.sample_account import sample_account
from benchmarks.report.record import NEVER
from testbed.cluster.training import Account

SETTLED_STEPS: Final = 60
"""So many steps in a row at one size, the last of them just now, and a job trains steadily: two epochs of three
workers, so that the epoch in which it began to has ended."""
STILL_SECONDS: Final = 1.0
"""A longer time without a step, of 50 ms each, is a standstill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCost:
    """What one fault cost. NEVER where it did not end within the patience."""

    stall: float
    """The longest time without a step, seconds."""
    whole: float
    """Seconds from the fault until training is undisturbed at full size from then on."""
    repeated: int
    """Steps that had to be done again."""
    wrong_samples: int
    """In the epochs that the fault has touched and that have ended: samples that were left out, or taken again."""
    ended: str
    """How things stand where the job is not whole by itself; empty: it is."""

    @classmethod
    def of(cls, account: Account, *, since: float, until: float, size: int, samples: int, ended: str) -> Self:
        """Return what the job's account says of a fault.

        Args:
            account: of the job.
            since: Unix seconds of the fault.
            until: Unix seconds up to which the account tells.
            size: processes of the world in which the job is whole.
            samples: of the data set.
            ended: how things stand.
        """
        steps = account.steps
        return cls(
            stall=longest_pause(steps, since=since, until=until),
            whole=whole_after(steps, since=since, until=until, size=size),
            repeated=repeated_steps(steps, since=since),
            wrong_samples=sample_account(account.events, samples, since=since).wrong,
            ended=ended,
        )


def is_settled(steps: Sequence[Mapping[str, Any]], *, since: float, now: float, sizes: Iterable[int]) -> bool:
    """Whether the job trains steadily at one of these sizes since that moment. `steps` are rank 0's, oldest first."""
    last = [step for step in steps[-SETTLED_STEPS:] if step["time"] >= since]
    is_now = len(last) == SETTLED_STEPS and now - last[-1]["time"] < STILL_SECONDS
    return is_now and len({step["size"] for step in last}) == 1 and last[-1]["size"] in sizes and not _stands(last)


def _stands(steps: Sequence[Mapping[str, Any]]) -> bool:
    return any(later["time"] - earlier["time"] > STILL_SECONDS for earlier, later in pairwise(steps))


def longest_pause(steps: Sequence[Mapping[str, Any]], *, since: float, until: float) -> float:
    """The longest time without a step, from the last step before `since` on; NEVER if it lasts at `until`."""
    before = [step["time"] for step in steps if step["time"] < since][-1:]
    times = [*before, *(step["time"] for step in steps if since <= step["time"] <= until)]
    if not times or until - times[-1] > STILL_SECONDS:
        return NEVER
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def whole_after(steps: Sequence[Mapping[str, Any]], *, since: float, until: float, size: int) -> float:
    """Seconds until the first of the undisturbed steps at full size that last at `until`; 0: all steps are so."""
    found = [step for step in steps if since <= step["time"] <= until]
    if not found or found[-1]["size"] != size or until - found[-1]["time"] > STILL_SECONDS:
        return NEVER
    begins, before = 0, [step for step in steps if step["time"] < since][-1:]
    row = [*before, *found]
    for number, (earlier, later) in enumerate(pairwise(row), 1):
        has_changed = earlier["size"] != size or later["time"] - earlier["time"] > STILL_SECONDS
        begins = number if has_changed else begins
    return max(0.0, float(row[begins]["time"]) - since) if begins else 0.0


def repeated_steps(steps: Sequence[Mapping[str, Any]], *, since: float) -> int:
    """Steps that were undone, and done again, from the last one before `since` on."""
    before = [step for step in steps if step["time"] < since][-1:]
    row = [*before, *(step for step in steps if step["time"] >= since)]
    return sum(max(0, int(earlier["step"]) - int(later["step"]) + 1) for earlier, later in pairwise(row))
