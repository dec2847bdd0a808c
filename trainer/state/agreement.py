"""What the workers agree on: at a commit, whether hosts changed and who must wait; and, for a script, any value."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

import torch

from hvd_elastic.trainer.collectives.setup import setup_calls
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import ReduceOp, TrainingWorld
from hvd_elastic.trainer.elastic import departure
from hvd_elastic.trainer.telemetry.heartbeat import CheckpointRequest

T = TypeVar("T")

_AGREE: Final = "hvd_elastic.agree"
_HALF: Final = (1 << 32) - 1


def agree(value: T) -> T:
    """Return rank 0's value on every worker.

    For what all must decide alike, where each might come to another answer: whether to stop early, by a clock, or by a
    figure that each has measured itself. A worker that leaves a loop alone keeps all others waiting in the next step.

    A collective operation: every worker calls it, at the same place. Call it in the function that `elastic.run` calls.

    Example:
        ```python
        state.stopped = elastic.agree(time.monotonic() > deadline)
        ```

    Args:
        value: this worker's own answer; anything that can be pickled.
    """
    return setup_calls.THIS_PROCESS.once(_AGREE, lambda: WORLD.broadcast_object(value, root=0, name=_AGREE))


class RiskLevel(IntEnum):
    """What is at risk when a durable checkpoint is requested."""

    NONE = 0
    """No checkpoint was requested."""
    POD = 1
    """One pod is about to end. The workers that keep running hold the state."""
    JOB = 2
    """The job may stop or be lost: training waits until its state is durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One worker's view of the job; after `allreduced`, the view that all workers share."""

    hosts_changed: bool
    """Hosts were added or removed."""
    risk: RiskLevel
    keeps_running: bool
    """This worker's pod is not about to end; after `allreduced`: at least one worker's pod is not."""
    gathers: bool = False
    """This worker stores the state, and needs the shares of all others for it."""
    compares: bool = False
    """This worker wants all to compare what they hold."""

    def allreduced(self, digest: int = 0, *, world: TrainingWorld = WORLD) -> tuple["Agreement", int]:
        """Return the maximum of each field over all workers, and the sum of `digest` modulo 2^64: the same on each.

        One small allreduce. It counts the workers that say so, because a sum is taken in it: a digest goes in two
        halves, which do not overflow 64 bits in a world of less than 2^31 workers.
        """
        if world.size() == 1:
            return self, digest
        pod, job = (self.risk is level for level in (RiskLevel.POD, RiskLevel.JOB))
        flags = (self.hosts_changed, pod, job, self.keeps_running, self.gathers, self.compares)
        told = [*flags, digest & _HALF, digest >> 32]
        summed = world.allreduce(torch.tensor(told, dtype=torch.int64), op=ReduceOp.SUM, name="hvd_elastic.agreement")
        *flags_of_all, low, high = summed.tolist()
        hosts_changed, pods, jobs, keeps_running, gathers, compares = map(bool, flags_of_all)
        agreed = Agreement(
            hosts_changed=hosts_changed,
            risk=RiskLevel.JOB if jobs else RiskLevel.POD if pods else RiskLevel.NONE,
            keeps_running=keeps_running,
            gathers=gathers,
            compares=compares,
        )
        return agreed, (low + (high << 32)) % (1 << 64)

    def must_wait_for_store(self, *, job_was_at_risk: bool) -> bool:
        """Whether training waits until this commit is durable.

        Args:
            job_was_at_risk: an earlier commit of the same world had RiskLevel.JOB.
        """
        if self.risk is RiskLevel.JOB:
            return True
        if self.hosts_changed and job_was_at_risk:
            return True
        return (self.hosts_changed or self.risk > RiskLevel.NONE) and not self.keeps_running


class RequestedSaves:
    """The durable checkpoints that another process of this pod requests."""

    def __init__(self) -> None:
        self._request = CheckpointRequest()
        self.job_was_at_risk = False
        """A commit of this world had RiskLevel.JOB, as all agreed."""

    def enter_world(self) -> None:
        self.job_was_at_risk = False

    @property
    def risk(self) -> RiskLevel:
        """What the pod of this worker asks for. One worker of each pod speaks for it."""
        if WORLD.local_rank() != 0 or not self._request.pending():
            return RiskLevel.NONE
        return RiskLevel.POD if departure.announced() else RiskLevel.JOB

    def note(self, agreed: RiskLevel) -> None:
        self.job_was_at_risk |= agreed is RiskLevel.JOB

    def take(self) -> str:
        """Remove the request, which is being met. Returns its reason."""
        return (self._request.take() if WORLD.local_rank() == 0 else "") or "request"
