"""Who may write below a prefix: always the same job, and of that job only the newest claim.

Two small objects record it. `owner.json` is written once, by the first job. `latest` is a register that is updated by
compare-and-swap: it names the newest epoch (of claims, not of training) and the newest checkpoint. Opening the prefix
moves it to the next epoch. The former writer can then no longer update it, and so learns that it has a successor::

    epoch 4, checkpoint A  ──(open: epoch + 1)──►  epoch 5, checkpoint A  ──(save)──►  epoch 5, checkpoint B

Only a writer claims. Reading needs no claim: see `reading`.
"""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

from hvd_elastic.stores.store import Store
from hvd_elastic.trainer.checkpoint.errors import (
    CorruptError,
    FencedError,
    PrefixOwnedError,
    StoreError,
    StoreFullError,
)
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import FOLDER, CheckpointId, Manifest
from hvd_elastic.trainer.checkpoint.format.sealed_json import read_sealed, seal, unseal

log = logging.getLogger(__name__)

OWNER: Final = "owner.json"
LATEST: Final = "latest"
MOST_SUPERSEDED: Final = 64
"""Superseded launchers that the register remembers. To be forgotten, a launcher would need 64 successors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The first claim of a prefix."""

    job: str
    nonce: str
    """Random; in every manifest, so that one copied from another prefix is noticed."""
    time: float
    """UNIX seconds of the claim."""

    def encode(self) -> bytes:
        return seal(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one back. Raises CorruptError."""
        try:
            return cls(**unseal(data))
        except (TypeError, CorruptError) as error:
            raise CorruptError(f"{error}: delete it; the job finds its checkpoints without it") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Content of `latest`."""

    epoch: int
    incarnation: str
    superseded: tuple[str, ...]
    """Launchers whose claims came before this one, newest last."""
    nonce: str
    """Random, different for each claim: no two writers ever write the same bytes."""
    time: float
    """UNIX seconds of the claim."""
    manifest: str | None = None
    """Key of the newest checkpoint's manifest; None before the first checkpoint."""
    step: int | None = None
    """Step of that checkpoint."""
    owner: str | None = None
    """Nonce of the prefix's owner at the claim; None in a claim of an earlier version."""
    protected: str | None = None
    """Id of the newest checkpoint that no retention deletes, nor any before it; None: there is none."""

    @property
    def protects(self) -> CheckpointId | None:
        """`protected`, as an id."""
        return CheckpointId.parse(self.protected) if self.protected else None

    def encode(self) -> bytes:
        return seal(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one back. Raises CorruptError."""
        try:
            body = unseal(data)
            return cls(**{**body, "superseded": tuple(body["superseded"])})
        except (KeyError, TypeError, CorruptError) as error:
            raise CorruptError(f"{error}: delete it; the checkpoints are found without it") from error


def next_head(
    head: Head | None,
    *,
    incarnation: str,
    nonce: str,
    time: float,
    written: CheckpointId | None,
    owner: str,
    changes_hands: bool = False,
) -> Head:
    """Return the content of `latest` for a new claim.

    Args:
        head: the present content; None if there is none.
        incarnation: identity of the launcher. An empty string means unknown and always counts as newer.
        nonce: random, for this claim only.
        time: UNIX seconds of the claim.
        written: newest id that any manifest names: `latest` may have been deleted, or the prefix may change hands. What
            the new owner finds, and what is found without `latest`, is protected: nobody knows who still needs it.
        owner: nonce of the prefix's owner.
        changes_hands: `owner` is new to the prefix. So it is, too, if `head` names another owner.

    Raises:
        FencedError: `incarnation` was superseded.
    """
    protected = str(written) if written else None
    epoch = written.epoch if written else 0
    if head is None:
        return Head(
            epoch=epoch + 1,
            incarnation=incarnation,
            superseded=(),
            nonce=nonce,
            time=time,
            owner=owner,
            protected=protected,
        )
    if incarnation in head.superseded:
        raise FencedError(f"launcher {incarnation} was superseded by {head.incarnation}: this process must end")
    superseded = head.superseded
    if head.incarnation and head.incarnation != incarnation:
        superseded = (*superseded, head.incarnation)[-MOST_SUPERSEDED:]
    if changes_hands or head.owner not in (None, owner):
        head = replace(head, manifest=None, step=None, protected=protected)
    return replace(
        head,
        epoch=max(head.epoch, epoch) + 1,
        incarnation=incarnation,
        superseded=superseded,
        nonce=nonce,
        time=time,
        owner=owner,
    )


@dataclass(slots=True)
class Claim:
    """The right to write below a prefix, until the next claim."""

    store: Store
    owner: Owner
    head: Head
    version: str | None
    """None: the store is full, and `latest` could not be moved yet. The checkpoints can be read all the same."""
    changes_hands: bool = False
    """The prefix was another job's until this claim."""
    check_wanted: Callable[[], object] = lambda: None
    """Raises if the claim is not wanted any more."""
    _over: tuple[int, str] | None = None
    """Epoch and nonce of the claim that this one came after, while it waits for space."""

    @classmethod
    def acquire(
        cls,
        store: Store,
        *,
        job: str,
        incarnation: str,
        nonce: str,
        time: float,
        check_wanted: Callable[[], object] = lambda: None,
    ) -> Self:
        """Claim the prefix for `job`, and its next epoch for this process.

        A full store does not keep a job from its checkpoints: the claim is made by the first `check` for which there is
        space.

        `check_wanted` raises if the claim is not wanted any more. It is called between reading `latest` and moving it:
        a successor that claims after the call makes the move fail.

        Raises:
            PrefixOwnedError: another job owns the prefix.
            FencedError: this launcher was superseded.
            StoreFullError: the store is full, and has no checkpoints of this job.
            StoreError: the store failed, or does not honour conditional writes.
        """
        owner, is_new = _claim_prefix(store, Owner(job=job, nonce=nonce, time=time))
        store.check_conditional_writes(OWNER, owner.encode())
        own = Head(epoch=0, incarnation=incarnation, superseded=(), nonce=nonce, time=time, owner=owner.nonce)
        claim = cls(store, owner, own, version=None, changes_hands=is_new, check_wanted=check_wanted)
        try:
            claim._move_head()
        except StoreFullError as error:
            claim._over = _identity(read_sealed(store, LATEST, Head.decode))
            log.warning("the checkpoints can be read, but nothing can be saved before there is space: %s", error)
        return claim

    def _move_head(self) -> None:
        """Move `latest` to this claim. Without space, `head` still tells what is there."""
        while self.version is None:
            found = read_sealed(self.store, LATEST, Head.decode)
            present, version = found or (None, None)
            if self._over is not None and present is not None and _identity(found) != self._over:
                raise _fenced_error(present, self.head)
            head = next_head(
                present,
                incarnation=self.head.incarnation,
                nonce=self.head.nonce,
                time=self.head.time,
                written=_newest_written(self.store),
                owner=self.owner.nonce,
                changes_hands=self.changes_hands,
            )
            if (protected := self.head.protects) is not None:
                head = replace(head, protected=str(max(protected, head.protects or protected)))
            self.head = head
            self.check_wanted()
            self.version = self.store.replace(LATEST, head.encode(), version=version)

    def check(self) -> None:
        """Raise FencedError if there is a newer claim. One may still come before the next write: see `advance`.

        Raises:
            FencedError: there is a newer claim.
            StoreFullError: this claim was not made yet, for want of space.
        """
        if self.version is None:
            self._move_head()
            return
        self.check_newest()

    def check_newest(self) -> None:
        """As `check`, and changes nothing: safe beside a save. A claim that was not made yet is not looked at."""
        if self.version is None:
            return
        head, _ = read_sealed(self.store, LATEST, Head.decode) or (None, None)
        if head is None or (head.epoch, head.nonce) != (self.head.epoch, self.head.nonce):
            raise _fenced_error(head, self.head)

    def protect(self, checkpoint: CheckpointId) -> None:
        """Let no retention delete `checkpoint` or any before it. Becomes durable with the next `advance`."""
        self.head = replace(self.head, protected=str(max(checkpoint, self.head.protects or checkpoint)))

    def advance(self, *, manifest: str, step: int) -> None:
        """Move `latest` to a new checkpoint by compare-and-swap. Only the newest claim can do so.

        Raises:
            FencedError: there is a newer claim. This process must not delete anything now.
        """
        head = replace(self.head, manifest=manifest, step=step)
        version = self.store.replace(LATEST, head.encode(), version=self.version)
        if version is None:
            self.check()
            raise StoreError(f"`{LATEST}` belongs to this process, but it cannot be updated")
        self.head, self.version = head, version


def _identity(found: tuple[Head, str] | None) -> tuple[int, str] | None:
    return (found[0].epoch, found[0].nonce) if found is not None else None


def _fenced_error(head: Head | None, own: Head) -> FencedError:
    if head is None:
        return FencedError(f"`{LATEST}` was deleted during epoch {own.epoch}, the claim of this process")
    return FencedError(
        f"launcher {head.incarnation or 'unknown'} has claimed the checkpoints (epoch {head.epoch}, ours {own.epoch}):"
        " this process no longer writes. If two jobs of the same name are running, give each its own prefix"
    )


def _claim_prefix(store: Store, owner: Owner) -> tuple[Owner, bool]:
    """Return the prefix's owner, which is this job, and whether the prefix had none of its checkpoints before.

    Without `owner.json` the prefix is free. But a job whose own checkpoints are the newest there goes on with them.
    """
    found = read_sealed(store, OWNER, Owner.decode)
    if found is None:
        former = _newest_manifest(store)
        goes_on = former is not None and former.job == owner.job
        if former is not None and goes_on:
            owner = replace(owner, nonce=former.owner)
            log.warning("`%s` is missing: it is written again, from the checkpoints of %s", OWNER, owner.job)
        elif former is not None:
            log.warning(
                "`%s` is missing: the prefix is %s's now; the checkpoints of %s are not used and not deleted",
                *(OWNER, owner.job, former.job),
            )
        if store.create(OWNER, owner.encode()):
            return owner, not goes_on
        found = read_sealed(store, OWNER, Owner.decode)
    if found is None:
        raise StoreError(f"`{OWNER}` was deleted while the prefix was being claimed: try again")
    existing = found[0]
    if existing.job != owner.job:
        raise PrefixOwnedError(
            f"the prefix belongs to job {existing.job!r}, this is {owner.job!r}: choose another prefix, or name the job"
            f" {existing.job!r} to resume it, or delete the prefix"
        )
    return existing, False


def _newest_manifest(store: Store) -> Manifest | None:
    """Return the newest manifest that can be read; None if there is none."""
    keys = {checkpoint: key for key in store.keys(FOLDER) if (checkpoint := CheckpointId.from_key(key))}
    for checkpoint in sorted(keys, reverse=True):
        try:
            found = read_sealed(store, keys[checkpoint], Manifest.decode)
        except CorruptError:
            continue
        if found is not None:
            return found[0]
    return None


def _newest_written(store: Store) -> CheckpointId | None:
    return max((checkpoint for key in store.keys(FOLDER) if (checkpoint := CheckpointId.from_key(key))), default=None)
