"""Finds and verifies complete checkpoints: for a job that resumes, and for whoever only reads."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import torch

from hvd_elastic.stores.location import Location
from hvd_elastic.stores.store import Store
from hvd_elastic.trainer.checkpoint.claim import LATEST, OWNER, Head, Owner
from hvd_elastic.trainer.checkpoint.errors import CheckpointNotFoundError, CorruptError, StoreError
from hvd_elastic.trainer.checkpoint.format.archive import HEAD_BYTES, Outline, head_bytes, outline, restore
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import FOLDER, CheckpointId, Manifest, step_in
from hvd_elastic.trainer.checkpoint.format.sealed_json import read_sealed
from hvd_elastic.trainer.checkpoint.transfer import download

log = logging.getLogger(__name__)

NEAREST: Final = 4
"""Steps that are named to someone who has asked for one that is not there."""
NOTHING_THERE: Final = (
    "there is no checkpoint. The URL must be that of one job: its `checkpoint` with /NAMESPACE/NAME added"
)
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

    def outline(self) -> Outline:
        """Return what it holds without the content of its tensors, from the first parts of the archive alone.

        Raises:
            CorruptError: these parts do not verify.
        """
        beginning = self._beginning(HEAD_BYTES)
        try:
            end = head_bytes(beginning)
        except ValueError as error:
            raise CorruptError(f"not an archive of this format: {error}") from error
        return outline(beginning if end <= beginning.numel() else self._beginning(end))

    def _beginning(self, first_bytes: int) -> torch.Tensor:
        return download(self._store, self.manifest, threading.Event(), first_bytes=first_bytes)

    def load(self, *, stand_ins: bool = False) -> dict[str, object]:
        """Return the values, each of the type that was saved. Tensors are on the CPU, row-major.

        The tensors are views of one buffer, which exists as long as any of them. No code from the checkpoint is run.
        What `latest()` has read is returned once, as it was read; any other call reads and verifies.

        Args:
            stand_ins: take a tuple for a named tuple, and `Class.MEMBER` for a member of an enumeration: the script's
                classes need not be there. Default False.

        Raises:
            CorruptError: it does not verify. Not on the first call on what `latest()` returned.
            IncompatibleError: it has a class that this program lacks. Not with `stand_ins`.
        """
        values, self._values = self._values, None
        if values is not None:
            return values
        return restore(download(self._store, self.manifest, threading.Event()), stand_ins=stand_ins)


def find_newest(
    store: Store,
    owner: Owner,
    stop: threading.Event,
    *,
    latest_manifest: str | None = None,
    stand_ins: bool = False,
) -> tuple[Checkpoint | None, tuple[Rejected, ...]]:
    """Return the newest checkpoint that verifies, and the newer ones that do not.

    `latest_manifest` is the manifest that `latest` names: a stale listing may lack it. `stand_ins` is as for
    `Checkpoint.load`.

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
            return _verified(store, key, owner, stop, stand_ins=stand_ins), tuple(rejected)
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

    def latest(self, *, stand_ins: bool = False) -> Checkpoint | None:
        """Find the newest checkpoint that verifies, and read it whole. Returns None if there is none.

        Args:
            stand_ins: as for `Checkpoint.load`.

        Raises:
            StoreError: the store did not answer.
            CorruptError: there are checkpoints, but none verifies.
            IncompatibleError: it has a class that this program lacks. Not with `stand_ins`.
        """
        for _ in range(LISTINGS):
            listed = _newest_first(self._store)
            owner = self._owner(listed)
            try:
                if owner is None:
                    return None
                return find_newest(self._store, owner, threading.Event(), stand_ins=stand_ins)[0]
            except CorruptError:
                if _newest_first(self._store) == listed:
                    raise
        raise StoreError(f"the checkpoints were deleted while they were read, {LISTINGS} times: keep more of them")

    def find(self, version: int | str) -> Checkpoint:
        """Return the checkpoint of one step or one name. Its archive is not read: `Checkpoint.load` verifies it.

        Args:
            version: number of a step, of whose checkpoints the newest is returned; or the name of a checkpoint.

        Raises:
            CheckpointNotFoundError: there is none.
            CorruptError: its manifest cannot be read.
            StoreError: the store did not answer.
        """
        key = choose_version(_newest_first(self._store), version)
        manifest = _manifest(self._store, key)
        _check_key(manifest, key)
        return Checkpoint(manifest=manifest, _store=self._store, _values=None)

    def newest(self) -> Checkpoint:
        """Return the newest checkpoint whose manifest can be read. Its archive is not read.

        Raises:
            CheckpointNotFoundError: there is none.
            CorruptError: there are checkpoints, but no manifest can be read.
            StoreError: the store did not answer.
        """
        listed = self.checkpoints()
        whole = [each for each in listed if isinstance(each, Checkpoint)]
        if not whole:
            broken = [f"{each.manifest}: {each.why}" for each in listed if isinstance(each, Rejected)]
            if broken:
                raise CorruptError("no manifest can be read\n" + "\n".join(broken))
            raise CheckpointNotFoundError(NOTHING_THERE)
        return whole[0]

    def job(self) -> str | None:
        """Return the job that the prefix belongs to, NAMESPACE/NAME; None: it is nobody's, and has no checkpoint.

        Raises:
            CorruptError: nothing tells, though there is something.
            StoreError: the store did not answer.
        """
        owner = self._owner(_newest_first(self._store))
        return owner.job if owner is not None else None

    def latest_name(self) -> str | None:
        """Return the name of the checkpoint that `latest` names: the last one that the job's writer has finished.

        None: there is no `latest`, or the prefix was claimed and nothing was stored yet.

        Raises:
            CorruptError: it cannot be read.
            StoreError: the store did not answer.
        """
        found = read_sealed(self._store, LATEST, Head.decode)
        return found[0].manifest if found is not None else None

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


def choose_version(listed: Sequence[str], version: int | str) -> str:
    """Return which of the names a version means.

    Args:
        listed: names of all checkpoints, newest first.
        version: number of a step, of whose checkpoints the newest is returned; or a name.

    Raises:
        CheckpointNotFoundError: none of them. The message says which steps are nearest, and the newest.
    """
    text = str(version)
    if text in listed:
        return text
    steps = {key: step_in(key) for key in listed}
    matching = [key for key, step in steps.items() if text == str(step)]
    if matching:
        return matching[0]
    known = sorted({step for step in steps.values() if step is not None})
    if not known:
        raise CheckpointNotFoundError(NOTHING_THERE)
    if text.isdecimal():
        nearest = sorted(sorted(known, key=lambda step: abs(step - int(text)))[:NEAREST])
        told = f"the nearest are {', '.join(map(str, nearest))}; the newest is {listed[0]}"
    else:
        told = f"write the number of a step, such as {known[-1]}, or a name, such as {listed[0]}"
    raise CheckpointNotFoundError(f"there is no checkpoint of step {text}: {told}")


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


def _verified(store: Store, key: str, owner: Owner, stop: threading.Event, *, stand_ins: bool) -> Checkpoint:
    manifest = _manifest(store, key)
    if manifest.owner != owner.nonce:
        raise _ForeignError(f"it is of another prefix, job {manifest.job!r}, or of a former owner of this one")
    _check_key(manifest, key)
    # Loaded at once: what has the right bytes but cannot be loaded is passed over, too.
    values = restore(download(store, manifest, stop), stand_ins=stand_ins)
    return Checkpoint(manifest=manifest, _store=store, _values=values)
