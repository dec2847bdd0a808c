"""Which process gets which rank: Horovod's own rule, as values."""

from collections.abc import Sequence
from dataclasses import dataclass

from hvd_elastic.discovery.snapshot import Host

SlotKey = tuple[str, int]
"""The place of a process: its host's alias and its local rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The place of a process in one world. The field names are Horovod's (`SlotInfo`)."""

    host: Host
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    @property
    def key(self) -> SlotKey:
        """What stays the same from world to world."""
        return self.host.alias, self.local_rank

    @property
    def signature(self) -> tuple[SlotKey, str]:
        """All that the process knows of its place: if it is unchanged, nothing has changed for the process."""
        return self.key, self.response()

    @property
    def places(self) -> tuple[int, ...]:
        """Rank and size among all processes, those of its host, and those of its local rank."""
        return self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size

    def response(self) -> str:
        """The answer to GET rank_and_size, in the order that `gloo_context.cc` parses."""
        return ",".join(map(str, self.places))

    def environment(self) -> dict[str, str]:
        """The variables that `hvd.init()` reads; the same as `gloo_run.create_slot_env_vars`."""
        return {
            "HOROVOD_HOSTNAME": self.host.alias,
            "HOROVOD_RANK": str(self.rank),
            "HOROVOD_SIZE": str(self.size),
            "HOROVOD_LOCAL_RANK": str(self.local_rank),
            "HOROVOD_LOCAL_SIZE": str(self.local_size),
            "HOROVOD_CROSS_RANK": str(self.cross_rank),
            "HOROVOD_CROSS_SIZE": str(self.cross_size),
        }


REMOVED_RESPONSE = "-1,-1,-1,-1,-1,-1"
"""The answer to a process that is not part of the job any more (`hosts.INVALID_SLOT_INFO`)."""


def place(hosts: Sequence[Host], maximum: int | None) -> tuple[Slot, ...]:
    """Assign ranks to as many processes as fit, in the order of `hosts`: rank 0 is on the first host.

    Horovod's `get_host_assignments`, in one pass over the slots; a test compares the two.
    """
    left = sum(host.slots for host in hosts) if maximum is None else maximum
    taken: list[tuple[Host, int]] = []
    cross_sizes: list[int] = []
    for host in hosts:
        count = min(host.slots, left)
        left -= count
        taken.append((host, count))
        cross_sizes += [0] * (count - len(cross_sizes))
        for local_rank in range(count):
            cross_sizes[local_rank] += 1
    size = sum(count for _, count in taken)
    cross_ranks = [0] * len(cross_sizes)
    slots: list[Slot] = []
    for host, count in taken:
        for local_rank in range(count):
            slots.append(
                Slot(
                    host=host,
                    rank=len(slots),
                    size=size,
                    local_rank=local_rank,
                    local_size=count,
                    cross_rank=cross_ranks[local_rank],
                    cross_size=cross_sizes[local_rank],
                )
            )
            cross_ranks[local_rank] += 1
    return tuple(slots)
