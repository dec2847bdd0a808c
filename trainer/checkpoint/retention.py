"""Which checkpoints to delete: a pure decision over keys, carried out by the writer."""

from collections.abc import Collection
from dataclasses import dataclass

from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletions:
    """Keys to delete. Delete manifests before data, so that a crash never leaves a manifest without its data."""

    manifests: tuple[str, ...]
    data: tuple[str, ...]


def choose_deletions(
    manifests: Collection[str],
    data: Collection[str],
    *,
    keep: int,
    newest: CheckpointId,
    rejected: Collection[str] = (),
) -> Deletions:
    """Decide what the writer that has just written `newest` may delete.

    The `keep` newest manifests that are not `rejected` are kept, and so is everything newer than `newest`: it belongs
    to a successor. Data is kept as long as its manifest. Data without a manifest is what a crash left, and is deleted.
    """
    ours = sorted(
        (checkpoint, key) for key in manifests if (checkpoint := CheckpointId.from_key(key)) and checkpoint <= newest
    )
    good = [checkpoint for checkpoint, key in ours if key not in rejected]
    if len(good) < keep:
        return Deletions(manifests=(), data=_orphans(data, {p for p, _ in ours}, newest))
    bound = good[-keep]
    kept = {checkpoint for checkpoint, _ in ours if checkpoint >= bound}
    return Deletions(
        manifests=tuple(key for checkpoint, key in ours if checkpoint < bound), data=_orphans(data, kept, newest)
    )


def _orphans(data: Collection[str], kept: Collection[CheckpointId], newest: CheckpointId) -> tuple[str, ...]:
    return tuple(
        key
        for key in sorted(data)
        if (checkpoint := CheckpointId.from_key(key)) and checkpoint <= newest and checkpoint not in kept
    )
