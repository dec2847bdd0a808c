"""What makes a checkpoint exist: a small object, written last, that names every part and its SHA-256."""

import re
from dataclasses import asdict, dataclass
from typing import Final, Self

from hvd_elastic.trainer.checkpoint.errors import CorruptError
from hvd_elastic.trainer.checkpoint.format.sealed_json import seal, unseal

FOLDER: Final = "manifests"
DATA_FOLDER: Final = "data"
_PLACE: Final = re.compile(r"^(?:manifests|data)/(\d{8,})-(\d{8,})-")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CheckpointKey:
    """Where a checkpoint stands in the job's life. The newest is the greatest.

    The epoch comes first: what a fenced-out writer still managed to write is older than anything of its successor,
    whatever step it had reached.
    """

    epoch: int
    """Number of the claim under which it was written."""
    sequence: int
    """Number of the save within the claim, from 1."""

    def __str__(self) -> str:
        return f"{self.epoch:08d}-{self.sequence:08d}"

    @classmethod
    def of(cls, key: str) -> Self | None:
        """Return the place that a key of a manifest or of data names; None for a key that is neither."""
        match = _PLACE.match(key)
        return cls(epoch=int(match[1]), sequence=int(match[2])) if match else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One complete checkpoint."""

    job: str
    owner: str
    """The prefix's marker: a manifest that was copied here from another prefix has another."""
    incarnation: str
    epoch: int
    sequence: int
    step: int
    world_size: int
    time: float
    """UNIX seconds when the snapshot was handed over."""
    reason: str
    data: str
    """Key of the archive."""
    size_bytes: int
    part_bytes: int
    sha256: tuple[str, ...]
    """Of each part, in hexadecimal; all parts but the last have `part_bytes`."""

    @property
    def key(self) -> str:
        """Where it is kept, below the prefix."""
        return f"{FOLDER}/{CheckpointKey(epoch=self.epoch, sequence=self.sequence)}-step-{self.step}.json"

    def encode(self) -> bytes:
        """Serialise."""
        return seal(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one back.

        Raises:
            CorruptError: it is damaged, of another format, or contradicts itself.
        """
        body = unseal(data)
        try:
            manifest = cls(**{**body, "sha256": tuple(body["sha256"])})
            expected = len(parts(manifest.size_bytes, manifest.part_bytes))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(f"it is no manifest: {error!r}") from error
        if len(manifest.sha256) != expected:
            raise CorruptError(f"it names {len(manifest.sha256)} parts, its size makes {expected}")
        return manifest


def parts(size_bytes: int, part_bytes: int) -> tuple[tuple[int, int], ...]:
    """Cut a size into (offset, length) of each part."""
    return tuple((at, min(part_bytes, size_bytes - at)) for at in range(0, size_bytes, part_bytes))
