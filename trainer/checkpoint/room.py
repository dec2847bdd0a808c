"""Room for a new checkpoint in a store that is nearly full: older ones go first, but never the newest good one."""

import logging
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from hvd_elastic.trainer.checkpoint.claim import Claim
from hvd_elastic.trainer.checkpoint.errors import StoreFullError
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import DATA_FOLDER, FOLDER, MIB, CheckpointId
from hvd_elastic.trainer.checkpoint.retention import choose_expendable, count_for_room

T = TypeVar("T")

log = logging.getLogger(__name__)

SLACK_BYTES: Final = MIB
"""For the manifest, the register and what the file system itself needs."""


def store_with_room(
    store: Callable[[], T], claim: Claim, *, checkpoint: CheckpointId, size_bytes: int, rejected: Collection[str]
) -> T:
    """Return the result of `store`, which writes the `size_bytes` of `checkpoint`.

    If the store is full, what crashes left goes first, then the oldest checkpoints. A store that tells how much is free
    is asked before, so that nothing is uploaded in vain. One that does not, or that has quotas, shows it when the
    upload fails.

    Raises:
        FencedError: there is a newer claim: nothing is deleted.
        StoreFullError: there is no room beside the newest checkpoint. No checkpoint was deleted if that was known.
    """
    needed = size_bytes + SLACK_BYTES
    swept, enough = False, True
    if _is_less(claim.store.free_bytes(), needed):
        _sweep(claim, checkpoint)
        swept, free = True, claim.store.free_bytes()
        expendable = _expendable(claim, checkpoint, rejected) if _is_less(free, needed) else ()
        sizes = [sum(claim.store.size_of(data) or 0 for data in _data_of(claim, each)) for each in expendable]
        count = count_for_room(sizes, free=free or 0, needed=needed) if expendable else 0
        enough = count is not None
        for each in expendable[: count or 0]:
            _delete(claim, each)
    while True:
        try:
            return store()
        except StoreFullError as error:
            if not swept:
                _sweep(claim, checkpoint)
                swept = True
                continue
            expendable = _expendable(claim, checkpoint, rejected) if enough else ()
            if not expendable:
                raise StoreFullError(
                    f"{error}. {needed / MIB:.0f} MiB are needed beside the newest checkpoint, which stays until the"
                    " next one is whole"
                ) from error
            _delete(claim, expendable[0])


def _is_less(free: int | None, needed: int) -> bool:
    return free is not None and free < needed


def _sweep(claim: Claim, own: CheckpointId) -> None:
    """Delete what crashes of earlier claims left. Raises FencedError."""
    claim.check()
    whole = {CheckpointId.from_key(manifest) for manifest in claim.store.keys(FOLDER)}
    # Every save sweeps what is older than itself. And a listing may be stale: what it lacks may be a checkpoint.
    newest = CheckpointId.from_key(claim.head.manifest or "") or CheckpointId(epoch=0, sequence=0)
    left_over = [
        data
        for data in claim.store.keys(DATA_FOLDER)
        if (found := CheckpointId.from_key(data)) and newest < found and found.epoch < own.epoch and found not in whole
    ]
    claim.store.delete(left_over)
    claim.store.discard_uploads(
        DATA_FOLDER, lambda data: (found := CheckpointId.from_key(data)) is not None and found.epoch < own.epoch
    )


def _expendable(claim: Claim, own: CheckpointId, rejected: Collection[str]) -> tuple[str, ...]:
    """Return the manifests that may go, oldest first. Raises FencedError."""
    claim.check()
    manifests = claim.store.keys(FOLDER)
    return choose_expendable(manifests, before=own, rejected=rejected, protected=claim.head.protects)


def _data_of(claim: Claim, manifest: str) -> list[str]:
    checkpoint = CheckpointId.from_key(manifest)
    return [data for data in claim.store.keys(DATA_FOLDER) if CheckpointId.from_key(data) == checkpoint]


def _delete(claim: Claim, manifest: str) -> None:
    log.warning("the store is full: checkpoint %s makes room for the next one", manifest)
    data = _data_of(claim, manifest)
    claim.store.delete([manifest])
    claim.store.delete(data)
