"""Finds and verifies the newest complete checkpoint."""

import logging
import threading
from dataclasses import dataclass, field

from hvd_elastic.trainer.checkpoint.claim import Owner
from hvd_elastic.trainer.checkpoint.errors import CorruptError
from hvd_elastic.trainer.checkpoint.format.archive import restore
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import FOLDER, CheckpointId, Manifest
from hvd_elastic.trainer.checkpoint.format.sealed_json import read_sealed
from hvd_elastic.trainer.checkpoint.stores.store import Store
from hvd_elastic.trainer.checkpoint.stores.transfer import download

log = logging.getLogger(__name__)


class _ForeignError(Exception):
    """A checkpoint is another job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A manifest that `latest()` did not use, and why."""

    manifest: str
    why: str


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """One complete, verified checkpoint: every part has the SHA-256 that the manifest names."""

    manifest: Manifest
    _store: Store = field(repr=False)
    _values: dict[str, object] | None = field(repr=False)
    """The values, as they were read for verification, until `load` returns them."""

    @property
    def name(self) -> str:
        """Key of its manifest below the prefix."""
        return self.manifest.key

    @property
    def step(self) -> int:
        """Number of commits when it was written."""
        return self.manifest.step

    @property
    def world_size(self) -> int:
        """Processes that trained when it was written. It may be loaded at any other size."""
        return self.manifest.world_size

    @property
    def time(self) -> float:
        """UNIX seconds of its `save()`."""
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
        """Return the values, each of the type that was saved. Tensors are on the CPU, row-major.

        The tensors are views of one buffer, which exists as long as any of them. No code from the checkpoint is run.
        The first call returns what was read for verification; a further call reads and verifies again.

        Raises:
            CorruptError: only on a further call.
            IncompatibleError: only on a further call.
        """
        values, self._values = self._values, None
        return values if values is not None else restore(download(self._store, self.manifest, threading.Event()))


def find_newest(
    store: Store, owner: Owner, stop: threading.Event, *, latest_manifest: str | None = None
) -> tuple[Checkpoint | None, tuple[Rejected, ...]]:
    """Return the newest checkpoint that verifies, and the newer ones that do not.

    `latest_manifest` is the manifest that `latest` names: a stale listing may lack it.

    Checkpoints of another job are not used: they are the former owner's, or were copied here.

    Raises:
        CorruptError: there are checkpoints of this job, but none verifies.
        IncompatibleError: the newest that verifies has a class that the script lacks. An older one would have it too.
        StoreError: the store did not answer.
    """
    rejected: list[Rejected] = []
    damaged = False
    keys = {key for key in store.keys(FOLDER) if CheckpointId.from_key(key)}
    if latest_manifest is not None and latest_manifest not in keys and store.read(latest_manifest) is not None:
        keys.add(latest_manifest)
    for key in sorted(keys, key=_id_of, reverse=True):
        try:
            return _verified(store, key, owner, stop), tuple(rejected)
        except (CorruptError, _ForeignError) as error:
            log.warning("checkpoint %s is not used: %s", key, error)
            rejected.append(Rejected(manifest=key, why=str(error)))
            damaged |= isinstance(error, CorruptError)
    if damaged:
        raise CorruptError(
            "none of the checkpoints verifies, and a job that starts from nothing would in time delete them: to start"
            " from nothing, choose another prefix\n" + "\n".join(f"{r.manifest}: {r.why}" for r in rejected)
        )
    return None, tuple(rejected)


def _id_of(key: str) -> CheckpointId:
    return CheckpointId.from_key(key) or CheckpointId(epoch=0, sequence=0)


def _verified(store: Store, key: str, owner: Owner, stop: threading.Event) -> Checkpoint:
    found = read_sealed(store, key, Manifest.decode)
    if found is None:
        raise CorruptError("the manifest is listed but not there")
    manifest = found[0]
    if manifest.owner != owner.nonce:
        raise _ForeignError(f"it is of another prefix, job {manifest.job!r}, or of a former owner of this one")
    if manifest.key != key:
        raise CorruptError(f"the manifest was written as {manifest.key}")
    # Loaded at once: what has the right bytes but cannot be loaded is passed over, too.
    return Checkpoint(manifest=manifest, _store=store, _values=restore(download(store, manifest, stop)))
