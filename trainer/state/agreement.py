"""What the workers tell each other at a commit, and what follows from it."""

from dataclasses import dataclass
from enum import IntEnum

import horovod.torch as hvd
import torch


class Danger(IntEnum):
    """What a request for a durable checkpoint means."""

    NONE = 0
    POD = 1
    """One pod is about to end. Its peers hold the state, if there are any that stay."""
    JOB = 2
    """The job may stand still or be lost: training waits until its state is durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of one worker, and after `agreed` of all."""

    hosts: bool
    """Hosts came or went."""
    danger: Danger
    stays: bool
    """Its pod is not about to end; of all: somebody's is not."""

    def agreed(self) -> "Agreement":
        """What anybody says, the same on every worker: one small allreduce."""
        if hvd.size() == 1:
            return self
        told = torch.tensor([self.hosts, self.danger, self.stays], dtype=torch.int32)
        hosts, danger, stays = hvd.allreduce(told, op=hvd.Max, name="hvd_elastic.word").tolist()
        return Agreement(hosts=bool(hosts), danger=Danger(danger), stays=bool(stays))

    def must_secure(self, *, endangered: bool) -> bool:
        """Whether training waits until this commit is durable. `endangered`: so did one before it in this world."""
        if self.danger is Danger.JOB:
            return True
        return (self.hosts and endangered) or ((self.hosts or self.danger > 0) and not self.stays)
