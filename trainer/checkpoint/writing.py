"""One save, from the snapshot to the manifest and the deletion of old checkpoints. It blocks."""

import secrets
import threading
from collections.abc import Collection
from dataclasses import dataclass

from hvd_elastic.trainer.checkpoint.claim import Claim
from hvd_elastic.trainer.checkpoint.errors import CaptureError, StoreError
from hvd_elastic.trainer.checkpoint.format.archive import Payload
from hvd_elastic.trainer.checkpoint.format.capture import Capture
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import DATA_FOLDER, FOLDER, CheckpointId, Manifest
from hvd_elastic.trainer.checkpoint.retention import choose_deletions
from hvd_elastic.trainer.checkpoint.room import store_with_room
from hvd_elastic.trainer.checkpoint.transfer import StoredParts, upload


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRequest:
    """A captured snapshot, to be stored as a checkpoint."""

    capture: Capture
    sequence: int
    """Number of the save within the claim, from 1."""
    step: int
    world_size: int
    reason: str
    time: float
    """UNIX seconds of the `save()`."""


def write(claim: Claim, request: SaveRequest, *, stop: threading.Event, rejected: Collection[str] = ()) -> Manifest:
    """Make a checkpoint durable: archive, manifest, `latest`, in this order, each complete before the next.

    A full store makes room by older checkpoints; manifests in `rejected` do not count as good ones.

    Raises:
        CaptureError: a tensor changed during the save; nothing is visible.
        FencedError: there is a newer claim; what this claim made visible counts as older than anything of that claim.
        StoreError: the store failed until the retries ended.
    """
    claim.check()
    checkpoint = CheckpointId(epoch=claim.head.epoch, sequence=request.sequence)
    data = f"{DATA_FOLDER}/{checkpoint}-{secrets.token_hex(8)}"
    payload = Payload(request.capture)
    stored = store_with_room(
        lambda: upload(claim.store, data, payload, stop),
        claim,
        checkpoint=checkpoint,
        size_bytes=payload.size_bytes,
        rejected=rejected,
    )
    if request.capture.changed():
        claim.store.delete([data])
        raise CaptureError(
            f"step {request.step}: the snapshot was overwritten while it was held: commit into other buffers"
        )
    manifest = _manifest(claim, request, data=data, size_bytes=payload.size_bytes, stored=stored)
    claim.check()
    if not claim.store.create(manifest.key, manifest.encode()):
        raise StoreError(f"{manifest.key} exists and was written by another process")
    claim.advance(manifest=manifest.key, step=request.step)
    return manifest


def _manifest(claim: Claim, request: SaveRequest, *, data: str, size_bytes: int, stored: StoredParts) -> Manifest:
    return Manifest(
        job=claim.owner.job,
        owner=claim.owner.nonce,
        incarnation=claim.head.incarnation,
        epoch=claim.head.epoch,
        sequence=request.sequence,
        step=request.step,
        world_size=request.world_size,
        time=request.time,
        reason=request.reason,
        data=data,
        size_bytes=size_bytes,
        part_bytes=stored.part_bytes,
        sha256=stored.sha256,
    )


def prune(claim: Claim, newest: Manifest, *, keep: int, rejected: Collection[str]) -> None:
    """Delete what need not be kept, right after `newest` became the latest checkpoint under `claim`."""
    store = claim.store
    checkpoint = CheckpointId(epoch=newest.epoch, sequence=newest.sequence)
    deletions = choose_deletions(
        store.keys(FOLDER),
        store.keys(DATA_FOLDER),
        keep=keep,
        newest=checkpoint,
        rejected=rejected,
        protected=claim.head.protects,
    )
    store.delete(deletions.manifests)
    store.delete(deletions.data)
    store.discard_uploads(
        DATA_FOLDER, lambda key: (found := CheckpointId.from_key(key)) is not None and found < checkpoint
    )
