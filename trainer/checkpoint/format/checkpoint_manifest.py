"""The manifest of a checkpoint: a small object, written last, with the SHA-256 of every part of the archive.

A checkpoint exists once its manifest exists.
"""

import re
from dataclasses import asdict, dataclass
from typing import Final, Self

from hvd_elastic.trainer.checkpoint.errors import CorruptError
from hvd_elastic.trainer.checkpoint.format.sealed_json import seal, unseal

FOLDER: Final = "manifests"
DATA_FOLDER: Final = "data"
MIB: Final = 1 << 20
MOST_PARTS: Final = 10_000
"""As many as S3 takes for an object. On a file system it keeps the manifest short."""
MOST_SECONDS: Final = 253_402_300_800
"""The year 10,000, in UNIX seconds: no calendar goes further."""
_ID: Final = re.compile(r"^(?:manifests|data)/([0-9]{8,18})-([0-9]{8,18})-")
_STEP: Final = re.compile(r"-step-([0-9]+)\.json$")
_DATA: Final = re.compile(r"data/[0-9]{8,18}-[0-9]{8,18}-[0-9a-z]+")
"""The only keys that a manifest may name: nothing outside of the prefix, and nothing else in it."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CheckpointId:
    """Identifies and orders the checkpoints of a job. The newest is the greatest.

    The epoch comes first: what a fenced-out writer still wrote is older than anything of its successor, at any step.
    """

    epoch: int
    """Number of the claim under which it was written."""
    sequence: int
    """Number of the save within the claim, from 1."""

    def __str__(self) -> str:
        return f"{self.epoch:08d}-{self.sequence:08d}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str()` gave. Raises ValueError."""
        epoch, sequence = text.split("-")
        return cls(epoch=int(epoch), sequence=int(sequence))

    @classmethod
    def from_key(cls, key: str) -> Self | None:
        """Return the id in the key of a manifest or of data; None for any other key."""
        match = _ID.match(key)
        return cls(epoch=int(match[1]), sequence=int(match[2])) if match else None


def step_in(key: str) -> int | None:
    """Return the step in the key of a manifest; None for any other key."""
    match = _STEP.search(key)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Describes one complete checkpoint."""

    job: str
    owner: str
    """Nonce of the prefix's owner: a manifest that was copied from another prefix has a different one."""
    incarnation: str
    """Identity of the launcher."""
    epoch: int
    """Number of the claim under which it was written; not an epoch of training."""
    sequence: int
    """Number of the save within the claim, from 1."""
    step: int
    """Number of commits."""
    world_size: int
    """Number of processes that trained."""
    time: float
    """UNIX seconds of the `save()`."""
    reason: str
    data: str
    """Key of the archive."""
    size_bytes: int
    part_bytes: int
    sha256: tuple[str, ...]
    """SHA-256 of each part, in hexadecimal; all parts but the last have `part_bytes`."""

    @property
    def key(self) -> str:
        return f"{FOLDER}/{CheckpointId(epoch=self.epoch, sequence=self.sequence)}-step-{self.step}.json"

    def encode(self) -> bytes:
        return seal(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one back.

        Raises:
            CorruptError: it is damaged, has another format or contradicts itself.
        """
        body = unseal(data)
        try:
            manifest = cls(**{**body, "sha256": tuple(body["sha256"])})
            problem = _problem(manifest)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(f"it is not a manifest: {error!r}") from error
        if problem:
            raise CorruptError(f"it contradicts itself: {problem}")
        return manifest


def _problem(manifest: Manifest) -> str:
    """Return what cannot be true of a manifest; empty if all of it may be. It allocates nothing of the sizes named."""
    numbers = {name: getattr(manifest, name) for name in ("epoch", "sequence", "step", "world_size")}
    sizes = {"size_bytes": manifest.size_bytes, "part_bytes": manifest.part_bytes}
    for name, number in {**numbers, **sizes}.items():
        if type(number) is not int or number < (name in sizes):
            return f"{name} is {number!r}"
    texts = (manifest.job, manifest.owner, manifest.incarnation, manifest.reason, manifest.data, *manifest.sha256)
    if not all(isinstance(text, str) for text in texts):
        return "a field has another type"
    if not isinstance(manifest.time, int | float) or not 0 <= manifest.time < MOST_SECONDS:
        return f"time is {manifest.time!r}"
    own = CheckpointId(epoch=manifest.epoch, sequence=manifest.sequence)
    if not _DATA.fullmatch(manifest.data) or CheckpointId.from_key(manifest.data) != own:
        return f"its data is {manifest.data!r}"
    parts = -(-manifest.size_bytes // manifest.part_bytes)
    if len(manifest.sha256) != parts:
        return f"it names {len(manifest.sha256)} parts, but its size makes {parts}"
    return ""


def choose_part_bytes(size_bytes: int, *, least: int) -> int:
    """Return the size of parts for an archive: `least`, or as many MiB as keep it within MOST_PARTS parts."""
    if size_bytes <= least * MOST_PARTS:
        return least
    return -(-size_bytes // (MOST_PARTS * MIB)) * MIB


def split_into_parts(size_bytes: int, part_bytes: int) -> tuple[tuple[int, int], ...]:
    """Return the offset and length of each part, in bytes."""
    return tuple((at, min(part_bytes, size_bytes - at)) for at in range(0, size_bytes, part_bytes))
