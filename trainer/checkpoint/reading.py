"""Finding the newest checkpoint that is whole."""

import logging
import threading
from dataclasses import dataclass, field

import torch

from hvd_elastic.trainer.checkpoint.claim import Owner
from hvd_elastic.trainer.checkpoint.errors import CorruptError
from hvd_elastic.trainer.checkpoint.format.archive import restore
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import FOLDER, CheckpointKey, Manifest
from hvd_elastic.trainer.checkpoint.format.sealed_json import read_sealed
from hvd_elastic.trainer.checkpoint.stores.store import Store
from hvd_elastic.trainer.checkpoint.stores.transfer import download

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A manifest that `latest()` did not use, and why."""

    manifest: str
    why: str


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """One complete checkpoint, verified whole: every part has the SHA-256 that its manifest names."""

    manifest: Manifest
    _store: Store = field(repr=False)
    _archive: torch.Tensor | None = field(repr=False)
    """As it was read to verify it, until `load` hands it out."""

    @property
    def name(self) -> str:
        """Key of its manifest below the prefix."""
        return self.manifest.key

    @property
    def step(self) -> int:
        """Commits that had been made."""
        return self.manifest.step

    @property
    def world_size(self) -> int:
        """Processes that trained when it was written. It may be loaded at any other size."""
        return self.manifest.world_size

    @property
    def time(self) -> float:
        """UNIX seconds when its snapshot was handed over."""
        return self.manifest.time

    @property
    def reason(self) -> str:
        """Why it was written: "interval", "below-min", "sigterm" ..."""
        return self.manifest.reason

    @property
    def size_bytes(self) -> int:
        """Size of its archive."""
        return self.manifest.size_bytes

    def load(self) -> dict[str, object]:
        """Give the values back: dicts, lists, tuples, sets, plain values, CPU tensors, numpy arrays.

        The tensors are views of one buffer, which lives as long as any of them. No code in the checkpoint is run. What
        was read to verify it is handed out, so that the first call reads nothing; a second one reads and verifies anew.

        Raises:
            CorruptError: only on a second call, or for a format that this version does not know.
        """
        archive, self._archive = self._archive, None
        return restore(archive if archive is not None else download(self._store, self.manifest, threading.Event()))


def newest(
    store: Store, owner: Owner, stop: threading.Event, *, named: str | None = None
) -> tuple[Checkpoint | None, tuple[Rejected, ...]]:
    """Return the newest checkpoint that verifies, and those newer ones that did not.

    `named` is the manifest that `latest` names: a listing that is stale may lack it.

    Raises:
        CorruptError: there are manifests, and none verifies.
        StoreError: the store did not answer.
    """
    rejected: list[Rejected] = []
    keys = {key for key in store.keys(FOLDER) if CheckpointKey.of(key)}
    if named is not None and named not in keys and store.read(named) is not None:
        keys.add(named)
    for key in sorted(keys, key=_place, reverse=True):
        try:
            return _verified(store, key, owner, stop), tuple(rejected)
        except CorruptError as error:
            log.warning("checkpoint %s is not used: %s", key, error)
            rejected.append(Rejected(manifest=key, why=str(error)))
    if rejected:
        raise CorruptError(
            "none of the checkpoints verifies, and starting from nothing would in time delete them: to do so all the"
            " same, choose another prefix\n" + "\n".join(f"{r.manifest}: {r.why}" for r in rejected)
        )
    return None, ()


def _place(key: str) -> CheckpointKey:
    return CheckpointKey.of(key) or CheckpointKey(epoch=0, sequence=0)


def _verified(store: Store, key: str, owner: Owner, stop: threading.Event) -> Checkpoint:
    found = read_sealed(store, key, Manifest.decode)
    if found is None:
        raise CorruptError("the manifest is listed but not there")
    manifest = found[0]
    if manifest.key != key or manifest.owner != owner.nonce:
        raise CorruptError(f"the manifest was written as {manifest.key} of another prefix, job {manifest.job!r}")
    return Checkpoint(manifest=manifest, _store=store, _archive=download(store, manifest, stop))
