"""One save, from the snapshot to the manifest and the retirement of old checkpoints. It blocks."""

import secrets
import threading
from collections.abc import Collection
from dataclasses import dataclass

from hvd_elastic.trainer.checkpoint.claim import Claim
from hvd_elastic.trainer.checkpoint.errors import CaptureError, StoreError
from hvd_elastic.trainer.checkpoint.format.archive import Payload
from hvd_elastic.trainer.checkpoint.format.capture import Capture
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import DATA_FOLDER, FOLDER, CheckpointKey, Manifest
from hvd_elastic.trainer.checkpoint.retention import retire
from hvd_elastic.trainer.checkpoint.stores.transfer import upload


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOrder:
    """What is to be stored."""

    capture: Capture
    sequence: int
    """Number of the save within the claim, from 1."""
    step: int
    world_size: int
    reason: str
    time: float
    """UNIX seconds of the hand-over."""


def write(claim: Claim, order: SaveOrder, *, stop: threading.Event) -> Manifest:
    """Make a checkpoint durable: archive, manifest, `latest`, in this order, each whole before the next.

    Raises:
        SnapshotError: a tensor changed meanwhile; nothing is visible.
        FencedError: there is a newer claim; what is visible is older than anything of that claim.
        StoreError: the store failed for longer than the retries last.
    """
    claim.check()
    place = CheckpointKey(epoch=claim.head.epoch, sequence=order.sequence)
    data = f"{DATA_FOLDER}/{place}-{secrets.token_hex(8)}"
    payload = Payload(order.capture)
    sha256 = upload(claim.store, data, payload, stop)
    if order.capture.changed():
        claim.store.delete([data])
        raise CaptureError(
            f"step {order.step}: the snapshot was overwritten while it was held: commit into other buffers"
        )
    manifest = _manifest(claim, order, data=data, size_bytes=payload.size_bytes, sha256=sha256)
    claim.check()
    if not claim.store.create(manifest.key, manifest.encode()):
        raise StoreError(f"{manifest.key} exists and is not ours")
    claim.advance(manifest=manifest.key, step=order.step)
    return manifest


def _manifest(claim: Claim, order: SaveOrder, *, data: str, size_bytes: int, sha256: tuple[str, ...]) -> Manifest:
    return Manifest(
        job=claim.owner.job,
        owner=claim.owner.nonce,
        incarnation=claim.head.incarnation,
        epoch=claim.head.epoch,
        sequence=order.sequence,
        step=order.step,
        world_size=order.world_size,
        time=order.time,
        reason=order.reason,
        data=data,
        size_bytes=size_bytes,
        part_bytes=claim.store.part_bytes,
        sha256=sha256,
    )


def prune(claim: Claim, newest: Manifest, *, keep: int, rejected: Collection[str]) -> None:
    """Delete what retention lets go, right after `newest` was made the latest under `claim`."""
    store = claim.store
    place = CheckpointKey(epoch=newest.epoch, sequence=newest.sequence)
    gone = retire(store.keys(FOLDER), store.keys(DATA_FOLDER), keep=keep, newest=place, rejected=rejected)
    store.delete(gone.manifests)
    store.delete(gone.data)
    store.sweep(DATA_FOLDER, lambda key: (found := CheckpointKey.of(key)) is not None and found < place)
