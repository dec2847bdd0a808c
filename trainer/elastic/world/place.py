"""A worker's place in a world."""

from dataclasses import asdict, dataclass, fields


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
        names = (each.name for each in fields(cls))
        return cls(**dict(zip(names, map(int, answer.split(",")), strict=True)))

    def environment(self) -> dict[str, str]:
        """Return the variables that `hvd.init()` reads."""
        return {f"HOROVOD_{name.upper()}": str(number) for name, number in asdict(self).items()}
