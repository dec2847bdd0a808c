"""Finds and verifies complete checkpoints: for a job that resumes, and for whoever only reads."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from hvd_elastic.trainer.checkpoint.claim import OWNER, Owner
from hvd_elastic.trainer.checkpoint.errors import CorruptError, StoreError
from hvd_elastic.trainer.checkpoint.format.archive import restore
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import FOLDER, CheckpointId, Manifest
from hvd_elastic.trainer.checkpoint.format.sealed_json import read_sealed
from hvd_elastic.trainer.checkpoint.stores.location import Location
from hvd_elastic.trainer.checkpoint.stores.store import Store
from hvd_elastic.trainer.checkpoint.stores.transfer import download

log = logging.getLogger(__name__)

LISTINGS: Final = 5
"""Attempts of a reader while the writer deletes what it reads."""


class _ForeignError(Exception):
    """A checkpoint is another job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A manifest that `latest()` did not use, and why."""

    manifest: str
    why: str


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """One complete checkpoint. Once it is loaded, every part has the SHA-256 that the manifest names."""

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

    def verify(self) -> None:
        """Read every part, and keep none. Raises CorruptError."""
        download(self._store, self.manifest, threading.Event())

    def load(self) -> dict[str, object]:
        """Return the values, each of the type that was saved. Tensors are on the CPU, row-major.

        The tensors are views of one buffer, which exists as long as any of them. No code from the checkpoint is run.
        What `latest()` has read is returned once; any other call reads and verifies.

        Raises:
            CorruptError: it does not verify. Not on the first call on what `latest()` returned.
            IncompatibleError: it has a class that this program lacks. Not on that first call either.
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


class CheckpointReader:
    """The checkpoints below a prefix, for whoever only reads them. Made by `read_checkpoints`.

    It claims nothing and writes nothing: the job that writes them, if it runs, does not notice. That job may delete
    what is being read; what is newer is read then.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the store."""
        self._store.close()

    def checkpoints(self) -> tuple[Checkpoint | Rejected, ...]:
        """Return what the manifests say, newest first. The archives are not read: `Checkpoint.load` verifies them.

        Raises:
            StoreError: the store did not answer.
        """
        return tuple(self._described(key) for key in _newest_first(self._store))

    def _described(self, key: str) -> Checkpoint | Rejected:
        try:
            manifest = _manifest(self._store, key)
            _check_key(manifest, key)
            return Checkpoint(manifest=manifest, _store=self._store, _values=None)
        except CorruptError as error:
            return Rejected(manifest=key, why=str(error))

    def latest(self) -> Checkpoint | None:
        """Find the newest checkpoint that verifies, and read it whole. Returns None if there is none.

        Raises:
            StoreError: the store did not answer.
            CorruptError: there are checkpoints, but none verifies.
            IncompatibleError: it has a class that this program lacks.
        """
        for _ in range(LISTINGS):
            listed = _newest_first(self._store)
            owner = self._owner(listed)
            try:
                return find_newest(self._store, owner, threading.Event())[0] if owner is not None else None
            except CorruptError:
                if _newest_first(self._store) == listed:
                    raise
        raise StoreError(f"the checkpoints were deleted while they were read, {LISTINGS} times: keep more of them")

    def _owner(self, listed: Sequence[str]) -> Owner | None:
        """Return whose checkpoints these are; None if nothing tells."""
        found = read_sealed(self._store, OWNER, Owner.decode)
        if found is not None:
            return found[0]
        for each in map(self._described, listed):
            if isinstance(each, Checkpoint):
                return Owner(job=each.manifest.job, nonce=each.manifest.owner, time=each.time)
        return None


def read_checkpoints(url: str) -> CheckpointReader:
    """Open the checkpoints at `url` to read them, beside the job that writes them or without it.

    Only `open_checkpoints` claims a prefix, and only the writer of a running job calls it.

    Args:
        url: as for `open_checkpoints`.

    Raises:
        CheckpointUrlError: the URL cannot be used.
    """
    return CheckpointReader(Location.parse(url).open())


def _newest_first(store: Store) -> list[str]:
    keys = {checkpoint: key for key in store.keys(FOLDER) if (checkpoint := CheckpointId.from_key(key))}
    return [keys[checkpoint] for checkpoint in sorted(keys, reverse=True)]


def _manifest(store: Store, key: str) -> Manifest:
    found = read_sealed(store, key, Manifest.decode)
    if found is None:
        raise CorruptError("the manifest is listed but not there")
    return found[0]


def _check_key(manifest: Manifest, key: str) -> None:
    if manifest.key != key:
        raise CorruptError(f"the manifest was written as {manifest.key}")


def _id_of(key: str) -> CheckpointId:
    return CheckpointId.from_key(key) or CheckpointId(epoch=0, sequence=0)


def _verified(store: Store, key: str, owner: Owner, stop: threading.Event) -> Checkpoint:
    manifest = _manifest(store, key)
    if manifest.owner != owner.nonce:
        raise _ForeignError(f"it is of another prefix, job {manifest.job!r}, or of a former owner of this one")
    _check_key(manifest, key)
    # Loaded at once: what has the right bytes but cannot be loaded is passed over, too.
    return Checkpoint(manifest=manifest, _store=store, _values=restore(download(store, manifest, stop)))
