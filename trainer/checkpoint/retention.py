"""Which checkpoints go: a decision over keys, carried out by the writer."""

from collections.abc import Collection
from dataclasses import dataclass

from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import CheckpointKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """Keys to delete. Manifests go before data: a crash between the two never leaves a manifest without its data."""

    manifests: tuple[str, ...]
    data: tuple[str, ...]


def retire(
    manifests: Collection[str],
    data: Collection[str],
    *,
    keep: int,
    newest: CheckpointKey,
    rejected: Collection[str] = (),
) -> Retirement:
    """Decide what the writer that has just written `newest` may delete.

    Kept are the `keep` newest manifests that are not `rejected`, and whatever is newer than `newest`: it belongs to a
    successor. Data stays as long as its manifest; data without one is the rest of a crash, and goes with its place.
    """
    ours = sorted((place, key) for key in manifests if (place := CheckpointKey.of(key)) and place <= newest)
    good = [place for place, key in ours if key not in rejected]
    if len(good) < keep:
        return Retirement(manifests=(), data=_orphans(data, {p for p, _ in ours}, newest))
    bound = good[-keep]
    kept = {place for place, _ in ours if place >= bound}
    return Retirement(manifests=tuple(key for place, key in ours if place < bound), data=_orphans(data, kept, newest))


def _orphans(data: Collection[str], kept: Collection[CheckpointKey], newest: CheckpointKey) -> tuple[str, ...]:
    return tuple(
        key for key in sorted(data) if (place := CheckpointKey.of(key)) and place <= newest and place not in kept
    )
