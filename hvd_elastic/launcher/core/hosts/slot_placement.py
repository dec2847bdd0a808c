"""Which process gets which rank: Horovod's own rule, as values."""

from collections.abc import Sequence
from dataclasses import dataclass

from horovod.runner.common.util.hosts import HostInfo, get_host_assignments

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

    def response(self) -> str:
        """The answer to GET rank_and_size, in the order that `gloo_context.cc` parses."""
        return f"{self.rank},{self.size},{self.local_rank},{self.local_size},{self.cross_rank},{self.cross_size}"

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
    """Assign ranks to as many processes as fit, in the order of `hosts`: rank 0 is on the first host."""
    by_alias = {host.alias: host for host in hosts}
    infos = [HostInfo(host.alias, host.slots) for host in hosts]
    return tuple(
        Slot(
            host=by_alias[info.hostname],
            rank=info.rank,
            size=info.size,
            local_rank=info.local_rank,
            local_size=info.local_size,
            cross_rank=info.cross_rank,
            cross_size=info.cross_size,
        )
        for info in get_host_assignments(infos, 0, maximum)
    )
