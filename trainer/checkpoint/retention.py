"""Which checkpoints to delete: a pure decision over keys, carried out by the writer."""

from collections.abc import Collection, Sequence
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
    protected: CheckpointId | None = None,
) -> Deletions:
    """Decide what the writer that has just written `newest` may delete.

    The `keep` newest manifests that are not `rejected` are kept, and so is everything newer than `newest`: it belongs
    to a successor. Everything up to `protected` is another job's or another state's, and stays. Data is kept as long as
    its manifest. Data without a manifest is what a crash left, and is deleted.
    """
    data = [key for key in data if not _is_protected(CheckpointId.from_key(key), protected)]
    ours = sorted(
        (checkpoint, key)
        for key in manifests
        if (checkpoint := CheckpointId.from_key(key))
        and checkpoint <= newest
        and not _is_protected(checkpoint, protected)
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


def choose_expendable(
    manifests: Collection[str],
    *,
    before: CheckpointId,
    rejected: Collection[str] = (),
    protected: CheckpointId | None = None,
) -> tuple[str, ...]:
    """Return the manifests that may go so that the checkpoint `before` has room, in the order in which they go.

    The newest one that is not `rejected` never goes: until the next is whole, it is all that there is. If all are
    rejected, none goes: a person decides.
    """
    ours = sorted(
        (checkpoint, key)
        for key in manifests
        if (checkpoint := CheckpointId.from_key(key))
        and checkpoint < before
        and not _is_protected(checkpoint, protected)
    )
    good = [key for _, key in ours if key not in rejected]
    return tuple(key for _, key in ours if good and key != good[-1])


def count_for_room(sizes: Sequence[int], *, free: int, needed: int) -> int | None:
    """Return how many of the objects of these sizes, the first ones, must go; None if all would not be enough."""
    for count in range(len(sizes) + 1):
        if free + sum(sizes[:count]) >= needed:
            return count
    return None


def _is_protected(checkpoint: CheckpointId | None, protected: CheckpointId | None) -> bool:
    return checkpoint is not None and protected is not None and checkpoint <= protected
