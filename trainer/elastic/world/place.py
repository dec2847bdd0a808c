"""A worker's place in a world."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The six numbers of a worker in a world. Rank -1 means that the worker has no place in it."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    @classmethod
    def parse(cls, answer: str) -> "Place":
        """Read the rendezvous server's answer (`SlotInfo.to_response_string`). Raises ValueError on anything else."""
        rank, size, local_rank, local_size, cross_rank, cross_size = map(int, answer.split(","))
        return cls(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=cross_rank,
            cross_size=cross_size,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables that `hvd.init()` reads."""
        return {
            "HOROVOD_RANK": str(self.rank),
            "HOROVOD_SIZE": str(self.size),
            "HOROVOD_LOCAL_RANK": str(self.local_rank),
            "HOROVOD_LOCAL_SIZE": str(self.local_size),
            "HOROVOD_CROSS_RANK": str(self.cross_rank),
            "HOROVOD_CROSS_SIZE": str(self.cross_size),
        }
